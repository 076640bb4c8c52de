// Config, weights and vocabulary out of GGUF metadata.
#include <algorithm>

#include "model/gguf.h"
#include "model/weight_table.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

// A parsed file as it would come out of the reader, with tensors that share one block of zeros.
struct Parsed {
  Gguf gguf;
  std::vector<std::byte> zeros;

  explicit Parsed(const Config& config) : zeros(1 << 20) {
    gguf.name = "m.gguf";
    gguf.version = 3;
    for (auto& [key, value] : config_to_gguf(config, 0)) gguf.metadata[key] = value;
    for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf))
      add(spec.name, spec.is_vector() ? 1 : spec.rows, spec.cols);
  }
  void add(const std::string& name, uint64_t rows, uint64_t cols, DType dtype = DType::f32) {
    TensorView view{dtype, rows, cols, {}};
    view.bytes = std::span(zeros).first(rows * row_bytes(dtype, cols));
    gguf.tensors.push_back({name, view});
  }
  void remove(const std::string& name) {
    std::erase_if(gguf.tensors, [&](const NamedTensor& tensor) { return tensor.name == name; });
  }
  TensorView& view(const std::string& name) {
    return std::find_if(gguf.tensors.begin(), gguf.tensors.end(),
                        [&](const NamedTensor& tensor) { return tensor.name == name; })
        ->view;
  }
  template <typename T>
  void set(const std::string& key, T value) {
    gguf.metadata[key] = GgufValue{value};
  }
  void bpe() {
    set("tokenizer.ggml.model", std::string("gpt2"));
    set("tokenizer.ggml.pre", std::string("llama-bpe"));
    set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|eot_id|>", "<user>"});
    set("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 3, 4});
    set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    set("tokenizer.ggml.eos_token_id", uint64_t{2});
  }
  void spm() {
    set("tokenizer.ggml.model", std::string("llama"));
    set("tokenizer.ggml.tokens",
        std::vector<std::string>{"<unk>", "<s>", "</s>", "<0x0A>", "\xe2\x96\x81"});
    set("tokenizer.ggml.scores", std::vector<double>{0, 0, 0, 0, -1.5});
    set("tokenizer.ggml.token_type", std::vector<int64_t>{2, 3, 3, 6, 1});
    set("tokenizer.ggml.bos_token_id", uint64_t{1});
    set("tokenizer.ggml.eos_token_id", uint64_t{2});
    set("tokenizer.ggml.unknown_token_id", uint64_t{0});
  }
  Model fill(Need need = Need::weights) const {
    Model model;
    fill_model_from_gguf(gguf, need, model);
    return model;
  }
  std::string error(Need need = Need::weights) const {
    return error_of([&] { fill(need); });
  }
};

TEST(GgufModel, ConfigOfEachArchitecture) {
  for (const char* architecture :
       {"llama", "qwen2", "qwen3", "granite", "olmo2", "smollm3", "phi3"}) {
    Config config = small_config(architecture);
    config.rope.theta = 500000;
    config.norm_eps = 1e-6f;
    config.head_dim = 24;  // not emb / heads
    const Model model = Parsed(config).fill();
    const Config& read = model.config;
    EXPECT_EQ(read.architecture, architecture);
    EXPECT_EQ(read.name, "small");
    EXPECT_EQ(read.layers, config.layers);
    EXPECT_EQ(read.emb, config.emb);
    EXPECT_EQ(read.hidden, config.hidden);
    EXPECT_EQ(read.heads, config.heads);
    EXPECT_EQ(read.kv_heads, config.kv_heads);
    EXPECT_EQ(read.head_dim, 24u);
    EXPECT_EQ(read.vocab, config.vocab);
    EXPECT_EQ(read.context, config.context);
    EXPECT_EQ(read.norm_eps, config.norm_eps);
    EXPECT_EQ(read.rope.theta, 500000);
    EXPECT_EQ(read.qkv_bias, config.qkv_bias);
    EXPECT_EQ(read.qk_norm, config.qk_norm);
    EXPECT_FALSE(read.tied_head);
    EXPECT_EQ(read.rope.layout, family_of_gguf(architecture)->gguf_layout);
    EXPECT_EQ(model.format, "gguf v3");
    EXPECT_EQ(model.weights.layers.size(), 2u);
    EXPECT_EQ(model.weights.layers[1].q.rows, 4u * 24u);
    EXPECT_EQ(model.weights.layers[0].q_bias.empty(), !config.qkv_bias);
    EXPECT_EQ(model.weights.layers[0].k_norm.empty(), !config.qk_norm);
    EXPECT_FALSE(model.vocabulary.has_value());
  }
}

