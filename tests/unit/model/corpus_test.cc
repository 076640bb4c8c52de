// Replays the seeds and past findings of the fuzz targets.
#include "fuzz/model_inputs.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

size_t replay(const std::string& name, void (*run)(std::span<const std::byte>)) {
  size_t files = 0;
  const auto folder = std::filesystem::path(TYTO_SOURCE_DIR) / "tests/fuzz/corpus" / name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    const std::string text = read_file(entry.path());
    EXPECT_NO_THROW(run(bytes_of(text)));
    ++files;
  }
  return files;
}

TEST(FuzzCorpus, Gguf) { EXPECT_GT(replay("gguf", run_gguf_input), 0u); }
TEST(FuzzCorpus, Safetensors) { EXPECT_GT(replay("safetensors", run_safetensors_input), 0u); }

}  // namespace
}  // namespace tyto::test
