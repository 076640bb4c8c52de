# Compiles shaders/*.comp to SPIR-V and makes one source file of it, ${vulkan_shaders_source}. A file with a line
# `// variants: NAME=-DA -DB; OTHER=-DC` gives one module per variant; any other gives one, named as the file. Modules
# with cooperative matrices are rewritten for the extension that drivers have (docs/decisions/011); others stay as they
# are.
find_program(GLSLANG NAMES glslangValidator glslang REQUIRED)
set(shader_folder ${CMAKE_CURRENT_SOURCE_DIR}/device/vulkan/shaders)
set(spirv_folder ${CMAKE_BINARY_DIR}/generated/spirv)
file(MAKE_DIRECTORY ${spirv_folder})
file(GLOB shader_files CONFIGURE_DEPENDS ${shader_folder}/*.comp)
file(GLOB shader_parts CONFIGURE_DEPENDS ${shader_folder}/*.glsl)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${shader_files})
set(modules "")

function(tyto_shader file module)
  set(spirv ${spirv_folder}/${module}.spv)
  set(operands "")
  if("${ARGN}" MATCHES "BF16")
    set(operands --bf16)
  endif()
  add_custom_command(OUTPUT ${spirv}
    COMMAND ${GLSLANG} --quiet -V --target-env vulkan1.2 -I${shader_folder} ${ARGN} ${file} -o ${spirv}
    COMMAND spirv_rewrite ${spirv} ${spirv} ${operands}
    DEPENDS ${file} ${shader_parts} spirv_rewrite COMMENT "Shader ${module}" VERBATIM)
  set(modules ${modules} ${spirv} PARENT_SCOPE)
endfunction()

foreach(file ${shader_files})
  cmake_path(GET file STEM stem)
  file(STRINGS ${file} variants REGEX "^// variants: ")
  string(REPLACE "// variants: " "" variants "${variants}")
  string(REPLACE "\\;" ";" variants "${variants}")
  if(variants STREQUAL "")
    tyto_shader(${file} ${stem})
  endif()
  foreach(variant ${variants})
    string(STRIP "${variant}" variant)
    string(REGEX REPLACE "=.*" "" name "${variant}")
    string(REGEX REPLACE "^[^=]*=" "" defines "${variant}")
    separate_arguments(defines)
    tyto_shader(${file} ${name} ${defines})
  endforeach()
endforeach()

list(JOIN modules "," module_list)
set(vulkan_shaders_source ${CMAKE_BINARY_DIR}/generated/vulkan_shaders.cc)
add_custom_command(OUTPUT ${vulkan_shaders_source}
  COMMAND ${CMAKE_COMMAND} -DFILES=${module_list} -DOUTPUT=${vulkan_shaders_source}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/device/vulkan/embed_shaders.cmake
  DEPENDS ${modules} ${CMAKE_CURRENT_SOURCE_DIR}/device/vulkan/embed_shaders.cmake VERBATIM)
