#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Everything off: the plain distribution.
SamplerOptions plain(float temperature = 1.0f) {
  SamplerOptions options;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  return options;
}

// How often each token comes in n draws.
std::map<Token, int> histogram(const SamplerOptions& options, const std::vector<float>& logits,
                               int n = 2000) {
  Sampler sampler(options);
  std::map<Token, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(logits)];
  return counts;
}

std::vector<Token> support(const SamplerOptions& options, const std::vector<float>& logits) {
  std::vector<Token> tokens;
  for (const auto& [token, count] : histogram(options, logits)) tokens.push_back(token);
  return tokens;
}

using Tokens = std::vector<Token>;

TEST(Sampler, GreedyIsTheLowestIdOfTheBest) {
  Sampler sampler(plain(0));
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -kInfinity, -4}), 2);
  EXPECT_EQ(sampler.sample(std::vector<float>{0}), 0);
}

TEST(Sampler, DrawsInProportion) {
  const auto counts = histogram(plain(), {std::log(1.0f), std::log(2.0f), std::log(5.0f)}, 80'000);
  EXPECT_NEAR(counts.at(0), 10'000, 400);
  EXPECT_NEAR(counts.at(1), 20'000, 500);
  EXPECT_NEAR(counts.at(2), 50'000, 600);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<float> logits = {0, 1};
  EXPECT_GT(histogram(plain(0.25f), logits)[1], histogram(plain(1), logits)[1]);
  EXPECT_GT(histogram(plain(1), logits)[1], histogram(plain(4), logits)[1]);
  EXPECT_EQ(support(plain(1e-30f), {1, 2, 1.9999f}), (Tokens{1}));
}

// The draw itself, against the definition: 53 bits of the generator into the cumulative weights.
TEST(Sampler, DrawIsTheInverseOfTheCumulativeDistribution) {
  SamplerOptions options = plain();
  options.seed = 42;
  Sampler sampler(options);
  std::mt19937_64 random(42);
  const std::vector<float> logits = {0.5f, -1, 2, 0, -kInfinity, 1};
  for (int i = 0; i < 500; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    double total = 0;
    for (const float logit : logits) total += std::exp(double{logit} - 2);
    double seen = 0;
    Token expected = 0;
    for (; static_cast<size_t>(expected) < logits.size(); ++expected) {
      seen += std::exp(double{logits[static_cast<size_t>(expected)]} - 2);
      if (unit * total < seen) break;
    }
    ASSERT_EQ(sampler.sample(logits), expected) << i;
  }
}

TEST(Sampler, SameSeedSameTokens) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(i * 37 % 101) / 20);
  const auto take = [&](uint64_t seed) {
    SamplerOptions options;
    options.seed = seed;
    Sampler sampler(options);
    Tokens tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(take(1), take(1));
  EXPECT_NE(take(1), take(2));
}

TEST(Sampler, TopK) {
  SamplerOptions options = plain();
  options.top_k = 2;
  EXPECT_EQ(support(options, {1, 2, 3, 2.5f}), (Tokens{2, 3}));
  EXPECT_EQ(support(options, {1, 1, 1, 1}), (Tokens{0, 1}));  // the lowest ids of equals
  options.top_k = 100;
  EXPECT_EQ(support(options, {1, 1, 1}), (Tokens{0, 1, 2}));
  options.top_k = 1;
  EXPECT_EQ(support(options, {1, 3, 3}), (Tokens{1}));
}

TEST(Sampler, TopP) {
  // Shares 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(0.25f), std::log(0.5f), std::log(0.125f),
                                     std::log(0.125f)};
  SamplerOptions options = plain();
  options.top_p = 0.6f;
  EXPECT_EQ(support(options, logits), (Tokens{0, 1}));  // 0.5 is not enough, 0.75 is
  options.top_p = 0.4f;
  EXPECT_EQ(support(options, logits), (Tokens{1}));
  options.top_p = 0;
  EXPECT_EQ(support(options, logits), (Tokens{1}));
  options.top_p = 0.8f;
  EXPECT_EQ(support(options, logits), (Tokens{0, 1, 2}));  // the lower id of equals comes first
}

TEST(Sampler, TopPCountsTheShareOfWhatTopKLeft) {
  // Shares of all: 0.4, 0.3, 0.2, 0.1. Of the best two: 0.57, 0.43, so 0.5 needs one of them.
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  SamplerOptions options = plain();
  options.top_p = 0.5f;
  EXPECT_EQ(support(options, logits), (Tokens{0, 1}));
  options.top_k = 2;
  EXPECT_EQ(support(options, logits), (Tokens{0}));
}

TEST(Sampler, MinP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  SamplerOptions options = plain();
  options.min_p = 0.5f;
  EXPECT_EQ(support(options, logits), (Tokens{0, 1}));
  options.min_p = 0.2f;
  EXPECT_EQ(support(options, logits), (Tokens{0, 1, 2}));
  options.min_p = 1;
  EXPECT_EQ(support(options, logits), (Tokens{0}));
}

// Temperature comes before the cuts: flattened, more candidates reach min-p.
TEST(Sampler, TemperatureComesBeforeTheCuts) {
  const std::vector<float> logits = {0, std::log(0.3f)};
  SamplerOptions options = plain(1);
  options.min_p = 0.5f;
  EXPECT_EQ(support(options, logits), (Tokens{0}));
  options.temperature = 2;  // 0.3^(1/2) = 0.55
  EXPECT_EQ(support(options, logits), (Tokens{0, 1}));
}

// The lazily sorted prefix must cut where a full sort would, also past its first steps.
TEST(Sampler, LongTailsAreCutWhereASortWouldCut) {
  std::vector<float> logits(1000);  // nearly flat, in no order
  for (size_t i = 0; i < logits.size(); ++i)
    logits[i] = -static_cast<float>(i * 617 % logits.size()) / 1000.0f;
  SamplerOptions options = plain();
  options.top_p = 0.5f;
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double total = 0;
  for (const float logit : sorted) total += std::exp(double{logit});
  double mass = 0;
  size_t kept = 0;
  while (mass < double{options.top_p} * total) mass += std::exp(double{sorted[kept++]});
  ASSERT_GT(kept, 300u);
  Sampler sampler(options);
  float lowest = 0;
  for (int i = 0; i < 4000; ++i)
    lowest = std::min(lowest, logits[static_cast<size_t>(sampler.sample(logits))]);
  EXPECT_EQ(lowest, sorted[kept - 1]);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegative) {
  SamplerOptions options = plain(0);
  options.repeat_penalty = 2;
  Sampler sampler(options);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3}), 0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 3}), 1);       // 2 against 3
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}), 1);  // -2 against -1.5
  sampler.accept(0);                                            // once more changes nothing
  EXPECT_EQ(sampler.sample(std::vector<float>{4, 1.9f}), 0);
}

