// The vector of a text: the mean of its hidden states, normalised.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "llama/reference.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& embedding_model() {
  static const RandomModel model = random_model(one_layer_config(), DType::f32);
  return model;
}

std::vector<Token> some_tokens(size_t count) {
  std::vector<Token> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<Token>((i * i + 3) % 61);
  return tokens;
}

// The embedding's values have a mean, so that the norms differ.
TEST(Embed, IsTheNormalisedMeanOfTheReferencesHiddenStates) {
  const std::vector<Token> tokens = some_tokens(150);  // three chunks
  for (const bool layer_norm : {false, true}) {
    Config config = one_layer_config();
    config.layer_norm = layer_norm;
    RandomModel random = random_model(config, DType::f32);
    random.model.weights.embedding =
        random.tensor(DType::f32, config.vocab, config.emb, 1.0f, 2.0f);
    std::vector<double> sums(config.emb);
    Reference reference(random.model, [&](Role role, uint16_t, std::span<const float> values) {
      for (size_t i = 0; role == Role::final_norm && i < values.size(); ++i) sums[i] += values[i];
    });
    for (const Token token : tokens) reference.forward(token);
    double squares = 0;
    for (const double sum : sums) squares += sum * sum;

    LettersWorld world(random);
    const Embedding embedding = embed(world.generator(), tokens);
    ASSERT_EQ(embedding.values.size(), sums.size());
    for (size_t i = 0; i < sums.size(); ++i)
      EXPECT_NEAR(embedding.values[i], sums[i] / std::sqrt(squares), 1e-4)
          << layer_norm << " " << i;
    EXPECT_EQ(embedding.receipt.prompt_tokens, 150u);
    ASSERT_EQ(embedding.receipt.devices.size(), 1u);
    EXPECT_GT(embedding.receipt.devices[0].completions, 0u);
    EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
  }
}

Request embedding_of(std::vector<Token> tokens) {
  Request request{.prompt = std::move(tokens), .stop = {}};
  request.wanted = Wanted::embedding;
  return request;
}

// Several texts beside an answer, where there are pages for all of them and where some have to wait
// or to give their pages back. Vectors and answer are those that each has alone.
TEST(Embed, BesideOthersATextHasTheVectorThatItHasAlone) {
  Sampler sampler({.temperature = 0});
  const Request asked{.prompt = {5, 6, 7}, .max_tokens = 300, .stop = {}};
  LettersWorld quiet(embedding_model());
  const Answer alone =
      generate(quiet.generator(), sampler, asked, [](std::string_view) { return true; });
  for (const uint32_t pages : {16u, 4u, 3u}) {
    LettersWorld world(embedding_model(), pages);
    Scheduler scheduler(world.generator(), {.most_running = 1});
    std::map<Scheduler::Id, size_t> lengths;
    size_t ended = 0;
    std::vector<Token> answer;
    const auto on_token = [](const ChosenToken&) { return true; };
    for (const size_t length : {600u, 1u, 90u, 256u, 300u, 512u})
      lengths[scheduler.add(embedding_of(some_tokens(length)), SamplerOptions{}, on_token,
                            [&](Scheduler::Id id, const Outcome& outcome) {
                              ASSERT_FALSE(outcome.error) << outcome.error->what();
                              const auto expected =
                                  embed(quiet.generator(), some_tokens(lengths.at(id)));
                              EXPECT_EQ(outcome.embedding, expected.values) << lengths.at(id);
                              EXPECT_GE(outcome.answer.receipt.prompt_tokens, lengths.at(id));
                              ++ended;
                            })] = length;
    scheduler.add(asked, {.temperature = 0}, on_token,
                  [&](Scheduler::Id, const Outcome& outcome) { answer = outcome.answer.tokens; });
    scheduler.step();
    // Four texts and the answer have begun; the text of one token has ended.
    EXPECT_EQ(scheduler.running(), std::min(5u, pages) - 1);
    while (scheduler.step()) continue;
    EXPECT_EQ(ended, 6u) << pages;
    EXPECT_EQ(answer, alone.tokens) << pages;
    EXPECT_EQ(world.pipeline->kv_pool().in_use(), world.prefixes->pages());
  }
}

TEST(Embed, GivesItsPagesBackWhenItIsGivenUp) {
  LettersWorld world(embedding_model());
  Scheduler scheduler(world.generator(), {});
  bool ended = false;
  const Scheduler::Id id = scheduler.add(
      embedding_of(some_tokens(150)), SamplerOptions{}, [](const ChosenToken&) { return true; },
      [&](Scheduler::Id, const Outcome& outcome) {
        EXPECT_EQ(outcome.answer.reason, StopReason::cancelled);
        EXPECT_TRUE(outcome.embedding.empty());
        ended = true;
      });
  scheduler.step();
  scheduler.cancel(id);
  EXPECT_FALSE(scheduler.step());
  EXPECT_TRUE(ended);
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

TEST(Embed, WhatCannotRunIsRefused) {
  LettersWorld world(embedding_model(), 2);
  const auto code = [&](const std::vector<Token>& tokens) -> std::optional<ErrorCode> {
    try {
      embed(world.generator(), tokens);
      return std::nullopt;
    } catch (const Error& error) {
      return error.code;
    }
  };
  EXPECT_EQ(code({}), ErrorCode::input);
  EXPECT_EQ(code({1, 61}), ErrorCode::input);
  EXPECT_EQ(code(some_tokens(1025)), ErrorCode::input);
  EXPECT_EQ(code(some_tokens(600)), ErrorCode::input);  // three pages
  EXPECT_EQ(code(some_tokens(512)), std::nullopt);
  Sequence other(*world.pipeline);
  ASSERT_TRUE(world.pipeline->reserve(other, 1));
  EXPECT_EQ(code(some_tokens(300)), ErrorCode::input);  // the other sequence keeps its page
}

}  // namespace
}  // namespace tyto