TEST(GgufModel, OptionalKeysHaveTheirDefaults) {
  Parsed parsed(small_config());
  for (const char* key : {"llama.attention.key_length", "llama.attention.value_length",
                          "llama.rope.dimension_count", "llama.rope.freq_base", "llama.vocab_size"})
    parsed.gguf.metadata.erase(key);
  const Config config = parsed.fill().config;
  EXPECT_EQ(config.head_dim, 16u);
  EXPECT_EQ(config.rope.theta, 10000.0f);
  EXPECT_EQ(config.vocab, 300u);
}

TEST(GgufModel, TiedHeadIsTheEmbedding) {
  Config config = small_config();
  config.tied_head = true;
  const Model model = Parsed(config).fill();
  EXPECT_TRUE(model.config.tied_head);
  EXPECT_EQ(model.weights.head.bytes.data(), model.weights.embedding.bytes.data());
  Config untied = small_config();
  EXPECT_EQ(model.weight_bytes() + uint64_t{300} * 64 * 4, Parsed(untied).fill().weight_bytes());
}

TEST(GgufModel, RopeScaling) {
  Parsed linear(small_config());
  linear.set("llama.rope.scaling.type", std::string("linear"));
  linear.set("llama.rope.scaling.factor", 4.0);
  EXPECT_EQ(linear.fill().config.rope.scaling, RopeScaling::linear);
  EXPECT_EQ(linear.fill().config.rope.factor, 4.0f);

  Parsed old(small_config());
  old.set("llama.rope.scale_linear", 2.0);
  EXPECT_EQ(old.fill().config.rope.factor, 2.0f);

  Parsed untyped(small_config());
  untyped.set("llama.rope.scaling.factor", 3.0);
  EXPECT_EQ(untyped.fill().config.rope.factor, 3.0f);
  untyped.set("llama.rope.scaling.type", std::string("none"));
  EXPECT_EQ(untyped.fill().config.rope.scaling, RopeScaling::none);
  Parsed zero(small_config());
  zero.set("llama.rope.scale_linear", 0.0);
  EXPECT_EQ(zero.fill().config.rope.scaling, RopeScaling::none);

  Parsed other(small_config());
  other.set("llama.rope.scaling.type", std::string("longrope"));
  EXPECT_PRED_FORMAT2(contains, other.error(),
                      "llama.rope.scaling.type: longrope; none, linear and yarn");

  Parsed divisors(small_config());
  divisors.add("rope_freqs.weight", 1, 8);
  EXPECT_PRED_FORMAT2(contains, divisors.error(),
                      "tensor rope_freqs.weight: 0 is outside 0.001..1000000");
  const std::vector<float> values = {1, 1, 2, 3, 4, 32, 32, 32};
  divisors.view("rope_freqs.weight").bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(divisors.fill().config.rope.frequency_divisors, values);
}

TEST(GgufModel, LayersWithoutKeysAreConvolutions) {
  const Config config = small_config("lfm2");
  Parsed parsed(config);
  const Model model = parsed.fill();
  EXPECT_EQ(model.config.layer_kinds, config.layer_kinds);
  EXPECT_EQ(model.config.kv_heads, 2u);
  EXPECT_EQ(model.config.conv_taps, 3u);
  const LayerWeights &conv = model.weights.layers[0], &attention = model.weights.layers[1];
  EXPECT_TRUE(conv.q.empty() && conv.k_norm.empty() && attention.conv.empty());
  EXPECT_EQ(conv.conv.cols, 3u * 64);
  EXPECT_EQ(conv.conv_gate.bytes.data(), conv.conv_in.bytes.data());
  EXPECT_EQ(conv.conv_x.bytes.data() + conv.conv_x.bytes.size(),
            conv.conv_in.bytes.data() + conv.conv_in.bytes.size());
  const std::string key = "lfm2.attention.head_count_kv";
  using Counts = std::vector<int64_t>;
  parsed.set(key, Counts{0, 2, 0});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), key + ": has 3 numbers, and there are 2 layers");
  parsed.set(key, Counts{1, 2});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "differs from layer to layer: 1 and 2 heads");
  parsed.set(key, Counts{0, 0});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "key/value head count 0 is outside");
  parsed.set(key, Counts{0, -2});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "differs from layer to layer: -2 and 0 heads");
  Parsed plain(small_config("llama"));
  plain.set("llama.attention.head_count_kv", Counts{0, 2});
  EXPECT_PRED_FORMAT2(contains, plain.error(),
                      "layers that do not attend, which are not supported in this family");
}

