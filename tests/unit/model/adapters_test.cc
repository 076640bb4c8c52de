// Files of LoRA adapters: what they add, and what is refused.
#include "model/adapters.h"

#include <gtest/gtest.h>

#include "model/model.h"

#include "support/lora_writer.h"
#include "support/random_model.h"
#include "unit/model/model_fixtures.h"

namespace tyto {
namespace {

using namespace test;
using testing_support::Lora;
using testing_support::lora_metadata;
using testing_support::random_lora;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;
using testing_support::write_gguf_lora;
using testing_support::write_peft_lora;

constexpr const char* kPeftConfig =
    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj"]})";

Lora of_q_and_k(const Config& config, uint64_t rank = 2) {
  return random_lora(config, 3, [&](const WeightSpec& spec) {
    return spec.part == TensorPart::q || spec.part == TensorPart::k ? rank : 0;
  });
}

std::vector<float> values(const TensorView& view) {
  std::vector<float> result(view.values());
  dequantize(view.dtype, view.bytes, result);
  return result;
}

struct Files {
  explicit Files(RopeLayout layout = RopeLayout::pairs) {
    config.rope.layout = layout;
    model = random_model(config, DType::f32);
  }
  void add(const std::string& name) { add_adapters({{scratch / name, 1}}, model.model); }
  std::string error(const std::string& name) {
    return error_of([&] { add(name); });
  }
  // What is said of a GGUF in which one thing is otherwise.
  template <typename Change>
  std::string gguf_error(const Change& change) {
    Lora lora = of_q_and_k(config);
    GgufMetadata metadata = lora_metadata(lora, "llama");
    change(lora, metadata);
    const std::string name = fmt::format("{}.gguf", ++written);  // what was read is an input
    write_gguf_lora(scratch / name, lora, metadata);
    return error(name);
  }
  std::string peft_error(const std::string& json) {
    const std::string name = fmt::format("peft{}", ++written);
    write_peft_lora(scratch / name, of_q_and_k(config), config, json);
    return error(name);
  }

