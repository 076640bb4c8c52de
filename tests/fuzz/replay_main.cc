// Runs a fuzz target over a committed corpus: what was once found must stay fixed, in every test
// run.
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    const tyto::MappedFile file(entry.path());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(file.bytes().data()),
                           file.bytes().size());
    ++inputs;
  }
  std::printf("%d inputs replayed\n", inputs);
  return inputs > 0 ? 0 : 1;
}
