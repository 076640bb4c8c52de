// LoRA adapters: a model with one computes what the model with merged weights does, in the
// reference and on devices, and says what an NPU's images leave to the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "device/vnpu/machine/control.h"
#include "llama/reference.h"
#include "support/lora_writer.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

#include "tensor/compare.h"
#include "unit/model/model_fixtures.h"

namespace tyto {
namespace {

using namespace testing_support;

std::vector<Token> some_tokens(size_t count) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 37 + 11) % 61));
  return tokens;
}

// Projections of unlike rank, of which the second layer has fewer.
uint64_t mixed_ranks(const WeightSpec& spec) {
  if (spec.part == TensorPart::head) return 2;
  if (spec.part == TensorPart::v) return spec.layer == 0 ? 5 : 3;
  return spec.layer == 1 && spec.part == TensorPart::o ? 0 : 4;
}

struct Adapted {
  explicit Adapted(RopeLayout layout, DType type = DType::f32, bool with_head = true) {
    Config config = small_config();
    config.rope.layout = layout;
    const Lora first = random_lora(config, 1, [&](const WeightSpec& spec) {
      return spec.part == TensorPart::head && !with_head ? 0 : mixed_ranks(spec);
    });
    const Lora second = random_lora(
        config, 2, [](const WeightSpec& spec) { return spec.part == TensorPart::down ? 1 : 0; });
    write_gguf_lora(scratch / "first.gguf", first, lora_metadata(first, "llama"));
    write_gguf_lora(scratch / "second.gguf", second, lora_metadata(second, "llama"));
    for (RandomModel* each : {&base, &adapted, &merged}) *each = random_model(config, type);
    // Both files have Q and K for GGUFs, whose heads are in pairs.
    const bool turns = layout == RopeLayout::halves;
    merge_lora(turns ? in_halves(first, config) : first, 0.5, merged.model);
    merge_lora(second, -1, merged.model);
    add_adapters({parse_adapter((scratch / "first.gguf").string() + "=0.5"),
                  parse_adapter((scratch / "second.gguf").string() + "=-1")},
                 adapted.model);
  }

  static Lora in_halves(Lora lora, const Config& config) {
    for (LoraPair& pair : lora.pairs) {
      if (pair.target.part != TensorPart::q && pair.target.part != TensorPart::k) continue;
      const std::vector<float> b = pair.b;
      for (uint64_t row = 0; row < pair.target.rows; ++row)
        for (uint64_t r = 0; r < pair.rank; ++r)
          pair.b[unpermuted_row(row, config.head_dim) * pair.rank + r] = b[row * pair.rank + r];
    }
    return lora;
  }

  test::Scratch scratch;
  RandomModel base, adapted, merged;
};

std::vector<std::vector<float>> reference_logits(const Model& model,
                                                 std::span<const Token> tokens) {
  Reference reference(model);
  std::vector<std::vector<float>> logits;
  for (const Token token : tokens) logits.push_back(reference.forward(token));
  return logits;
}

double worst(const std::vector<float>& actual, const std::vector<float>& expected) {
  const Comparison difference = compare(actual, expected);
  return difference.max_abs_error / difference.max_abs_reference;
}

