// The vector of a text: the mean of its hidden states, normalised.
#include "engine/embed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "llama/reference.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& shared_model() {
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
    config.layer_norm = config.norm_bias = layer_norm;
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

TEST(Embed, PassesOfAnySizeGiveTheSameVectorAndOthersRunInBetween) {
  LettersWorld world(shared_model());
  const std::vector<Token> tokens = some_tokens(150);
  const Embedding whole = embed(world.generator(), tokens);
  for (const uint32_t most : {1u, 7u, 16u, 64u, 1000u}) {
    EmbeddingRun run(world.generator(), tokens);
    uint32_t passes = 0;
    while (run.left() > 0) {
      run.run_pass(most);
      ++passes;
      if (passes > 3) continue;
      Sequence other(*world.pipeline);
      world.pipeline->run(other, some_tokens(5));
    }
    const uint32_t rows = std::min(most, 64u);
    EXPECT_EQ(passes, (150 + rows - 1) / rows);
    EXPECT_EQ(run.result().values, whole.values) << most;
    EXPECT_EQ(run.result().receipt.prompt_tokens, 150u);
  }
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

TEST(Embed, GivesItsPagesBackWhenItIsGivenUp) {
  LettersWorld world(shared_model());
  {
    EmbeddingRun run(world.generator(), some_tokens(150));
    run.run_pass();
    EXPECT_EQ(run.left(), 86u);
  }
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

TEST(Embed, WhatCannotRunIsRefusedBeforeAnythingRuns) {
  LettersWorld world(shared_model(), 2);
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
  const uint64_t before = world.trace.device("cpu").submissions;
  EXPECT_EQ(code(some_tokens(300)), ErrorCode::busy);
  EXPECT_EQ(world.trace.device("cpu").submissions, before);
}

}  // namespace
}  // namespace tyto
