// What requests can ask for, crossed with every family: vectors, logits of all positions, drafts,
// and prompts that others have begun. A feature that knows one family alone fails here.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/scheduler.h"
#include "llama/reference.h"
#include "support/family_config.h"
#include "tensor/compare.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::config_of;
using testing_support::LettersWorld;
using testing_support::random_model;
using testing_support::RandomModel;

// The embedding's values have a mean, without which LayerNorm is RMSNorm.
RandomModel model_of(const Family& family) {
  const Config config = config_of(family.model_type);
  RandomModel random = random_model(config, DType::f32);
  Weights& weights = random.model.weights;
  weights.embedding = random.tensor(DType::f32, config.vocab, config.emb, 1.0f, 2.0f);
  if (config.tied_head) weights.head = weights.embedding;
  return random;
}

std::vector<Token> text_of(size_t count, size_t seed = 11) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 37 + seed) % 61));
  return tokens;
}

// By position: what the reference's head sees, and what it gives.
struct Expected {
  std::vector<std::vector<float>> hidden, logits;
};
Expected expected_of(const Model& model, std::span<const Token> tokens) {
  Expected expected;
  Reference reference(model, [&](Role role, uint16_t, std::span<const float> values) {
    if (role == Role::final_norm) expected.hidden.emplace_back(values.begin(), values.end());
  });
  for (const Token token : tokens) expected.logits.push_back(reference.forward(token));
  return expected;
}

void expect_close(std::span<const float> actual, std::span<const float> expected, double part,
                  const std::string& what) {
  const Comparison difference = compare(actual, expected);
  EXPECT_LE(difference.max_abs_error, part * difference.max_abs_reference) << what;
}

Answer answer_to(LettersWorld& world, Request request) {
  Sampler greedy({.temperature = 0});
  return generate(world.generator(), greedy, std::move(request),
                  [](std::string_view) { return true; });
}

TEST(EveryFamily, VectorsAndLogitsAreTheReferences) {
  const std::vector<Token> tokens = text_of(90);  // two chunks
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    const RandomModel random = model_of(family);
    const Expected expected = expected_of(random.model, tokens);
    LettersWorld world(random);
    std::vector<float> mean(random.model.config.emb);
    for (const std::vector<float>& hidden : expected.hidden)
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += hidden[i];
    double squares = 0;
    for (const float value : mean) squares += double{value} * value;
    for (float& value : mean) value = static_cast<float>(value / std::sqrt(squares));
    expect_close(embed(world.generator(), tokens).values, mean, 1e-3, name);
    uint32_t next = 0;
    std::vector<std::string> shown;
    const Receipt receipt = read_logits(
        world.generator(), tokens,
        [&](uint32_t position, std::span<const float> logits) {
          EXPECT_EQ(position, next++) << name;
          expect_close(logits, expected.logits.at(position), 1e-2,
                       name + " at " + std::to_string(position));
        },
        [&](std::string_view what, uint64_t done, uint64_t total) {
          shown.push_back(fmt::format("{} {} of {}", what, done, total));
        });
    EXPECT_EQ(next, tokens.size()) << name;
    EXPECT_EQ(receipt.prompt_tokens, tokens.size()) << name;
    EXPECT_EQ(receipt.generated_tokens, 0u) << name;
    ASSERT_GE(shown.size(), 2u) << name;
    EXPECT_EQ(shown.front(), "computing logits 0 of 90") << name;
    EXPECT_EQ(shown.back(), "computing logits 90 of 90") << name;
    EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u) << name;
  }
}

// A long prompt, a vector and logits of all positions beside an answer that is being written, where
// there are pages for all of them and where some have to give theirs back.
TEST(EveryFamily, RequestsGetTheSameBesideOthersAsAlone) {
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    const RandomModel random = model_of(family);
    LettersWorld quiet(random);
    const Request first{.prompt = text_of(5), .max_tokens = 40, .stop = {}, .ignore_eos = true};
    const Request second{.prompt = text_of(90, 3), .max_tokens = 7, .stop = {}, .ignore_eos = true};
    const std::vector<Token> alone = answer_to(quiet, first).tokens;
    const std::vector<Token> after = answer_to(quiet, second).tokens;
    const std::vector<float> vector = embed(quiet.generator(), text_of(70, 5)).values;
    std::vector<std::vector<float>> logits;
    read_logits(quiet.generator(), text_of(66, 8), [&](uint32_t, std::span<const float> row) {
      logits.emplace_back(row.begin(), row.end());
    });
    LettersWorld world(random);
    Scheduler scheduler(world.generator(), {});
    std::map<Scheduler::Id, Outcome> outcomes;
    const auto keep = [&](Scheduler::Id id, Outcome outcome) { outcomes[id] = std::move(outcome); };
    const auto add = [&](const Request& request) {
      return scheduler.add(
          request, SamplerOptions{.temperature = 0}, [](const ChosenToken&) { return true; }, keep);
    };
    std::vector<std::vector<float>> beside;
    const auto take = [&](uint32_t, std::span<const float> row) {
      beside.emplace_back(row.begin(), row.end());
    };
    const Scheduler::Id a = add(first);
    const Scheduler::Id b = add(second);
    const Scheduler::Id c =
        add({.prompt = text_of(70, 5), .stop = {}, .wanted = Wanted::embedding});
    add({.prompt = text_of(66, 8),
         .stop = {},
         .wants_all_logits = true,
         .wanted = Wanted::all_logits,
         .on_logits = take});
    while (scheduler.step()) continue;
    for (const auto& [id, outcome] : outcomes)
      EXPECT_FALSE(outcome.error) << name << ": " << outcome.error->what();
    EXPECT_EQ(outcomes[a].answer.tokens, alone) << name;
    EXPECT_EQ(outcomes[b].answer.tokens, after) << name;
    EXPECT_EQ(outcomes[c].embedding, vector) << name;
    EXPECT_EQ(beside, logits) << name;
  }
}

TEST(EveryFamily, DraftsAndKnownBeginningsChangeNoToken) {
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    const RandomModel random = model_of(family);
    LettersWorld plain(random);
    Request request{.prompt = text_of(30), .max_tokens = 40, .stop = {}, .ignore_eos = true};
    const std::vector<Token> expected = answer_to(plain, request).tokens;
    LettersWorld drafting(random);
    request.speculation = Speculator("lookup", lookup_drafter, 4).begin_request();
    const Answer drafted = answer_to(drafting, request);
    EXPECT_EQ(drafted.tokens, expected) << name;
    ASSERT_TRUE(drafted.receipt.speculation) << name;
    EXPECT_GT(drafted.receipt.speculation->calls, 0u) << name;
    request.speculation.reset();
    request.prompt.insert(request.prompt.end(), expected.begin(), expected.end());
    request.max_tokens = 9;
    LettersWorld fresh(random);
    const Answer known = answer_to(drafting, request);
    EXPECT_EQ(known.tokens, answer_to(fresh, request).tokens) << name;
    EXPECT_GT(known.receipt.cached_tokens, 0u) << name;
  }
}

}  // namespace
}  // namespace tyto
