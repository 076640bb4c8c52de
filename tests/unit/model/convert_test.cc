#include "model/convert.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/gguf.h"
#include "model/synth.h"
#include "model/weight_table.h"
#include "support/expect_error.h"
#include "tensor/compare.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::vector<std::string> convert(const Model& in, const std::string& type,
                                 const std::filesystem::path& out) {
  ThreadPool pool(2);
  return quantize_model(in, type, out, pool);
}

// The value GGUF row r of a permuted matrix must have, by the definition of the two rotations:
// dimension d of a head and its partner rotate together by frequency f.
TEST(Convert, QAndKRowsRotateTheSameInBothLayouts) {
  const uint32_t head_dim = 16;
  for (uint32_t row = 0; row < 3 * head_dim; ++row) {
    const uint64_t source = unpermuted_row(row, head_dim);
    const uint32_t within = row % head_dim;
    EXPECT_EQ(source / head_dim, row / head_dim);               // same head
    EXPECT_EQ(source % head_dim % (head_dim / 2), within / 2);  // same frequency
    EXPECT_EQ(source % head_dim / (head_dim / 2), within % 2);  // same side of the pair
  }
}

TEST(Convert, FolderToGgufKeepsEveryWeight) {
  for (const char* architecture : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Scratch scratch;
    const Config config = small_config(architecture);
    synthesize(config, "f32", 1, scratch / "hf");
    const Model source = open_model(scratch / "hf");
    EXPECT_TRUE(convert(source, "f32", scratch / "m.gguf").empty());
    const Model result = open_model(scratch / "m.gguf");
    const bool permuted =
        std::string(architecture) == "llama" || std::string(architecture) == "mistral";
    EXPECT_EQ(result.config.rope.layout, permuted ? RopeLayout::pairs : RopeLayout::halves);
    EXPECT_EQ(result.config.architecture, permuted ? "llama" : architecture);
    for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf)) {
      const std::vector<float> before = values_of(view_of(source.weights, spec));
      const std::vector<float> after = values_of(view_of(result.weights, spec));
      ASSERT_EQ(before.size(), after.size());
      const bool moved = permuted && (spec.part == TensorPart::q || spec.part == TensorPart::k);
      for (size_t i = 0; i < after.size(); ++i) {
        const size_t row = i / spec.cols;
        const size_t from = moved ? unpermuted_row(row, config.head_dim) : row;
        ASSERT_EQ(after[i], before[from * spec.cols + i % spec.cols]) << spec.name << " " << i;
      }
    }
    EXPECT_EQ(result.vocabulary->pieces, source.vocabulary->pieces);
    EXPECT_EQ(result.vocabulary->merges, source.vocabulary->merges);
    EXPECT_EQ(result.vocabulary->chat_template, source.vocabulary->chat_template);
    EXPECT_EQ(result.vocabulary->eos, source.vocabulary->eos);
    EXPECT_EQ(result.vocabulary->bos, source.vocabulary->bos);
  }
}

TEST(Convert, EveryTypeIsCloseToItsSource) {
  const Scratch scratch;
  synthesize(blocky_config(), "f32", 1, scratch / "hf");
  const Model source = open_model(scratch / "hf");
  for (const std::string& type : type_mix_names()) {
    EXPECT_TRUE(convert(source, type, scratch / (type + ".gguf")).empty()) << type;
    const Model result = open_model(scratch / (type + ".gguf"));
    const Comparison rows =
        compare(values_of(result.weights.layers[0].up), values_of(source.weights.layers[0].up));
    EXPECT_GT(rows.cosine, 0.99) << type;
    const Comparison norm =
        compare(values_of(result.weights.final_norm), values_of(source.weights.final_norm));
    EXPECT_EQ(norm.max_abs_error, 0) << type;
  }
}

TEST(Convert, GgufToGgufPermutesNothing) {
  const Scratch scratch;
  synthesize(small_config(), "q8_0", 1, scratch / "a.gguf");
  const Model source = open_model(scratch / "a.gguf");
  convert(source, "q8_0", scratch / "b.gguf");
  const Model result = open_model(scratch / "b.gguf");
  for (const WeightSpec& spec : weight_specs(source.config, NameStyle::gguf)) {
    const auto before = view_of(source.weights, spec).bytes;
    const auto after = view_of(result.weights, spec).bytes;
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin(), after.end())) << spec.name;
  }
}