TEST(GgufModel, LongRopeIsTwoTensorsAndAFactor) {
  const Config config = small_config("phi3");  // 12 of 16 values of a head rotate
  Parsed parsed(config);
  const std::vector<float> factors = {1, 1, 2, 3, 4, 32};
  const auto add = [&](const char* name) {
    parsed.add(name, 1, 6);
    parsed.view(name).bytes = std::as_bytes(std::span(factors));
  };
  add(kShortFactors);
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "for either short or long sequences, not for both");
  add(kLongFactors);
  const Model model = parsed.fill();
  const Rope& rope = model.config.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::longrope);
  EXPECT_EQ(rope.rotated, 12u);
  EXPECT_EQ(rope.original_context, 64u);
  EXPECT_EQ(rope.attention_factor, 1.25f);
  EXPECT_EQ(rope.frequency_divisors, factors);
  const LayerWeights& layer = model.weights.layers[0];
  EXPECT_EQ(layer.k.bytes.data(), layer.q.bytes.data() + layer.q.bytes.size());
  EXPECT_EQ(layer.v.rows, config.kv_width());
  EXPECT_EQ(layer.up.bytes.data(), layer.gate.bytes.data() + layer.gate.bytes.size());
  parsed.set("phi3.rope.dimension_count", uint64_t{0});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "rope.dimension_count: leaves nothing to rotate");
}

TEST(GgufModel, YarnScalingIsReadAndChecked) {
  Parsed parsed(small_config());
  parsed.set("llama.rope.scaling.type", std::string("yarn"));
  parsed.set("llama.rope.scaling.factor", 4.0);
  const double own = 1 + 0.1 * std::log(4.0);
  const auto rope = [&] { return parsed.fill().config.rope; };
  EXPECT_EQ(rope().scaling, RopeScaling::yarn);
  EXPECT_EQ(rope().factor, 4.0f);
  EXPECT_EQ(rope().original_context, 128u);
  EXPECT_NEAR(rope().attention_factor, own, 1e-6);
  parsed.set("llama.rope.scaling.original_context_length", uint64_t{32});
  parsed.set("llama.rope.scaling.attn_factor", 0.5);
  parsed.set("llama.rope.scaling.yarn_beta_fast", 16.0);
  EXPECT_EQ(rope().original_context, 32u);
  EXPECT_EQ(rope().beta_fast, 16.0f);
  EXPECT_NEAR(rope().attention_factor, own / 2, 1e-6);
  parsed.set("llama.rope.scaling.yarn_log_multiplier", 1.0);
  EXPECT_NEAR(rope().attention_factor, 0.5, 1e-6);
  parsed.set("llama.rope.scaling.yarn_beta_slow", 20.0);
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "yarn rope scaling has beta_fast 16 and beta_slow");
}

TEST(GgufModel, SlidingWindows) {
  using Layers = std::vector<bool>;
  Parsed parsed(small_config());
  parsed.set("llama.attention.sliding_window", uint64_t{32});
  EXPECT_EQ(parsed.fill().config.window, 32u);
  EXPECT_EQ(parsed.fill().config.context, 128u);
  EXPECT_EQ(parsed.fill().config.windowed, Layers{});
  parsed.set("llama.attention.sliding_window_pattern", uint64_t{2});
  EXPECT_EQ(parsed.fill().config.windowed, (Layers{true, false}));
  parsed.set("llama.attention.sliding_window_pattern", std::vector<int64_t>{0, 1});
  EXPECT_EQ(parsed.fill().config.windowed, (Layers{false, true}));
  parsed.set("llama.attention.sliding_window_pattern", std::vector<int64_t>{0, 0});
  EXPECT_EQ(parsed.fill().config.window, 0u);
  parsed.set("llama.attention.sliding_window_pattern", std::vector<int64_t>{0, 1, 1});
  EXPECT_PRED_FORMAT2(contains, parsed.error(),
                      "says of 3 layers whether they have a window, and has 2");
}

