// Requests with guesses that share steps: the same answers as alone and without.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::all_drafters;
using testing_support::eager;
using testing_support::LettersWorld;
using testing_support::NamedDrafter;
using testing_support::one_layer_config;
using testing_support::oracle;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& shared_model() {
  static const RandomModel model = random_model(one_layer_config(), DType::f32);
  return model;
}

struct Case {
  Request request;
  SamplerOptions sampling;
};

// Some are sampled; answers of some cross into another page, and one fills the context.
std::vector<Case> make_cases() {
  std::vector<Case> cases;
  std::mt19937 random(7);
  const auto add = [&](size_t prompt, uint32_t answer, float temperature) {
    Case made;
    for (size_t i = 0; i < prompt; ++i)
      made.request.prompt.push_back(static_cast<Token>(random() % 61));
    made.request.max_tokens = answer;
    made.request.ignore_eos = true;
    made.sampling = {.temperature = temperature, .seed = cases.size()};
    cases.push_back(std::move(made));
  };
  add(1, 40, 0);
  add(9, 60, 0.9f);
  add(240, 40, 0);
  add(30, 1, 0);
  add(1000, 60, 0);  // the context has 1024
  cases[1].sampling.repeat_penalty = 1.3f;
  return cases;
}

struct Ended {
  Outcome outcome;
  std::string text;
};

Ended alone(const Case& each) {
  LettersWorld world(shared_model());
  Sampler sampler(each.sampling);
  Ended ended;
  ended.outcome.answer = generate(world.generator(), sampler, each.request, [&](auto piece) {
    ended.text += piece;
    return true;
  });
  return ended;
}

