// Families whose forward pass is not Llama's: every device computes what the reference does, and
// says what it left to the host.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "device/vnpu/machine/control.h"
#include "llama/forward_program.h"
#include "llama/reference.h"
#include "model/families.h"
#include "model/model.h"
#include "program/kernels.h"
#include "support/family_config.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "support/software_gpu.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::config_of;
using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

constexpr std::string_view kFamilies[] = {"granite",      "olmo2",
                                          "smollm3",      "phi3",
                                          "mistral",      "gemma2",
                                          "gemma3_text",  "qwen3_moe",
                                          "mixtral",      "gpt_oss",
                                          "cohere",       "lfm2",
                                          "qwen3_5_text", "qwen3_5_moe_text",
                                          "qwen3_next",   "granitemoehybrid",
                                          "lfm2_moe"};

std::vector<Token> some_tokens(size_t count) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 37 + 11) % 61));
  return tokens;
}

struct Bench {
  Bench(const Model& model, const std::vector<std::string>& names, Fusion fusion,
        NpuWeights weights = NpuWeights::bf16) {
    NpuSettings npu;
    npu.weights = weights;
    const DeviceEnv env{pool, trace, fusion, model_dims(model.config, 0),
                        names.front() == "vnpu"     ? testing_support::settings_of(npu)
                        : names.front() == "vulkan" ? testing_support::software_gpu()
                                                    : DeviceSettings{}};
    std::vector<Device*> order;
    for (const std::string& name : names) {
      devices.push_back(open_device(name, env));
      order.push_back(devices.back().get());
    }
    PipelineOptions options;
    options.forward.fusion = fusion;
    if (names.front() == "cpu") options.forward.kv_type = DType::f32;
    pipeline = std::make_unique<OneSequence>(model, order, options, trace);
  }

  std::vector<float> run(std::span<const Token> tokens) {
    const auto logits = pipeline->run(tokens);
    return {logits.begin(), logits.end()};
  }
  // The first hidden state that is further from the expected one than a part of its largest value.
  std::string run_hidden(std::span<const Token> tokens,
                         const std::vector<std::vector<float>>& expected, double part) {
    std::string worst;
    size_t seen = 0;
    pipeline->run_hidden(tokens, [&](uint32_t position, std::span<const float> hidden) {
      ++seen;
      const Comparison difference = compare(hidden, expected.at(position));
      if (worst.empty() && !(difference.max_abs_error <= part * difference.max_abs_reference))
        worst = fmt::format("{} of {} at {}", difference.max_abs_error,
                            difference.max_abs_reference, position);
    });
    return seen == expected.size() ? worst : fmt::format("{} hidden states", seen);
  }
  bool says(const std::string& reason) const {
    const auto& reasons = trace.fallbacks();
    return std::any_of(reasons.begin(), reasons.end(), [&](const std::string& said) {
      return said.find(reason) != std::string::npos;
    });
  }
  bool leaves_to_host(const std::string& what) const {
    return std::ranges::find(trace.on_host(), what) != trace.on_host().end();
  }

  ThreadPool pool{2};
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<OneSequence> pipeline;
};

std::vector<std::vector<float>> reference_logits(const Model& model,
                                                 std::span<const Token> tokens) {
  Reference reference(model);
  std::vector<std::vector<float>> logits;
  for (const Token token : tokens) logits.push_back(reference.forward(token));
  return logits;
}

TEST(Families, TheCpuComputesWhatTheReferenceDoes) {
  const auto tokens = some_tokens(20);
  for (const std::string_view family : kFamilies) {
    const RandomModel random = random_model(config_of(family), DType::f32);
    const auto expected = reference_logits(random.model, tokens);
    for (const Fusion fusion : {Fusion::op, Fusion::token}) {
      Bench bench(random.model, {"cpu"}, fusion);
      // A prompt, then token by token.
      for (size_t done = 0; done < tokens.size(); done += done == 0 ? 12 : 1) {
        const size_t count = done == 0 ? 12 : 1;
        const auto actual = bench.run(std::span(tokens).subspan(done, count));
        const Comparison difference = compare(actual, expected[done + count - 1]);
        EXPECT_LE(difference.max_abs_error, 2e-5 * difference.max_abs_reference)
            << family << " after " << done + count;
      }
    }
  }
}

