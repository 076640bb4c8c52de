#include "model/hf_model.h"

#include <cmath>

#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

// The fields every config has; `more` is appended and wins over nothing, so it must not repeat one.
Config read(const std::string& model_type, const std::string& more = "") {
  const std::string text = R"({"model_type":")" + model_type +
                           R"(","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
                           R"("num_attention_heads":4,"vocab_size":300,"hidden_act":"silu")" +
                           (more.empty() ? "" : "," + more) + "}";
  return config_from_hf(Json::parse(text, "config.json"));
}

std::string error(const std::string& model_type, const std::string& more) {
  return error_of([&] { read(model_type, more); });
}

TEST(HfConfig, LlamasFieldsAreRead) {
  const Config config =
      read("llama", R"("num_key_value_heads":2,"max_position_embeddings":131072,)"
                    R"("rms_norm_eps":1e-05,"rope_theta":500000.0,"tie_word_embeddings":true,)"
                    R"("head_dim":32,"attention_bias":false,"mlp_bias":false,)"
                    R"("rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,)"
                    R"("original_max_position_embeddings":8192,"rope_type":"llama3"})");
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.layers, 2u);
  EXPECT_EQ(config.emb, 64u);
  EXPECT_EQ(config.hidden, 96u);
  EXPECT_EQ(config.heads, 4u);
  EXPECT_EQ(config.kv_heads, 2u);
  EXPECT_EQ(config.head_dim, 32u);
  EXPECT_EQ(config.vocab, 300u);
  EXPECT_EQ(config.context, 131072u);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_TRUE(config.tied_head);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.rope.theta, 500000.0f);
  EXPECT_EQ(config.rope.layout, RopeLayout::halves);
  EXPECT_EQ(config.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(config.rope.factor, 32.0f);
  EXPECT_EQ(config.rope.original_context, 8192u);
}

TEST(HfConfig, DefaultsOfAbsentFields) {
  const Config llama = read("llama");
  EXPECT_EQ(llama.kv_heads, 4u);
  EXPECT_EQ(llama.head_dim, 16u);
  EXPECT_EQ(llama.rope.theta, 10000.0f);
  EXPECT_EQ(llama.norm_eps, 1e-6f);
  EXPECT_EQ(llama.context, 2048u);
  EXPECT_FALSE(llama.tied_head);
  EXPECT_EQ(read("llama", R"("head_dim":null,"rope_scaling":null)").head_dim, 16u);
  EXPECT_EQ(read("qwen3").head_dim, 128u);
}

TEST(HfConfig, OtherArchitectures) {
  EXPECT_TRUE(read("qwen2").qkv_bias);
  EXPECT_FALSE(read("qwen2").qk_norm);
  EXPECT_TRUE(read("qwen3").qk_norm);
  EXPECT_FALSE(read("qwen3").qkv_bias);
  EXPECT_EQ(read("mistral").architecture, "mistral");
  EXPECT_PRED_FORMAT2(
      contains, error("gemma4", ""),
      "config.json: architecture gemma4, which is not supported; these are: llama, mistral, qwen2");
}

TEST(HfConfig, GranitesMultipliersAreRead) {
  const Config config = read("granite", R"("embedding_multiplier":12.0,"residual_multiplier":0.22,)"
                                        R"("attention_multiplier":0.015625,"logits_scaling":8.0)");
  EXPECT_EQ(config.embedding_scale, 12.0f);
  EXPECT_EQ(config.residual_scale, 0.22f);
  EXPECT_EQ(config.attention_scale, 0.015625f);
  EXPECT_EQ(config.query_scale(), 0.0625f);
  EXPECT_EQ(config.logit_divisor, 8.0f);
  EXPECT_EQ(read("granite").attention_scale, 1.0f);  // as in its own config class
  EXPECT_EQ(read("llama", R"("residual_multiplier":0.22)").residual_scale, 1.0f);
  EXPECT_PRED_FORMAT2(contains, error("granite", R"("logits_scaling":0)"),
                      "config.json: logits_scaling: 0 is outside 1e-06..1000000");
}

