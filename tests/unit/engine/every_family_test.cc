// What requests can ask for, crossed with every family: vectors, logits of all positions, drafts by
// looking up and by a model, prompts that others have begun or that a file holds, candidates
// instead of logits, and LoRA adapters. A feature that knows one family alone fails here.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/draft_model.h"
#include "engine/prompt_cache_file.h"
#include "engine/recording.h"
#include "engine/scheduler.h"
#include "llama/reference.h"
#include "model/synth.h"
#include "support/family_config.h"
#include "support/lora_writer.h"
#include "support/picking_device.h"
#include "tensor/compare.h"
#include "unit/base/file_fixture.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::config_of;
using testing_support::LettersWorld;
using testing_support::Lora;
using testing_support::LoraPair;
using testing_support::PickingDevice;
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

std::vector<Token> words_of(size_t count, size_t seed = 11) {
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
  const std::vector<Token> tokens = words_of(90);  // two chunks
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
    const Request first{.prompt = words_of(5), .max_tokens = 40, .stop = {}, .ignore_eos = true};
    const Request second{
        .prompt = words_of(90, 3), .max_tokens = 7, .stop = {}, .ignore_eos = true};
    const std::vector<Token> alone = answer_to(quiet, first).tokens;
    const std::vector<Token> after = answer_to(quiet, second).tokens;
    const std::vector<float> vector = embed(quiet.generator(), words_of(70, 5)).values;
    std::vector<std::vector<float>> logits;
    read_logits(quiet.generator(), words_of(66, 8), [&](uint32_t, std::span<const float> row) {
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
        add({.prompt = words_of(70, 5), .stop = {}, .wanted = Wanted::embedding});
    add({.prompt = words_of(66, 8),
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
    Request request{.prompt = words_of(30), .max_tokens = 40, .stop = {}, .ignore_eos = true};
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

std::unique_ptr<Device> open_with_candidates(const DeviceEnv& env) {
  return std::make_unique<PickingDevice>(env, 48);
}

// Few of the logits leave the device, and say the same of what is likely.
TEST(EveryFamily, CandidatesGiveTheTokensThatAllLogitsGive) {
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    const RandomModel random = model_of(family);
    const Expected expected = expected_of(random.model, words_of(30));
    for (const SamplerOptions& sampling :
         {SamplerOptions{.temperature = 0}, SamplerOptions{.temperature = 1.2f, .seed = 3}}) {
      LettersWorld plain(random), picking(random, 0, 1, open_with_candidates);
      const PickingDevice& device = static_cast<PickingDevice&>(*picking.device);
      const auto tokens_of = [&](LettersWorld& world, bool wants_all) {
        Sampler sampler(sampling);
        Request request{.prompt = words_of(30), .max_tokens = 12, .stop = {}, .ignore_eos = true};
        request.wants_all_logits = wants_all;
        bool is_first = true;
        return generate_tokens(
                   world.generator(), sampler, request,
                   [&](const ChosenToken& chosen) {
                     EXPECT_EQ(chosen.logits.are_candidates(), &world == &picking && !wants_all)
                         << name;
                     if (wants_all && is_first)
                       expect_close(std::span<const float>(chosen.logits), expected.logits.back(),
                                    1e-2, name);
                     is_first = false;
                     return true;
                   })
            .tokens;
      };
      const std::vector<Token> all = tokens_of(plain, true);
      EXPECT_EQ(tokens_of(picking, false), all) << name;
      EXPECT_EQ(device.rows_of_candidates, 12u) << name;
      EXPECT_EQ(device.rows_of_logits, 0u) << name;
      EXPECT_EQ(tokens_of(picking, true), all) << name;
      EXPECT_EQ(device.rows_of_logits, 12u) << name;
    }
  }
}

class EveryFamilyInFiles : public FileTest {};

// Adapters of all projections that may have them.
Lora lora_of(const Config& config) {
  return testing_support::random_lora(config, 5, [&](const WeightSpec& spec) {
    const bool is_experts = spec.slices > 0 || spec.stays_f32;  // router and biases
    constexpr TensorPart kWithoutAdapters[] = {TensorPart::recur_in,    TensorPart::recur_gate,
                                               TensorPart::recur_time,  TensorPart::recur_strength,
                                               TensorPart::recur_both,  TensorPart::recur_all,
                                               TensorPart::shared_gate, TensorPart::shared_up,
                                               TensorPart::shared_down, TensorPart::shared_share};
    const bool is_refused =
        std::ranges::find(kWithoutAdapters, spec.part) != std::end(kWithoutAdapters);
    return is_experts || is_refused ? 0 : spec.part == TensorPart::head ? 2 : 3;
  });
}

// What is in a file as one matrix is several in a model.
Lora in_parts(const Lora& fused, const Config& config) {
  Lora lora{fused.alpha, {}};
  for (const LoraPair& pair : fused.pairs) {
    std::vector<std::pair<TensorPart, uint64_t>> parts = {{pair.target.part, pair.target.rows}};
    if (pair.target.part == TensorPart::qkv)
      parts = {{TensorPart::q, config.q_width()},
               {TensorPart::k, config.kv_width()},
               {TensorPart::v, config.kv_width()}};
    if (pair.target.part == TensorPart::gate_up)
      parts = {{TensorPart::gate, config.hidden}, {TensorPart::up, config.hidden}};
    auto b = pair.b.begin();
    for (const auto& [part, rows] : parts) {
      LoraPair own = pair;
      own.target.part = part;
      own.target.rows = rows;
      const auto end = b + static_cast<std::ptrdiff_t>(rows * pair.rank);
      own.b.assign(b, end);
      b = end;
      lora.pairs.push_back(std::move(own));
    }
  }
  return lora;
}

TEST_F(EveryFamilyInFiles, AdaptersAreTheMergedModel) {
  const std::vector<Token> tokens = words_of(70);  // two chunks
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    RandomModel adapted = model_of(family), merged = model_of(family);
    const Config& config = merged.model.config;
    const Lora lora = lora_of(config);
    const fs::path path = folder_ / (name + ".gguf");
    testing_support::write_gguf_lora(
        path, lora, testing_support::lora_metadata(lora, gguf_architecture(config)));
    const Expected without = expected_of(merged.model, tokens);
    testing_support::merge_lora(in_parts(lora, config), 0.5, merged.model);
    const Expected expected = expected_of(merged.model, tokens);
    EXPECT_GT(compare(without.logits.back(), expected.logits.back()).max_abs_error, 0.05) << name;
    add_adapters({{path, 0.5}}, adapted.model);
    LettersWorld world(adapted);
    read_logits(world.generator(), tokens, [&](uint32_t position, std::span<const float> logits) {
      expect_close(logits, expected.logits.at(position), 1e-2,
                   name + " at " + std::to_string(position));
    });
    Request request{.prompt = words_of(20), .max_tokens = 30, .stop = {}, .ignore_eos = true};
    const std::vector<Token> plain = answer_to(world, request).tokens;
    LettersWorld drafting(adapted);
    request.speculation = testing_support::eager(lookup_drafter(), 4);
    EXPECT_EQ(answer_to(drafting, request).tokens, plain) << name;
  }
}

TEST_F(EveryFamilyInFiles, APromptCacheGoesOnWithTheSameTokens) {
  const Request request{.prompt = words_of(70), .max_tokens = 9, .stop = {}, .ignore_eos = true};
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    const RandomModel random = model_of(family);
    const Config& config = random.model.config;
    const auto origin = [&](const LettersWorld& world) {
      return prompt_cache_origin(*world.pipeline, config, "a model", "a build");
    };
    // A state is kept in front of the last token, whose logits are asked for again.
    const uint32_t known = config.has_states() ? 69 : 70;
    LettersWorld first(random);
    const std::vector<Token> expected = answer_to(first, request).tokens;
    const fs::path path = folder_ / name;
    {
      AtomicFile file(path, Replace::same_kind_read, kPromptCacheFile);
      const KvTable table = first.prefixes->find(request.prompt, 70);
      ASSERT_EQ(table.length(), known) << name;
      write_prompt_cache(file, origin(first), std::span(request.prompt).first(known), table,
                         *first.pipeline);
      file.commit();
    }
    const MappedFile file(path);
    LettersWorld second(random);
    const PromptCacheContent content =
        read_prompt_cache(file.bytes(), origin(second), config.vocab);
    ASSERT_EQ(content.why_not, "") << name;
    EXPECT_EQ(place_prompt_cache(content, *second.pipeline, *second.prefixes), known) << name;
    const Answer answer = answer_to(second, request);
    EXPECT_EQ(answer.tokens, expected) << name;
    EXPECT_EQ(answer.receipt.cached_tokens, 69u) << name;
  }
}

// The model guesses for itself, and another of its family, with other weights, for it.
TEST_F(EveryFamilyInFiles, ADraftModelChangesNoToken) {
  for (const Family& family : families()) {
    const std::string name(family.model_type);
    Config config = config_of(family.model_type);
    config.vocab = 512;  // the least that a written vocabulary has
    EngineOptions options;
    options.model = folder_ / (name + ".gguf");
    options.threads = 1;
    const fs::path other = folder_ / (name + "-other.gguf");
    synthesize(config, "f32", 1, options.model);
    synthesize(config, "f32", 2, other);
    Engine engine(options);
    Request request{.prompt = words_of(20), .max_tokens = 24, .stop = {}, .ignore_eos = true};
    const auto answer = [&] {
      Sampler greedy({.temperature = 0});
      return generate(engine.generator_from_nothing(), greedy, request,
                      [](std::string_view) { return true; });
    };
    const std::vector<Token> expected = answer().tokens;
    for (const std::string& model : {options.model, other.string()}) {
      const auto draft = open_draft(model, engine, options);
      request.speculation = testing_support::eager(model_drafter(*draft), 4);
      const Answer drafted = answer();
      EXPECT_EQ(drafted.tokens, expected) << name << " with " << model;
      ASSERT_TRUE(drafted.receipt.speculation) << name;
      EXPECT_GT(drafted.receipt.speculation->drafted, 0u) << name;
      if (model == options.model) {
        EXPECT_EQ(drafted.receipt.speculation->accepted, drafted.receipt.speculation->drafted)
            << name;
      }
      request.speculation.reset();
    }
  }
}

TEST_F(EveryFamilyInFiles, ARowOfASweepHasItsTimesOrAReason) {
  Config config = config_of("llama");
  config.vocab = 512;
  EngineOptions options;
  options.model = folder_ / "sweep.gguf";
  options.threads = 1;
  synthesize(config, "f32", 1, options.model);
  Engine engine(options);
  const SweepRow row = record_sweep_row(engine, 9, 5, 2);
  EXPECT_EQ(row.note, "");
  EXPECT_EQ(row.prefill_s.size(), 2u);
  EXPECT_EQ(row.tpot_ms.size(), 2u);
  EXPECT_EQ(row.generated_tokens, 5u);
  EXPECT_EQ(row.receipt.prompt_tokens, 9u);
  const uint32_t room = engine.pipeline().context();
  const SweepRow longer = record_sweep_row(engine, room, 1, 2);
  EXPECT_EQ(longer.note, std::to_string(room) + " and 1 generated do not fit in " +
                             std::to_string(room) + " positions");
  EXPECT_TRUE(longer.prefill_s.empty());
}

}  // namespace
}  // namespace tyto
