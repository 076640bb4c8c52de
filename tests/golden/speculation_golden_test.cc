// Guesses leave the shipped model's distribution what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/draft_model.h"
#include "engine/engine.h"
#include "golden/golden_data.h"

namespace tyto {
namespace {

constexpr float kTemperature = 0.9f;
constexpr uint32_t kDraws = 20000;

SamplerOptions sampling(uint64_t seed) {
  return {.temperature = kTemperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed};
}

std::vector<double> probabilities(std::span<const float> logits) {
  const float best = *std::ranges::max_element(logits);
  std::vector<double> result;
  double sum = 0;
  for (const float logit : logits)
    sum += result.emplace_back(std::exp(static_cast<double>(logit - best) / kTemperature));
  for (double& each : result) each /= sum;
  return result;
}

// Sum over the tokens that are expected at least ten times, all others being one more.
struct ChiSquare {
  double value = 0;
  double degrees = -1;

  void add(double counted, double expected) {
    if (expected <= 0) return;
    value += (counted - expected) * (counted - expected) / expected;
    ++degrees;
  }
  // Four and a half standard deviations (Wilson and Hilferty): one right program in 300,000 fails.
  bool is_likely() const {
    const double a = 2 / (9 * degrees);
    return value < degrees * std::pow(1 - a + 4.5 * std::sqrt(a), 3);
  }
};

ChiSquare compare(const std::map<Token, uint32_t>& counted, const std::vector<double>& expected,
                  uint32_t draws) {
  ChiSquare result;
  double rest_counted = draws, rest_expected = draws;
  for (size_t token = 0; token < expected.size(); ++token) {
    if (expected[token] * draws < 10) continue;
    const auto found = counted.find(static_cast<Token>(token));
    const double times = found == counted.end() ? 0 : found->second;
    result.add(times, expected[token] * draws);
    rest_counted -= times;
    rest_expected -= expected[token] * draws;
  }
  if (rest_expected >= 10) result.add(rest_counted, rest_expected);
  return result;
}

// The rows of one call, chosen from again and again: the token after the prompt, of which one is
// guessed, and the one after that guess, whenever it came true.
TEST(Speculation, KeepsTheDistributionOfTheShippedModel) {
  EngineOptions options;
  options.model = TYTO_SOURCE_DIR "/models/owlet";
  Engine engine(options);
  const std::vector<Token> prompt = engine.tokenizer().encode("Once upon a time there was a");
  Pipeline& pipeline = engine.pipeline();
  ASSERT_GE(pipeline.most_checked(), 3u);
  std::vector<std::vector<float>> plain;  // logits token by token
  std::vector<Token> guesses;
  {
    Sequence sequence(pipeline);
    std::span<const float> logits = pipeline.run(sequence, prompt);
    for (size_t i = 0; i < 3; ++i) {
      plain.emplace_back(logits.begin(), logits.end());
      // The likeliest first, then the third in line: guesses that are often wrong.
      std::vector<float> sorted = plain.back();
      std::ranges::nth_element(sorted, sorted.begin() + (i == 0 ? 0 : 2), std::greater<>());
      const float wanted = sorted[i == 0 ? 0 : 2];
      guesses.push_back(static_cast<Token>(std::ranges::find(logits, wanted) - logits.begin()));
      logits = pipeline.run(sequence, {&guesses.back(), 1});
    }
  }
  Sequence sequence(pipeline);
  const std::span<const Token> before = std::span(prompt).first(prompt.size() - 1);
  pipeline.run(sequence, before);
  std::vector<Token> rows = {prompt.back(), guesses[0], guesses[1]};
  std::vector<std::vector<float>> checked(3);
  pipeline.run_rows(sequence, rows, [&](uint32_t row, const Logits& logits) {
    const std::span<const float> values = logits;
    checked[row].assign(values.begin(), values.end());
  });
  for (size_t i = 0; i < 3; ++i) ASSERT_EQ(checked[i], plain[i]) << "row " << i;  // bit for bit

  const auto costs = std::make_shared<RoundCosts>();
  costs->observe(0, uint64_t{1} << 50);
  Speculation speculation{"test", [&](std::span<const Token>, uint32_t) { return guesses; },
                          DraftLength(15, costs)};
  costs->observe(7, 1);  // so that all are asked for
  std::map<Token, uint32_t> first, second;
  uint32_t seconds = 0;
  for (uint32_t draw = 0; draw < kDraws; ++draw) {
    Round round(&speculation, prompt, {.rows = 3, .tokens = 100, .vocab = pipeline.vocab()});
    ASSERT_EQ(round.drafted(), 2u);
    Sampler sampler(sampling(draw)), as_always(sampling(draw));
    std::vector<Token> chosen;
    while (round.is_open()) {
      chosen.push_back(sampler.sample(checked[round.settled()]));
      sampler.accept(chosen.back());
      round.choose(chosen.back());
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_EQ(as_always.sample(plain[i]), chosen[i]);  // the same random numbers
      as_always.accept(chosen[i]);
    }
    ++first[chosen[0]];
    if (chosen.size() > 1) ++second[chosen[1]], ++seconds;
  }
  const ChiSquare of_first = compare(first, probabilities(plain[0]), kDraws);
  EXPECT_GT(of_first.degrees, 5);
  EXPECT_TRUE(of_first.is_likely()) << of_first.value << " with " << of_first.degrees;
  const ChiSquare of_second = compare(second, probabilities(plain[1]), seconds);
  EXPECT_GT(of_second.degrees, 1);
  EXPECT_TRUE(of_second.is_likely()) << of_second.value << " with " << of_second.degrees;
  // A test that takes what is wrong for right would be none.
  const ChiSquare swapped = compare(first, probabilities(plain[1]), kDraws);
  EXPECT_FALSE(swapped.is_likely());
}

TEST(Speculation, ADraftModelKeepsUpWithTheTextAndItsOwnMistakes) {
  EngineOptions options;
  options.model = TYTO_SOURCE_DIR "/models/owlet";
  Engine engine(options);
  const auto draft = open_draft(options.model, engine, options);
  EXPECT_EQ(draft->pool(), engine.pool());
  const std::vector<Token> prompt = engine.tokenizer().encode("Once upon a time there was a");
  Sampler greedy({.temperature = 0});
  const Answer plain =
      generate(engine.generator_from_nothing(), greedy,
               {.prompt = prompt, .max_tokens = 24, .stop = {}, .ignore_eos = true},
               [](std::string_view) { return true; });
  std::vector<Token> text = prompt;
  text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
  const Drafter drafter = model_drafter(*draft);
  const auto guess = [&](size_t length, uint32_t most) {
    return drafter(std::span(text).first(length), most);
  };
  const auto next = [&](size_t length, uint32_t count) {
    return std::vector<Token>(text.begin() + static_cast<long>(length),
                              text.begin() + static_cast<long>(length + count));
  };
  const size_t start = prompt.size();
  EXPECT_TRUE(guess(start, 0).empty());
  EXPECT_EQ(guess(start, 4), next(start, 4));
  EXPECT_EQ(guess(start + 5, 4), next(start + 5, 4));  // all of it was right, and one more
  EXPECT_EQ(guess(start + 6, 1), next(start + 6, 1));  // only the first was taken
  EXPECT_EQ(guess(start + 2, 3), next(start + 2, 3));  // back to where it was before
  std::vector<Token> other(text.begin(), text.begin() + static_cast<long>(start + 2));
  other.back() = (other.back() + 1) % 100;  // the model chose something else
  drafter(other, 4);
  EXPECT_EQ(guess(start + 2, 3), next(start + 2, 3));
  EXPECT_EQ(guess(start + 20, 2), next(start + 20, 2));  // after a long time
  const std::vector<Token> too_long(draft->pipeline().context() + 1, text[0]);
  EXPECT_TRUE(drafter(too_long, 4).empty());
  const std::vector<Token> full(draft->pipeline().context(), text[0]);
  EXPECT_EQ(drafter(full, 4).size(), 1u);
}

TEST(Speculation, VocabulariesThatDifferAreNamed) {
  Vocabulary model;
  model.pieces = {"a", "b", "c", "<s>"};
  model.added = {{.id = 3, .text = "<s>", .special = true}};
  model.bos = 3;
  const auto refusal = [&](const std::function<void(Vocabulary&)>& change) -> std::string {
    Vocabulary draft = model;
    change(draft);
    try {
      check_same_vocabulary(model, draft, "small.gguf");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string start = "small.gguf: cannot draft for this model: ";
  EXPECT_EQ(refusal([](Vocabulary&) {}), "");
  EXPECT_EQ(refusal([](Vocabulary& of) { of.pieces.emplace_back("d"); }),
            start + "it has 5 tokens, the model 4");
  EXPECT_EQ(refusal([](Vocabulary& of) { of.pieces[1] = "\x1b["; }),
            start + "its token 1 is \"\\u001b[\", the model's \"b\"");
  EXPECT_EQ(refusal([](Vocabulary& of) { of.bos = 0; }),
            start + "its text begins with token 0, the model's with 3");
  EXPECT_EQ(refusal([](Vocabulary& of) { of.added.clear(); }),
            start + "token 3 is special in the model alone");
  EXPECT_EQ(
      refusal([](Vocabulary& of) { of.added.push_back({.id = 0, .text = "a", .special = true}); }),
      start + "token 0 is special in it alone");
}

}  // namespace
}  // namespace tyto
