#include "trace/receipt.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

bool has(const std::vector<std::string>& lines, const std::string& fragment) {
  for (const std::string& line : lines)
    if (line.find(fragment) != std::string::npos) return true;
  return false;
}

// A published speed that its author took back: 43.84 tok/s of an 8B model "on the NPU". Its int8
// weights are 6.98 to 7.50 GB, the machine's memory has 256 GB/s, and 704 dispatches were needed
// for a token, each of at least the 63 us that the driver's own test of an empty command takes.
const Claim kRetracted{.device = "npu",
                       .phase = "decode",
                       .tokens_per_second = 43.84,
                       .bytes_per_token = 7.0e9,
                       .dispatches_per_token = 704};
const DeviceLimits kItsMachine{
    .gb_s = 256, .gflops = 59e3, .dispatch_us = 63, .source = "published"};

TEST(Plausibility, TheRetractedClaimIsRefusedForBothReasons) {
  const Plausibility verdict = judge(kRetracted, kItsMachine);
  EXPECT_EQ(verdict.verdict, Verdict::refused);
  ASSERT_EQ(verdict.reasons.size(), 2u);
  EXPECT_TRUE(has(verdict.reasons, "307 GB/s; the memory has 256 GB/s")) << verdict.reasons[0];
  EXPECT_TRUE(has(verdict.reasons, "704 dispatches per token")) << verdict.reasons[1];
  EXPECT_TRUE(has(verdict.reasons, "44.4 ms, so at most 22.5 tok/s")) << verdict.reasons[1];
}

TEST(Plausibility, WhatWasTrueOfThatMachineIsNotRefused) {
  Claim corrected = kRetracted;  // the number its author put in place of it
  corrected.tokens_per_second = 0.65;
  EXPECT_EQ(judge(corrected, kItsMachine).verdict, Verdict::plausible);
  // And where the GPU's 4-bit weights are counted, the speed itself is possible: it was the GPU's.
  Claim on_gpu = kRetracted;
  on_gpu.bytes_per_token = 4.92e9;
  on_gpu.dispatches_per_token = 0;
  EXPECT_EQ(judge(on_gpu, kItsMachine).verdict, Verdict::plausible);
}

TEST(Plausibility, EachBoundAloneRefuses) {
  const DeviceLimits limits{.gb_s = 100, .gflops = 1000, .dispatch_us = 50};
  Claim claim{.device = "d", .phase = "", .tokens_per_second = 10};
  claim.bytes_per_token = 10.1e9;
  EXPECT_EQ(judge(claim, limits).reasons.size(), 1u);
  claim.bytes_per_token = 10e9;  // exactly the bound holds
  EXPECT_EQ(judge(claim, limits).verdict, Verdict::plausible);
  claim.flops_per_token = 101e9;
  EXPECT_TRUE(has(judge(claim, limits).reasons, "1010 GFLOP/s"));
  claim.flops_per_token = 0;
  claim.dispatches_per_token = 2001;
  EXPECT_TRUE(has(judge(claim, limits).reasons, "dispatches per token"));
}

TEST(Plausibility, AnUnknownBoundIsNamedAndChecksNothing) {
  const Claim claim{.device = "d",
                    .phase = "decode",
                    .tokens_per_second = 1e9,
                    .bytes_per_token = 1e12,
                    .flops_per_token = 1};
  Plausibility verdict = judge(claim, {});
  EXPECT_EQ(verdict.verdict, Verdict::unchecked);
  EXPECT_TRUE(has(verdict.unchecked, "no limit of its memory bandwidth is known"));
  verdict = judge(claim, {.gflops = 1e9});
  EXPECT_EQ(verdict.verdict, Verdict::plausible);
  EXPECT_TRUE(has(verdict.unchecked, "memory bandwidth"));
}

Receipt decoded(uint64_t bytes_per_token, bool is_virtual) {
  Receipt receipt;
  receipt.prompt_tokens = 4;
  receipt.generated_tokens = 11;
  receipt.prefill_seconds = 1;
  receipt.decode_seconds = 1;
  const DeviceCounters device{.device = "d",
                              .is_virtual = is_virtual,
                              .submissions = 10,
                              .completions = 10,
                              .bytes = 10 * bytes_per_token};
  receipt.devices = receipt.phases.decode = {device};
  return receipt;
}

TEST(Plausibility, AReceiptIsJudgedByPhaseAndRefusedSpeedsAreNotShown) {
  const std::vector<NamedLimits> limits = {{"d", {.gb_s = 100}}};
  Receipt receipt = decoded(9'000'000'000, false);
  receipt.plausibility = judge(receipt, limits);
  EXPECT_EQ(receipt.plausibility.verdict, Verdict::plausible);
  EXPECT_NE(receipt_line(receipt).find("tok/s"), std::string::npos);

  receipt = decoded(11'000'000'000, false);
  receipt.plausibility = judge(receipt, limits);
  EXPECT_EQ(receipt.plausibility.verdict, Verdict::refused);
  EXPECT_NE(receipt_line(receipt).find("speed refused: d decode"), std::string::npos);
  EXPECT_EQ(receipt_line(receipt).find("generated 11 tokens, "), std::string::npos);
}

TEST(Plausibility, ASimulationsWallTimeIsNotJudgedItsModelledTimeIs) {
  const std::vector<NamedLimits> limits = {{"d", {.gb_s = 100}}};
  Receipt receipt = decoded(11'000'000'000, true);
  EXPECT_EQ(judge(receipt, limits).verdict, Verdict::unchecked);
  receipt.modelled = ModelledSeconds{.prefill = 1, .decode = 2};
  EXPECT_EQ(judge(receipt, limits).verdict, Verdict::plausible);
  receipt.modelled->decode = 1;
  EXPECT_EQ(judge(receipt, limits).verdict, Verdict::refused);
}

}  // namespace
}  // namespace tyto
