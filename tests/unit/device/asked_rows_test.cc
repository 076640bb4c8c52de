// Which prefill images of the kernel store a device is given.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "device/npu/store/kernel_store.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

using Rows = std::vector<uint32_t>;

std::string refusal(const Rows& there, const Rows& asked) {
  try {
    asked_rows(there, asked);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    return std::string(error.what()) + " | " + error.hint;
  }
  return "none";
}

TEST(AskedRows, AreAllThatAreThereUnlessSomeAreAskedFor) {
  EXPECT_EQ(asked_rows(Rows{256, 2048}, {}), (Rows{256, 2048}));
  EXPECT_EQ(asked_rows(Rows{256, 512, 2048}, Rows{256, 2048}), (Rows{256, 2048}));
  EXPECT_EQ(asked_rows({}, {}), Rows{});
}

TEST(AskedRows, ThatAreNotThereAreRefusedWithThoseThatAre) {
  EXPECT_NE(refusal({256, 2048}, {256, 512}).find("512 rows"), std::string::npos);
  EXPECT_NE(refusal({256, 2048}, {512}).find("there are those of 256, 2048"), std::string::npos);
  EXPECT_NE(refusal({}, {512}).find("tyto compile --device npu"), std::string::npos);
}

TEST(AskedRows, OfAStoreHaveAllThreeProgramsOfThisModel) {
  const std::filesystem::path store =
      std::filesystem::temp_directory_path() / ("tyto-asked-rows-" + std::to_string(::getpid()));
  KernelManifest manifest;
  const auto add = [&](std::string_view program, uint32_t seq, uint32_t layers) {
    KernelEntry entry;
    entry.name = fmt::format("m{}@{}/{}", layers, seq, program);
    entry.program = program;
    entry.entry = "main:x";
    entry.platform = "aie2p";
    entry.arguments = static_cast<uint32_t>(air_program(program, kLlama32_1b).arguments.size());
    entry.images = {{.bytes = 1, .hash = std::string(32, 'a')}};
    entry.dims = kLlama32_1b;
    entry.dims.seq = seq;
    entry.dims.layers = layers;
    manifest.entries.push_back(entry);
  };
  for (const uint32_t seq : {2048u, 256u})
    for (const char* program : {"rms_gemms_rope", "flash_attn", "o_ffn"})
      add(program, seq, kLlama32_1b.layers);
  add("o_ffn", 512, kLlama32_1b.layers);
  for (const char* program : {"rms_gemms_rope", "flash_attn", "o_ffn"}) add(program, 1024, 28);
  std::filesystem::create_directories(store);
  write_manifest(store, manifest);
  const NpuKernels kernels = stored_kernels(store, StoredFor::real_npu, kLlama32_1b);
  EXPECT_EQ(kernels.prompt_rows, (Rows{256, 2048}));
  EXPECT_TRUE(kernels.is_recorded("flash_attn", 256));
  EXPECT_FALSE(kernels.is_recorded("flash_attn", 512));
  EXPECT_FALSE(kernels.is_recorded("flash_attn", 1024));
  EXPECT_FALSE(kernels.is_recorded("flash_attn", 0));
  std::filesystem::remove_all(store);
}

// Seven images a layer of a prompt, the head and six windows are one more than there are contexts.
TEST(AskedRows, ShortWindowsGoBeforeTheLastPromptRows) {
  ThreadPool pool(1);
  Trace trace;
  const DeviceEnv env{pool, trace, Fusion::token};
  NpuSettings settings;
  settings.weights = NpuWeights::q4nx;
  settings.prompt_rows = {256};
  NpuKernels kernels;
  kernels.info.name = "npu";
  kernels.dims = {36, 4096, 32, 8, 128, 12288, 151936, 256, 0, 1};  // Qwen3-8B
  kernels.prompt_rows = {256};
  kernels.windows = {64, 128, 256, 512, 1024, 2048};
  fit_contexts(env, settings, kernels);
  EXPECT_EQ(kernels.prompt_rows, Rows{256});
  EXPECT_EQ(kernels.windows, (Rows{128, 256, 512, 1024, 2048}));
  EXPECT_EQ(trace.fallbacks(),
            std::vector<std::string>{"the decode for 64 positions not on npu: it has 13 hardware "
                                     "contexts, too few for all images"});
  kernels.prompt_rows = settings.prompt_rows = {256, 2048};
  EXPECT_ERROR(fit_contexts(env, settings, kernels), "give at most 1 of them");
  settings.weights = NpuWeights::bf16;  // whose token takes no windows
  kernels.prompt_rows = settings.prompt_rows = {256};
  fit_contexts({pool, trace, Fusion::block}, settings, kernels);
  EXPECT_EQ(kernels.windows.size(), 5u);
}

}  // namespace
}  // namespace tyto