TEST(Convert, RoundingASecondTimeIsMentioned) {
  const Scratch scratch;
  synthesize(blocky_config(), "q4_k_m", 1, scratch / "a.gguf");
  const Model source = open_model(scratch / "a.gguf");
  EXPECT_TRUE(convert(source, "q4_k_m", scratch / "same.gguf").empty());
  const std::vector<std::string> notes = convert(source, "q8_0", scratch / "q8.gguf");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(
      notes.front().find("9 matrices were already quantised (q4_k, q6_k) and are now rounded"), 0u)
      << notes.front();
  for (const char* type : {"f32", "f16", "bf16"}) {
    const std::string name(type);
    synthesize(blocky_config(), name, 1, scratch / (name + ".gguf"));
    EXPECT_TRUE(convert(open_model(scratch / (name + ".gguf")), "q8_0", scratch / ("from-" + name))
                    .empty());
  }
}

// The embedding of a large model is many batches of rows: each of them is told.
TEST(Convert, ProgressGoesOnInsideALargeMatrix) {
  const Scratch scratch;
  Config config = small_config();
  config.vocab = 40000;
  synthesize(config, "bf16", 1, scratch / "a.gguf");
  ThreadPool pool(2);
  std::vector<uint64_t> done;
  uint64_t whole = 0;
  quantize_model(open_model(scratch / "a.gguf"), "q8_0", scratch / "b.gguf", pool,
                 [&](std::string_view, uint64_t now, uint64_t total) {
                   done.push_back(now);
                   whole = total;
                 });
  EXPECT_EQ(done.front(), 0u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), whole);
  for (size_t i = 1; i < done.size(); ++i) EXPECT_LE(done[i] - done[i - 1], whole / 2);
}

TEST(Convert, Llama3ScalingBecomesDivisors) {
  const Scratch scratch;
  Config config = small_config();
  config.rope.scaling = RopeScaling::llama3;
  config.rope.theta = 500000;
  config.rope.factor = 32;
  config.rope.original_context = 64;
  synthesize(config, "bf16", 1, scratch / "hf");
  const Model source = open_model(scratch / "hf");
  EXPECT_EQ(source.config.rope.scaling, RopeScaling::llama3);
  convert(source, "bf16", scratch / "a.gguf");
  const Model result = open_model(scratch / "a.gguf");
  ASSERT_EQ(result.config.rope.frequency_divisors.size(), 8u);
  const std::vector<float> before = rope_frequencies(source.config);
  const std::vector<float> after = rope_frequencies(result.config);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i] / before[i], 1.0, 1e-6) << i;
  EXPECT_NE(result.config.rope.frequency_divisors.back(), 1.0f);
  // And once more, now from divisors.
  convert(result, "q8_0", scratch / "b.gguf");
  EXPECT_EQ(open_model(scratch / "b.gguf").config.rope.frequency_divisors,
            result.config.rope.frequency_divisors);
}

TEST(Convert, LinearScalingSurvives) {
  const Scratch scratch;
  Config config = small_config();
  config.rope.scaling = RopeScaling::linear;
  config.rope.factor = 4;
  synthesize(config, "bf16", 1, scratch / "hf");
  convert(open_model(scratch / "hf"), "bf16", scratch / "a.gguf");
  const Rope rope = open_model(scratch / "a.gguf").config.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::linear);
  EXPECT_EQ(rope.factor, 4.0f);
}

TEST(Convert, WhatGgufCannotSayIsMentioned) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  model.vocabulary->split_patterns = {"nobody's pattern"};
  EXPECT_MESSAGE([&] { convert(model, "bf16", scratch / "a.gguf"); },
                 "no name for this vocabulary's pre-tokeniser");
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.gguf"));
  model.vocabulary.reset();
  EXPECT_EQ(convert(model, "bf16", scratch / "a.gguf"),
            std::vector<std::string>{"the model has no tokenizer, so neither has the GGUF"});
  EXPECT_FALSE(open_model(scratch / "a.gguf").vocabulary.has_value());
  EXPECT_MESSAGE([&] { convert(Model{}, "bf16", scratch / "b.gguf"); }, "has no weights");
}

