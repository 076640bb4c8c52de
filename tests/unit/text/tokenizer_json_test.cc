#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

// The members of a tokenizer.json that tests replace, each as JSON text.
struct Parts {
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false})";
  std::string post_processor = "null";
  std::string extra = {};  // members of the model
  std::string vocab = {};  // "": the whole byte alphabet, "he" = 256 and "ll" = 257
  std::string merges = R"(["h e",["l","l"]])";
  std::string decoder = R"({"type":"ByteLevel"})";
};

std::string byte_vocab() {
  std::string vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string piece = to_byte_level(std::string(1, static_cast<char>(byte)));
    if (piece == "\"" || piece == "\\") piece.insert(0, 1, '\\');
    vocab += fmt::format("\"{}\":{},", piece, byte);
  }
  return vocab + R"("he":256,"ll":257)";
}

TokenizerFiles files_of(const Parts& parts, const std::string& config = "") {
  TokenizerFiles files;
  files.tokenizer_json = fmt::format(
      R"({{"version":"1.0","added_tokens":{},"normalizer":{},"pre_tokenizer":{},)"
      R"("post_processor":{},"decoder":{},)"
      R"("model":{{"type":"BPE",{}"vocab":{{{}}},"merges":{}}}}})",
      parts.added, parts.normalizer, parts.pre_tokenizer, parts.post_processor, parts.decoder,
      parts.extra, parts.vocab.empty() ? byte_vocab() : parts.vocab, parts.merges);
  files.tokenizer_json_name = "tokenizer.json";
  files.tokenizer_config_json = config;
  files.tokenizer_config_name = "tokenizer_config.json";
  return files;
}

Vocabulary vocabulary_of(const Parts& parts, const std::string& config = "") {
  return vocabulary_from_tokenizer_json(files_of(parts, config));
}

Tokenizer tokenizer_of(const Parts& parts, const std::string& config = "") {
  return Tokenizer(vocabulary_of(parts, config), "tokenizer.json");
}

// The message of the error, which must be of that kind.
std::string refusal(ErrorCode code, const Parts& parts, const std::string& config = "") {
  try {
    tokenizer_of(parts, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

testing::AssertionResult mentions(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << text << "\" does not mention " << part;
}

constexpr const char* kAdded =
    R"([{"id":258,"content":"<|begin|>","special":true,"normalized":false},)"
    R"({"id":259,"content":"<|end|>","special":true,"lstrip":false,"rstrip":true},)"
    R"({"id":260,"content":"<tool>","special":false}])";

TEST(TokenizerJson, ByteLevelWithBothSpellingsOfMerges) {
  const Tokenizer tokenizer = tokenizer_of({});
  EXPECT_EQ(tokenizer.size(), 258u);
  EXPECT_EQ(pieces_of(tokenizer, "hello's 12"),
            (Pieces{"he", "ll", "o", "'", "s", "\u0120", "1", "2"}));
  EXPECT_EQ(tokenizer.vocabulary().algorithm, Vocabulary::Algorithm::byte_level_bpe);
  EXPECT_EQ(tokenizer.vocabulary().split_patterns.size(), 1u);  // use_regex is the default
}

TEST(TokenizerJson, LlamaThreeShape) {
  const Tokenizer tokenizer = tokenizer_of(
      {.added = kAdded,
       .pre_tokenizer =
           R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},)"
           R"("behavior":"Isolated","invert":false},)"
           R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})",
       .post_processor =
           R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",)"
           R"("single":[{"SpecialToken":{"id":"<|begin|>","type_id":0}},{"Sequence":{"id":"A"}}],)"
           R"("special_tokens":{"<|begin|>":{"id":"<|begin|>","ids":[258],"tokens":["x"]}}}]})",
       .extra = R"("ignore_merges":true,"dropout":null,"unk_token":null,)"},
      R"({"bos_token":"<|begin|>","eos_token":{"content":"<|end|>","lstrip":false},)"
      R"("chat_template":"{{ x }}"})");
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  EXPECT_EQ(vocabulary.split_patterns, (std::vector<std::string>{R"(\p{N}{1,3})"}));
  EXPECT_TRUE(vocabulary.ignore_merges);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_FALSE(vocabulary.add_eos);
  EXPECT_EQ(vocabulary.bos, 258);
  EXPECT_EQ(vocabulary.eos, (std::vector<Token>{259}));
  EXPECT_EQ(vocabulary.chat_template, "{{ x }}");
  EXPECT_EQ(tokenizer.encode("he"), (std::vector<Token>{258, 256}));
  EXPECT_EQ(tokenizer.encode("<|end|> \nhe<tool>", {.add_bos = false, .parse_special = true}),
            (std::vector<Token>{259, 256, 260}));
  EXPECT_TRUE(tokenizer.is_special(258));
  EXPECT_FALSE(tokenizer.is_special(260));
}

