// With times made up: what is guessed where, and what it costs at most.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace tyto {
namespace {

// What a round with `guesses` takes, in plain rounds.
using Cost = std::function<double(uint32_t guesses)>;

struct TimedWorld {
  Cost cost;
  std::function<double(uint32_t token)> acceptance;  // a draft token's at this place
  uint32_t most = 8;
  double noise = 0;

  struct Result {
    uint32_t tokens = 0;
    double time = 0;  // in plain rounds
    uint32_t rounds_with_guesses = 0;
    uint32_t longest = 0;
    double gain() const { return tokens / time; }
  };

  Result run(uint32_t tokens, uint32_t seed = 1,
             std::shared_ptr<RoundCosts> costs = std::make_shared<RoundCosts>()) const {
    DraftLength length(most, std::move(costs));
    std::mt19937 random(seed);
    const auto unit = [&] { return static_cast<double>(random()) / 4294967296.0; };
    Result result;
    while (result.tokens < tokens) {
      const uint32_t drafted = length.next();
      EXPECT_LE(drafted, most);
      uint32_t accepted = 0;
      while (accepted < drafted && unit() < acceptance(result.tokens + accepted)) ++accepted;
      const double took = cost(drafted) * (1 + noise * (unit() - 0.5));
      length.observe(drafted, accepted, static_cast<uint64_t>(took * 1e7));
      result.tokens += accepted + 1;
      result.time += took;
      result.rounds_with_guesses += drafted > 0 ? 1 : 0;
      result.longest = std::max(result.longest, drafted);
    }
    return result;
  }
};

Cost per_row(double row, double first = 0) {  // the first costs more
  return [=](uint32_t guesses) { return guesses == 0 ? 1 : 1 + first + row * guesses; };
}
std::function<double(uint32_t)> always(double share) {
  return [share](uint32_t) { return share; };
}

// Three in a hundred, whatever a row costs: at most as much as a round of its own.
TEST(DraftLength, GuessesThatNeverComeTrueCostNextToNothing) {
  for (const double row : {0.02, 0.1, 0.3, 0.6, 1.0})
    for (const uint32_t tokens : {32u, 64u, 128u, 512u, 4096u})
      for (const double noise : {0.0, 0.3}) {
        const TimedWorld world{per_row(row), always(0), 8, noise};
        EXPECT_GE(world.run(tokens).gain(), tokens < 64 ? 0.95 : 0.97)
            << row << " a row, " << tokens << " tokens, noise " << noise;
      }
}

TEST(DraftLength, GuessesThatSeldomComeTrueCostNextToNothing) {
  for (const double row : {0.05, 0.15, 0.4, 1.0})
    for (const double share : {0.02, 0.05, 0.1, 0.2})
      for (uint32_t seed = 1; seed < 6; ++seed) {
        const TimedWorld world{per_row(row), always(share), 8, 0.2};
        EXPECT_GE(world.run(1024, seed).gain(), 0.97)
            << row << " a row, share " << share << ", seed " << seed;
      }
}

TEST(DraftLength, GoodGuessesGainNearlyWhatTheyCan) {
  for (const double row : {0.05, 0.12, 0.25})
    for (const double share : {0.5, 0.7, 0.9}) {
      double best = 1;
      for (uint32_t k = 1; k <= 8; ++k) {
        double tokens = 1, all = 1;
        for (uint32_t i = 0; i < k; ++i) tokens += all *= share;
        best = std::max(best, tokens / (1 + row * k));
      }
      const double gain = TimedWorld{per_row(row), always(share)}.run(2000).gain();
      EXPECT_GE(gain, 1 + 0.8 * (best - 1)) << row << " a row, share " << share;
    }
}

// A model of a billion parameters in 4 bits with two threads: the second row costs most.
TEST(DraftLength, GainsInShortAnswersToo) {
  const auto mean_gain = [](double share, uint32_t tokens) {
    const TimedWorld world{per_row(0.15, 0.25), always(share)};
    double time = 0, all = 0;
    for (uint32_t seed = 1; seed <= 50; ++seed) {
      const TimedWorld::Result result = world.run(tokens, seed);
      time += result.time, all += result.tokens;
    }
    return all / time;
  };
  EXPECT_GE(mean_gain(0.7, 64), 1.35);
  EXPECT_GE(mean_gain(0.7, 512), 1.42);  // 1.5 would need all to be known before
  EXPECT_GE(mean_gain(0.9, 64), 2.1);
  EXPECT_GE(mean_gain(0.5, 256), 1.04);
}

TEST(DraftLength, ComesBackWhenGuessesComeTrueAgain) {
  // A text of which the second half repeats the first.
  const TimedWorld world{per_row(0.12), [](uint32_t token) { return token < 2000 ? 0.0 : 0.95; }};
  const TimedWorld::Result late = world.run(4000),
                           never = TimedWorld{world.cost, always(0)}.run(2000);
  const double second_half = late.time - never.time;
  EXPECT_LT(second_half, 2000 / 2.0);  // more than twice as fast
}

TEST(DraftLength, SwitchesOffWhenGuessesStopComingTrue) {
  const TimedWorld world{per_row(0.3), [](uint32_t token) { return token < 500 ? 0.9 : 0.0; }};
  const TimedWorld::Result both = world.run(4500), first = world.run(500);
  EXPECT_LE(both.time - first.time, 4000 * 1.03);
}

TEST(DraftLength, GuessesNothingBeforeAPlainRoundWasTimed) {
  const auto costs = std::make_shared<RoundCosts>();
  DraftLength length(8, costs);
  EXPECT_EQ(length.next(), 0u);
  length.observe(0, 0, 1000);
  EXPECT_GT(length.next(), 0u);
  DraftLength another(8, costs);  // for the same pipeline
  EXPECT_GT(another.next(), 0u);
  EXPECT_EQ(DraftLength(0, costs).next(), 0u);
}

TEST(DraftLength, NeverAsksForMoreThanAllowed) {
  for (const uint32_t most : {1u, 3u, 15u, 1000u}) {
    const TimedWorld::Result result =
        TimedWorld{per_row(0.01), always(1), std::min(most, 15u)}.run(3000);
    EXPECT_EQ(result.longest, std::min(most, 15u));
  }
}

TEST(RoundCosts, OneRoundThatWasInterruptedSaysNothing) {
  RoundCosts costs;
  for (const uint64_t ns : {100, 101, 99, 5000, 100}) costs.observe(0, ns);
  for (const uint64_t ns : {130, 9000, 131, 129, 130}) costs.observe(2, ns);
  EXPECT_DOUBLE_EQ(costs.relative(2), 1.3);
  EXPECT_DOUBLE_EQ(costs.relative(1), 1.15);  // between its neighbours
  EXPECT_DOUBLE_EQ(costs.relative(4), 1.45);  // less than the first ones
  for (const uint64_t ns : {140, 140, 140}) costs.observe(3, ns);
  EXPECT_DOUBLE_EQ(costs.relative(5), 1.6);  // as the last known ones
}

TEST(RoundCosts, TakesZeroAndHugeTimes) {
  RoundCosts costs;
  costs.observe(0, 0);
  costs.observe(15, UINT64_MAX);
  for (uint32_t guesses = 0; guesses <= kMostGuesses; ++guesses)
    EXPECT_TRUE(costs.relative(guesses) >= 1) << guesses;
}

}  // namespace
}  // namespace tyto