TEST(Sampler, FrequencyCountsAndPresenceDoesNot) {
  SamplerOptions options = plain(0);
  options.frequency_penalty = 1;
  Sampler frequency(options);
  options.frequency_penalty = 0;
  options.presence_penalty = 1;
  Sampler presence(options);
  for (int i = 0; i < 3; ++i) {
    frequency.accept(0);
    presence.accept(0);
  }
  EXPECT_EQ(frequency.sample(std::vector<float>{2, 0}), 1);  // -1 against 0
  EXPECT_EQ(presence.sample(std::vector<float>{2, 0}), 0);   // 1 against 0
  EXPECT_EQ(presence.sample(std::vector<float>{2, 1.5f}), 1);
}

TEST(Sampler, PenaltiesForgetWhatLeavesTheWindow) {
  SamplerOptions options = plain(0);
  options.presence_penalty = 1;
  options.penalty_window = 2;
  Sampler sampler(options);
  sampler.accept(0);
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 0.5f, 0}), 1);
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 0.5f, 0}), 0);
  options.penalty_window = 0;
  Sampler without(options);
  without.accept(0);
  EXPECT_EQ(without.sample(std::vector<float>{1, 0.5f}), 0);
}

TEST(Sampler, AcceptsTokensTheLogitsDoNotHave) {
  SamplerOptions options = plain(0);
  options.repeat_penalty = 2;
  Sampler sampler(options);
  for (const Token token : {-1, 1 << 30, 5}) sampler.accept(token);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 2}), 1);
}

TEST(Sampler, LogitBias) {
  SamplerOptions options = plain(0);
  options.logit_bias = {{0, 5.0f}, {1, -kInfinity}};
  Sampler sampler(options);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 100, 4}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-100, 100, 4}), 2);
}

