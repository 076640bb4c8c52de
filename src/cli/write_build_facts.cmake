# Writes a function into OUTPUT that knows the commit of SOURCE, and COMPILER, BUILD_TYPE, INSTRUCTION_SETS, XRT and
# LIBRARIES as they were configured. Leaves the file alone when nothing changed.
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
  return {.commit = R\"(${commit})\",
          .number = ${number},
          .compiler = R\"(${COMPILER})\",
          .build_type = R\"(${BUILD_TYPE})\",
          .instruction_sets = R\"(${INSTRUCTION_SETS})\",
          .xrt = R\"(${XRT})\",
          .libraries = R\"(${LIBRARIES})\"};
}
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
