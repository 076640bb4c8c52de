#include "plan/what_if.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/error.h"
#include "model/synth.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr PlanOption kQ4nx = {KernelSet::air_q4nx, Fusion::token};
constexpr PlanOption kBlock = {KernelSet::air_bf16, Fusion::block};

PlanRequest request() {
  PlanRequest r;
  r.config = shape_by_name("llama-3.1-8b");
  r.shape = "llama-3.1-8b";
  r.machine = "krackan";
  return r;
}

std::vector<DraftRow> rows_of(const PlanRequest& request, double draft_ms, double acceptance,
                              const PlanOption& option = kQ4nx) {
  return draft_rows(request, option, {.name = "draft", .tpot_ms = draft_ms},
                    std::array{acceptance});
}

TEST(DraftPlan, TokensOfARoundAreAGeometricSum) {
  EXPECT_DOUBLE_EQ(tokens_per_round(0, 8), 1);
  EXPECT_DOUBLE_EQ(tokens_per_round(1, 8), 9);
  EXPECT_DOUBLE_EQ(tokens_per_round(0.5, 1), 1.5);
  EXPECT_NEAR(tokens_per_round(0.7, 4), (1 - std::pow(0.7, 5)) / 0.3, 1e-12);
}

TEST(DraftPlan, ADeviceThatTakesOneRowGainsNothing) {
  for (const double acceptance : {0.0, 0.5, 0.9, 1.0})
    for (const DraftRow& row : rows_of(request(), 1, acceptance)) {
      if (row.way != CheckBy::tokens) continue;
      EXPECT_LT(row.ratio, 1) << acceptance << ' ' << row.guesses;
      EXPECT_DOUBLE_EQ(row.check_ms, row.tokens_per_round * 1e3 / row.plain_tok_s);
      EXPECT_LT(row.ratio_error_p90, row.error_p90);  // the decode's own error is in both sides
    }
}

// A pass that took as long as is said to pay would be exactly as fast as no guesses.
TEST(DraftPlan, BreakEvenIsWherePlainDecodingIs) {
  for (const DraftRow& row : rows_of(request(), 5, 0.7)) {
    const double tok_s = row.tokens_per_round * 1e3 / (row.draft_ms + row.break_even_check_ms);
    EXPECT_NEAR(tok_s, row.plain_tok_s, 1e-9);
    EXPECT_EQ(row.check_ms < row.break_even_check_ms, row.ratio > 1);
  }
}

TEST(DraftPlan, ADraftAsSlowAsTheModelNeverPays) {
  const double plain_ms = what_if(request(), kQ4nx).tpot_ms;
  for (const DraftRow& row : rows_of(request(), plain_ms, 0.5))
    if (row.guesses > 1) {
      EXPECT_LT(row.break_even_check_ms, plain_ms);
    }
  EXPECT_LT(rows_of(request(), 3 * plain_ms, 0.5).front().break_even_check_ms, 0);
}

TEST(DraftPlan, PromptImagesCostTheirRowsAndTheHostsAttention) {
  PlanRequest asked = request();
  asked.prompt_rows = {64, 2048};
  const PassTime small = later_pass(asked, kQ4nx, 4);
  EXPECT_EQ(small.rows, 64u);
  EXPECT_GT(small.error_p90, 0.2);  // products of so few rows were never fitted
  EXPECT_GT(later_pass(asked, kQ4nx, 8).ms, small.ms);
  asked.prompt_rows = {2048};
  EXPECT_GT(later_pass(asked, kQ4nx, 4).ms, 4 * small.ms);
  asked.context_tokens = 4096;
  PlanRequest shorter = asked;
  shorter.context_tokens = 1024;
  EXPECT_GT(later_pass(asked, kQ4nx, 4).ms, later_pass(shorter, kQ4nx, 4).ms);
}

TEST(DraftPlan, RowsAreOfEachAcceptanceAndWay) {
  const std::array acceptances = {0.5, 0.9};
  const auto rows = draft_rows(request(), kBlock, {.name = "draft", .tpot_ms = 2}, acceptances);
  EXPECT_EQ(rows.size(), acceptances.size() * 2 * kMostPlannedGuesses);
  const std::vector<DraftRow> best = best_drafts(rows);
  ASSERT_EQ(best.size(), 4u);
  for (const DraftRow& row : rows)
    for (const DraftRow& fastest : best)
      if (row.way == fastest.way && row.acceptance == fastest.acceptance) {
        EXPECT_LE(row.decode_tok_s, fastest.decode_tok_s);
      }
}

TEST(DraftPlan, WhatCannotBePlannedIsRefused) {
  EXPECT_ERROR(rows_of(request(), 2, 1.5), "is 1.5, it must be");
  EXPECT_ERROR(rows_of(request(), 2, std::nan("")), "is nan, it must be");
  EXPECT_ERROR(rows_of(request(), 2, 0.5, {KernelSet::flm_q4, Fusion::token}),
               "flm-q4: are not planned");
  EXPECT_ERROR(rows_of(request(), 2, 0.5, {KernelSet::air_bf16, Fusion::op}),
               "air-bf16: are not planned");
}

}  // namespace
}  // namespace tyto
