# The library for programs that embed Tyto: one archive of all layers below src/library, the header, a CMake package and a
# file for pkg-config. docs/library.md.
set(layers base tensor text power trace model program cost device llama engine library)
# Its script knows no quotes, so paths in it are relative: the build folder may have spaces in its name.
set(script "create libtyto.a\n")
set(archives "")
foreach(layer IN LISTS layers)
  string(APPEND script "addlib src/$<TARGET_FILE_NAME:tyto_${layer}>\n")
  list(APPEND archives tyto_${layer})
endforeach()
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/libtyto.mri CONTENT "${script}save\nend\n")
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libtyto.a
  COMMAND ${CMAKE_AR} -M < libtyto.mri
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
  DEPENDS ${archives} ${CMAKE_BINARY_DIR}/libtyto.mri VERBATIM)
add_custom_target(tyto_archive ALL DEPENDS ${CMAKE_BINARY_DIR}/libtyto.a)

set(link_libraries -lfmt -lsimdjson -lpcre2-8 -lutf8proc -lxxhash -lsodium -pthread -ldl)
if(XRT_FOUND)
  list(APPEND link_libraries -lxrt_coreutil)
endif()
list(JOIN link_libraries " " link_flags)
list(JOIN link_libraries ";" link_list)
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/tyto.pc.in ${CMAKE_BINARY_DIR}/tyto.pc @ONLY)
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/tytoConfig.cmake.in ${CMAKE_BINARY_DIR}/tytoConfig.cmake @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/libtyto.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/src/library/tyto.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/tyto.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/tytoConfig.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tyto)
