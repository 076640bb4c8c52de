#include "model/synth.h"

#include <cmath>
#include <map>
#include <set>

#include "base/hash.h"
#include "model/convert.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::string hash_of(const std::filesystem::path& path) {
  return to_hex(hash_bytes(bytes_of(read_file(path))));
}

TEST(Shapes, AreThePublicOnes) {
  for (const std::string& name : shape_names()) {
    const Config config = shape_by_name(name);
    EXPECT_EQ(error_of([&] { check(config, name); }), "no error");
  }
  EXPECT_EQ(shape_names().size(), 47u);
  const Config llama = shape_by_name("llama-3.2-1b");
  EXPECT_EQ(llama.q_width(), 2048u);
  EXPECT_EQ(llama.kv_width(), 512u);
  EXPECT_EQ(llama.rope.scaling, RopeScaling::llama3);
  EXPECT_TRUE(shape_by_name("qwen2.5-0.5b").qkv_bias);
  EXPECT_EQ(shape_by_name("qwen3-0.6b").q_width(), 2048u);  // twice its embedding
  EXPECT_MESSAGE([] { shape_by_name("gpt-5"); },
                 "shape gpt-5: does not exist | the shapes are llama-3.2-1b");
}

// The published parameter counts catch a wrong row in the table.
TEST(Shapes, HaveThePublishedParameterCounts) {
  const struct {
    const char* name;
    double billions;
  } published[] = {{"llama-3.2-1b", 1.236},   {"llama-3.2-3b", 3.213},   {"llama-3.1-8b", 8.030},
                   {"tinyllama-1.1b", 1.100}, {"smollm2-1.7b", 1.711},   {"qwen2.5-0.5b", 0.494},
                   {"qwen2.5-1.5b", 1.544},   {"qwen2.5-3b", 3.086},     {"qwen2.5-7b", 7.616},
                   {"qwen3-0.6b", 0.596},     {"qwen3-1.7b", 1.721},     {"qwen3-4b", 4.022},
                   {"qwen3-8b", 8.191},       {"granite-3.3-2b", 2.534}, {"olmo-2-1b", 1.485},
                   {"smollm3-3b", 3.075},     {"phi-3.5-mini", 3.821},   {"phi-4-mini", 3.836},
                   {"gemma-2-2b", 2.614},     {"gemma-3-1b", 1.000},     {"aya-23-8b", 8.028},
                   {"gpt-oss-20b", 20.915},   {"lfm2-1.2b", 1.170}};
  for (const auto& model : published) {
    double values = 0;
    for (const WeightSpec& spec : weight_specs(shape_by_name(model.name), NameStyle::gguf))
      values += static_cast<double>(std::max<uint64_t>(spec.rows, 1) * spec.cols);
    EXPECT_NEAR(values / 1e9, model.billions, 0.0006) << model.name;
  }
}

// Enough rows that the embedding is made of pooled blocks.
Config pooled_config() {
  Config config = blocky_config();
  config.vocab = 1100;
  return config;
}

TEST(Synth, SameSeedSameBytes) {
  for (const char* type : {"bf16", "q4_0", "q6_k"}) {
    const Scratch scratch;
    synthesize(pooled_config(), type, 1, scratch / "a.gguf");
    synthesize(pooled_config(), type, 1, scratch / "b.gguf");
    synthesize(pooled_config(), type, 2, scratch / "c.gguf");
    EXPECT_EQ(hash_of(scratch / "a.gguf"), hash_of(scratch / "b.gguf")) << type;
    EXPECT_NE(hash_of(scratch / "a.gguf"), hash_of(scratch / "c.gguf")) << type;
  }
}

TEST(Synth, TheBytesAreTheSameOnEveryMachine) {
  const Scratch scratch;
  synthesize(small_config(), "f32", 1, scratch / "a.gguf");
  const Model model = open_model(scratch / "a.gguf");
  EXPECT_EQ(to_hex(hash_bytes(model.weights.layers[0].q.bytes)),
            "d620b38f21ab9360270445e1df7c1e57");
}