TEST(HfConfig, Olmo2HasNormsBehindAndWideHeadNorms) {
  const Config config = read("olmo2", R"("num_key_value_heads":2)");
  EXPECT_EQ(config.norms, Norms::after);
  EXPECT_TRUE(config.qk_norm && config.wide_qk_norm);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(differences_from_llama(config),
            "norms behind attention and feed-forward, a norm over all heads of Q and K");
}

// Checkpoints of Qwen3.5, 3.6 and 3.8 say in a newer and in an older way which layers attend.
TEST(HfConfig, Qwen35HasLayersWithAState) {
  const Config config = read("qwen3_5_text", R"("full_attention_interval":2)");
  EXPECT_EQ(config.layer_kinds,
            (std::vector<LayerKind>{LayerKind::delta_rule, LayerKind::attention}));
  EXPECT_EQ(
      read("qwen3_5_text", R"("layer_types":["linear_attention","full_attention"])").layer_kinds,
      config.layer_kinds);
  EXPECT_TRUE(config.attention_gate && config.qk_norm);
  EXPECT_EQ(config.head_dim, 256u);
  EXPECT_EQ(config.rope.rotated, 64u);
  EXPECT_EQ(config.conv_taps, 4u);
  EXPECT_EQ(config.recurrent.key_heads, 16u);
  EXPECT_EQ(config.recurrent.values(), 4096u);
  EXPECT_EQ(config.q_rows(), 2 * config.q_width());
  EXPECT_EQ(differences_from_llama(config),
            "heads that rotate in part, a gate of the attention's output, recurrent layers");
}

TEST(HfConfig, RecurrentLayersThatContradictThemselvesAreRefused) {
  const auto problem = [](const std::string& fields) {
    return error("qwen3_5_text", R"("full_attention_interval":2,)" + fields);
  };
  EXPECT_PRED_FORMAT2(contains, problem(R"("linear_num_key_heads":3)"),
                      "32 value heads of recurrent layers cannot share 3 key heads evenly");
  EXPECT_PRED_FORMAT2(contains, problem(R"("linear_num_key_heads":0)"),
                      "recurrent layers with 0 and 32 heads, outside 1..4096");
  EXPECT_PRED_FORMAT2(contains, problem(R"("linear_value_head_dim":1048576)"),
                      "have widths 128 and 1048576, outside 1..1024");
  EXPECT_PRED_FORMAT2(contains, problem(R"("linear_conv_kernel_dim":9)"),
                      "convolutions over 9 positions; 2 to 4 are supported");
  EXPECT_PRED_FORMAT2(contains, problem(R"("layer_types":["full_attention"])"),
                      "config.json: layer_types: has 1 entries, and there are 2 layers");
  EXPECT_PRED_FORMAT2(contains, problem(R"("layer_types":["full_attention","mamba"])"),
                      "layer_types[1]: mamba; full_attention and linear_attention are supported");
  EXPECT_PRED_FORMAT2(contains, error("qwen3_5_text", ""), "none of its layers attends");
}

TEST(HfConfig, SmolLm3SaysWhichLayersHaveNoRope) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(read("smollm3").unrotated, (Layers{false, false}));  // every fourth, of two
  EXPECT_EQ(read("smollm3", R"("no_rope_layer_interval":2)").unrotated, (Layers{false, true}));
  EXPECT_EQ(read("smollm3", R"("no_rope_layers":[0,1])").unrotated, (Layers{true, false}));
  EXPECT_EQ(read("llama", R"("no_rope_layers":[0,1])").unrotated, Layers{});
  EXPECT_PRED_FORMAT2(contains, error("smollm3", R"("no_rope_layers":[0,1,1])"),
                      "config.json: no_rope_layers: has 3 entries, and there are 2 layers");
  EXPECT_PRED_FORMAT2(contains, error("smollm3", R"("no_rope_layers":[0,2])"),
                      "config.json: no_rope_layers[1]: ");
}

