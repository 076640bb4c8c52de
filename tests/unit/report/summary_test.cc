#include "report/summary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/report/profile_fixture.h"

namespace tyto::test {
namespace {

const FlowRow& row_of(const Flow& flow, const std::string& label, bool in_layer = false) {
  for (const FlowRow& row : flow.rows)
    if (row.label == label && row.in_layer == in_layer) return row;
  ADD_FAILURE() << "no row " << label;
  static const FlowRow none;
  return none;
}

std::vector<std::string> labels(const Flow& flow) {
  std::vector<std::string> result;
  for (const FlowRow& row : flow.rows) result.push_back(row.label);
  return result;
}

class SummaryTest : public testing::Test {
 protected:
  const Profile profile_ = ProfileBuilder().take();
  const Summary summary_ = summarise(profile_, profile_.runs[0]);
};

TEST(Stat, QuantilesAreValuesThatOccur) {
  const Stat stat = stat_of({5, 1, 2, 4, 3});
  EXPECT_EQ(stat.count, 5u);
  EXPECT_DOUBLE_EQ(stat.total, 15);
  EXPECT_DOUBLE_EQ(stat.avg, 3);
  EXPECT_DOUBLE_EQ(stat.min, 1);
  EXPECT_DOUBLE_EQ(stat.p50, 3);
  EXPECT_DOUBLE_EQ(stat.p95, 5);
  EXPECT_DOUBLE_EQ(stat.max, 5);
  EXPECT_DOUBLE_EQ(stat_of({7}).p95, 7);
  EXPECT_EQ(stat_of({}).count, 0u);
}

TEST_F(SummaryTest, HeadlineHasTheRatesOfTheFixture) {
  EXPECT_DOUBLE_EQ(summary_.headline.ttft_ms, 100);
  EXPECT_DOUBLE_EQ(summary_.headline.tpot_ms, 21.5);  // 21 and 22
  EXPECT_DOUBLE_EQ(summary_.headline.prefill_tok_s, 100);
  EXPECT_DOUBLE_EQ(summary_.headline.decode_tok_s, 1000 / 21.5);
  EXPECT_TRUE(summary_.modelled);
}

TEST_F(SummaryTest, AttributionAddsUp) {
  const Attribution& first = summary_.prefill.wall;
  EXPECT_NEAR(first.wall, 100, 1e-9);
  EXPECT_NEAR(first.device, 64, 1e-9);
  EXPECT_NEAR(first.host, 5 + 2 + 12 + 3, 1e-9);
  EXPECT_NEAR(first.copies, 4, 1e-9);
  EXPECT_NEAR(first.scheduling, 9, 1e-9);
  EXPECT_NEAR(first.unattributed, 1, 1e-9);
  EXPECT_EQ(first.dispatches, 3u);
  const Attribution& later = summary_.decode.wall;
  EXPECT_NEAR(later.wall, 43, 1e-9);
  EXPECT_NEAR(later.device, 20, 1e-9);
  EXPECT_NEAR(later.host, 8 + 3, 1e-9);
  EXPECT_NEAR(later.unattributed, 0, 1e-9);
  for (const Attribution* wall : {&first, &later})
    EXPECT_NEAR(wall->wall,
                wall->device + wall->host + wall->copies + wall->scheduling + wall->unattributed,
                1e-9);
}

TEST_F(SummaryTest, DataflowIsInTheOrderOfTheArchitecture) {
  EXPECT_EQ(
      labels(summary_.prefill.flow),
      (std::vector<std::string>{"tokenize", "pad", "embed", "block", "attention", "scheduling",
                                "final norm", "LM head", "sample", "scheduling", "unattributed"}));
  EXPECT_EQ(labels(summary_.decode.flow),
            (std::vector<std::string>{"block", "attention", "scheduling", "final norm", "LM head",
                                      "detokenize", "sample", "scheduling", "unattributed"}));
}

TEST_F(SummaryTest, DataflowRowsAreOfOneLayerAndAddUpToTheWhole) {
  const Flow& flow = summary_.prefill.flow;
  const FlowRow& block = row_of(flow, "block", true);
  EXPECT_NEAR(block.ms, 22, 1e-9);
  EXPECT_NEAR(block.write_ms, 1, 1e-9);
  EXPECT_NEAR(block.run_ms, 20, 1e-9);
  EXPECT_NEAR(block.read_ms, 1, 1e-9);
  EXPECT_NEAR(block.total_ms, 44, 1e-9);
  EXPECT_NEAR(block.share, 0.44, 1e-9);
  EXPECT_DOUBLE_EQ(block.launches, 2);
  EXPECT_TRUE(block.modelled);
  EXPECT_EQ(block.tag, "NPU");
  EXPECT_FALSE(row_of(flow, "attention", true).modelled);
  EXPECT_NEAR(row_of(flow, "scheduling", true).ms, 1, 1e-9);
  EXPECT_NEAR(row_of(flow, "scheduling").ms, 7, 1e-9);
  EXPECT_NEAR(flow.layer_ms, 29, 1e-9);
  for (const Flow* each : {&flow, &summary_.decode.flow}) {
    double sum = 0;
    for (const FlowRow& row : each->rows) sum += row.total_ms;
    EXPECT_NEAR(sum, each->total_ms, 1e-9);
  }
  EXPECT_NEAR(summary_.decode.flow.total_ms, 21.5, 1e-9);
}

TEST_F(SummaryTest, AProgramThatSpansStepsIsSharedOut) {
  const FlowRow& norm = row_of(summary_.prefill.flow, "final norm");
  const FlowRow& head = row_of(summary_.prefill.flow, "LM head");
  EXPECT_NEAR(norm.ms, 12, 1e-9);
  EXPECT_NEAR(head.ms, 12, 1e-9);
  EXPECT_FALSE(head.is_dispatch);
  EXPECT_NE(head.note.find("lm_head"), std::string::npos);
}

TEST_F(SummaryTest, LayersOneByOne) {
  ASSERT_EQ(summary_.layers.size(), 2u);
  EXPECT_EQ(summary_.layer_parts, (std::vector<std::string>{"block", "attention", "scheduling"}));
  for (const LayerRow& row : summary_.layers) {
    EXPECT_NEAR(row.prefill_ms, 29, 1e-9);
    EXPECT_NEAR(row.prefill_parts[0], 22, 1e-9);
    EXPECT_EQ(row.decode.count, 2u);
    EXPECT_NEAR(row.decode.min, 6.5, 1e-9);
    EXPECT_NEAR(row.decode.max, 7, 1e-9);
  }
}

TEST_F(SummaryTest, CallsHaveRatesAndSharesOfPeak) {
  ASSERT_EQ(summary_.prefill.calls.size(), 2u);  // the host's steps are not device calls
  const CallRow& block = summary_.prefill.calls[0];
  EXPECT_EQ(block.program, "block");
  EXPECT_EQ(block.run.count, 2u);
  EXPECT_NEAR(block.run.avg, 20, 1e-9);
  EXPECT_NEAR(block.gb_s, 2, 1e-9);
  EXPECT_NEAR(block.gflops, 4, 1e-9);
  EXPECT_NEAR(block.peak_bandwidth_share, 0.02, 1e-9);
  EXPECT_NEAR(block.peak_flops_share, 0.004, 1e-9);
  EXPECT_DOUBLE_EQ(block.bytes_written, 1e6);
  EXPECT_DOUBLE_EQ(block.bytes_read, 5e5);
  EXPECT_NEAR(block.write.avg, 1, 1e-9);
}

TEST_F(SummaryTest, HostOperationsHoldTheHostsStepsOfTheNetwork) {
  std::vector<std::string> names;
  for (const HostRow& row : summary_.prefill.host) names.push_back(row.label);
  EXPECT_EQ(names, (std::vector<std::string>{"tokenize", "sample", "embed", "attention"}));
  EXPECT_EQ(summary_.prefill.host[3].time.count, 2u);
  EXPECT_NEAR(summary_.prefill.host[3].time.total, 12, 1e-9);
}

TEST_F(SummaryTest, OperatorsAddUpToTheDispatches) {
  double sum = 0;
  for (const OperatorRow& row : summary_.prefill.operators) {
    sum += row.total;
    if (row.label == "projections" || row.label == "feed-forward") {
      EXPECT_NEAR(row.total, 18, 1e-9);
      EXPECT_NEAR(row.share, 0.18, 1e-9);
      EXPECT_TRUE(row.modelled);
    }
    if (row.label == "attention") {
      EXPECT_NEAR(row.avg, 6, 1e-9);
      EXPECT_FALSE(row.modelled);
    }
    if (row.label == "calls themselves") {
      EXPECT_NEAR(row.total, 4, 1e-9);
    }
  }
  EXPECT_NEAR(sum, 40 + 24 + 12 + 2, 1e-9);
}

TEST_F(SummaryTest, HistogramCountsDeviceDispatches) {
  EXPECT_EQ(summary_.prefill.histogram[7], 3u);  // up to 30 ms
  EXPECT_EQ(summary_.decode.histogram[5], 4u);   // up to 3 ms
  EXPECT_EQ(summary_.decode.histogram[6], 2u);   // up to 10 ms
}

TEST_F(SummaryTest, TrendAgainstContext) {
  EXPECT_NEAR(summary_.trend.first, 21, 1e-9);
  EXPECT_NEAR(summary_.trend.last, 22, 1e-9);
  EXPECT_NEAR(summary_.trend.drift_percent, 100.0 / 21, 1e-9);
  EXPECT_NEAR(summary_.trend.slope_us_per_position, 1000, 1e-6);
  EXPECT_EQ(summary_.tokens[0].context, 10u);
}

TEST_F(SummaryTest, SetupPhasesAndTheRest) {
  ASSERT_EQ(summary_.setup.size(), 3u);
  EXPECT_EQ(summary_.setup[1].phase, "weights to buffers");
  EXPECT_EQ(summary_.setup[1].count, 2u);
  EXPECT_NEAR(summary_.setup[1].seconds, 0.05, 1e-9);
  EXPECT_NEAR(summary_.setup[2].seconds, 0.02, 1e-9);
}

TEST(Summary, ATokenThatWasNotRecordedWholeIsLeftOut) {
  ProfileBuilder builder;
  Profile profile = builder.take(4);
  ProfileRun& run = profile.runs[0];
  while (run.events.back().token > 1 || run.events.back().kind == EventKind::token)
    run.events.pop_back();
  run.events.pop_back();
  run.lost = 99;
  const Summary summary = summarise(profile, run);
  EXPECT_EQ(summary.decode.tokens, 0u);
  EXPECT_DOUBLE_EQ(summary.headline.tpot_ms, 0);
  EXPECT_DOUBLE_EQ(summary.headline.ttft_ms, 100);
}

TEST(Summary, AnEmptyRunHasNoNumbersAndDoesNotFail) {
  ProfileBuilder builder;
  Profile& profile = builder.profile();
  profile.names.push_back({.label = "x"});
  profile.runs.push_back({});
  const Summary summary = summarise(profile, profile.runs[0]);
  EXPECT_DOUBLE_EQ(summary.headline.ttft_ms, 0);
  EXPECT_DOUBLE_EQ(summary.headline.decode_tok_s, 0);
}

TEST(Summary, AWholeTokenInOneDispatchStillHasLayers) {
  ProfileBuilder builder;
  builder.open_run(0, 1);
  const auto launch = [](uint16_t layer, const char* block) {
    return EventName{.label = "k", .layer = layer, .block = block, .op = Operator::projection};
  };
  builder.dispatch({.label = "token"}, 0, {.run = 12},
                   {launch(0, "a"),
                    launch(0, "b"),
                    launch(1, "a"),
                    launch(1, "b"),
                    {.label = "final_norm", .op = Operator::norm_rope},
                    {.label = "lm_head", .op = Operator::head}});
  builder.close_run();
  builder.token_chosen();
  builder.finish_run();
  const Profile& profile = builder.profile();
  const Summary summary = summarise(profile, profile.runs[0]);
  EXPECT_EQ(labels(summary.prefill.flow),
            (std::vector<std::string>{"pad", "a", "b", "final norm", "LM head", "scheduling",
                                      "unattributed"}));
  EXPECT_NEAR(row_of(summary.prefill.flow, "a", true).ms, 2, 1e-9);
  EXPECT_NEAR(summary.prefill.flow.layer_ms, 4, 1e-9);
  ASSERT_EQ(summary.layers.size(), 2u);
  EXPECT_NEAR(summary.layers[1].prefill_ms, 4, 1e-9);
}

TEST(Summary, WhatOnlyTheFirstCallTakesIsNoPartOfEveryLayer) {
  ProfileBuilder builder;
  builder.profile().facts.layers = 4;
  builder.open_run(0, 1);
  for (uint16_t layer = 0; layer < 4; ++layer)
    builder.dispatch(
        {.label = "block", .layer = layer}, 0, {.run = layer == 0 ? 152.0 : 2.0},
        {{.label = "k", .layer = layer, .block = "block", .op = Operator::projection}});
  builder.close_run();
  builder.token_chosen();
  builder.finish_run();
  const Profile& profile = builder.profile();
  const Flow flow = summarise(profile, profile.runs[0]).prefill.flow;
  EXPECT_NEAR(row_of(flow, "first call", false).total_ms, 150, 1e-9);
  EXPECT_NEAR(row_of(flow, "block", true).ms, 2, 1e-9);
  EXPECT_NEAR(flow.layer_ms, 2, 1e-9);
  EXPECT_NEAR(flow.total_ms, 158, 1e-9);
}

TEST(Summary, AFirstCallThatIsHardlySlowerIsNoOneOff) {
  for (const double first : {11.0, 19.0}) {  // 9 ms more; 17 ms more, but not ten times as long
    ProfileBuilder builder;
    builder.profile().facts.layers = 4;
    builder.open_run(0, 1);
    for (uint16_t layer = 0; layer < 4; ++layer)
      builder.dispatch(
          {.label = "block", .layer = layer}, 0, {.run = layer == 0 ? first : 2.0},
          {{.label = "k", .layer = layer, .block = "block", .op = Operator::projection}});
    builder.close_run();
    builder.token_chosen();
    builder.finish_run();
    const Profile& profile = builder.profile();
    const Flow flow = summarise(profile, profile.runs[0]).prefill.flow;
    EXPECT_EQ(std::ranges::count(labels(flow), "first call"), 0);
    EXPECT_NEAR(flow.layer_ms, (first + 6) / 4, 1e-9);
  }
}

TEST(Summary, WhatTheHostsStepsTakeAtFirstIsNoOneOff) {
  ProfileBuilder builder;
  builder.profile().facts.layers = 4;
  builder.open_run(0, 1);
  for (uint16_t layer = 0; layer < 4; ++layer)
    builder.dispatch(
        {.label = "attention", .layer = layer}, 1, {.run = layer == 0 ? 152.0 : 2.0},
        {{.label = "k", .layer = layer, .block = "attention", .op = Operator::attention}});
  builder.close_run();
  builder.token_chosen();
  builder.finish_run();
  const Profile& profile = builder.profile();
  EXPECT_EQ(
      std::ranges::count(labels(summarise(profile, profile.runs[0]).prefill.flow), "first call"),
      0);
}

// The pipeline returns after the token was chosen, as with a scheduler that samples inside a step.
TEST(Summary, ARunThatEndsAfterItsTokenLeavesNothingNegative) {
  ProfileBuilder builder;
  builder.open_run(0, 1);
  builder.gap(1);
  builder.dispatch({.label = "lm_head"}, 0, {.run = 20},
                   {{.label = "lm_head", .block = "lm_head", .op = Operator::head}});
  builder.gap(1);
  builder.token_chosen();
  builder.gap(0.5);
  builder.close_run();
  builder.finish_run();
  const Profile& profile = builder.profile();
  const Attribution wall = summarise(profile, profile.runs[0]).prefill.wall;
  EXPECT_NEAR(wall.wall, 22, 1e-9);
  EXPECT_NEAR(wall.device, 20, 1e-9);
  EXPECT_NEAR(wall.scheduling, 2, 1e-9);
  EXPECT_GE(wall.unattributed, 0);
  EXPECT_NEAR(wall.unattributed, 0, 1e-9);
}

TEST(Summary, TheTypicalRunIsTheMedian) {
  ProfileBuilder builder;
  for (const double extra : {9.0, 1.0, 5.0}) {
    builder.prefill();
    builder.decode(extra);
    builder.finish_run();
  }
  const Profile& profile = builder.profile();
  EXPECT_EQ(&typical_run(profile), &profile.runs[2]);
}

}  // namespace
}  // namespace tyto::test