TEST(TokenizerJson, QwenShape) {
  const Vocabulary vocabulary =
      vocabulary_of({.added = kAdded, .normalizer = R"({"type":"NFC"})"},
                    R"({"add_bos_token":false,"bos_token":null,"eos_token":"<|end|>"})");
  EXPECT_EQ(vocabulary.normalizers, std::vector{Normalizer::nfc});
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.bos, -1);
  EXPECT_EQ(vocabulary.eos, (std::vector<Token>{259}));
}

TEST(TokenizerJson, DigitsThenByteLevel) {
  const Vocabulary vocabulary = vocabulary_of(
      {.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)"
                        R"({"type":"Digits","individual_digits":true},)"
                        R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})"});
  ASSERT_EQ(vocabulary.split_patterns.size(), 2u);
  EXPECT_EQ(vocabulary.split_patterns[0], R"(\p{N})");
}

// <unk> <s> </s>, then letters; bytes for "\n" alone.
Parts sentencepiece_parts() {
  return {.added = R"([{"id":0,"content":"<unk>","special":true},)"
                   R"({"id":1,"content":"<s>","special":true},)"
                   R"({"id":2,"content":"</s>","special":true}])",
          .normalizer = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
                        R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
          .pre_tokenizer = "null",
          .post_processor =
              R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
              R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[1]}}})",
          .extra = R"("unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,)",
          .vocab = R"("<unk>":0,"<s>":1,"</s>":2,"<0x0A>":3,"▁":4,"h":5,"i":6,"hi":7,"▁hi":8)",
          .merges = R"(["h i","▁ hi"])"};
}

TEST(TokenizerJson, SentencePieceShape) {
  const Tokenizer tokenizer = tokenizer_of(sentencepiece_parts(), R"({"eos_token":"</s>"})");
  EXPECT_EQ(tokenizer.vocabulary().algorithm, Vocabulary::Algorithm::sentencepiece);
  EXPECT_EQ(tokenizer.encode("hi hi"), (std::vector<Token>{1, 8, 8}));
  EXPECT_EQ(tokenizer.encode("\nx"), (std::vector<Token>{1, 4, 3, 0}));
  EXPECT_EQ(tokenizer.encode(" hi"), (std::vector<Token>{1, 4, 8}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("hi\nhi")), "hi\nhi");
}

TEST(TokenizerJson, UnknownCharactersBesideEachOther) {
  Parts parts = sentencepiece_parts();
  const auto encoded = [&](const char* text) {
    return tokenizer_of(parts).encode(text, {.add_bos = false});
  };
  EXPECT_EQ(encoded("xyhix yz\nx"), (std::vector<Token>{4, 0, 7, 0, 4, 0, 3, 0}));
  EXPECT_EQ(encoded("xx</s>"), (std::vector<Token>{4, 0}));
  parts.extra = R"("unk_token":"<unk>","fuse_unk":false,"byte_fallback":true,)";
  EXPECT_EQ(encoded("xyhi"), (std::vector<Token>{4, 0, 0, 7}));
  parts.extra = R"("unk_token":"<unk>","fuse_unk":null,"byte_fallback":true,)";
  EXPECT_EQ(encoded("xy"), (std::vector<Token>{4, 0, 0}));
  // Each word that a pre-tokeniser makes is by itself.
  parts.extra = R"("unk_token":"<unk>","fuse_unk":true,)";
  parts.pre_tokenizer = R"({"type":"Split","pattern":{"String":"y"},"behavior":"Isolated"})";
  EXPECT_EQ(encoded("xxyyx"), (std::vector<Token>{4, 0, 0, 0, 0}));
}