TEST(HfConfig, Lfm2SaysWhichLayersAreConvolutions) {
  using Kinds = std::vector<LayerKind>;
  const Kinds kinds = {LayerKind::short_conv, LayerKind::attention};
  const std::string conv = R"("conv_L_cache":3,"block_auto_adjust_ff_dim":false,)";
  const Config config =
      read("lfm2", conv + R"("layer_types":["conv","full_attention"],"norm_eps":1e-06)");
  EXPECT_EQ(config.layer_kinds, kinds);
  EXPECT_EQ(config.conv_taps, 3u);
  EXPECT_EQ(config.norm_eps, 1e-6f);
  EXPECT_EQ(config.hidden, 96u);
  EXPECT_EQ(state_bytes(config), 2u * 64 * 4);
  EXPECT_EQ(differences_from_llama(config), "recurrent layers");
  EXPECT_EQ(read("lfm2", conv + R"("full_attn_idxs":[1])").layer_kinds, kinds);
  EXPECT_EQ(read("lfm2", conv + R"("full_attn_idxs":[0,1])").layer_kinds, Kinds{});
  // Two thirds, rounded up to whole steps.
  EXPECT_EQ(read("lfm2", R"("conv_L_cache":3,"full_attn_idxs":[1],"block_ff_dim":12288)").hidden,
            8192u);
  EXPECT_EQ(read("lfm2", R"("conv_L_cache":3,"full_attn_idxs":[1],"block_multiple_of":48)").hidden,
            96u);
}

TEST(HfConfig, LayersThatMakeNoSenseAreRefused) {
  const std::string conv = R"("conv_L_cache":3,)";
  EXPECT_PRED_FORMAT2(contains, error("lfm2", conv + R"("layer_types":["conv"])"),
                      "config.json: layer_types: has 1 entries, and there are 2 layers");
  EXPECT_PRED_FORMAT2(contains, error("lfm2", conv + R"("layer_types":["conv","mamba"])"),
                      "layer_types[1]: mamba; full_attention and conv are supported");
  EXPECT_PRED_FORMAT2(contains, error("lfm2", conv + R"("full_attn_idxs":[2])"),
                      "full_attn_idxs[0]: is not one of 2 layers");
  EXPECT_PRED_FORMAT2(contains, error("lfm2", conv + R"("full_attn_idxs":[])"),
                      "none of its layers attends");
  EXPECT_PRED_FORMAT2(contains, error("lfm2", R"("full_attn_idxs":[1],"conv_L_cache":9)"),
                      "convolutions over 9 positions; 2 to 4 are supported");
  EXPECT_PRED_FORMAT2(contains, error("lfm2", conv + R"("full_attn_idxs":[1],"conv_bias":true)"),
                      "conv_bias: convolutions with biases");
}