// The residual streams of real models have a mean, without which LayerNorm is RMSNorm.
RandomModel off_centre_model(const Config& config, DType type) {
  RandomModel random = random_model(config, type);
  Weights& weights = random.model.weights;
  weights.embedding = random.tensor(type, config.vocab, config.emb, 1.0f, 2.0f);
  if (config.tied_head) weights.head = weights.embedding;
  return random;
}

// A prompt, some rows of one sequence, then token by token: nothing but layers with a state is left
// to the host, so that each call is one submission.
TEST(Families, TheGpuComputesWhatTheReferenceDoesInOneSubmissionACall) {
  const auto tokens = some_tokens(24);
  for (const Family& family : families()) {
    const RandomModel random = off_centre_model(config_of(family.model_type), DType::f32);
    const auto expected = reference_logits(random.model, tokens);
    Bench bench(random.model, {"vulkan", "cpu"}, Fusion::token);
    testing_support::expect_validated();
    const bool is_whole = !random.model.config.has_states();
    EXPECT_EQ(bench.says("not on vulkan"), !is_whole) << family.model_type;
    const auto submissions = [&] { return bench.trace.device("vulkan").submissions; };
    for (size_t done = 0; done < tokens.size();) {
      const size_t count = done == 0 ? 18 : done == 18 ? 3 : 1;
      const uint64_t before = submissions();
      const auto actual = bench.run(std::span(tokens).subspan(done, count));
      done += count;
      const Comparison difference = compare(actual, expected[done - 1]);
      // Cohere's logits are small differences of large terms: the rows of its head have a mean
      // here, and what its LayerNorm gives has none.
      EXPECT_LE(difference.max_abs_error, 5e-4 * difference.max_abs_reference)
          << family.model_type << " after " << done;
      if (is_whole) {
        EXPECT_EQ(submissions() - before, count == 1 ? 1u : 2u) << family.model_type;
      }
    }
    EXPECT_EQ(bench.trace.device("cpu").submissions == 0, is_whole) << family.model_type;
  }
}

// CallCost adds up once what the number of rows decides alone.
TEST(Families, CostsOfOneCallAfterTheOtherAreThoseOfEach) {
  for (const Family& family : families()) {
    const RandomModel random = random_model(config_of(family.model_type), DType::f32);
    const std::vector<float> frequencies = rope_frequencies(random.model.config);
    for (const uint32_t page : {0u, 64u}) {
      const ForwardShape shape{.rows = 16,
                               .context = random.model.config.context,
                               .kv_page = page,
                               .kv_pages = page == 0 ? 0 : 8u};
      const Program program =
          forward_program(random.model, frequencies, Part::whole, shape).program;
      CallCost costs(program);
      const std::vector<uint32_t> pages = {0, 1, 2, 3};
      const Segment batch[] = {{0, 1, 9, pages, pages}, {1, 3, 70, pages, pages}};
      for (const Call& call :
           {call_of(1, 0, 0, pages), call_of(1, 60, 0, pages), call_of(4, 3, 0, pages),
            call_of(page == 0 ? std::span(batch).first(1) : std::span(batch)),
            call_of(1, 7, 0, pages)}) {
        EXPECT_EQ(costs.of(call).bytes, cost(program, call).bytes) << family.model_type;
        EXPECT_EQ(costs.of(call).flops, cost(program, call).flops) << family.model_type;
      }
    }
  }
}

// By position.
std::vector<std::vector<float>> reference_hidden(const Model& model,
                                                 std::span<const Token> tokens) {
  std::vector<std::vector<float>> hidden;
  Reference reference(model, [&](Role role, uint16_t, std::span<const float> values) {
    if (role == Role::final_norm) hidden.emplace_back(values.begin(), values.end());
  });
  for (const Token token : tokens) reference.forward(token);
  return hidden;
}

TEST(Families, HiddenStatesOfEveryFamilyAreTheReferences) {
  const auto tokens = some_tokens(9);
  for (const Family& family : families()) {
    Config config = config_of(family.model_type);
    if (!config.unrotated.empty()) config.rope.layout = RopeLayout::halves;
    config.experts_used = config.experts;  // as on the virtual NPU below
    // Processors with instructions for bf16 round what they multiply with such weights.
    const RandomModel exact = off_centre_model(config, DType::f32);
    Bench cpu(exact.model, {"cpu"}, Fusion::token);
    EXPECT_EQ(cpu.run_hidden(tokens, reference_hidden(exact.model, tokens), 1e-4), "")
        << family.model_type;
    const RandomModel rounded = off_centre_model(config, DType::bf16);
    vxrt::reset();
    Bench npu(rounded.model, {"vnpu", "cpu"}, Fusion::op);
    EXPECT_EQ(npu.run_hidden(tokens, reference_hidden(rounded.model, tokens), 0.1), "")
        << family.model_type;
  }
  vxrt::reset();
  // The comparison tells the two norms apart.
  RandomModel cohere = off_centre_model(config_of("cohere"), DType::bf16);
  const auto with_mean = reference_hidden(cohere.model, tokens);
  cohere.model.config.layer_norm = false;
  Bench other(cohere.model, {"cpu"}, Fusion::token);
  EXPECT_NE(other.run_hidden(tokens, with_mean, 0.1), "");
}