TEST(TokenizerJson, ADecoderThatDropsASpace) {
  Parts parts = sentencepiece_parts();
  parts.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  const std::string kept =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
      R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"})";
  const auto decoded = [&](const std::string& end) {
    parts.decoder = kept + end + "]}";
    const Tokenizer tokenizer = tokenizer_of(parts);
    return tokenizer.decode(tokenizer.encode("  hi hi"));
  };
  EXPECT_EQ(decoded(""), "  hi hi");
  EXPECT_EQ(decoded(R"(,{"type":"Strip","content":" ","start":1,"stop":0})"), " hi hi");
  EXPECT_EQ(decoded(R"(,{"type":"Strip","content":" ","start":0,"stop":1})"), "  hi hi");
}

// Command-R's: the tokenizer's config says which of them are added.
TEST(TokenizerJson, SeveralTokensOnOneSide) {
  Parts parts = {
      .added = kAdded,
      .post_processor =
          R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|begin|>"}},)"
          R"({"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<|end|>"}},)"
          R"({"SpecialToken":{"id":"<tool>"}}],"special_tokens":{"<|begin|>":{"ids":[258]},)"
          R"("<|end|>":{"ids":[259]},"<tool>":{"ids":[260]}}})"};
  const std::string refused = refusal(ErrorCode::unsupported, parts);
  EXPECT_TRUE(mentions(refused, "post_processor.single[3]: more than one token on one side"));
  refusal(ErrorCode::unsupported, parts, R"({"add_eos_token":null})");
  const Tokenizer none =
      tokenizer_of(parts, R"({"add_bos_token":true,"add_eos_token":false,"eos_token":"<|end|>"})");
  EXPECT_EQ(none.encode("he"), (std::vector<Token>{258, 256}));
  EXPECT_EQ(none.vocabulary().eos, (std::vector<Token>{259}));
  const Tokenizer one = tokenizer_of(parts, R"({"add_eos_token":true,"eos_token":"<tool>"})");
  EXPECT_EQ(one.encode("he"), (std::vector<Token>{258, 256, 260}));
}

TEST(TokenizerJson, PatternsAreComparedSpelledOut) {
  EXPECT_EQ(spelled_out("[^\r\n\\p{L}]+\t|[\u4E00-\U0001F642]"),
            R"([^\r\n\p{L}]+\t|[\x{4E00}-\x{1F642}])");
  EXPECT_EQ(spelled_out("\\\n|\\\\\n|\\"), R"(\n|\\\n|\)");
  for (const std::string& name : pre_tokenizer_names())
    for (const std::string& pattern : pre_tokenizer_by_name(name, "").split_patterns)
      EXPECT_EQ(spelled_out(pattern), pattern) << name;
}

TEST(TokenizerJson, MetaspacePrependsAsItsSchemeSays) {
  Parts parts = sentencepiece_parts();
  parts.normalizer = "null";
  const auto with = [&](const char* options) {
    parts.pre_tokenizer = fmt::format(R"({{"type":"Metaspace","replacement":"▁"{}}})", options);
    return tokenizer_of(parts);
  };
  const EncodeOptions options = {.add_bos = false, .parse_special = true};
  const Tokenizer first = with(R"(,"prepend_scheme":"first","split":false)");
  EXPECT_EQ(first.encode("hi</s>hi", options), (std::vector<Token>{8, 2, 7}));
  EXPECT_EQ(first.encode(" hi", options), (std::vector<Token>{8}));
  const Tokenizer always = with(R"(,"prepend_scheme":"always")");
  EXPECT_EQ(always.encode("hi</s>hi", options), (std::vector<Token>{8, 2, 8}));
  EXPECT_EQ(always.vocabulary().split_patterns.size(), 1u);
  const Tokenizer never = with(R"(,"add_prefix_space":false)");
  EXPECT_EQ(never.encode("hi hi", options), (std::vector<Token>{7, 8}));
}