TEST(HfConfig, Phi3HasFusedProjectionsAndLongRope) {
  const std::string long_rope =
      R"("max_position_embeddings":256,"original_max_position_embeddings":64,"sliding_window":262144,)"
      R"("partial_rotary_factor":0.75,"rope_scaling":{"type":"longrope",)"
      R"("short_factor":[1,1,1,1,1,2],"long_factor":[1,2,3,4,5,6]})";
  const Config config = read("phi3", long_rope);
  EXPECT_TRUE(config.fused_projections);
  EXPECT_EQ(config.context, 256u);
  EXPECT_EQ(config.rope.rotated, 12u);
  EXPECT_EQ(rope_frequencies(config).size(), 6u);
  EXPECT_EQ(config.rope.original_context, 64u);
  EXPECT_NEAR(config.rope.attention_factor, std::sqrt(4.0 / 3), 1e-6);  // 64 ^ (1 / 3) is 4
  EXPECT_EQ(config.rope.frequency_divisors, config.rope.long_divisors);
  Config short_one = config;
  choose_divisors(short_one, 64);
  EXPECT_EQ(short_one.rope.frequency_divisors, config.rope.short_divisors);
  EXPECT_EQ(read("phi3", R"("sliding_window":2047)").window, 2047u);
  EXPECT_PRED_FORMAT2(contains,
                      error("phi3", R"("original_max_position_embeddings":64,"rope_scaling":)"
                                    R"({"type":"longrope","short_factor":[1],"long_factor":[1]})"),
                      "config.json: 1 rope divisors for 16 values that rotate");
  EXPECT_PRED_FORMAT2(contains, error("llama", R"("partial_rotary_factor":0.5)"),
                      "config.json: partial_rotary_factor: 0.5; only whole heads rotate");
  EXPECT_PRED_FORMAT2(
      contains, error("llama", R"("rope_parameters":{"partial_rotary_factor":0.5})"),
      "config.json: rope_parameters.partial_rotary_factor: 0.5; only whole heads rotate");
  EXPECT_PRED_FORMAT2(contains, error("phi3", R"("partial_rotary_factor":0.01)"),
                      "config.json: partial_rotary_factor: leaves nothing of a head to rotate");
}

TEST(HfConfig, ASlidingWindowWhereItIsInForce) {
  using Layers = std::vector<bool>;
  const std::string window = R"("max_position_embeddings":32768,"sliding_window":4096)";
  EXPECT_EQ(read("mistral", window).window, 4096u);
  EXPECT_EQ(read("mistral", window).context, 32768u);
  EXPECT_EQ(read("mistral", window).windowed, Layers{});
  EXPECT_EQ(read("mistral", R"("sliding_window":null)").window, 0u);
  const std::string mixed = R"(,"layer_types":["full_attention","sliding_attention"])";
  EXPECT_EQ(read("mistral", window + mixed).windowed, (Layers{false, true}));
  EXPECT_EQ(read("qwen2", window).window, 0u);
  EXPECT_EQ(read("qwen2", window + R"(,"use_sliding_window":false)").window, 0u);
  const std::string used = window + R"(,"use_sliding_window":true)";
  EXPECT_EQ(read("qwen2", used).window, 0u);  // none before layer 28
  EXPECT_EQ(read("qwen2", used + R"(,"max_window_layers":1)").windowed, (Layers{false, true}));
  EXPECT_EQ(read("qwen2", used + R"(,"max_window_layers":0)").windowed, Layers{});
  EXPECT_EQ(read("qwen2", used + R"(,"max_window_layers":0)").window, 4096u);
  EXPECT_PRED_FORMAT2(contains, error("mistral", window + R"(,"layer_types":["full_attention"])"),
                      "config.json: layer_types: has 1 entries, and there are 2 layers");
  EXPECT_PRED_FORMAT2(
      contains, error("mistral", window + R"(,"layer_types":["full_attention","chunked"])"),
      "config.json: layer_types[1]: chunked; sliding_attention and full_attention are");
  EXPECT_PRED_FORMAT2(contains, error("mistral", R"("sliding_window":0)"),
                      "config.json: sliding_window: is zero");
}

Config read_gemma(const std::string& model_type, const std::string& more) {
  const std::string text = R"({"model_type":")" + model_type +
                           R"(","hidden_size":64,"intermediate_size":96,"num_hidden_layers":7,)"
                           R"("num_attention_heads":4,"vocab_size":300,"head_dim":16,)"
                           R"("hidden_activation":"gelu_pytorch_tanh","sliding_window":32,)" +
                           more + "}";
  return config_from_hf(Json::parse(text, "config.json"));
}