TEST(GgufModel, GemmasDefaultsAreLlamaCppsWhereTheFileIsSilent) {
  Parsed two(small_config("gemma2"));
  for (const char* key : {"gemma2.attention.sliding_window", "gemma2.attn_logit_softcapping",
                          "gemma2.final_logit_softcapping"})
    two.gguf.metadata.erase(key);
  const Config config = two.fill().config;  // as llama.cpp takes it where a file does not say
  EXPECT_EQ(config.window, 4096u);
  EXPECT_EQ(config.windowed, (std::vector<bool>{true, false}));
  EXPECT_EQ(config.score_cap, 50.0f);
  EXPECT_EQ(config.logit_cap, 30.0f);
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.attention_scale, 0.0f);
  two.set("gemma2.attn_logit_softcapping", 0.0);
  EXPECT_EQ(two.fill().config.score_cap, 0.0f);
  two.set("gemma2.attn_logit_softcapping", -1.0);
  EXPECT_PRED_FORMAT2(contains, two.error(), "gemma2.attn_logit_softcapping: -1 is outside");

  Parsed three(small_config("gemma3_text"));
  EXPECT_EQ(three.fill().config.window_theta, 10000.0f);
  three.set("gemma3.rope.freq_base_swa", 500.0);
  EXPECT_EQ(three.fill().config.window_theta, 500.0f);
  three.gguf.metadata.erase("gemma3.attention.sliding_window");
  EXPECT_EQ(three.fill().config.window, 0u);
  EXPECT_EQ(three.fill().config.window_theta, 0.0f);
}

TEST(GgufModel, BadConfigsAreRefusedByName) {
  const auto with = [](const std::string& key, auto value) {
    Parsed parsed(small_config());
    parsed.set(key, value);
    return parsed.error();
  };
  EXPECT_PRED_FORMAT2(contains, with("general.architecture", std::string("gemma4")),
                      "m.gguf: architecture gemma4, which is not supported; these are: llama");
  EXPECT_PRED_FORMAT2(contains, with("llama.expert_count", uint64_t{8}),
                      "expert_used_count: is missing");
  EXPECT_PRED_FORMAT2(contains, with("llama.rope.dimension_count", uint64_t{8}),
                      "8 of 16 values of a head rotate");
  EXPECT_PRED_FORMAT2(contains, with("llama.attention.value_length", uint64_t{8}),
                      "8 differs from the 16 of keys");
  EXPECT_PRED_FORMAT2(contains, with("llama.block_count", uint64_t{1} << 40), "is too large");
  EXPECT_PRED_FORMAT2(contains, with("llama.block_count", uint64_t{2000000000}),
                      "layer count 2000000000 is outside 1..1024");
  EXPECT_PRED_FORMAT2(contains, with("llama.block_count", int64_t{-1}), "-1 is negative");
  EXPECT_PRED_FORMAT2(contains, with("llama.block_count", std::string("2")), "is not an integer");
  EXPECT_PRED_FORMAT2(contains, with("llama.attention.head_count", uint64_t{0}), "is zero");
  EXPECT_PRED_FORMAT2(contains, with("llama.attention.head_count_kv", uint64_t{3}),
                      "4 query heads cannot share 3");
  EXPECT_PRED_FORMAT2(contains, with("llama.attention.head_count_kv", std::vector<int64_t>{2, 1}),
                      "differs from layer to layer");
  for (const double theta : {0.0, 1.0, -10000.0, 1e-42, 1e13, std::nan("")})
    EXPECT_PRED_FORMAT2(contains, with("llama.rope.freq_base", theta),
                        "m.gguf: llama.rope.freq_base: ");
  EXPECT_PRED_FORMAT2(contains, with("llama.rope.freq_base", 1.0), "1 is outside 2..1000000000000");
  for (const double eps : {0.0, 1e-42, 1.0, std::nan("")})
    EXPECT_PRED_FORMAT2(contains, with("llama.attention.layer_norm_rms_epsilon", eps),
                        "m.gguf: llama.attention.layer_norm_rms_epsilon: ");
  Parsed missing(small_config());
  missing.gguf.metadata.erase("llama.embedding_length");
  EXPECT_PRED_FORMAT2(contains, missing.error(), "m.gguf: llama.embedding_length: is missing");
}