TEST(TokenizerJson, SplitBehaviors) {
  const auto split = [](const char* pattern, const char* behavior, const char* invert = "false") {
    return tokenizer_of(
        {.pre_tokenizer = fmt::format(
             R"({{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{},)"
             R"("behavior":"{}","invert":{}}},{{"type":"ByteLevel","use_regex":false}}]}})",
             pattern, behavior, invert),
         .vocab = byte_vocab() + R"(,"-h":258,"e-":259,"--":260)",
         .merges = R"(["- h","e -","- -"])"});
  };
  const char* dash = R"({"String":"-"})";
  EXPECT_EQ(pieces_of(split(dash, "Isolated"), "e--h"), (Pieces{"e", "-", "-", "h"}));
  EXPECT_EQ(pieces_of(split(dash, "Contiguous"), "e--h"), (Pieces{"e", "--", "h"}));
  EXPECT_EQ(pieces_of(split(dash, "MergedWithPrevious"), "e--h"), (Pieces{"e-", "-", "h"}));
  EXPECT_EQ(pieces_of(split(dash, "MergedWithNext"), "e--h"), (Pieces{"e", "-", "-h"}));
  EXPECT_EQ(pieces_of(split(R"({"Regex":"e|--|h"})", "Removed", "true"), "e--h"),
            (Pieces{"e", "--", "h"}));
  EXPECT_ERROR(split(dash, "Removed"), "\"Removed\" is not supported");
  EXPECT_ERROR(split(dash, "MergedWithNext", "true"), "with invert is not supported");
  EXPECT_ERROR(split(R"({"String":""})", "Isolated"), "the pattern is empty");
  // A literal is not a pattern.
  EXPECT_EQ(pieces_of(split(R"({"String":"."})", "Isolated"), "e-.h"), (Pieces{"e-", ".", "h"}));
}

TEST(TokenizerJson, UnknownComponentsAreRefusedByName) {
  const auto unsupported = ErrorCode::unsupported;
  EXPECT_TRUE(mentions(refusal(unsupported, {.normalizer = R"({"type":"Nmt"})"}), "Nmt"));
  EXPECT_TRUE(mentions(refusal(unsupported, {.normalizer = R"({"type":"Nmt"})"}),
                       "tokenizer.json: normalizer"));
  EXPECT_TRUE(
      mentions(refusal(unsupported, {.pre_tokenizer = R"({"type":"Whitespace"})"}), "Whitespace"));
  EXPECT_TRUE(
      mentions(refusal(unsupported, {.post_processor = R"({"type":"Reversing"})"}), "Reversing"));
  EXPECT_TRUE(mentions(
      refusal(unsupported,
              {.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},)"
                                R"({"type":"Digits"}]})"}),
      "after ByteLevel"));
  EXPECT_TRUE(mentions(refusal(unsupported, {.pre_tokenizer = "null"}), "byte-level"));
  EXPECT_TRUE(mentions(refusal(unsupported, {.extra = R"("end_of_word_suffix":"</w>",)"}),
                       "end_of_word_suffix"));
  EXPECT_TRUE(mentions(refusal(unsupported, {.extra = R"("dropout":0.1,)"}), "dropout"));
  EXPECT_TRUE(
      mentions(refusal(unsupported, {.added = R"([{"id":258,"content":"x","single_word":true}])"}),
               "single_word"));
  EXPECT_TRUE(mentions(refusal(unsupported, {.normalizer = R"({"type":"Prepend","prepend":"_"})"}),
                       "Prepend"));
  TokenizerFiles files = files_of({});
  files.tokenizer_json.replace(files.tokenizer_json.find("BPE"), 3, "WordLevel");
  try {
    vocabulary_from_tokenizer_json(files);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_TRUE(mentions(error.what(), "WordLevel"));
    EXPECT_TRUE(mentions(error.what(), "WordPiece"));  // what there is
  }
}

// A file of a model that is not BPE, with the other members as they are given.
Tokenizer tokenizer_with(const std::string& model, const std::string& members) {
  TokenizerFiles files;
  files.tokenizer_json = fmt::format(R"({{"version":"1.0",{},"model":{}}})", members, model);
  files.tokenizer_json_name = "tokenizer.json";
  return Tokenizer(vocabulary_from_tokenizer_json(files), "tokenizer.json");
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string letters;
  uint32_t bits = 0, held = 0;
  for (const char byte : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (held += 8; held >= 6; held -= 6) letters += kLetters[bits >> (held - 6) & 63];
  }
  if (held > 0) letters += kLetters[bits << (6 - held) & 63];
  return letters;
}