// 3 / 2 + 1.4 = 2.9 loses to 3; biased first it would be (3 + 1.4) / 2 = 2.2, so probe from above.
TEST(Sampler, PenaltiesComeBeforeBias) {
  SamplerOptions options = plain(0);
  options.repeat_penalty = 2;
  options.logit_bias = {{0, 1.4f}};
  Sampler sampler(options);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 2.5f}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{3, 3}), 1);
}

TEST(Sampler, BrokenLogitsAreErrors) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler(plain(temperature));
    EXPECT_ERROR(sampler.sample(std::vector<float>{0, kNan}), "the logit of token 1 is nan");
    EXPECT_ERROR(sampler.sample(std::vector<float>{kInfinity, 0}), "the logit of token 0 is inf");
    EXPECT_ERROR(sampler.sample(std::vector<float>{}), "logits: there are none");
    EXPECT_ERROR(sampler.sample(std::vector<float>{-kInfinity, -kInfinity}),
                 "every token is ruled out");
  }
}

TEST(Sampler, ExtremeLogitsStayFinite) {
  const float max = std::numeric_limits<float>::max();
  EXPECT_EQ(support(plain(), {-max, max, -max}), (Tokens{1}));
  SamplerOptions options = plain(1e-38f);
  options.top_p = 0.5f;
  options.min_p = 0.1f;
  EXPECT_EQ(support(options, {-max, 0, -1e-30f}), (Tokens{1}));
}

// The whole of what sample() promises without penalties, by a sort of everything.
Token plainly_sampled(const SamplerOptions& options, std::span<const float> logits,
                      std::mt19937_64& random) {
  std::vector<std::pair<float, Token>> all;
  for (size_t i = 0; i < logits.size(); ++i) all.emplace_back(-logits[i], static_cast<Token>(i));
  const bool keeps_order = options.top_k == 0 && options.top_p >= 1 && options.min_p <= 0;
  const float best = -std::min_element(all.begin(), all.end())->first;
  if (options.temperature == 0) return std::min_element(all.begin(), all.end())->second;
  if (!keeps_order) std::sort(all.begin(), all.end());
  if (options.top_k > 0) all.resize(std::min<size_t>(all.size(), options.top_k));
  const auto weight = [&](const auto& each) {
    return std::exp((-double{each.first} - best) / options.temperature);
  };
  double total = 0, mass = 0;
  for (const auto& each : all) total += weight(each);
  size_t kept = 0;
  while (kept < all.size() && (kept == 0 || mass < double{options.top_p} * total) &&
         (kept == 0 || weight(all[kept]) >= double{options.min_p}))
    mass += weight(all[kept++]);
  if (options.top_p < 1 || options.min_p > 0) all.resize(kept);
  mass = 0;
  for (const auto& each : all) mass += weight(each);
  const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
  double seen = 0;
  for (const auto& each : all)
    if (seen += weight(each); unit * mass < seen) return each.second;
  return all.front().second;
}

struct Bf16Row {
  std::vector<uint16_t> bits;
  std::vector<float> values, room;

  Logits logits() { return {bits, room}; }
};

// Values of few levels tie often; some are zeros of both signs, some ban their token.
Bf16Row bf16_row(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bf16Row row;
  for (size_t i = 0; i < size; ++i) {
    const float level = static_cast<float>(random() % 64) - 40.0f;
    const bool is_banned = random() % 16 == 0 && i > 0;
    const float value = is_banned           ? -kInfinity
                        : random() % 8 == 0 ? (random() % 2 == 0 ? 0.0f : -0.0f)
                                            : level / 4;
    row.bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
    row.values.push_back(value);
  }
  row.room.resize(size);
  return row;
}

std::vector<SamplerOptions> many_settings() {
  std::vector<SamplerOptions> settings = {plain(0), plain(1), plain(0.3f), SamplerOptions{}};
  for (const uint32_t top_k : {1u, 3u, 40u, 2000u}) {
    settings.push_back(plain(0.7f));
    settings.back().top_k = top_k;
  }
  settings.push_back(plain());
  settings.back().top_p = 0.9f;
  settings.push_back(plain());
  settings.back().min_p = 0.02f;
  return settings;
}

