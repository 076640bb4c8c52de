# Writes OUTPUT, which defines shaders() with the words of FILES (SPIR-V, separated by commas), named as their files
# are. The same files give the same text, whatever the machine or the time.
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
foreach(file ${files})
  cmake_path(GET file STEM name)
  file(READ ${file} words HEX)
  # SPIR-V comes in the order of this machine's bytes, which is that of every machine we build on: the lowest first.
  string(REGEX REPLACE "(..)(..)(..)(..)" "0x\\4\\3\\2\\1," words "${words}")
  string(APPEND arrays "constexpr uint32_t k_${name}[] = {${words}};\n")
  string(APPEND rows "    {\"${name}\", k_${name}},\n")
endforeach()

file(WRITE ${OUTPUT} "#include \"device/vulkan/gpu.h\"

namespace tyto::vulkan {
namespace {

${arrays}
constexpr Shader kShaders[] = {
${rows}};

}  // namespace

std::span<const Shader> shaders() {
  return kShaders;
}

}  // namespace tyto::vulkan
")