constexpr const char* kUnigram =
    R"({"type":"Unigram","unk_id":1,"vocab":[["<pad>",0],["<unk>",0],["</s>",0],["▁",-2.5],)"
    R"(["a",-2],["▁a",-3],["b",-2.25]]})";

TEST(TokenizerJson, T5Shape) {
  const std::string members = fmt::format(
      R"("added_tokens":[{{"id":2,"content":"</s>","special":true,"normalized":false}},)"
      R"({{"id":7,"content":"<extra>","special":true,"normalized":false}}],)"
      R"("normalizer":{{"type":"Precompiled","precompiled_charsmap":"{}"}},)"
      R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"WhitespaceSplit"}},)"
      R"({{"type":"Metaspace","replacement":"▁","add_prefix_space":true}}]}},)"
      R"("post_processor":{{"type":"TemplateProcessing","single":[{{"Sequence":{{"id":"A"}}}},)"
      R"({{"SpecialToken":{{"id":"</s>"}}}}],"special_tokens":{{"</s>":{{"ids":[2]}}}}}})",
      base64(compiled_charsmap({{"A", "a"}})));
  const Tokenizer tokenizer = tokenizer_with(kUnigram, members);
  EXPECT_EQ(tokenizer.vocabulary().algorithm, Vocabulary::Algorithm::unigram);
  EXPECT_EQ(pieces_of(tokenizer, " A\n\u3000 bxy"), (Pieces{"▁a", "▁", "b", "<unk>", "</s>"}));
  EXPECT_EQ(tokenizer.encode("a<extra>", {.parse_special = true}), (std::vector<Token>{5, 7, 2}));
  EXPECT_EQ(pieces_of(tokenizer, " \t ", {.add_eos = false}), Pieces{});
}

TEST(TokenizerJson, UnigramOfSpacesThatStay) {
  const Tokenizer tokenizer =
      tokenizer_with(kUnigram, R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},)"
                               R"({"type":"Strip","strip_left":false,"strip_right":true},)"
                               R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}]},)"
                               R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁",)"
                               R"("prepend_scheme":"always","split":true})");
  EXPECT_EQ(pieces_of(tokenizer, "\uFF41   b  "), (Pieces{"▁a", "▁", "b"}));
  const char* none = R"("pre_tokenizer":{"type":"WhitespaceSplit"})";
  EXPECT_ERROR(tokenizer_with(kUnigram, none), "words are not marked");
  EXPECT_ERROR(tokenizer_with(kUnigram, R"("normalizer":null)"), "words are not marked");
  EXPECT_ERROR(tokenizer_with(R"({"type":"Unigram","vocab":[["a"]]})", none),
               "expected a piece and its score");
  EXPECT_ERROR(tokenizer_with(R"({"type":"Unigram","unk_id":9,"vocab":[["a",0]]})", none),
               "9 is outside 0..0");
}

TEST(TokenizerJson, BertShape) {
  const Tokenizer tokenizer = tokenizer_with(
      R"({"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",)"
      R"("max_input_chars_per_word":6,"vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"un":3,"##able":4,)"
      R"("e":5,"!":6,"##e":7}})",
      R"("added_tokens":[{"id":0,"content":"[UNK]","special":true},)"
      R"({"id":1,"content":"[CLS]","special":true},{"id":2,"content":"[SEP]","special":true},)"
      R"({"id":8,"content":"New York","special":false,"normalized":true}],)"
      R"("normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
      R"("strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
      R"("post_processor":{"type":"BertProcessing","sep":["[SEP]",2],"cls":["[CLS]",1]})");
  EXPECT_EQ(tokenizer.vocabulary().algorithm, Vocabulary::Algorithm::word_piece);
  EXPECT_EQ(tokenizer.encode("UNable \u00C9!"), (std::vector<Token>{1, 3, 4, 5, 6, 2}));
  EXPECT_EQ(tokenizer.encode("eeeeeee", {.add_bos = false, .add_eos = false}),
            (std::vector<Token>{0}));
  // An added token that is found in normalised text is found however the text has it written.
  EXPECT_EQ(tokenizer.encode("e NEW york e", {.add_bos = false, .add_eos = false}),
            (std::vector<Token>{5, 8, 5}));
  EXPECT_EQ(tokenizer.decode({1, 3, 4, 5, 6, 2}), "unable e!");
}

