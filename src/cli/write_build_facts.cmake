# Writes a function with the commit of SOURCE into OUTPUT, and leaves the file alone when nothing changed.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=8 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(number 0)
if(failed)
  set(commit "")
else()
  execute_process(COMMAND git -C ${SOURCE} rev-list --count HEAD
    OUTPUT_VARIABLE number OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    string(APPEND commit "-dirty")
  endif()
endif()
set(text "#include \"cli/provenance.h\"

tyto::BuildFacts tyto::build_facts() {
  return {\"${commit}\", ${number}};
}
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
