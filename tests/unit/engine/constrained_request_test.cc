// A request's constraint bounds its own answer, and no other.
#include <gtest/gtest.h>

#include <map>

#include "engine/scheduler.h"
#include "text/grammar/constraint.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;

struct World : LettersWorld {
  World() : LettersWorld(shared_model()) {}
  static const RandomModel& shared_model() {
    static const RandomModel model = random_model(one_layer_config(), DType::f32);
    return model;
  }

  Request request(bool is_constrained) const {
    Request made{.prompt = {7, 8, 9}, .max_tokens = 9, .stop = {}};
    if (is_constrained)
      made.constraint =
          std::make_shared<Constraint>(std::make_shared<const Grammar>("root ::= (\"AB\" [XY])+"),
                                       std::make_shared<const TokenTrie>(tokenizer));
    return made;
  }
  std::string text(const Answer& answer) const { return tokenizer.decode(answer.tokens); }
};

bool matches(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_last = i % 3 == 2;
    if (is_last ? text[i] != 'X' && text[i] != 'Y' : text[i] != "AB"[i % 3]) return false;
  }
  return text.size() == 9;
}

const SamplerOptions kGreedy{.temperature = 0};

TEST(ConstrainedRequest, OfAConversationBoundsOneAnswer) {
  World world;
  Sampler sampler(kGreedy);
  const auto ask = [&](bool is_constrained) {
    return world.text(generate(world.generator(), sampler, world.request(is_constrained),
                               [](std::string_view) { return true; }));
  };
  const std::string free = ask(false);
  EXPECT_FALSE(matches(free));
  EXPECT_TRUE(matches(ask(true)));
  EXPECT_EQ(ask(false), free);
}

// Letters, of which the first is a token that ends thoughts.
Tokenizer thinking_letters() {
  Vocabulary vocabulary = testing_support::letters();
  vocabulary.pieces[0] = "</think>";
  vocabulary.added = {{0, "</think>", true}};
  return {vocabulary, "letters"};
}

// With and without guesses, alone and in a scheduler: thoughts are free, and the answer is held.
TEST(ConstrainedRequest, BeginsBehindThoughts) {
  World world;
  const Tokenizer tokenizer = thinking_letters();
  const Generator with{tokenizer, *world.pipeline, world.trace, world.prefixes.get()};
  const auto tokens = std::make_shared<const TokenTrie>(tokenizer);
  const auto grammar = std::make_shared<const Grammar>("root ::= (\"B\" [XY])+");
  const auto ask = [&](bool thinks, bool guesses, bool schedules) {
    Request request{.prompt = {7, 8, 9}, .max_tokens = 12, .stop = {}, .shown_special = {0}};
    request.constraint = std::make_shared<Constraint>(
        grammar, tokens, AnswerPlace{.thoughts = thoughts_ahead(tokenizer, "<think>")});
    if (guesses)
      request.speculation = testing_support::eager(
          testing_support::oracle({7, 8, 9, 0, 1, 'X' - 'A', 1, 'Y' - 'A', 1, 'X' - 'A', 1}));
    const SamplerOptions sampling{.temperature = 0,
                                  .logit_bias = {{0, thinks ? -1000.0f : 1000.0f}}};
    std::string text;
    if (schedules) {
      Scheduler scheduler(with, {});
      scheduler.add(
          request, sampling,
          [&](const ChosenToken& chosen) {
            text += chosen.text;
            return true;
          },
          [](Scheduler::Id, const Outcome& outcome) { EXPECT_FALSE(outcome.error); });
      for (int steps = 0; scheduler.step(); ++steps) EXPECT_LT(steps, 1000);
    } else {
      Sampler sampler(sampling);
      generate(with, sampler, request, [&](std::string_view piece) {
        text += piece;
        return true;
      });
    }
    return text;
  };
  const std::string free = ask(true, false, false);
  EXPECT_EQ(free.size(), 12u);
  EXPECT_NE(free.find_first_not_of("BXY"), free.npos);
  const std::string held = ask(false, false, false);
  EXPECT_TRUE(held.starts_with("</think>B"));
  EXPECT_EQ(held.find_first_not_of("BXY", 8), held.npos) << held;
  for (const bool guesses : {false, true})
    for (const bool schedules : {false, true}) {
      EXPECT_EQ(ask(true, guesses, schedules), free);
      EXPECT_EQ(ask(false, guesses, schedules), held);
    }
}

TEST(ConstrainedRequest, RunsBesideOthers) {
  World world;
  Scheduler scheduler(world.generator(), {});
  std::map<Scheduler::Id, std::string> texts;
  const auto add = [&](bool is_constrained) {
    return scheduler.add(
        world.request(is_constrained), kGreedy, [](const ChosenToken&) { return true; },
        [&](Scheduler::Id id, const Outcome& outcome) { texts[id] = world.text(outcome.answer); });
  };
  const Scheduler::Id free = add(false), bound = add(true), again = add(false);
  for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 1000);
  EXPECT_TRUE(matches(texts[bound])) << texts[bound];
  EXPECT_FALSE(matches(texts[free])) << texts[free];
  EXPECT_EQ(texts[free], texts[again]);
}

TEST(ConstrainedRequest, ThatTheVocabularyCannotMeetEndsAlone) {
  World world;
  Scheduler scheduler(world.generator(), {});
  std::map<Scheduler::Id, Outcome> ended;
  const auto add = [&](Request request) {
    return scheduler.add(
        std::move(request), kGreedy, [](const ChosenToken&) { return true; },
        [&](Scheduler::Id id, const Outcome& outcome) { ended.emplace(id, outcome); });
  };
  Request impossible = world.request(false);
  impossible.constraint = std::make_shared<Constraint>(
      std::make_shared<const Grammar>("root ::= \"A\" \"1\""),  // there are no digits
      std::make_shared<const TokenTrie>(world.tokenizer));
  const Scheduler::Id before = add(world.request(false)), refused = add(impossible),
                      after = add(world.request(true));
  for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 1000);
  EXPECT_TRUE(ended.at(refused).error);
  EXPECT_FALSE(ended.at(before).error);
  EXPECT_EQ(ended.at(before).answer.tokens.size(), 9u);
  EXPECT_TRUE(matches(world.text(ended.at(after).answer)));
}

}  // namespace
}  // namespace tyto
