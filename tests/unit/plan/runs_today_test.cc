#include "plan/rates.h"

#include <gtest/gtest.h>

#include "model/synth.h"
#include "plan/what_if.h"
#include "support/system_tree.h"

namespace tyto {
namespace {

using testing_support::SystemTree;

constexpr PlanOption kOp = {KernelSet::air_bf16, Fusion::op};
constexpr PlanOption kBlockToday = {KernelSet::air_bf16, Fusion::block};
constexpr PlanOption kQ4nxToday = {KernelSet::air_q4nx, Fusion::token};
constexpr PlanOption kFlm = {KernelSet::flm_q4, Fusion::token};

PlanRow row_of(const char* shape, const PlanOption& option, const ImagesHere& images = {}) {
  PlanRow row;
  say_what_runs(row, option, shape_by_name(shape), images);
  return row;
}

TEST(RunsToday, WhatCanBeBuiltAndWhatCannot) {
  EXPECT_EQ(row_of("llama-3.2-1b", kBlockToday).runs, Runs::with_images);
  EXPECT_EQ(row_of("llama-3.2-1b", kQ4nxToday).runs, Runs::with_images);
  EXPECT_EQ(row_of("llama-3.2-1b", kQ4nxToday).flags, "--device npu --fusion token --weights q4nx");
  // Public, but Tyto has not described this build.
  EXPECT_EQ(row_of("qwen2.5-3b", kQ4nxToday).runs, Runs::no);
  EXPECT_EQ(row_of("qwen2.5-3b", kQ4nxToday).needs.find("no public images"), std::string::npos);
  EXPECT_EQ(row_of("qwen2.5-3b", kBlockToday).runs, Runs::with_images);
  // Prompts of the 4-bit decode alone.
  EXPECT_EQ(row_of("llama-3.1-8b", kBlockToday).runs, Runs::no);
  EXPECT_EQ(row_of("llama-3.1-8b", kQ4nxToday).runs, Runs::with_images);
}

TEST(RunsToday, WhatTytoCannotRunSaysWhyAndHasNoFlags) {
  for (const PlanOption& option : {kOp, kFlm}) {
    const PlanRow row = row_of("llama-3.2-1b", option, {.bf16 = true, .q4nx = true});
    EXPECT_EQ(row.runs, Runs::no);
    EXPECT_NE(row.needs, "");
    EXPECT_EQ(row.flags, "");
  }
  EXPECT_NE(row_of("tiny", kBlockToday).needs.find("no public images"), std::string::npos);
}

TEST(RunsToday, ImportedImagesOfAnyModelRun) {
  EXPECT_EQ(row_of("tiny", kBlockToday, {.bf16 = true}).runs, Runs::yes);
  EXPECT_EQ(row_of("tiny", kQ4nxToday, {.bf16 = true}).runs, Runs::no);
  EXPECT_EQ(row_of("tiny", kQ4nxToday, {.q4nx = true}).runs, Runs::yes);
}

TEST(RunsToday, AStoreThatIsNotThereHasNoImages) {
  const ImagesHere images = images_here("/nonexistent/store", shape_by_name("llama-3.2-1b"));
  EXPECT_FALSE(images.bf16);
  EXPECT_FALSE(images.q4nx);
}

PlanRow candidate(const char* machine, Runs runs, double tok_s, uint64_t pinned = 0) {
  PlanRow row;
  row.machine = machine;
  row.runs = runs;
  row.decode_tok_s = tok_s;
  row.pinned_bytes = pinned;
  row.has_run_on_hardware = true;
  return row;
}

TEST(BestRow, IsTheFastestThatRunsThereAndFits) {
  const std::vector<PlanRow> rows = {
      candidate("strix", Runs::no, 900), candidate("strix", Runs::with_images, 60, 4000),
      candidate("strix", Runs::yes, 40, 1000), candidate(kThisMachine.c_str(), Runs::yes, 20)};
  const std::vector<std::string> both = {kThisMachine, "strix"}, here = {kThisMachine};
  EXPECT_EQ(best_row(rows, both, UINT64_MAX), 1u);
  EXPECT_EQ(best_row(rows, both, 3999), 2u);
  EXPECT_EQ(best_row(rows, both, 999), 3u);
  EXPECT_EQ(best_row(rows, here, UINT64_MAX), 3u);
  EXPECT_EQ(best_row(rows, std::vector<std::string>{"krackan"}, UINT64_MAX), std::nullopt);
}

TEST(BestRow, IsNoneThatOnlyRanOnASimulator) {
  std::vector<PlanRow> rows = {candidate("strix", Runs::yes, 90),
                               candidate(kThisMachine.c_str(), Runs::yes, 20)};
  const std::vector<std::string> both = {kThisMachine, "strix"};
  EXPECT_EQ(best_row(rows, both, UINT64_MAX), 0u);
  rows[0].has_run_on_hardware = false;
  EXPECT_EQ(best_row(rows, both, UINT64_MAX), 1u);
}

TEST(BestRow, WhatDoesNotFitSaysSo) {
  PlanRow row = candidate("strix", Runs::with_images, 60, uint64_t{4} << 30);
  say_what_fits(row, uint64_t{4} << 30);
  EXPECT_EQ(row.needs, "");
  say_what_fits(row, uint64_t{1} << 26);
  EXPECT_NE(row.needs.find("locks 4.29 GB, and 0.07 may be locked"), std::string::npos);
}

TEST(NpuHere, IsReadFromThePciBus) {
  SystemTree tree;
  EXPECT_EQ(npu_here(tree.root()).found, "");
  const std::string device = "sys/bus/pci/devices/0000:c5:00.1/";
  tree.write(device + "vendor", "0x1022\n");
  tree.write(device + "device", "0x17f0\n");
  tree.write(device + "revision", "0x20\n");
  EXPECT_EQ(npu_here(tree.root()).machine, "krackan");
  tree.write(device + "revision", "0x55\n");
  EXPECT_EQ(npu_here(tree.root()).machine, "");
  EXPECT_EQ(npu_here(tree.root()).found, "PCI 1022:17f0 revision 55");
}

PlanRequest request_of_a_file(uint32_t prompt) {
  PlanRequest request;
  request.config = shape_by_name("llama-3.2-1b");
  request.file = FileWeights{DType::q8_0, 1'000'000'000};
  request.prompt_tokens = request.context_tokens = prompt;
  return request;
}

TEST(CpuRows, OnlyWhatWasRunIsMeasured) {
  const CpuRun run{.threads = 2,
                   .prompt_tokens = 100,
                   .generated_tokens = 10,
                   .prefill_seconds = 2,
                   .decode_seconds = 0.5};
  const PlanRow whole = measured_on_cpu(request_of_a_file(100), run);
  EXPECT_EQ(whole.kind, PlanKind::measured);
  EXPECT_EQ(whole.ttft_kind, PlanKind::measured);
  EXPECT_DOUBLE_EQ(whole.ttft_ms, 2000);
  EXPECT_DOUBLE_EQ(whole.decode_tok_s, 20);
  EXPECT_EQ(whole.weights, "q8_0");
  const PlanRow longer = measured_on_cpu(request_of_a_file(200), run);
  EXPECT_EQ(longer.ttft_kind, PlanKind::estimated);
  EXPECT_DOUBLE_EQ(longer.ttft_ms, 4000);
  EXPECT_GT(longer.memory_bytes, whole.memory_bytes) << "of the cache";
  EXPECT_EQ(longer.pinned_bytes, 0u);
}

// 1.236e9 weights (973 M of the layers, 263 M of the head) of 2 bytes.
TEST(CpuRows, AShapeIsEstimatedByWhatTheMachineAllows) {
  PlanRequest request = request_of_a_file(1);
  request.file.reset();
  const CpuPeak peak{.threads = 1, .read_gb_s = 10, .gflops = 100};
  const PlanRow row = estimated_on_cpu(request, DType::bf16, peak);
  EXPECT_EQ(row.kind, PlanKind::estimated);
  EXPECT_NEAR(row.tpot_ms, 247.2, 0.5);
  EXPECT_NEAR(row.ttft_ms, 19.46, 0.05);
  EXPECT_NE(row.note.find("measured 10.0 GB/s"), std::string::npos);
  const PlanRow small = estimated_on_cpu(request, DType::q4_0, peak);
  EXPECT_NEAR(small.tpot_ms / row.tpot_ms, 18.0 / 64, 0.001);
}

}  // namespace
}  // namespace tyto