TEST(Sampler, TakesBf16LogitsAsTheyAre) {
  for (const size_t size : {1u, 7u, 8u, 9u, 255u, 256u, 257u, 5003u}) {
    for (const SamplerOptions& options : many_settings()) {
      Sampler of_bf16(options), of_f32(options);
      std::mt19937_64 random(options.seed);
      for (uint64_t i = 0; i < 10; ++i) {
        Bf16Row row = bf16_row(size, 100 * size + i);
        const Token expected = plainly_sampled(options, row.values, random);
        ASSERT_EQ(of_f32.sample(row.values), expected) << size << ", row " << i;
        ASSERT_EQ(of_bf16.sample(row.logits()), expected) << size << ", row " << i;
        EXPECT_EQ(row.room, std::vector<float>(size)) << "f32 values were made";
      }
    }
  }
}

TEST(Sampler, AdjustsBf16LogitsInF32) {
  SamplerOptions options;
  options.repeat_penalty = 1.3f;
  options.frequency_penalty = 0.1f;
  options.logit_bias = {{3, 1.25f}, {5, -kInfinity}};
  Sampler of_bf16(options), of_f32(options);
  for (uint64_t i = 0; i < 50; ++i) {
    Bf16Row row = bf16_row(300, i);
    const Token expected = of_f32.sample(row.values);
    ASSERT_EQ(of_bf16.sample(row.logits()), expected) << i;
    of_f32.accept(expected);
    of_bf16.accept(expected);
  }
}

TEST(Sampler, BrokenBf16LogitsAreErrorsToo) {
  // Infinity and NaNs of both signs, quiet and not.
  for (const uint16_t broken : {0x7f80, 0x7fc0, 0x7f81, 0xffc0, 0xff81, 0xffff})
    for (const size_t at : {0u, 6u, 8u, 260u, 299u}) {
      Bf16Row row = bf16_row(300, 1);
      row.bits[at] = broken;
      for (const float temperature : {0.0f, 1.0f}) {
        Sampler sampler(plain(temperature));
        try {
          sampler.sample(row.logits());
          ADD_FAILURE() << broken << " at " << at;
        } catch (const Error& error) {
          const std::string token = "the logit of token " + std::to_string(at) + " is";
          EXPECT_NE(std::string(error.what()).find(token), std::string::npos) << error.what();
        }
      }
    }
  Bf16Row banned{std::vector<uint16_t>(20, 0xff80), {}, std::vector<float>(20)};
  EXPECT_ERROR(Sampler(plain(0)).sample(banned.logits()), "every token is ruled out");
}

TEST(SamplerOptions, OutOfRangeIsAUsageError) {
  const auto refused = [](auto spoil) {
    SamplerOptions options;
    spoil(options);
    try {
      check(options, 10);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::usage);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](SamplerOptions&) {}), "");
  EXPECT_TRUE(refused([](auto& o) { o.temperature = -1; }).starts_with("temperature"));
  EXPECT_TRUE(refused([](auto& o) { o.temperature = kNan; }).starts_with("temperature"));
  EXPECT_TRUE(refused([](auto& o) { o.temperature = kInfinity; }).starts_with("temperature"));
  EXPECT_TRUE(refused([](auto& o) { o.top_p = 1.5f; }).starts_with("top-p"));
  EXPECT_TRUE(refused([](auto& o) { o.top_p = kNan; }).starts_with("top-p"));
  EXPECT_TRUE(refused([](auto& o) { o.min_p = -0.1f; }).starts_with("min-p"));
  EXPECT_TRUE(refused([](auto& o) { o.repeat_penalty = 0; }).starts_with("repeat-penalty"));
  EXPECT_TRUE(refused([](auto& o) { o.frequency_penalty = kNan; }).starts_with("frequency"));
  EXPECT_TRUE(refused([](auto& o) { o.presence_penalty = kInfinity; }).starts_with("presence"));
  EXPECT_TRUE(refused([](auto& o) { o.logit_bias = {{10, 0.0f}}; }).starts_with("logit-bias"));
  EXPECT_TRUE(refused([](auto& o) { o.logit_bias = {{-1, 0.0f}}; }).starts_with("logit-bias"));
  EXPECT_TRUE(refused([](auto& o) { o.logit_bias = {{1, kNan}}; }).starts_with("logit-bias"));
  EXPECT_EQ(refused([](auto& o) { o.logit_bias = {{9, -kInfinity}}; }), "");
}

}  // namespace
}  // namespace tyto