TEST(Synth, WeightsAreOfUsefulSize) {
  for (const char* type : {"f32", "q8_0", "q4_0"}) {
    const Scratch scratch;
    synthesize(pooled_config(), type, 1, scratch / "a.gguf");
    const Model model = open_model(scratch / "a.gguf");
    const TensorView& embedding = model.weights.embedding;
    const std::vector<float> values = values_of(embedding);
    double square = 0;
    for (const float value : values) square += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(values.size())), 1.0 / 16, 1e-3) << type;
    for (const float value : values_of(model.weights.final_norm)) EXPECT_NEAR(value, 1.0f, 0.35f);
    std::set<std::vector<float>> rows;
    for (uint64_t row = 0; row < embedding.rows; ++row)
      rows.insert(values_of({embedding.dtype, 1, embedding.cols, embedding.row(row)}));
    EXPECT_EQ(rows.size(), embedding.rows) << type;
  }
}

TEST(Synth, RowsThatAreNoWholeBlocksAreMentioned) {
  const Scratch scratch;
  const std::vector<std::string> notes = synthesize(small_config(), "q4_k", 1, scratch / "a.gguf");
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes.front(),
            "2 x attn_k.weight: rows of 64 are not whole q4_k blocks of 256, written as q5_0");
  EXPECT_EQ(open_model(scratch / "a.gguf").weights.layers[0].q.dtype, DType::q5_0);
}

TEST(Synth, FoldersHoldPlainTypesOnly) {
  const Scratch scratch;
  EXPECT_MESSAGE([&] { synthesize(small_config(), "q4_0", 1, scratch / "dir"); },
                 "a safetensors folder cannot hold q4_0");
  EXPECT_MESSAGE([&] { synthesize(small_config(), "q9", 1, scratch / "a.gguf"); },
                 "type q9: does not exist | the types are f32");
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.gguf"));
}

TEST(Synth, ProgressRisesToItsTotal) {
  const Scratch scratch;
  uint64_t last = 0;
  uint64_t whole = 0;
  synthesize(small_config(), "bf16", 1, scratch / "a.gguf",
             [&](std::string_view, uint64_t done, uint64_t total) {
               EXPECT_GT(done, last);
               last = done;
               whole = total;
             });
  EXPECT_EQ(last, whole);
  EXPECT_EQ(whole, open_model(scratch / "a.gguf").weight_bytes());
}

TEST(SyntheticVocabulary, HasThePublicSpecialTokens) {
  const Vocabulary llama = synthetic_vocabulary(shape_by_name("llama-3.2-1b"));
  EXPECT_EQ(llama.pieces.size(), 128256u);
  EXPECT_EQ(llama.pieces[128000], "<|begin_of_text|>");
  EXPECT_EQ(llama.pieces[128009], "<|eot_id|>");
  EXPECT_EQ(llama.bos, 128000);
  EXPECT_TRUE(llama.add_bos);
  EXPECT_EQ(llama.added.size(), 256u);
  const Vocabulary qwen = synthetic_vocabulary(shape_by_name("qwen3-0.6b"));
  EXPECT_EQ(qwen.pieces[151645], "<|im_end|>");
  EXPECT_LT(qwen.pieces.size(), 151936u);
  EXPECT_FALSE(qwen.add_bos);
  for (const Vocabulary& vocabulary : {llama, qwen}) {
    const std::set<std::string> distinct(vocabulary.pieces.begin(), vocabulary.pieces.end());
    EXPECT_EQ(distinct.size(), vocabulary.pieces.size());
  }
}

TEST(SyntheticVocabulary, TokenisesAndComesBack) {
  for (const char* shape : {"tiny", "tinyllama-1.1b", "smollm2-1.7b", "qwen2.5-0.5b"}) {
    const Tokenizer tokenizer(synthetic_vocabulary(shape_by_name(shape)), shape);
    const std::string text = "The quick brown fox: 1234 \xc3\xa9\xe2\x82\xac\n\tjumps.";
    const std::vector<Token> tokens = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(tokens), text) << shape;
    EXPECT_LT(tokens.size(), text.size()) << shape;
  }
}

}  // namespace
}  // namespace tyto::test
