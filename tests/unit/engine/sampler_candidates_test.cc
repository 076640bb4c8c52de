// A sampler that is given the best logits of a row chooses what it chooses from all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "engine/sampler.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr float kBeyondAll = std::numeric_limits<float>::infinity();
constexpr uint32_t kFew = 64;

float to_bf16(float value) {
  return value_of_bf16(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
}

std::vector<Candidate> best_of(const std::vector<float>& logits, size_t count = kFew) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<Token>(i), logits[i]});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  all.resize(std::min(all.size(), count));
  return all;
}

// Spread as a model's are, or of so few values that nearly all tie; now and then one that is banned
// or a zero of either sign.
std::vector<float> random_logits(size_t size, std::mt19937& random, bool ties, bool is_bf16) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = ties ? static_cast<float>(random() % 4) - 2 : normal(random);
    if (random() % 16 == 0) logit = random() % 2 == 0 ? -kBeyondAll : -0.0f;
    if (is_bf16) logit = to_bf16(logit);
  }
  logits[size / 2] = 0.5f;  // never are all banned
  return logits;
}

std::vector<SamplerOptions> settings_that_candidates_suffice() {
  std::vector<SamplerOptions> settings = {{}, {.temperature = 0}, {.temperature = 0, .top_k = 0}};
  for (const uint32_t top_k : {1u, 2u, 63u, 64u})
    for (const float top_p : {1.0f, 0.9f, 0.0f})
      for (const float min_p : {0.0f, 0.05f})
        settings.push_back({.temperature = 1.3f, .top_k = top_k, .top_p = top_p, .min_p = min_p});
  return settings;
}

TEST(Candidates, GiveTheTokensThatAllLogitsGive) {
  std::mt19937 random(11);
  for (const size_t size : {64u, 65u, 2003u})
    for (const bool ties : {false, true})
      for (const bool is_bf16 : {false, true})
        for (SamplerOptions& options : settings_that_candidates_suffice()) {
          options.seed = random();
          ASSERT_GT(candidates_needed(options, false), 0u);
          ASSERT_LE(candidates_needed(options, false), kFew);
          Sampler of_all(options), of_best(options);
          for (int i = 0; i < 3; ++i) {
            const std::vector<float> logits = random_logits(size, random, ties, is_bf16);
            const std::vector<Candidate> best = best_of(logits);
            const Token expected = of_all.sample(logits);
            ASSERT_EQ(of_best.sample(Logits(best)), expected)
                << size << " ties " << ties << " bf16 " << is_bf16 << " k " << options.top_k;
            of_all.accept(expected);
            of_best.accept(expected);
          }
        }
}

TEST(Candidates, AreNeededAsManyAsTheSamplerLooksAt) {
  EXPECT_EQ(candidates_needed({}, false), 40u);
  EXPECT_EQ(candidates_needed({.temperature = 0}, false), 1u);
  EXPECT_EQ(candidates_needed({.top_k = 100'000}, false), 100'000u);
  // All: whatever is drawn from everything, or may raise what was not among the best.
  EXPECT_EQ(candidates_needed({.top_k = 0}, false), 0u);
  EXPECT_EQ(candidates_needed({}, true), 0u);
  EXPECT_EQ(candidates_needed({.temperature = 0}, true), 0u);
  EXPECT_EQ(candidates_needed({.temperature = 0, .repeat_penalty = 1.1f}, false), 0u);
  EXPECT_EQ(candidates_needed({.frequency_penalty = -0.1f}, false), 0u);
  EXPECT_EQ(candidates_needed({.presence_penalty = 0.1f}, false), 0u);
  EXPECT_EQ(candidates_needed({.temperature = 0, .logit_bias = {{1, 2.0f}}}, false), 0u);
}

TEST(Candidates, ThatAreAllRuledOutAreAnError) {
  const std::vector<Candidate> banned = {{0, -kBeyondAll}, {1, -kBeyondAll}};
  for (const float temperature : {0.0f, 1.0f})
    EXPECT_ERROR(Sampler({.temperature = temperature, .top_k = 2}).sample(Logits(banned)),
                 "every token is ruled out");
}

TEST(Candidates, WhereTheyDoNotSufficeAreABrokenPromise) {
  const std::vector<Candidate> best = best_of({1, 2, 3, 4});
  const Logits logits(best);
  EXPECT_DEATH(Sampler({.top_k = 5}).sample(logits), "internal error");
  EXPECT_DEATH(Sampler({.top_k = 0}).sample(logits), "internal error");
  EXPECT_DEATH(Sampler({.temperature = 0, .presence_penalty = 1}).sample(logits), "internal error");
  EXPECT_DEATH((void)static_cast<std::span<const float>>(logits), "internal error");
}

}  // namespace
}  // namespace tyto