TEST(TokenizerJson, GemmaShape) {
  Parts parts = sentencepiece_parts();
  parts.normalizer = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
  parts.pre_tokenizer = R"({"type":"Split","pattern":{"String":" "},)"
                        R"("behavior":"MergedWithPrevious","invert":false})";
  const Tokenizer tokenizer = tokenizer_of(parts);
  EXPECT_FALSE(tokenizer.vocabulary().prepend_space);
  EXPECT_EQ(pieces_of(tokenizer, "hi hi\n"), (Pieces{"hi", "▁hi", "<0x0A>"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(" hi hi")), " hi hi");

  // Runs of spaces are added tokens; they pass the decoder as all others do.
  parts.added.insert(parts.added.size() - 1,
                     R"(,{"id":9,"content":"▁▁","special":false,"normalized":false})");
  parts.vocab += R"(,"▁▁":9)";
  parts.merges = R"(["▁ ▁","h i","▁ hi"])";
  const Tokenizer runs = tokenizer_of(parts);
  EXPECT_EQ(pieces_of(runs, "hi\n  hi"), (Pieces{"hi", "<0x0A>", "▁▁", "hi"}));
  EXPECT_EQ(runs.decode(runs.encode("hi\n  hi")), "hi\n  hi");
  EXPECT_EQ(runs.token_bytes(9), "  ");
}

TEST(TokenizerJson, BadValuesAreErrorsThatNameTheField) {
  const auto input = ErrorCode::input;
  EXPECT_TRUE(mentions(refusal(input, {.merges = R"(["h z z","x y"])"}), "model.merges"));
  EXPECT_TRUE(mentions(refusal(input, {.merges = R"(["h e","h"])"}), "model.merges[1]"));
  EXPECT_TRUE(mentions(refusal(input, {.merges = R"([["h","e","l"]])"}), "model.merges[0]"));
  EXPECT_TRUE(mentions(refusal(input, {.merges = R"([5])"}), "model.merges[0]"));
  EXPECT_TRUE(mentions(refusal(input, {.merges = "{}"}), "model.merges"));
  EXPECT_TRUE(mentions(refusal(input, {.vocab = R"("a":-1)"}), "model.vocab.a"));
  EXPECT_TRUE(mentions(refusal(input, {.vocab = R"("a":4611686018427387904)"}), "model.vocab.a"));
  EXPECT_TRUE(mentions(refusal(input, {.vocab = R"("a":1000000000)"}), "model.vocab.a"));
  EXPECT_TRUE(mentions(refusal(input, {.vocab = R"("a":"b")"}), "model.vocab.a"));
  EXPECT_TRUE(mentions(refusal(input, {.vocab = R"("h":0,"e":0)"}),
                       "tokenizer.json: model.vocab.e: token 0 is \"h\" already"));
  EXPECT_TRUE(mentions(refusal(input, {.added = R"([{"id":257,"content":"<s>"}])"}),
                       "tokenizer.json: added_tokens[0]: token 257 is \"ll\" already"));
  EXPECT_TRUE(
      mentions(refusal(input, {.added = R"([{"id":258,"content":"a"},{"id":258,"content":"b"}])"}),
               "tokenizer.json: added_tokens[1]: token 258 is \"a\" already"));
  EXPECT_TRUE(mentions(refusal(input, {.added = R"([{"content":"x"}])"}), "added_tokens[0]"));
  EXPECT_TRUE(mentions(refusal(input, {.added = R"([{"id":99999999,"content":"x"}])"}),
                       "added_tokens[0].id"));
  EXPECT_TRUE(mentions(refusal(input, {.pre_tokenizer = "7"}), "pre_tokenizer"));
  EXPECT_TRUE(mentions(refusal(input, {}, R"({"eos_token":"nowhere"})"), "tokenizer_config.json"));
  EXPECT_TRUE(
      mentions(refusal(input, {}, R"({"add_bos_token":true,"bos_token":"nowhere"})"), "bos_token"));
  EXPECT_TRUE(mentions(refusal(input, {}, R"({"chat_template":7})"), "chat_template"));
  EXPECT_TRUE(mentions(refusal(input, {}, "nonsense"), "tokenizer_config.json"));
  EXPECT_TRUE(mentions(
      refusal(input,
              {.post_processor = R"({"type":"TemplateProcessing","single":[{"SpecialToken":)"
                                 R"({"id":"x"}}],"special_tokens":{"x":{"ids":[9999999]}}})"}),
      "post_processor.special_tokens.x.ids[0]"));
}

TEST(TokenizerJson, AnAddedTokenMayBeInTheVocabularyToo) {
  const Vocabulary vocabulary =
      vocabulary_of({.added = R"([{"id":257,"content":"ll"},{"id":257,"content":"ll"}])"});
  EXPECT_EQ(vocabulary.pieces[257], "ll");
}

TEST(TokenizerJson, NotEvenJson) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"model":null})", R"({"model":{}})",
                           R"({"model":{"type":"BPE","vocab":{},"merges":[]}})", "\xFF"}) {
    TokenizerFiles files;
    files.tokenizer_json = text;
    files.tokenizer_json_name = "tokenizer.json";
    try {
      vocabulary_from_tokenizer_json(files);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("tokenizer.json")) << error.what();
    }
  }
}