TEST(GgufModel, BadTensorsAreRefusedByName) {
  Parsed missing(small_config());
  missing.remove("blk.1.ffn_down.weight");
  EXPECT_PRED_FORMAT2(contains, missing.error(), "m.gguf: tensor blk.1.ffn_down.weight is missing");

  Parsed shape(small_config());
  shape.view("blk.0.attn_k.weight").rows = 16;
  EXPECT_PRED_FORMAT2(contains, shape.error(),
                      "tensor blk.0.attn_k.weight: shape [16, 64], the config asks for [32, 64]");

  Parsed norm(small_config());
  norm.view("output_norm.weight").dtype = DType::q8_0;
  EXPECT_PRED_FORMAT2(contains, norm.error(), "output_norm.weight: a vector of type q8_0");

  Parsed integers(small_config());
  integers.view("blk.0.attn_k.weight").dtype = DType::i32;
  EXPECT_PRED_FORMAT2(contains, integers.error(), "integers cannot be weights");

  Parsed extra(small_config());
  extra.add("blk.0.attn_output.bias", 1, 64);
  EXPECT_PRED_FORMAT2(contains, extra.error(),
                      "tensor blk.0.attn_output.bias: a llama model with such a part");

  Parsed empty(small_config());
  empty.gguf.tensors.clear();
  EXPECT_PRED_FORMAT2(contains, empty.error(), "has a vocabulary only, no tensors");
}

TEST(GgufModel, ByteLevelVocabulary) {
  Parsed parsed(small_config());
  parsed.bpe();
  const Vocabulary vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::byte_level_bpe);
  EXPECT_EQ(vocabulary.pieces.size(), 5u);
  EXPECT_EQ(vocabulary.merges, (std::vector<std::pair<Token, Token>>{{0, 1}}));
  EXPECT_EQ(vocabulary.merge_results, std::vector<Token>{2});
  EXPECT_EQ(vocabulary.eos, (std::vector<Token>{2, 3}));  // the key, then <|eot_id|> by its text
  EXPECT_TRUE(vocabulary.ignore_merges);
  EXPECT_FALSE(vocabulary.split_patterns.empty());
  EXPECT_FALSE(vocabulary.add_bos);  // llama-bpe would, but there is no BOS
  ASSERT_EQ(vocabulary.added.size(), 2u);
  EXPECT_TRUE(vocabulary.added[0].special);
  EXPECT_FALSE(vocabulary.added[1].special);

  parsed.set("tokenizer.ggml.bos_token_id", uint64_t{0});
  EXPECT_TRUE(parsed.fill().vocabulary->add_bos);
  parsed.set("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(parsed.fill().vocabulary->add_bos);
  parsed.set("tokenizer.ggml.eot_token_id", uint64_t{1});
  parsed.set("tokenizer.chat_template", std::string("{{ x }}"));
  EXPECT_EQ(parsed.fill().vocabulary->eos, (std::vector<Token>{2, 1, 3}));
  EXPECT_EQ(parsed.fill().vocabulary->chat_template, "{{ x }}");
  parsed.set("tokenizer.chat_templates", std::vector<std::string>{"rag", "tool_use"});
  parsed.set("tokenizer.chat_template.tool_use", std::string("T"));
  parsed.set("tokenizer.chat_template.", std::string("no name"));
  EXPECT_EQ(chat_template_for(*parsed.fill().vocabulary, true), "T");
  EXPECT_EQ(chat_template_for(*parsed.fill().vocabulary, false), "{{ x }}");
  EXPECT_EQ(parsed.fill().vocabulary->more_templates.size(), 1u);
  parsed.set("tokenizer.chat_template.rag", uint64_t{7});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "tokenizer.chat_template.rag");
}

// <|end|> ends a message of harmony, whatever keys say; without <|call|> it ends a turn, as Phi's.
TEST(GgufModel, TurnsOfHarmonyEndWithReturnOrCall) {
  Parsed parsed(small_config());
  parsed.bpe();
  const auto ends = [&](const std::string& last) {
    parsed.set("tokenizer.ggml.tokens",
               std::vector<std::string>{"a", "b", "ab", "<|end|>", "<|return|>", last});
    parsed.set("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 3, 3, 3});
    parsed.set("tokenizer.ggml.eos_token_id", uint64_t{4});
    parsed.set("tokenizer.ggml.eot_token_id", uint64_t{3});
    return parsed.fill().vocabulary->eos;
  };
  EXPECT_EQ(ends("<|call|>"), (std::vector<Token>{4, 5}));
  EXPECT_EQ(ends("<|other|>"), (std::vector<Token>{4, 3}));
}

TEST(GgufModel, SentencePieceVocabulary) {
  Parsed parsed(small_config());
  parsed.spm();
  const Vocabulary vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::sentencepiece);
  EXPECT_EQ(vocabulary.scores.back(), -1.5f);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.prepend_space);
  EXPECT_TRUE(vocabulary.fuses_unknown);
  EXPECT_EQ(vocabulary.bos, 1);
  EXPECT_EQ(vocabulary.unknown, 0);
  EXPECT_EQ(vocabulary.eos, std::vector<Token>{2});
  ASSERT_EQ(vocabulary.byte_tokens.size(), 256u);
  EXPECT_EQ(vocabulary.byte_tokens[10], 3);
  EXPECT_EQ(vocabulary.added.size(), 3u);
  parsed.set("tokenizer.ggml.add_space_prefix", false);
  EXPECT_FALSE(parsed.fill().vocabulary->prepend_space);
}

