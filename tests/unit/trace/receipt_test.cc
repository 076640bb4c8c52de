#include "trace/receipt.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

TEST(Trace, CountersAreKeptPerDeviceAndReferencesStayValid) {
  Trace trace;
  DeviceCounters& cpu = trace.device("cpu");
  for (int i = 0; i < 100; ++i) trace.device("d" + std::to_string(i));
  ++cpu.submissions;
  EXPECT_EQ(trace.device("cpu").submissions, 1u);
}

TEST(Trace, EachFallbackIsKeptOnce) {
  Trace trace;
  trace.fallback("a");
  trace.fallback("a");
  trace.fallback("b");
  EXPECT_EQ(trace.fallbacks(), (std::vector<std::string>{"a", "b"}));
}

TEST(Trace, WhatTheHostDoesByDesignIsNoFallback) {
  Trace trace;
  trace.leave_to_host("embedding");
  trace.leave_to_host("embedding");
  EXPECT_EQ(trace.on_host(), std::vector<std::string>{"embedding"});
  EXPECT_TRUE(trace.fallbacks().empty());
}

TEST(Receipt, RatesDoNotCountTheFirstTokenTwice) {
  Receipt receipt;
  receipt.prompt_tokens = 10;
  receipt.prefill_seconds = 0.5;
  receipt.generated_tokens = 5;
  receipt.decode_seconds = 2;
  EXPECT_DOUBLE_EQ(prefill_tokens_per_second(receipt), 20);
  EXPECT_DOUBLE_EQ(decode_tokens_per_second(receipt), 2);
  receipt.generated_tokens = 1;
  EXPECT_DOUBLE_EQ(decode_tokens_per_second(receipt), 0);
  receipt.generated_tokens = 0;
  EXPECT_EQ(decoded_tokens(receipt), 0u);
}

TEST(Receipt, WhereEveryTokenHadItsOwnStepAllCount) {
  Receipt receipt;
  receipt.first_from_prefill = false;
  receipt.generated_tokens = 5;
  receipt.decode_seconds = 2;
  receipt.phases.decode = {{.device = "cpu", .submissions = 85}};
  EXPECT_DOUBLE_EQ(decode_tokens_per_second(receipt), 2.5);
  EXPECT_DOUBLE_EQ(*dispatches_per_token(receipt), 17);
}

TEST(Receipt, OnlyDevicesThatCompletedWorkAreSaidToHaveExecuted) {
  Receipt receipt;
  receipt.devices = {{.device = "cpu", .is_host = true, .submissions = 9, .completions = 9},
                     {.device = "vnpu", .is_virtual = true, .submissions = 1}};
  receipt.recoveries = 1;
  EXPECT_EQ(device_names(receipt.devices), "cpu");
  EXPECT_EQ(execution_text(receipt), "cpu; 1 dispatch failed; run again once");
  EXPECT_FALSE(has_virtual_device(receipt)) << "what it did not do is not modelled";
  const std::string line = executed_line(receipt);
  EXPECT_NE(line.find("executed on cpu ("), std::string::npos) << line;
  EXPECT_NE(line.find("not on vnpu: it completed none of 1 submission "), std::string::npos)
      << line;
  receipt.devices[1].submissions = 5;
  receipt.devices[1].completions = 3;
  EXPECT_EQ(execution_text(receipt), "vnpu (modelled)+cpu; 2 dispatches failed; run again once");
  receipt.devices.clear();
  EXPECT_EQ(device_names(receipt.devices), "no device");
}

TEST(Receipt, LineNamesDevicesAndMarksModelledTime) {
  Receipt receipt;
  EXPECT_NE(receipt_line(receipt).find("executed on no device"), std::string::npos);
  receipt.devices = {{.device = "vnpu", .is_virtual = true, .submissions = 4, .completions = 3}};
  receipt.fallbacks = {"attention not on vnpu: one query"};
  receipt.prompt_tokens = receipt.generated_tokens = 10;
  receipt.prefill_seconds = receipt.decode_seconds = 1;
  const std::string line = receipt_line(receipt);
  EXPECT_EQ(line.find("tok/s"), std::string::npos) << line;
  EXPECT_NE(line.find("vnpu (3 of 4 submissions completed"), std::string::npos) << line;
  EXPECT_NE(line.find("modelled"), std::string::npos) << line;
  EXPECT_NE(line.find(" · fallback: attention not on vnpu: one query"), std::string::npos) << line;
  receipt.fallbacks.clear();
  receipt.on_host = {"embedding", "final norm"};
  EXPECT_NE(
      receipt_line(receipt).find(" · no fallbacks · on the host by design: embedding, final norm"),
      std::string::npos);
}