// No family yet has all of these together.
TEST(Families, LayerNormsAndResidualsInParallelAreComputed) {
  const auto tokens = some_tokens(14);
  for (const bool parallel : {false, true}) {
    Config config = testing_support::small_config();
    config.layer_norm = true;
    config.parallel_residual = parallel;
    const RandomModel random = random_model(config, DType::f32);
    const auto expected = reference_logits(random.model, tokens);
    Bench bench(random.model, {"cpu"}, Fusion::block);
    EXPECT_LE(compare(bench.run(std::span(tokens).first(10)), expected[9]).max_abs_error, 2e-4);
    for (size_t i = 10; i < tokens.size(); ++i) {
      const Comparison difference =
          compare(bench.run(std::span(tokens).subspan(i, 1)), expected[i]);
      EXPECT_LE(difference.max_abs_error, 2e-5 * difference.max_abs_reference)
          << parallel << " at " << i;
    }
  }
}

// Each field must change the result, or the comparison above compares nothing.
TEST(Families, EveryDifferenceFromLlamaIsComputed) {
  const auto tokens = some_tokens(6);
  const auto changes = [&](const Config& config, auto change) {
    const RandomModel before = random_model(config, DType::f32);
    RandomModel after = random_model(config, DType::f32);  // the same weights
    change(after.model.config);
    return compare(reference_logits(after.model, tokens).back(),
                   reference_logits(before.model, tokens).back())
               .max_abs_error > 1e-3;
  };
  const Config granite = config_of("granite");
  EXPECT_TRUE(changes(granite, [](Config& c) { c.embedding_scale = 1; }));
  EXPECT_TRUE(changes(granite, [](Config& c) { c.residual_scale = 1; }));
  EXPECT_TRUE(changes(granite, [](Config& c) { c.attention_scale = 0; }));
  EXPECT_TRUE(changes(granite, [](Config& c) { c.logit_divisor = 1; }));
  Config centred = testing_support::small_config();
  EXPECT_TRUE(changes(centred, [](Config& c) { c.layer_norm = true; }));
  EXPECT_TRUE(changes(centred, [](Config& c) { c.parallel_residual = true; }));
  EXPECT_TRUE(changes(config_of("smollm3"), [](Config& c) { c.unrotated.clear(); }));
  const Config phi = config_of("phi3");
  EXPECT_TRUE(changes(phi, [](Config& c) { c.rope.attention_factor = 1; }));
  EXPECT_TRUE(changes(phi, [](Config& c) { choose_divisors(c, 32); }));
  EXPECT_FALSE(changes(phi, [](Config& c) { choose_divisors(c, 33); }));
  EXPECT_TRUE(changes(config_of("mistral"), [](Config& c) { c.window = 0; }));
  EXPECT_TRUE(changes(config_of("mistral"), [](Config& c) { c.window = 4; }));
  const Config gemma = config_of("gemma3_text");
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.windowed.clear(); }));
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.window_theta = 0; }));
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.score_cap = 0; }));
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.logit_cap = 0; }));
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.activation = Activation::silu; }));
  EXPECT_TRUE(changes(gemma, [](Config& c) { c.embedding_scale = 1; }));
  Config yarn = testing_support::small_config();
  yarn.rope.scaling = RopeScaling::yarn;
  yarn.rope.factor = 4;
  yarn.rope.original_context = 24;
  EXPECT_TRUE(changes(yarn, [](Config& c) { c.rope.factor = 8; }));
  EXPECT_TRUE(changes(yarn, [](Config& c) { c.rope.beta_slow = 0.1f; }));
  for (const std::string_view family : {"qwen3_moe", "mixtral", "gpt_oss"}) {
    EXPECT_TRUE(changes(config_of(family), [](Config& c) { c.experts_used = 3; })) << family;
    EXPECT_TRUE(changes(config_of(family), [](Config& c) { c.weighs_chosen_alone = false; }));
  }
  EXPECT_TRUE(changes(config_of("gpt_oss"), [](Config& c) { c.activation = Activation::silu; }));
  EXPECT_TRUE(changes(config_of("lfm2"), [](Config& c) { c.layer_kinds.clear(); }));
  // Norms are where there are weights of them, and as wide as these.
  EXPECT_EQ(random_model(config_of("olmo2"), DType::f32).model.weights.layers[0].k_norm.cols, 32u);
}