TEST(HfConfig, Gemma2HasCapsWindowsAndNormsOnBothSides) {
  const Config config =
      read_gemma("gemma2", R"("query_pre_attn_scalar":64,"attn_logit_softcapping":50.0,)"
                           R"("final_logit_softcapping":30.0)");
  EXPECT_EQ(config.norms, Norms::both);
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.attention_scale, 0.125f);
  EXPECT_EQ(config.score_cap, 50.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_EQ(config.window, 32u);
  EXPECT_EQ(config.windowed, (std::vector<bool>{true, false, true, false, true, false, true}));
  EXPECT_EQ(config.window_theta, 0.0f);
  EXPECT_EQ(read_gemma("gemma2", R"("query_pre_attn_scalar":16)").attention_scale, 0.0f);
  EXPECT_PRED_FORMAT2(contains, error("gemma2", ""),
                      "config.json: hidden_act: silu; gelu_pytorch_tanh is supported");
}

TEST(HfConfig, Gemma3HasTwoRopes) {
  const std::string scalar = R"("query_pre_attn_scalar":16,)";
  const Config old =
      read_gemma("gemma3_text", scalar + R"("rope_theta":1e6,)"
                                         R"("rope_local_base_freq":500,"rope_scaling":)"
                                         R"({"rope_type":"linear","factor":8})");
  const Config v5 = read_gemma(
      "gemma3_text", scalar + R"("rope_parameters":{"full_attention":{"rope_type":"linear",)"
                              R"("factor":8,"rope_theta":1e6},"sliding_attention":)"
                              R"({"rope_type":"default","rope_theta":500}})");
  for (const Config& config : {old, v5}) {
    EXPECT_TRUE(config.qk_norm);
    EXPECT_EQ(config.windowed, (std::vector<bool>{true, true, true, true, true, false, true}));
    EXPECT_EQ(config.rope.theta, 1e6f);
    EXPECT_EQ(config.rope.factor, 8.0f);
    EXPECT_EQ(config.window_theta, 500.0f);
    const std::vector<float> frequencies = rope_frequencies(config);
    ASSERT_EQ(frequencies.size(), 16u);
    EXPECT_EQ(frequencies[0], 0.125f);
    EXPECT_EQ(frequencies[8], 1.0f);
    EXPECT_NEAR(frequencies[12], std::pow(500.0, -0.5), 1e-7);
  }
  EXPECT_EQ(read_gemma("gemma3_text", scalar + R"("sliding_window_pattern":3)").windowed,
            (std::vector<bool>{true, true, false, true, true, false, true}));
  EXPECT_PRED_FORMAT2(contains, error_of([&] {
                        read_gemma("gemma3_text", scalar + R"("use_bidirectional_attention":true)");
                      }),
                      "config.json: use_bidirectional_attention: attention to what comes later");
  EXPECT_PRED_FORMAT2(contains, error("gemma3", ""),
                      "config.json: model_type gemma3, a checkpoint with vision");
}

