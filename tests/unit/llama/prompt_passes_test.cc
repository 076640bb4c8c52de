#include "llama/stages.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tyto {
namespace {

// Times that grow a little slower than the rows, as an image's do.
const std::vector<PromptKernels> kThree = {{256, 200, 190}, {512, 350, 340}, {2048, 1300, 1290}};
constexpr double kQuickHost = 1e-5, kSlowHost = 2e-2;

std::vector<uint32_t> passes(const PassCosts& costs, uint32_t position, uint32_t rows) {
  std::vector<uint32_t> result;
  while (rows > 0) {
    result.push_back(next_pass(costs, position, rows));
    position += result.back();
    rows -= result.back();
  }
  return result;
}

using Passes = std::vector<uint32_t>;

TEST(PromptPasses, AreTheCheapestThatHoldThePrompt) {
  struct Row {
    uint32_t position, rows;
    double attention_ms;
    Passes expected;
  };
  const Row table[] = {
      {0, 1, kQuickHost, {1}},
      {0, 13, kQuickHost, {13}},
      {0, 256, kQuickHost, {256}},
      {0, 257, kQuickHost, {257}},            // 350 of 512, 390 of twice 256
      {0, 600, kQuickHost, {512, 88}},        // 540 and a little attention, 1300 of 2048
      {0, 600, kSlowHost, {600}},             // attention to 88 * 556 positions alone takes 979
      {0, 1100, kQuickHost, {512, 512, 76}},  // 880 and a little attention
      {0, 1100, kSlowHost, {1100}},
      {0, 1900, kQuickHost, {1900}},  // 350 + 3 * 340 = 1370
      {0, 2048, kQuickHost, {2048}},
      {0, 2049, kQuickHost, {2048, 1}},
      {0, 4096, kSlowHost, {2048, 2048}},
      {0, 2700, kQuickHost, {2048, 512, 140}},
      // Behind others attention is the host's anyway.
      {100, 13, kSlowHost, {13}},
      {100, 600, kSlowHost, {512, 88}},
      {100, 1800, kSlowHost, {1800}},  // 1290, and 4 * 340 = 1360
      {1, 6000, kSlowHost, {2048, 2048, 1904}},
  };
  for (const Row& row : table)
    EXPECT_EQ(passes({kThree, row.attention_ms}, row.position, row.rows), row.expected)
        << row.rows << " rows from " << row.position;
}

TEST(PromptPasses, OfOneNumberOfRowsAreFullUntilTheLast) {
  const PassCosts costs{{{64, 10, 9}}, kSlowHost};
  EXPECT_EQ(passes(costs, 0, 150), (Passes{64, 64, 22}));
  EXPECT_EQ(passes(costs, 22, 64), (Passes{64}));
}

// Against every way to cut a prompt, for kernels whose times are in no order.
TEST(PromptPasses, NoOtherCutIsCheaper) {
  const PassCosts costs{{{3, 40, 31}, {4, 30, 47}, {7, 66, 52}}, 0.125};
  const auto time_of = [&](uint32_t position, uint32_t rows) {  // one pass, by its cheapest
    double least = 1e9;
    for (const PromptKernels& each : costs.kernels)
      if (each.rows >= rows) least = std::min(least, position == 0 ? each.first_ms : each.later_ms);
    for (uint32_t i = 0; i < rows && position > 0; ++i)
      least += costs.attention_ms * (position + i + 1);
    return least;
  };
  constexpr uint32_t kRows = 30;
  for (uint32_t begin : {0u, 5u}) {
    std::vector<double> best(kRows + 1);  // the best for the rows from here on
    for (uint32_t left = 1; left <= kRows; ++left) {
      best[left] = 1e9;
      for (uint32_t now = 1; now <= std::min(left, 7u); ++now)
        best[left] = std::min(best[left], time_of(begin + kRows - left, now) + best[left - now]);
    }
    double taken = 0;
    uint32_t position = begin;
    for (const uint32_t now : passes(costs, begin, kRows)) {
      taken += time_of(position, now);
      position += now;
    }
    EXPECT_NEAR(taken, best[kRows], 1e-6) << begin;
  }
}

}  // namespace
}  // namespace tyto