TEST(Convert, PaddedVocabulariesGetOneTextPerRow) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  Vocabulary& vocabulary = *model.vocabulary;
  const auto made = static_cast<size_t>(vocabulary.merge_results.back());
  ASSERT_EQ(made, 299u);
  vocabulary.pieces.pop_back();
  vocabulary.merges.pop_back();
  vocabulary.merge_results.pop_back();
  convert(model, "bf16", scratch / "a.gguf");
  const Vocabulary padded = *open_model(scratch / "a.gguf").vocabulary;
  ASSERT_EQ(padded.pieces.size(), 300u);
  EXPECT_EQ(padded.pieces.back(), "[PAD299]");
}

TEST(Convert, SentencePieceMergesBecomeScores) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.pieces = {"<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "c", "bc", "abc", "ab"};
  vocabulary.merges = {{5, 6}, {4, 7}, {4, 5}, {9, 6}};
  vocabulary.merge_results = {7, 8, 9, 8};
  vocabulary.bos = 1;
  vocabulary.unknown = 0;
  vocabulary.eos = {2};
  vocabulary.add_bos = true;
  vocabulary.prepend_space = true;
  vocabulary.byte_tokens.assign(256, -1);
  vocabulary.byte_tokens[10] = 3;
  vocabulary.added.push_back({1, "<s>", true, false, false});
  model.vocabulary = vocabulary;
  convert(model, "bf16", scratch / "a.gguf");
  const Vocabulary read = *open_model(scratch / "a.gguf").vocabulary;
  EXPECT_EQ(read.algorithm, Vocabulary::Algorithm::sentencepiece);
  EXPECT_GT(read.scores[7], read.scores[8]);
  EXPECT_GT(read.scores[8], read.scores[9]);
  EXPECT_GT(read.scores[9], read.scores[4]);
  EXPECT_EQ(read.byte_tokens[10], 3);
  EXPECT_EQ(read.unknown, 0);
  EXPECT_TRUE(read.prepend_space);
}

// Gemma's runs of spaces: readers print such a token as it is, and look for it in the text.
TEST(Convert, UserDefinedTokensHaveSpaces) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.pieces = {"<unk>",   "\u2581\u2581", "a",       "\u2581",
                       " \u2581", "<\u2581>",     "b\u2581", "b "};
  vocabulary.scores.assign(8, 0.0f);
  vocabulary.unknown = 0;
  vocabulary.fuses_unknown = true;
  vocabulary.added = {{0, "<unk>", true},
                      {1, "\u2581\u2581", false},
                      {4, " \u2581", false},
                      {5, "<\u2581>", true},
                      {6, "b\u2581", false}};
  model.vocabulary = vocabulary;
  EXPECT_TRUE(convert(model, "bf16", scratch / "a.gguf").empty());
  const Vocabulary read = *open_model(scratch / "a.gguf").vocabulary;
  // The second of one text, and one that a piece has already, stay as they are.
  EXPECT_EQ(std::vector<std::string>(read.pieces.begin(), read.pieces.begin() + 8),
            (std::vector<std::string>{"<unk>", "  ", "a", "\u2581", " \u2581", "<\u2581>",
                                      "b\u2581", "b "}));
  const Tokenizer tokenizer(read, "a.gguf");
  EXPECT_EQ(tokenizer.encode("a  a"), (std::vector<Token>{2, 1, 2}));
  EXPECT_EQ(tokenizer.decode({2, 1, 2}), "a  a");
  EXPECT_EQ(tokenizer.encode("x\u00E9a"), (std::vector<Token>{0, 2}));
}

TEST(Convert, PublishedSpellingsOfAPattern) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  // DeepSeek-V3's file, with line breaks and ideographs as they are.
  model.vocabulary->ignore_merges = false;
  model.vocabulary->split_patterns = {
      R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"};
  convert(model, "bf16", scratch / "a.gguf");
  const MappedFile file(scratch / "a.gguf");
  const Gguf gguf = parse_gguf(file.bytes(), "a.gguf");
  EXPECT_EQ(*GgufKeys(gguf).text("tokenizer.ggml.pre"), "deepseek-v3");
}