TEST(Lora, TheReferenceComputesTheMergedModel) {
  const auto tokens = some_tokens(8);
  for (const RopeLayout layout : {RopeLayout::pairs, RopeLayout::halves}) {
    const Adapted models(layout);
    const auto expected = reference_logits(models.merged.model, tokens);
    const auto actual = reference_logits(models.adapted.model, tokens);
    const auto without = reference_logits(models.base.model, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_LE(worst(actual[i], expected[i]), 1e-5);
    EXPECT_GE(worst(without.back(), expected.back()), 0.05);  // or nothing was compared
  }
}

struct Bench {
  Bench(const Model& model, const std::vector<std::string>& names, Fusion fusion,
        NpuWeights weights = NpuWeights::bf16) {
    NpuSettings npu;
    npu.weights = weights;
    const DeviceEnv env{pool, trace, fusion, model_dims(model.config, 0),
                        names.front() == "vnpu" ? settings_of(npu) : DeviceSettings{}};
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
  bool says(const std::string& reason) const {
    return std::ranges::any_of(trace.fallbacks(), [&](const std::string& said) {
      return said.find(reason) != std::string::npos;
    });
  }

  ThreadPool pool{2};
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<OneSequence> pipeline;
};

TEST(Lora, TheCpuComputesTheMergedModel) {
  const auto tokens = some_tokens(16);
  const Adapted models(RopeLayout::pairs);
  const auto expected = reference_logits(models.merged.model, tokens);
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    Bench bench(models.adapted.model, {"cpu"}, fusion);
    for (size_t done = 0; done < tokens.size();) {
      const size_t count = done == 0 ? 10 : 1;
      const auto actual = bench.run(std::span(tokens).subspan(done, count));
      done += count;
      EXPECT_LE(worst(actual, expected[done - 1]), 2e-5) << "after " << done;
    }
  }
}

struct NpuForm {
  const char* name;
  Fusion fusion;
  NpuWeights weights;
  double cosine;
};

TEST(Lora, TheVirtualNpuComputesWhatTheCpuDoes) {
  constexpr NpuForm kForms[] = {{"op", Fusion::op, NpuWeights::bf16, 0.998},
                                {"block", Fusion::block, NpuWeights::bf16, 0.998},
                                {"token", Fusion::token, NpuWeights::bf16, 0.998},
                                {"token_q4nx", Fusion::token, NpuWeights::q4nx, 0.95},
                                {"op_int8", Fusion::op, NpuWeights::int8, 0.99}};
  const auto tokens = some_tokens(9);
  for (const NpuForm& form : kForms) {
    const Adapted models(RopeLayout::halves, DType::bf16);
    vxrt::reset();
    Bench cpu(models.merged.model, {"cpu"}, Fusion::block);
    Bench npu(models.adapted.model, {"vnpu", "cpu"}, form.fusion, form.weights);
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}, {7, 2}}) {
      const auto part = std::span(tokens).subspan(first, count);
      EXPECT_GE(compare(npu.run(part), cpu.run(part)).cosine, form.cosine)
          << form.name << " after " << first + count;
    }
    if (form.weights == NpuWeights::q4nx) {
      EXPECT_TRUE(npu.says("the single-dispatch decode has no LoRA adapters"));
    }
    if (form.fusion == Fusion::token && form.weights == NpuWeights::bf16) {
      EXPECT_TRUE(npu.says("leaves no room for LoRA adapters of the head"));
    }
    if (form.fusion == Fusion::block) {
      EXPECT_TRUE(npu.says("leaves no room for LoRA adapters")) << form.name;
    }
  }
  vxrt::reset();
}

TEST(Lora, OneDispatchOfATokenTakesAdaptersOfTheLayers) {
  const auto tokens = some_tokens(8);
  const Adapted models(RopeLayout::halves, DType::bf16, false);
  vxrt::reset();
  Bench cpu(models.merged.model, {"cpu"}, Fusion::block);
  Bench npu(models.adapted.model, {"vnpu", "cpu"}, Fusion::token);
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}, {7, 1}}) {
    const auto part = std::span(tokens).subspan(first, count);
    EXPECT_GE(compare(npu.run(part), cpu.run(part)).cosine, 0.998) << first;
  }
  EXPECT_FALSE(npu.says("adapters of the head"));
  vxrt::reset();
}

// The host projects and rotates all heads of a GGUF in pairs, prompts' and tokens'.
TEST(Lora, BlocksOfAGgufLeaveHeadsInPairsToTheHost) {
  const auto tokens = some_tokens(7);
  const Adapted models(RopeLayout::pairs, DType::bf16);
  vxrt::reset();
  Bench cpu(models.merged.model, {"cpu"}, Fusion::block);
  Bench npu(models.adapted.model, {"vnpu", "cpu"}, Fusion::block);
  for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 6}, {6, 1}}) {
    const auto part = std::span(tokens).subspan(first, count);
    EXPECT_GE(compare(npu.run(part), cpu.run(part)).cosine, 0.998) << first;
  }
  vxrt::reset();
}

}  // namespace
}  // namespace tyto