TEST(GgufModel, UnigramVocabulary) {
  Parsed parsed(small_config());
  parsed.spm();
  parsed.set("tokenizer.ggml.model", std::string("t5"));
  Vocabulary vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::unigram);
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_eos);
  EXPECT_FALSE(vocabulary.prepend_space);
  EXPECT_TRUE(vocabulary.normalizers.empty());
  parsed.set("tokenizer.ggml.remove_extra_whitespaces", true);
  parsed.set("tokenizer.ggml.precompiled_charsmap", std::vector<int64_t>{0, 255, -1});
  vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.charsmap, std::string("\0\xFF\xFF", 3));
  EXPECT_EQ(vocabulary.normalizers,
            (std::vector{Normalizer::charsmap, Normalizer::trim_left, Normalizer::trim_right,
                         Normalizer::merge_spaces}));
  EXPECT_TRUE(vocabulary.prepend_space);
  parsed.set("tokenizer.ggml.precompiled_charsmap", std::vector<int64_t>{256});
  EXPECT_PRED_FORMAT2(contains, parsed.error(), "precompiled_charsmap: is not bytes");
}

TEST(GgufModel, WordPieceVocabulary) {
  Parsed parsed(small_config());
  parsed.bpe();
  parsed.set("tokenizer.ggml.model", std::string("bert"));
  parsed.set("tokenizer.ggml.tokens", std::vector<std::string>{"[UNK]", "[CLS]", "[SEP]",
                                                               "\u2581"
                                                               "a",
                                                               "b"});
  parsed.set("tokenizer.ggml.token_type", std::vector<int64_t>{3, 3, 3, 1, 1});
  Vocabulary vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::word_piece);
  EXPECT_EQ(vocabulary.unknown, 0);
  EXPECT_EQ(vocabulary.bos, 1);
  EXPECT_EQ(vocabulary.eos.front(), 2);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_eos);
  EXPECT_EQ(Tokenizer(vocabulary, "m").encode("Ab"), (std::vector<Token>{1, 3, 4, 2}));
  parsed.set("tokenizer.ggml.normalizer.lowercase", false);
  parsed.set("tokenizer.ggml.add_sep_token", false);
  vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(Tokenizer(vocabulary, "m").encode("Ab a"), (std::vector<Token>{1, 0, 3}));
}

TEST(GgufModel, GemmaAndRwkvVocabularies) {
  Parsed parsed(small_config());
  parsed.bpe();
  parsed.set("tokenizer.ggml.model", std::string("gemma4"));
  parsed.set("tokenizer.ggml.bos_token_id", uint64_t{0});
  parsed.set("tokenizer.ggml.add_bos_token", false);
  Vocabulary vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::sentencepiece);
  EXPECT_TRUE(vocabulary.add_bos);  // whatever the file says
  EXPECT_EQ(vocabulary.merges.size(), 1u);
  parsed.set("tokenizer.ggml.model", std::string("rwkv"));
  parsed.set("tokenizer.ggml.tokens",
             std::vector<std::string>{"<s>", "a\\n", "\\x00\\xff", "\\\\", "\\x4"});
  vocabulary = *parsed.fill().vocabulary;
  EXPECT_EQ(vocabulary.algorithm, Vocabulary::Algorithm::longest_match);
  EXPECT_EQ(vocabulary.pieces,
            (std::vector<std::string>{"<s>", "a\n", std::string("\0\xFF", 2), "\\", "x4"}));
}