TEST(HfConfig, YarnScalingIsRead) {
  const Config config = read("llama", R"("max_position_embeddings":4096,"rope_theta":10000,)"
                                      R"("head_dim":64,"rope_scaling":{"rope_type":"yarn",)"
                                      R"("factor":4,"original_max_position_embeddings":2048})");
  EXPECT_EQ(config.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(config.context, 8192u);
  EXPECT_NEAR(config.rope.attention_factor, 1 + 0.1 * std::log(4.0), 1e-6);
  Config plain = config;
  plain.rope.scaling = RopeScaling::none;
  const auto scaled = rope_frequencies(config), kept = rope_frequencies(plain);
  // Frequency 8 turns 32.6 times in 2048 positions, frequency 21 less than once.
  for (size_t i = 0; i <= 8; ++i) EXPECT_EQ(scaled[i], kept[i]) << i;
  for (size_t i = 21; i < 32; ++i) EXPECT_FLOAT_EQ(scaled[i], kept[i] / 4) << i;
  EXPECT_NEAR(scaled[14] / kept[14], 1 - 6.0 / 13 * 0.75, 1e-5);

  const auto factor = [](const std::string& more) {
    return read("llama", R"("rope_scaling":{"rope_type":"yarn","factor":4,)" + more + "}")
        .rope.attention_factor;
  };
  EXPECT_EQ(factor(R"("attention_factor":1.5)"), 1.5f);
  EXPECT_NEAR(factor(R"("mscale":1,"mscale_all_dim":1)"), 1.0, 1e-6);
  EXPECT_NEAR(factor(R"("mscale":2,"mscale_all_dim":0)"), 1 + 0.1 * std::log(4.0), 1e-6);
  EXPECT_FALSE(read("llama", R"("rope_scaling":{"rope_type":"yarn","factor":4,"truncate":false})")
                   .rope.whole_band);
}

// Texts of up to the first context are computed as without it; -c asks for more.
TEST(HfConfig, DynamicScalingGrowsWithTheContextThatIsAskedFor) {
  Config config = read("llama", R"("max_position_embeddings":1024,"head_dim":64,)"
                                R"("rope_scaling":{"rope_type":"dynamic","factor":4})");
  Config plain = config;
  plain.rope.scaling = RopeScaling::none;
  EXPECT_EQ(config.context, 1024u);
  EXPECT_EQ(rope_frequencies(config), rope_frequencies(plain));
  choose_divisors(config, 2048);
  EXPECT_EQ(config.context, 2048u);
  // The base becomes 10000 * (4 * 2 - 3) ^ (64 / 62).
  const double base = 10000 * std::pow(5.0, 64.0 / 62);
  const std::vector<float> frequencies = rope_frequencies(config);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_NEAR(frequencies[i] * std::pow(base, 2.0 * static_cast<double>(i) / 64), 1, 1e-6) << i;
  choose_divisors(config, 512);
  EXPECT_EQ(rope_frequencies(config), rope_frequencies(plain));
  choose_divisors(config, 9999);
  EXPECT_EQ(config.context, 4096u);
}

TEST(HfConfig, RopeInBothSpellings) {
  const Config old =
      read("llama", R"("rope_theta":5000,"rope_scaling":{"type":"linear","factor":2})");
  EXPECT_EQ(old.rope.scaling, RopeScaling::linear);
  EXPECT_EQ(old.rope.factor, 2.0f);
  const Config v5 =
      read("llama", R"("rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":5000.0})");
  EXPECT_EQ(v5.rope.scaling, RopeScaling::linear);
  EXPECT_EQ(v5.rope.factor, 2.0f);
  EXPECT_EQ(v5.rope.theta, old.rope.theta);
  const Config plain =
      read("qwen3", R"("rope_parameters":{"rope_type":"default","rope_theta":1000000})");
  EXPECT_EQ(plain.rope.scaling, RopeScaling::none);
  EXPECT_EQ(plain.rope.theta, 1e6f);
  const Config v5_llama3 =
      read("llama", R"("rope_parameters":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
                    R"("high_freq_factor":4.0,"original_max_position_embeddings":8192,)"
                    R"("rope_theta":500000.0})");
  EXPECT_EQ(v5_llama3.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(v5_llama3.rope.factor, 8.0f);
  EXPECT_EQ(v5_llama3.rope.theta, 500000.0f);
}

TEST(HfConfig, WhatWouldComputeWronglyIsRefused) {
  const struct {
    const char* field;
    const char* message;
  } cases[] = {
      {R"("mlp_bias":true)", "config.json: mlp_bias: biases in the feed-forward"},
      {R"("attention_bias":true)", "config.json: attention_bias: a bias on"},
      {R"("quantization_config":{"bits":4})",
       "config.json: a quantised checkpoint, which Tyto does not read"},
      {R"("partial_rotary_factor":0.5)", "partial_rotary_factor: 0.5; only whole heads"},
      {R"("rope_scaling":{"rope_type":"other","factor":4})",
       "rope_scaling.rope_type: other; default, linear, llama3, longrope, yarn and"},
      {R"("rope_scaling":{"rope_type":"yarn","factor":0.5})", "a rope scaling by 0.5 of 2048"},
      {R"("rope_scaling":{"rope_type":"dynamic","factor":4,"alpha":2})", "with an alpha"},
      {R"("rope_scaling":{"rope_type":"llama3","factor":4})",
       "rope_scaling: field \"low_freq_factor\" is missing"},
      {R"("rope_scaling":{"rope_type":"linear","factor":-1})",
       "config.json: rope_scaling.factor: -1 is outside 0.001..1000000"},
      {R"("num_key_value_heads":3)", "4 query heads cannot share 3"},
      {R"("num_key_value_heads":0)", "key/value head count 0 is outside"},
      {R"("head_dim":15)", "head width 15 is odd"},
      {R"("max_position_embeddings":0)", "context length 0"},
      {R"("rope_theta":"big")", "rope_theta: expected a number"},
      {R"("rms_norm_eps":0)", "config.json: rms_norm_eps: 0 is outside 1e-20..0.1"},
      {R"("rms_norm_eps":1e-42)", "config.json: rms_norm_eps: 1e-42 is outside"},
      {R"("rope_theta":1e-42)", "config.json: rope_theta: 1e-42 is outside 2..1000000000000"},
      {R"("rope_theta":1)", "config.json: rope_theta: 1 is outside"},
      {R"("rope_theta":1e300)", "config.json: rope_theta: 1e+300 is outside"},
      {R"("rope_parameters":{"rope_theta":0.5})", "rope_parameters.rope_theta: 0.5 is outside"},
      {R"("rope_scaling":5)", "config.json: rope_scaling: must be an object or null"},
      {R"("rope_scaling":"llama3")", "config.json: rope_scaling: must be an object or null"},
      {R"("rope_scaling":[])", "config.json: rope_scaling: must be an object or null"},
  };
  for (const auto& each : cases)
    EXPECT_PRED_FORMAT2(contains, error("llama", each.field), each.message);
  EXPECT_MESSAGE([] { config_from_hf(Json::parse(R"({"hidden_size":1})", "c")); },
                 "field \"model_type\" is missing");
  EXPECT_MESSAGE([] { config_from_hf(Json::parse(R"({"model_type":"llama"})", "c")); },
                 "field \"num_hidden_layers\" is missing");
  const std::string gelu = R"({"model_type":"llama","hidden_act":"gelu","hidden_size":64})";
  EXPECT_MESSAGE([&] { config_from_hf(Json::parse(gelu, "c")); }, "hidden_act: gelu; silu");
}

TEST(HfConfig, EndsAreOneOrMany) {
  const auto ids = [](const std::string& text) {
    return eos_ids_from_hf(Json::parse(text, "g.json"), 300);
  };
  EXPECT_EQ(ids("{}"), std::vector<Token>{});
  EXPECT_EQ(ids(R"({"eos_token_id":null})"), std::vector<Token>{});
  EXPECT_EQ(ids(R"({"eos_token_id":2})"), std::vector<Token>{2});
  EXPECT_EQ(ids(R"({"eos_token_id":[2,7]})"), (std::vector<Token>{2, 7}));
  EXPECT_MESSAGE([&] { ids(R"({"eos_token_id":[2,300]})"); },
                 "g.json: eos_token_id[1]: 300 is outside 300 tokens");
}

TEST(HfConfig, GenerationDefaults) {
  const GenerationDefaults some = generation_defaults_from_hf(
      Json::parse(R"({"temperature":0.6,"top_p":0.9,"top_k":20})", "g.json"));
  EXPECT_EQ(some.temperature, 0.6f);
  EXPECT_EQ(some.top_p, 0.9f);
  EXPECT_EQ(some.top_k, 20u);
  const GenerationDefaults none = generation_defaults_from_hf(Json::parse("{}", "g.json"));
  EXPECT_FALSE(none.temperature || none.top_p || none.top_k);
}

}  // namespace
}  // namespace tyto::test