struct NpuForm {
  const char* name;
  Fusion fusion;
  NpuWeights weights;
  double cosine;
};
// Two to four layers in bf16, with random weights that make attention sharp.
constexpr NpuForm kNpuForms[] = {{"op", Fusion::op, NpuWeights::bf16, 0.998},
                                 {"block", Fusion::block, NpuWeights::bf16, 0.998},
                                 {"token", Fusion::token, NpuWeights::bf16, 0.998},
                                 {"token_q4nx", Fusion::token, NpuWeights::q4nx, 0.95},
                                 {"op_int8", Fusion::op, NpuWeights::int8, 0.99}};

TEST(Families, TheVirtualNpuComputesWhatTheCpuDoesInEveryForm) {
  const auto tokens = some_tokens(9);
  for (const std::string_view family : kFamilies) {
    for (const NpuForm& form : kNpuForms) {
      Config config = config_of(family);
      // As in safetensors: see ANpuThatTurnsOnlyTokensIsRefused.
      if (!config.unrotated.empty()) config.rope.layout = RopeLayout::halves;
      // Rounding to bf16 would choose others now and then.
      config.experts_used = config.experts;
      const RandomModel random = random_model(config, DType::bf16);
      vxrt::reset();
      Bench cpu(random.model, {"cpu"}, Fusion::block);
      Bench npu(random.model, {"vnpu", "cpu"}, form.fusion, form.weights);
      for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}, {7, 2}}) {
        const auto part = std::span(tokens).subspan(first, count);
        EXPECT_GE(compare(npu.run(part), cpu.run(part)).cosine, form.cosine)
            << family << " " << form.name << " after " << first + count;
      }
      // The image of a whole token computes Llama, and must not be taken for another model.
      if (form.weights == NpuWeights::q4nx) {
        EXPECT_TRUE(npu.says("the single-dispatch decode has no " +
                             differences_from_llama(random.model.config)))
            << family;
      }
    }
  }
  vxrt::reset();
}

// Prompts of SmolLM3 are rotated by the host, which keeps the pairs of a GGUF, and single tokens by
// compiled programs, which do not.
TEST(Families, ANpuThatTurnsOnlyTokensIsRefused) {
  const RandomModel random = random_model(config_of("smollm3"), DType::bf16);
  vxrt::reset();
  try {
    Bench(random.model, {"vnpu", "cpu"}, Fusion::op);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("each in its own order"), std::string::npos);
    EXPECT_NE(error.hint.find("safetensors"), std::string::npos);
  }
  vxrt::reset();
}

// gpt-oss: nothing but the sinks differs.
TEST(Families, SinksTakeTheirShareOnEveryDevice) {
  Config config = testing_support::small_config();
  config.sinks = true;
  const RandomModel random = random_model(config, DType::f32);
  const auto tokens = some_tokens(9);
  const auto expected = reference_logits(random.model, tokens);
  config.sinks = false;
  RandomModel without = random_model(config, DType::f32);
  without.model.weights = random.model.weights;
  for (LayerWeights& layer : without.model.weights.layers) layer.sinks = {};
  EXPECT_GT(compare(reference_logits(without.model, tokens).back(), expected.back()).max_abs_error,
            1e-3);
  for (const Fusion fusion : {Fusion::op, Fusion::token}) {
    vxrt::reset();
    Bench cpu(random.model, {"cpu"}, fusion), npu(random.model, {"vnpu", "cpu"}, fusion);
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}, {7, 2}}) {
      const auto part = std::span(tokens).subspan(first, count);
      const Comparison difference = compare(cpu.run(part), expected[first + count - 1]);
      EXPECT_LE(difference.max_abs_error, 2e-5 * difference.max_abs_reference);
      EXPECT_GE(compare(npu.run(part), expected[first + count - 1]).cosine, 0.998);
    }
    EXPECT_TRUE(npu.says("its kernels' attention has no sinks"));
  }
  vxrt::reset();
}

