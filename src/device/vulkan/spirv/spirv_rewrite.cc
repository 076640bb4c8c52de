// spirv_rewrite IN.spv OUT.spv [--bf16]: a step of the build, after the shader compiler.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/vulkan/spirv/cooperative_matrix.h"

namespace tyto::spirv {
namespace {

std::vector<uint32_t> read_words(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file || bytes.size() % sizeof(uint32_t) != 0)
    fail_input(path, "it cannot be read as 32-bit words");
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

void write_words(const std::string& path, const std::vector<uint32_t>& words) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(words.data()),
             std::streamsize(words.size() * sizeof(uint32_t)));
  if (!file.flush()) fail_input(path, "it cannot be written");
}

}  // namespace
}  // namespace tyto::spirv

int main(int argc, char** argv) {
  using namespace tyto::spirv;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool bf16 = arguments.size() == 3 && arguments[2] == "--bf16";
  if (arguments.size() != 2 && !bf16) {
    std::fputs("usage: spirv_rewrite IN.spv OUT.spv [--bf16]\n", stderr);
    return 2;
  }
  try {
    const auto component = bf16 ? Component::bf16 : Component::f16;
    write_words(arguments[1], with_khr_matrices(read_words(arguments[0]), component));
  } catch (const tyto::Error& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0].c_str(), error.what());
    return 1;
  }
}