// No key says which tokens swallow white space, so names do.
TEST(GgufModel, TokensThatSwallowWhiteSpace) {
  Parsed parsed(small_config());
  parsed.bpe();
  const auto added = [&] { return parsed.fill().vocabulary->added; };
  EXPECT_FALSE(added()[0].strip_right);
  parsed.set("general.name", std::string("Phi-3 mini"));
  EXPECT_TRUE(added()[0].strip_right);
  parsed.set("general.name", std::string("other"));
  parsed.set("tokenizer.ggml.pre", std::string("jina-v2-code"));
  parsed.set("tokenizer.ggml.tokens",
             std::vector<std::string>{"a", "b", "ab", "<mask>", "<|im_end|>"});
  parsed.set("tokenizer.ggml.token_type", std::vector<int64_t>{1, 1, 1, 3, 1});
  EXPECT_TRUE(added()[0].strip_left);
  // Not marked as a control token, but nothing else is called so.
  ASSERT_EQ(added().size(), 2u);
  EXPECT_TRUE(added()[1].special);
}

TEST(GgufModel, BadVocabulariesAreRefusedByName) {
  const auto with = [](const std::string& key, auto value, bool spm = false) {
    Parsed parsed(small_config());
    spm ? parsed.spm() : parsed.bpe();
    parsed.set(key, value);
    return parsed.error();
  };
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.model", std::string("plamo2")),
                      "m.gguf: tokenizer.ggml.model: the tokenizer \"plamo2\" is not known; these "
                      "are: gpt2 llama gemma4 t5 bert rwkv");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.pre", std::string("martian")), "martian");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.tokens", std::vector<std::string>{}),
                      "tokenizer.ggml.tokens: is missing or empty");
  EXPECT_PRED_FORMAT2(
      contains,
      with("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab", "<|eot_id|>", "b"}),
      "m.gguf: tokenizer.ggml.tokens: tokens 1 and 4 are both \"b\"");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.tokens", std::string("a")),
                      "is not an array of strings");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.merges", std::vector<std::string>{"ab"}),
                      "tokenizer.ggml.merges[0]: \"ab\" is not two pieces");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.merges", std::vector<std::string>{"a z"}),
                      "tokenizer.ggml.merges");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.token_type", std::vector<int64_t>{1}),
                      "1 types for 5 tokens");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.eos_token_id", uint64_t{5}),
                      "tokenizer.ggml.eos_token_id: 5 is outside 5 tokens");
  EXPECT_PRED_FORMAT2(contains, with("tokenizer.ggml.scores", std::vector<double>{1}, true),
                      "1 scores for 5 tokens");
  EXPECT_PRED_FORMAT2(
      contains, with("tokenizer.ggml.scores", std::vector<double>{0, 0, 0, 0, HUGE_VAL}, true),
      "a score is not finite");
  Parsed many(small_config());
  many.bpe();
  std::vector<std::string> tokens;
  for (int i = 0; i < 301; ++i) tokens.push_back(fmt::format("x{}", i));
  many.set("tokenizer.ggml.tokens", tokens);
  many.set("tokenizer.ggml.merges", std::vector<std::string>{});
  many.gguf.metadata.erase("tokenizer.ggml.token_type");
  EXPECT_PRED_FORMAT2(contains, many.error(), "301 tokens, but the embedding has 300 rows");
}

TEST(GgufModel, VocabularyOnlyFilesOpenWhenOnlyThatIsNeeded) {
  Parsed parsed(small_config());
  parsed.bpe();
  parsed.gguf.tensors.clear();
  const Model model = parsed.fill(Need::vocabulary);
  EXPECT_FALSE(model.has_weights());
  EXPECT_EQ(model.weight_bytes(), 0u);
  EXPECT_EQ(model.config.layers, 2u);
  EXPECT_TRUE(model.vocabulary.has_value());

  parsed.set("general.architecture", std::string("rwkv7"));  // cannot run, can tokenise
  EXPECT_EQ(parsed.fill(Need::vocabulary).config.architecture, "rwkv7");

  Parsed without(small_config());
  EXPECT_PRED_FORMAT2(contains, without.error(Need::vocabulary), "the file has no vocabulary");
  without.set("tokenizer.ggml.model", std::string("none"));
  EXPECT_PRED_FORMAT2(contains, without.error(Need::vocabulary), "the file has no vocabulary");
  EXPECT_EQ(without.error(Need::weights), "no error");
}

}  // namespace
}  // namespace tyto::test