TEST(TokenizerJson, DeepNestingIsRefused) {
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += R"({"type":"Sequence","normalizers":[)";
  EXPECT_TRUE(mentions(refusal(ErrorCode::input, {.normalizer = nested}), "tokenizer.json"));
}

TEST(TokenizerConfig, TheDefaultOfSeveralChatTemplates) {
  EXPECT_EQ(vocabulary_of({}, R"({"chat_template":[{"name":"rag","template":"R"},)"
                              R"({"name":"default","template":"D"}]})")
                .chat_template,
            "D");
  EXPECT_EQ(vocabulary_of({}, R"({"chat_template":[{"name":"rag","template":"R"}]})").chat_template,
            "");
  EXPECT_EQ(vocabulary_of({}, R"({"chat_template":null})").chat_template, "");
}

TEST(TokenizerConfig, TheTemplateForTools) {
  const Vocabulary vocabulary = vocabulary_of(
      {}, R"({"chat_template":[{"name":"tool_use","template":"T"},{"name":"rag","template":"R"},)"
          R"({"name":"default","template":"D"},{"name":"rag","template":"S"}]})");
  EXPECT_EQ(chat_template_for(vocabulary, true), "T");
  EXPECT_EQ(chat_template_for(vocabulary, false), "D");
  ASSERT_EQ(vocabulary.more_templates.size(), 2u);
  EXPECT_EQ(vocabulary.more_templates[1].source, "S");
  EXPECT_EQ(chat_template_for(vocabulary_of({}, R"({"chat_template":"D"})"), true), "D");
  std::string many;
  for (int i = 0; i < 101; ++i)
    many += fmt::format(R"({}{{"name":"{}","template":""}})", i == 0 ? "" : ",", i);
  EXPECT_TRUE(mentions(refusal(ErrorCode::input, {}, R"({"chat_template":[)" + many + "]}"),
                       "more than 100"));
}

TEST(TokenizerConfig, OverridesTheTemplateOfTokenizerJson) {
  Parts parts = sentencepiece_parts();
  EXPECT_TRUE(vocabulary_of(parts).add_bos);
  const Vocabulary vocabulary =
      vocabulary_of(parts, R"({"add_bos_token":false,"add_eos_token":true,"eos_token":"</s>"})");
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_eos);
  EXPECT_EQ(Tokenizer(vocabulary, "t").encode("hi"), (std::vector<Token>{8, 2}));
}

TEST(TokenizerConfig, AnUnusedBeginTokenMayBeUnknown) {
  EXPECT_EQ(vocabulary_of({}, R"({"bos_token":"nowhere"})").bos, -1);
}

}  // namespace
}  // namespace tyto