std::vector<Ended> together(LettersWorld& world, const std::vector<Case>& cases) {
  Scheduler scheduler(world.generator(), {});
  std::vector<Ended> ended(cases.size());
  for (size_t i = 0; i < cases.size(); ++i)
    scheduler.add(
        cases[i].request, cases[i].sampling,
        [&, i](const ChosenToken& chosen) {
          ended[i].text += chosen.text;
          return true;
        },
        [&, i](Scheduler::Id, Outcome outcome) {
          ended[i].text += outcome.rest;
          ended[i].outcome = std::move(outcome);
        });
  for (int steps = 0; scheduler.step(); ++steps) EXPECT_LT(steps, 10'000);
  EXPECT_EQ(scheduler.running() + scheduler.waiting(), 0u);
  return ended;
}

void expect_same(const Ended& got, const Ended& expected, const std::string& what) {
  ASSERT_FALSE(got.outcome.error) << what << ": " << got.outcome.error->what();
  EXPECT_EQ(got.outcome.answer.tokens, expected.outcome.answer.tokens) << what;
  EXPECT_EQ(got.outcome.answer.reason, expected.outcome.answer.reason) << what;
  EXPECT_EQ(got.text, expected.text) << what;
  EXPECT_EQ(got.outcome.answer.receipt.generated_tokens,
            expected.outcome.answer.receipt.generated_tokens)
      << what;
}

std::vector<Token> whole(const Case& each, const Ended& plain) {
  std::vector<Token> tokens = each.request.prompt;
  const std::vector<Token>& answer = plain.outcome.answer.tokens;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

TEST(SchedulerGuesses, AnswersAreTheSameWhoeverGuesses) {
  const std::vector<Case> cases = make_cases();
  std::vector<Ended> plain;
  for (const Case& each : cases) plain.push_back(alone(each));
  EXPECT_EQ(plain[4].outcome.answer.reason, StopReason::context_full);
  for (const unsigned threads : {1u, 2u})
    for (const NamedDrafter& drafter : all_drafters()) {
      LettersWorld world(shared_model(), 0, threads);
      std::vector<Case> guessed = cases;
      for (size_t i = 0; i < cases.size(); ++i)
        guessed[i].request.speculation = eager(drafter.make(whole(cases[i], plain[i])));
      const std::vector<Ended> got = together(world, guessed);
      for (size_t i = 0; i < cases.size(); ++i)
        expect_same(got[i], plain[i], fmt::format("{}, request {}", drafter.name, i));
    }
}

// By itself, and as one of two of which the other has no guesses.
TEST(SchedulerGuesses, GuessesThatComeTrueSaveCallsAndReceiptsSaySo) {
  std::vector<Case> cases = {make_cases()[0], make_cases()[1]};
  std::vector<Ended> plain = {alone(cases[0]), alone(cases[1])};
  for (const size_t count : {size_t{1}, size_t{2}}) {
    LettersWorld world(shared_model());
    std::vector<Case> asked(cases.begin(), cases.begin() + static_cast<std::ptrdiff_t>(count));
    asked[0].request.speculation = eager(oracle(whole(cases[0], plain[0])));
    const std::vector<Ended> got = together(world, asked);
    expect_same(got[0], plain[0], "oracle");
    const auto& counted = got[0].outcome.answer.receipt.speculation;
    ASSERT_TRUE(counted.has_value());
    EXPECT_GT(counted->accepted, 0u);
    EXPECT_EQ(counted->accepted + counted->calls + 1, 40u);  // the first comes out of the prompt
    EXPECT_GE(counted->drafted, counted->accepted);
    if (count == 2) {
      EXPECT_FALSE(got[1].outcome.answer.receipt.speculation.has_value());
    }
  }
}

TEST(SchedulerGuesses, AStopStringEndsARoundInItsMiddle) {
  const Case each = make_cases()[0];
  const Ended plain = alone(each);
  for (size_t length = 1; length + 2 < plain.text.size(); length += 5) {
    Case stopped = each;
    stopped.request.stop = {plain.text.substr(length, 2)};
    const Ended expected = alone(stopped);
    stopped.request.speculation = eager(oracle(whole(each, plain)));
    LettersWorld world(shared_model());
    expect_same(together(world, {stopped}).front(), expected, stopped.request.stop.front());
    // What the cache keeps of it is what was said: the next request goes on from there.
    Case next = each;
    next.request.speculation = eager(oracle(whole(each, plain)));
    expect_same(together(world, {next}).front(), plain, "after a stop string");
  }
}

TEST(SchedulerGuesses, WhoFailsToGuessEndsNobodysRequest) {
  Case each = make_cases()[0];
  const Ended plain = alone(each);
  each.request.speculation =
      eager([](std::span<const Token> text, uint32_t most) -> std::vector<Token> {
        if (most > 0 && text.size() > 10) throw Error(ErrorCode::input, "draft", "has no room");
        return {};
      });
  LettersWorld world(shared_model());
  const Ended got = together(world, {each}).front();
  expect_same(got, plain, "failing drafter");
  const std::vector<std::string>& fallbacks = got.outcome.answer.receipt.fallbacks;
  ASSERT_EQ(fallbacks.size(), 1u);
  EXPECT_EQ(fallbacks.front(), "test drafts no more: draft: has no room");
}

// Two pages are too few for both: one is put back with its guesses, and loses nothing.
TEST(SchedulerGuesses, WhereThePoolIsFullGuessesTakeNoRoom) {
  std::vector<Case> cases = {make_cases()[2], make_cases()[2], make_cases()[1]};
  cases[1].sampling.seed = 3;
  std::vector<Ended> plain;
  for (const Case& each : cases) plain.push_back(alone(each));
  LettersWorld world(shared_model(), 3);
  std::vector<Case> asked = cases;
  for (size_t i = 0; i < cases.size(); ++i)
    asked[i].request.speculation = eager(oracle(whole(cases[i], plain[i])));
  const std::vector<Ended> got = together(world, asked);
  for (size_t i = 0; i < cases.size(); ++i) expect_same(got[i], plain[i], std::to_string(i));
}

TEST(GuessedSteps, APlainStepComesFirstAndManyRequestsLeaveNoRows) {
  GuessedSteps steps;
  EXPECT_EQ(steps.rows_each(1), 1u);
  steps.observe(1, 0, 100);
  EXPECT_EQ(steps.rows_each(1), 16u);
  EXPECT_EQ(steps.rows_each(2), 1u);  // steps with two rows were not seen
  steps.observe(4, 0, 120);
  EXPECT_EQ(steps.rows_each(4), 4u);
  steps.observe(9, 0, 200);
  EXPECT_EQ(steps.rows_each(9), 1u);
  steps.observe(1000, 0, 200);
  EXPECT_EQ(steps.rows_each(1000), 1u);
  for (int i = 0; i < 32; ++i) steps.observe(1, 3, 130);
  EXPECT_EQ(steps.rows_each(1), 1u);  // what plain ones take is measured again
  steps.observe(1, 0, 100);
  EXPECT_EQ(steps.rows_each(1), 16u);
}

TEST(GuessedSteps, EachIsChargedWhatItsGuessesCostEverybody) {
  GuessedSteps steps;
  for (const uint32_t decoding : {1u, 4u}) steps.observe(decoding, 0, 1000);
  EXPECT_EQ(steps.charged(1, 3, 3, 1300), 1'300'000u);
  EXPECT_EQ(steps.charged(4, 0, 6, 1300), GuessedSteps::kPlain);
  EXPECT_NEAR(static_cast<double>(steps.charged(4, 3, 6, 1300)), 1'600'000, 1);  // half, four times
  EXPECT_GT(steps.charged(1, 3, 3, 1), 0u);  // a clock that jumps
}

}  // namespace
}  // namespace tyto