// Qwen3.5's.
TEST(Families, TheAttentionGateIsTheReferencesOnEveryDevice) {
  Config config = testing_support::small_config();
  const RandomModel plain = random_model(config, DType::bf16);
  config.attention_gate = true;
  const RandomModel random = random_model(config, DType::bf16);
  EXPECT_NE(identity_of(random.model, "").hash, identity_of(plain.model, "").hash);
  EXPECT_EQ(differences_from_llama(config), "a gate of the attention's output");
  const auto tokens = some_tokens(9);
  const auto expected = reference_logits(random.model, tokens);
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    vxrt::reset();
    Bench cpu(random.model, {"cpu"}, fusion), npu(random.model, {"vnpu", "cpu"}, fusion),
        gpu(random.model, {"vulkan", "cpu"}, fusion);
    testing_support::expect_validated();
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}, {7, 2}}) {
      const auto part = std::span(tokens).subspan(first, count);
      const std::vector<float>& logits = expected[first + count - 1];
      EXPECT_GE(compare(cpu.run(part), logits).cosine, 0.9999);
      EXPECT_GE(compare(npu.run(part), logits).cosine, 0.998);
      EXPECT_GE(compare(gpu.run(part), logits).cosine, 0.9999);
    }
    EXPECT_TRUE(npu.says("its kernels' gates go through SiLU"));
    if (fusion == Fusion::block) {
      EXPECT_TRUE(npu.says("its image rms_gemms_rope computes other steps together"));
      EXPECT_TRUE(npu.says("its image o_ffn projects what attention gives, and nothing else"));
    }
  }
  vxrt::reset();
}

// The receipt counts the experts that were read, not all that there are.
TEST(Families, ACallDeclaresTheExpertsThatItReads) {
  const RandomModel random = random_model(config_of("mixtral"), DType::f32);
  const auto bytes_of = [&](size_t tokens) {
    Bench bench(random.model, {"cpu"}, Fusion::token);
    bench.run(some_tokens(tokens));
    return bench.trace.device("cpu").bytes;
  };
  const LayerWeights& layer = random.model.weights.layers[0];
  const uint64_t expert =
      (layer.gate.bytes.size() + layer.up.bytes.size() + layer.down.bytes.size()) / 6;
  // Six experts of two layers would be more than a call of one token declares in all.
  EXPECT_GT(bytes_of(1), 2 * 2 * expert);
  EXPECT_LT(bytes_of(1), 2 * 6 * expert);
  // The same token again takes the same experts in its first layer.
  Bench bench(random.model, {"cpu"}, Fusion::token);
  bench.run(std::vector<Token>(12, 5));
  EXPECT_LT(bench.trace.device("cpu").bytes, bytes_of(12));
}

TEST(Families, WhatTheImagesOfBlocksLackIsSaid) {
  const RandomModel granite = random_model(config_of("granite"), DType::bf16);
  vxrt::reset();
  Bench npu(granite.model, {"vnpu", "cpu"}, Fusion::block);
  npu.run(some_tokens(4));
  EXPECT_TRUE(npu.leaves_to_host("steps between this model's images"));
  EXPECT_TRUE(npu.says("its image o_ffn computes other steps together"));
  EXPECT_FALSE(npu.says("rope not on vnpu"));  // the image before attention is Granite's, too

  const RandomModel smollm3 = random_model(config_of("smollm3"), DType::bf16);
  Bench mixed(smollm3.model, {"vnpu", "cpu"}, Fusion::block);
  mixed.run(some_tokens(4));
  EXPECT_TRUE(mixed.says("its image rms_gemms_rope has other steps than layer 3"));
  EXPECT_TRUE(mixed.says("rope not on vnpu"));  // no layer's, or it would turn them the other way
  EXPECT_FALSE(mixed.says("swiglu not on vnpu"));

  const RandomModel gemma = random_model(config_of("gemma3_text"), DType::bf16);
  for (const Fusion fusion : {Fusion::block, Fusion::token}) {
    Bench windowed(gemma.model, {"vnpu", "cpu"}, fusion);
    windowed.run(some_tokens(4));
    windowed.run(some_tokens(1));
    EXPECT_TRUE(windowed.says("its kernels' attention has no window"));
    EXPECT_TRUE(windowed.says("its kernels' gates go through SiLU"));
    EXPECT_TRUE(windowed.leaves_to_host("bound of the logits"));
  }
  vxrt::reset();
}

}  // namespace
}  // namespace tyto