TEST(Receipt, ThePromptIsAllOfItWhereverItCameFrom) {
  Receipt receipt;
  receipt.prompt_tokens = 18;
  receipt.cached_tokens = 21;
  receipt.prefill_seconds = 1;
  const std::string line = receipt_line(receipt);
  EXPECT_TRUE(line.starts_with("prompt 39 tokens (21 from the cache), 18.0 tok/s")) << line;
}

TEST(Receipt, OneIsNotSeveral) {
  Receipt receipt;
  receipt.prompt_tokens = receipt.generated_tokens = 1;
  receipt.prefill_seconds = 1;
  receipt.handed_over = {.times = 1, .positions = 1};
  receipt.speculation = SpeculationCounters{.source = "lookup", .drafted = 1};
  receipt.devices = {
      {.device = "cpu", .is_host = true, .submissions = 1, .completions = 1, .launches = 1}};
  const std::string measured = receipt_line(receipt);
  EXPECT_NE(measured.find("prompt 1 token, 1.0 tok/s · generated 1 token"), std::string::npos);
  EXPECT_NE(measured.find("cpu (1 of 1 submission completed, 1 launch, "), std::string::npos);
  receipt.devices = {{.device = "vnpu", .is_virtual = true}};
  const std::string modelled = receipt_line(receipt);
  receipt.plausibility.verdict = Verdict::refused;
  for (const std::string& line : {measured, modelled, receipt_line(receipt)})
    for (const char* wrong : {"1 tokens", "1 launches", "1 submissions", "1 positions", "1 calls"})
      EXPECT_EQ(line.find(wrong), std::string::npos) << line;
}

TEST(Receipt, TheShortLineFitsATerminalAndShowsNoRateOfASimulation) {
  Receipt receipt;
  receipt.generated_tokens = 1;
  receipt.devices = {{.device = "cpu", .is_host = true, .submissions = 9, .completions = 9}};
  EXPECT_EQ(short_receipt_line(receipt), "1 token · cpu");
  receipt.generated_tokens = 100001;
  receipt.decode_seconds = 1000;
  EXPECT_EQ(short_receipt_line(receipt), "100001 tokens · 100 tok/s · cpu");
  receipt.decode_seconds = 31700;
  EXPECT_EQ(short_receipt_line(receipt), "100001 tokens · 3.2 tok/s · cpu");
  receipt.plausibility = {.verdict = Verdict::refused, .reasons = {"too fast"}};
  EXPECT_EQ(short_receipt_line(receipt), "100001 tokens · speed refused · cpu");
  EXPECT_EQ(trouble_lines(receipt), std::vector<std::string>{"speed refused: too fast"});
  receipt.plausibility = {};
  receipt.on_host = {"embedding"};
  receipt.devices.push_back(
      {.device = "vnpu", .is_virtual = true, .submissions = 4, .completions = 4});
  EXPECT_EQ(short_receipt_line(receipt), "100001 tokens · vnpu (modelled)+cpu");
  EXPECT_TRUE(trouble_lines(receipt).empty());
  receipt.modelled = ModelledSeconds{.prefill = 1, .decode = 2000};
  EXPECT_EQ(short_receipt_line(receipt), "100001 tokens · vnpu (modelled)+cpu, 50 tok/s modelled");
}

TEST(Receipt, FailedDispatchesAndFallbacksHaveLinesOfTheirOwn) {
  Receipt receipt;
  receipt.devices = {{.device = "npu", .submissions = 5, .completions = 3},
                     {.device = "cpu", .is_host = true, .submissions = 9, .completions = 9}};
  receipt.fallbacks = {"matmul not on npu: no image"};
  EXPECT_EQ(trouble_lines(receipt),
            (std::vector<std::string>{"npu: 2 of 5 dispatches failed",
                                      "fallback: matmul not on npu: no image"}));
}

TEST(Receipt, DispatchesPerTokenAreTheAcceleratorsWhereThereIsOne) {
  Receipt receipt;
  receipt.generated_tokens = 1;
  EXPECT_FALSE(dispatches_per_token(receipt).has_value());
  receipt.generated_tokens = 11;
  receipt.phases.decode = {{.device = "a host", .is_host = true, .submissions = 170}};
  EXPECT_DOUBLE_EQ(*dispatches_per_token(receipt), 17);
  receipt.phases.decode.push_back({.device = "npu", .submissions = 330});
  EXPECT_DOUBLE_EQ(*dispatches_per_token(receipt), 33);
}

}  // namespace
}  // namespace tyto
