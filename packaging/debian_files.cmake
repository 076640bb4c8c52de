# Makes of the files that CPack is about to pack what Debian's policy wants: a copyright file, a changelog in its own
# format, both changelog and manual pages compressed, and completions where its zsh looks.
set(share ${CPACK_TEMPORARY_DIRECTORY}/usr/share)
set(doc ${share}/doc/${CPACK_PACKAGE_NAME})

function(compress)
  execute_process(COMMAND gzip -9n ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(MAKE_DIRECTORY ${share}/zsh/vendor-completions)
file(RENAME ${share}/zsh/site-functions/_tyto ${share}/zsh/vendor-completions/_tyto)
file(REMOVE_RECURSE ${share}/zsh/site-functions)

configure_file(${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright COPYONLY)
file(REMOVE ${doc}/LICENSE)  # the copyright file names it

# The date of a version is the one that CHANGELOG.md gives it.
file(STRINGS ${doc}/CHANGELOG.md heading REGEX "^## ${CPACK_PACKAGE_VERSION} - [0-9-]+$")
if(NOT heading)
  message(FATAL_ERROR "CHANGELOG.md has no heading \"## ${CPACK_PACKAGE_VERSION} - YYYY-MM-DD\"")
endif()
string(REGEX REPLACE ".* - " "" day "${heading}")
execute_process(COMMAND date --utc --date=${day} --rfc-email OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE
  COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${doc}/changelog "${CPACK_PACKAGE_NAME} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * CHANGELOG.md, beside this file, says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")

file(GLOB pages ${share}/man/man1/*.1)
compress(${pages} ${doc}/changelog)