TEST(Convert, SeveralChatTemplates) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  model.vocabulary->more_templates = {{"tool_use", "T"}, {"my rag", "R"}, {"my.rag", "S"}};
  const std::vector<std::string> notes = convert(model, "bf16", scratch / "a.gguf");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("\"my.rag\" is left out"), std::string::npos) << notes[0];
  const Vocabulary read = *open_model(scratch / "a.gguf").vocabulary;
  EXPECT_EQ(read.chat_template, model.vocabulary->chat_template);
  EXPECT_EQ(chat_template_for(read, true), "T");
  ASSERT_EQ(read.more_templates.size(), 2u);
  EXPECT_EQ(read.more_templates[0].name, "my_rag");
  const MappedFile file(scratch / "a.gguf");
  const Gguf gguf = parse_gguf(file.bytes(), "a.gguf");
  EXPECT_EQ(*GgufKeys(gguf).strings("tokenizer.chat_templates"),
            (std::vector<std::string>{"my_rag", "tool_use"}));
}

TEST(Convert, UnigramAndWordPieceComeBack) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  Vocabulary unigram;
  unigram.algorithm = Vocabulary::Algorithm::unigram;
  unigram.pieces = {"<unk>", "</s>", "\u2581", "a"};
  unigram.scores = {0, 0, -2, -1};
  unigram.added = {{0, "<unk>", true}, {1, "</s>", true}};
  unigram.unknown = 0;
  unigram.eos = {1};
  unigram.add_eos = unigram.prepend_space = true;
  unigram.charsmap = "\x01\xFF";
  unigram.normalizers = {Normalizer::charsmap, Normalizer::trim_left, Normalizer::trim_right,
                         Normalizer::merge_spaces};
  model.vocabulary = unigram;
  convert(model, "bf16", scratch / "a.gguf");
  Vocabulary read = *open_model(scratch / "a.gguf").vocabulary;
  EXPECT_EQ(read.algorithm, Vocabulary::Algorithm::unigram);
  EXPECT_EQ(read.charsmap, unigram.charsmap);
  EXPECT_EQ(read.normalizers, unigram.normalizers);
  EXPECT_EQ(read.scores[3], -1.0f);
  EXPECT_EQ(read.scores.back(), -2.0f);  // padding is no likelier than the rarest piece
  EXPECT_TRUE(read.add_eos && read.prepend_space && !read.add_bos);
  model.vocabulary->normalizers = {Normalizer::lower_case};
  EXPECT_ERROR(convert(model, "bf16", scratch / "b.gguf"),
               "no keys for this vocabulary's normalizers");

  Vocabulary words;
  words.algorithm = Vocabulary::Algorithm::word_piece;
  words.pieces = {"[UNK]", "[CLS]", "[SEP]",
                  "\u2581"
                  "a",
                  "b"};
  words.added = {{0, "[UNK]", true}, {1, "[CLS]", true}, {2, "[SEP]", true}};
  words.unknown = 0;
  words.bos = 1;
  words.eos = {2};
  words.add_bos = words.add_eos = true;
  words.normalizers = bert_normalizers({.strip_accents = false});
  words.split_patterns = {std::string(kWhiteSpacePattern), std::string(kPunctuationPattern)};
  model.vocabulary = words;
  convert(model, "bf16", scratch / "c.gguf");
  read = *open_model(scratch / "c.gguf").vocabulary;
  EXPECT_EQ(read.algorithm, Vocabulary::Algorithm::word_piece);
  EXPECT_EQ(read.normalizers, words.normalizers);
  EXPECT_EQ(read.bos, 1);
  EXPECT_EQ(read.eos.front(), 2);
  EXPECT_TRUE(read.add_bos && read.add_eos);
  model.vocabulary->algorithm = Vocabulary::Algorithm::longest_match;
  EXPECT_ERROR(convert(model, "bf16", scratch / "d.gguf"),
               "RWKV's vocabularies are read, not written");
}

}  // namespace
}  // namespace tyto::test