  int written = 0;
  Scratch scratch;
  Config config = small_config();
  RandomModel model;
};

TEST(Adapters, GgufAndPeftGiveTheSameMatrices) {
  for (const RopeLayout layout : {RopeLayout::pairs, RopeLayout::halves}) {
    Files gguf(layout), peft(layout);
    Config in_pairs = gguf.config;
    in_pairs.rope.layout = RopeLayout::pairs;  // as a GGUF of this architecture has them
    const Lora lora = of_q_and_k(gguf.config);
    write_gguf_lora(gguf.scratch / "a.gguf", lora, lora_metadata(lora, "llama"));
    write_peft_lora(peft.scratch / "peft", lora, in_pairs, kPeftConfig);
    gguf.add("a.gguf");
    peft.add("peft");
    for (const uint32_t layer : {0, 1})
      for (const auto field : {&LayerWeights::q_lora, &LayerWeights::k_lora}) {
        const LowRank& one = gguf.model.model.weights.layers[layer].*field;
        const LowRank& other = peft.model.model.weights.layers[layer].*field;
        EXPECT_EQ(values(one.a), values(other.a));
        EXPECT_EQ(values(one.b), values(other.b));
      }
    const LayerWeights& layer = gguf.model.model.weights.layers[0];
    EXPECT_TRUE(layer.v_lora.empty());
    // alpha / rank is in b, whose rows stay where they are in the layout of the file.
    if (layout == RopeLayout::pairs) {
      EXPECT_EQ(values(layer.q_lora.b)[5], 4 * lora.pairs[0].b[5]);
    }
    EXPECT_TRUE(gguf.model.model.config.adapted);
    EXPECT_EQ(gguf.model.model.adapters.front().matrices, 4u);
  }
}

TEST(Adapters, TheRootOfTheRankIsAskedFor) {
  Files plain, rooted;
  const std::string json = kPeftConfig;
  const Lora lora = of_q_and_k(plain.config);
  write_peft_lora(plain.scratch / "peft", lora, plain.config, json);
  write_peft_lora(rooted.scratch / "peft", lora, rooted.config,
                  json.substr(0, json.size() - 1) + R"(, "use_rslora": true})");
  plain.add("peft");
  rooted.add("peft");
  const auto b = [](const Files& files) {
    return values(files.model.model.weights.layers[0].q_lora.b)[7];
  };
  EXPECT_FLOAT_EQ(b(rooted), b(plain) * std::sqrt(2.0f));
}

TEST(Adapters, FusedMatricesAreTakenApart) {
  Files files(RopeLayout::halves);
  files.config.architecture = "phi3";
  files.config.fused_projections = true;
  files.model = random_model(files.config, DType::f32);
  const Lora lora = random_lora(files.config, 3, [](const WeightSpec& spec) {
    return spec.part == TensorPart::qkv || spec.part == TensorPart::gate_up ? 2 : 0;
  });
  write_gguf_lora(files.scratch / "a.gguf", lora, lora_metadata(lora, "phi3"));
  files.add("a.gguf");
  const LayerWeights& layer = files.model.model.weights.layers[0];
  EXPECT_EQ(values(layer.q_lora.a), values(layer.v_lora.a));
  const size_t v = (files.config.q_width() + files.config.kv_width()) * 2;
  EXPECT_EQ(values(layer.v_lora.b)[3], 4 * lora.pairs[0].b[v + 3]);
  EXPECT_EQ(values(layer.up_lora.b)[1], 4 * lora.pairs[1].b[files.config.hidden * 2 + 1]);
}

TEST(Adapters, AScaleMayFollowTheName) {
  EXPECT_EQ(parse_adapter("a.gguf").scale, 1);
  EXPECT_EQ(parse_adapter("a=b.gguf=0.25").path, "a=b.gguf");
  EXPECT_EQ(parse_adapter("a.gguf=-2").scale, -2);
  for (const char* bad : {"a.gguf=", "a.gguf=strong", "=1", "a.gguf=nan", "a.gguf=1e9"})
    EXPECT_MESSAGE([&] { parse_adapter(bad); }, "expected FILE or FILE=SCALE");
}

#define EXPECT_SAYS(text, fragment) EXPECT_PRED_FORMAT2(::tyto::test::contains, text, fragment)

TEST(Adapters, FilesThatAreNoAdapterOfTheModelAreRefused) {
  Files files;
  EXPECT_SAYS(files.error("none.gguf"), "no such adapter");
  EXPECT_SAYS(files.gguf_error([](Lora&, GgufMetadata& all) { all.erase(all.begin() + 1); }),
              "is not an adapter (general.type) | give models with -m");
  EXPECT_SAYS(files.gguf_error([](Lora&, GgufMetadata& all) { all[2].second = {"ia3"}; }),
              "adapter.type: ia3; lora is supported");
  EXPECT_SAYS(files.gguf_error([](Lora&, GgufMetadata& all) { all[0].second = {"qwen2"}; }),
              "general.architecture: qwen2, and the model is llama | take the model");
  EXPECT_SAYS(files.gguf_error([](Lora&, GgufMetadata& all) { all[3].second = {1e9}; }),
              "adapter.lora.alpha: 1000000000 is outside");
  EXPECT_SAYS(files.gguf_error([](Lora& lora, GgufMetadata&) {
    lora.pairs[0].target.name = "blk.7.attn_q.weight";
  }),
              "blk.7.attn_q.weight.lora_a: this llama model of 2 layers has no such projection");
  EXPECT_SAYS(files.gguf_error([](Lora& lora, GgufMetadata&) {
    lora.pairs[0].target.name = "token_embd.weight";
  }),
              "an adapter of token_embd.weight, which is not supported | merge the adapter");
  EXPECT_SAYS(files.gguf_error([](Lora& lora, GgufMetadata&) {
    lora.pairs[0].target.name = "blk.0.attn_k.weight";
    lora.pairs.erase(lora.pairs.begin() + 1);
  }),
              "for a projection from 64 to 32 values of this llama model");
  EXPECT_SAYS(files.gguf_error([](Lora& lora, GgufMetadata&) { lora.pairs[0].a[3] = INFINITY; }),
              "inf at row 0, column 3 cannot be a weight");
  EXPECT_SAYS(files.gguf_error([](Lora& lora, GgufMetadata&) { lora.pairs.clear(); }),
              "has no LoRA matrices");
  EXPECT_TRUE(files.model.model.adapters.empty());
  EXPECT_TRUE(files.model.model.weights.layers[0].q_lora.empty());
}

TEST(Adapters, PeftFeaturesBeyondLoraAreRefused) {
  Files files;
  const auto with = [&](const std::string& more) {
    const std::string json = kPeftConfig;
    return files.peft_error(json.substr(0, json.size() - 1) + ", " + more + "}");
  };
  EXPECT_SAYS(with(R"("use_dora": true)"), "use_dora: DoRA, which is not supported | merge");
  EXPECT_SAYS(with(R"("modules_to_save": ["lm_head"])"), "modules that were trained as a whole");
  EXPECT_SAYS(with(R"("bias": "all")"), "biases that were trained, too (all)");
  EXPECT_SAYS(with(R"("alpha_pattern": {"q_proj": 4})"), "a strength of its own");
  EXPECT_SAYS(with(R"("init_lora_weights": "pissa")"), "changes the model it begins with (pissa)");
  EXPECT_SAYS(with(R"("r": 4)"), "is of rank 2, and adapter_config.json says 4");
  EXPECT_SAYS(with(R"("target_modules": ["q_proj", "v_proj"])"), "v_proj has no matrices");
  EXPECT_SAYS(with(R"("peft_type": "IA3")"), "IA3; LORA is supported");
  EXPECT_SAYS(with(R"("use_dora": false, "modules_to_save": null, "bias": "none")"), "no error");
  std::filesystem::remove(files.scratch / "peft1" / "adapter_model.safetensors");
  write_file(files.scratch / "peft1" / "adapter_config.json", kPeftConfig);
  EXPECT_SAYS(files.error("peft1"), "adapter_model.bin is not read");
  std::filesystem::remove(files.scratch / "peft1" / "adapter_config.json");
  EXPECT_SAYS(files.error("peft1"), "has no adapter_config.json: not an adapter");
}

TEST(Adapters, TheIdentityHasThemWithTheirScales) {
  const auto identity = [](double scale, uint32_t rank) {
    Files files;
    const Lora lora = of_q_and_k(files.config, rank);
    write_gguf_lora(files.scratch / "a.gguf", lora, lora_metadata(lora, "llama"));
    if (rank > 0 && scale != 0)
      add_adapters({{files.scratch / "a.gguf", scale}}, files.model.model);
    return identity_of(files.model.model, "");
  };
  const std::string one = identity(1, 2).hash;
  EXPECT_EQ(identity(1, 2).hash, one);
  EXPECT_NE(identity(0.5, 2).hash, one);
  EXPECT_NE(identity(1, 3).hash, one);
  EXPECT_NE(identity(0, 2).hash, one);
  EXPECT_EQ(identity(1, 2).adapters.size(), 1u);
  EXPECT_NE(identity(1, 2).form.find("LoRA adapter"), std::string::npos);
}

}  // namespace
}  // namespace tyto
