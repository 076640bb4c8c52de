#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/error.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

// --- byte-level ---

Vocabulary hello_world() {
  return byte_level_vocabulary(
      {"h e", "l l", "he ll", "hell o", "_ w", "o r", "_w or", "_wor l", "_worl d"});
}

TEST(ByteLevelTokenizer, MergesByRank) {
  const Tokenizer tokenizer(hello_world(), "small");
  EXPECT_EQ(pieces_of(tokenizer, "hello world"), (Pieces{"hello", "\u0120world"}));
  EXPECT_EQ(pieces_of(tokenizer, "hel wor"), (Pieces{"he", "l", "\u0120wor"}));
  // "ll" outranks what would need its first l.
  EXPECT_EQ(pieces_of(tokenizer, "helll"), (Pieces{"hell", "l"}));
  EXPECT_EQ(pieces_of(tokenizer, ""), Pieces{});
}

TEST(ByteLevelTokenizer, MergesDoNotCrossWords) {
  Vocabulary vocabulary = byte_level_vocabulary({"a b"});
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "ab"), (Pieces{"ab"}));
  vocabulary.split_patterns = {"a"};
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "ab"), (Pieces{"a", "b"}));
}

TEST(ByteLevelTokenizer, WholeWordBeforeMerges) {
  Vocabulary vocabulary = byte_level_vocabulary({"a b", "c d", "b c", "ab cd"});
  // Reachable through merges only as ab + cd; drop that rule and keep the piece.
  vocabulary.merges.pop_back();
  vocabulary.merge_results.pop_back();
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "abcd"), (Pieces{"ab", "cd"}));
  vocabulary.ignore_merges = true;
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "abcd"), (Pieces{"abcd"}));
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "abcde"), (Pieces{"ab", "cd", "e"}));
}

TEST(ByteLevelTokenizer, BeginAndEnd) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  const Token begin = vocabulary.bos;
  const Token end = vocabulary.eos.front();
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a"), (std::vector<Token>{begin, 'a'}));
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a", {.add_bos = false}),
            (std::vector<Token>{'a'}));
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode(""), (std::vector<Token>{begin}));
  vocabulary.add_eos = true;
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a"), (std::vector<Token>{begin, 'a', end}));
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a", {.add_eos = false}),
            (std::vector<Token>{begin, 'a'}));
  vocabulary.add_bos = false;
  vocabulary.add_eos = false;
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a"), (std::vector<Token>{'a'}));
  vocabulary.add_bos = true;
  vocabulary.bos = -1;
  EXPECT_EQ(Tokenizer(vocabulary, "small").encode("a"), (std::vector<Token>{'a'}));
}

TEST(ByteLevelTokenizer, AddedTokens) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  EXPECT_EQ(pieces_of(tokenizer, "a<tool>b"), (Pieces{"a", "<tool>", "b"}));
  EXPECT_EQ(pieces_of(tokenizer, "a<|end|>", {.add_bos = false, .parse_special = true}),
            (Pieces{"a", "<|end|>"}));
  EXPECT_EQ(pieces_of(tokenizer, "<|end|>").size(), 7u);  // as text, byte by byte
}

TEST(ByteLevelTokenizer, PlacesOfSpecialTokens) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  using Places = std::vector<size_t>;
  EXPECT_EQ(tokenizer.special_places(""), Places{});
  EXPECT_EQ(tokenizer.special_places("a<tool>b"), Places{});
  EXPECT_EQ(tokenizer.special_places("<|end|><|begin<|begin|>"), (Places{0, 14}));
  const std::vector<size_t> plain = {1};
  EXPECT_EQ(tokenizer.encode("a<|end|>", {.parse_special = true, .plain = plain}),
            tokenizer.encode("a<|end|>"));
}

TEST(ByteLevelTokenizer, TextNeverBecomesASpecialToken) {
  // The special token can be put together by merges, and is a whole word too.
  Vocabulary vocabulary = byte_level_vocabulary({"E O", "EO S"});
  vocabulary.ignore_merges = true;
  const auto eos = static_cast<Token>(257);
  vocabulary.added.push_back({eos, "EOS", true});
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "EOS"), (Pieces{"EO", "S"}));
  EXPECT_EQ(tokenizer.encode("EOS", {.add_bos = false, .parse_special = true}),
            (std::vector<Token>{eos}));
  EXPECT_TRUE(tokenizer.is_special(eos));
}

TEST(ByteLevelTokenizer, NfcBeforeSplitting) {
  const Tokenizer qwen(byte_level_vocabulary({}, "qwen2"), "small");
  EXPECT_EQ(qwen.encode("e\u0301", {.add_bos = false}), (std::vector<Token>{0xC3, 0xA9}));
  const Tokenizer llama(byte_level_vocabulary({}), "small");
  EXPECT_EQ(llama.encode("e\u0301", {.add_bos = false}), (std::vector<Token>{'e', 0xCC, 0x81}));
}

TEST(ByteLevelTokenizer, InvalidUtf8IsEncodedByteByByte) {
  const Tokenizer tokenizer(hello_world(), "small");
  EXPECT_EQ(pieces_of(tokenizer, "hello\xFFhello"),
            (Pieces{"hello", to_byte_level("\xFF"), "hello"}));
  for (const std::string& text :
       {std::string("\xFF"), std::string("\xE2\x82"), std::string("a\xC0\x80z"),
        std::string("\xED\xA0\x80"), std::string("\0\x01", 2), std::string("\xF0\x9F\x99 x")}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(ByteLevelTokenizer, AnyBytesRoundTrip) {
  const Tokenizer tokenizer(hello_world(), "small");
  ByteStream random(11);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const uint32_t length = random.below(60);
    for (uint32_t i = 0; i < length; ++i)
      text += random.below(3) == 0 ? std::string("hello world").substr(random.below(6))
                                   : std::string(1, static_cast<char>(random.below(256)));
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(ByteLevelTokenizer, SpaceBeforeTheText) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.prepend_space = true;
  vocabulary.prepend_if_absent = true;
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "a<tool>b"), (Pieces{"\u0120", "a", "<tool>", "\u0120", "b"}));
  EXPECT_EQ(pieces_of(tokenizer, " a"), (Pieces{"\u0120", "a"}));
}

TEST(ByteLevelTokenizer, MissingControlBytesAreLeftOut) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.pieces[3].clear();
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "a\x03z"), (Pieces{"a", "z"}));
  vocabulary.unknown = vocabulary.bos;
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "a\x03z"), (Pieces{"a", "<|begin|>", "z"}));
}

// --- SentencePiece ---

Vocabulary spm_hello() {
  return sentencepiece_vocabulary({"_", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "hell",
                                   "hello", "_hello", "or", "_w", "_wor", "ld", "_world", "__"});
}

TEST(SentencePieceTokenizer, MergesByScoreWithADummySpace) {
  const Tokenizer tokenizer(spm_hello(), "small");
  EXPECT_EQ(pieces_of(tokenizer, "hello world"), (Pieces{"\u2581hello", "\u2581world"}));
  EXPECT_EQ(pieces_of(tokenizer, " hello"), (Pieces{"\u2581", "\u2581hello"}));
  EXPECT_EQ(pieces_of(tokenizer, ""), Pieces{});
  EXPECT_EQ(tokenizer.encode("hello").front(), 1);
}

TEST(SentencePieceTokenizer, UnknownCharactersBecomeBytes) {
  const Tokenizer tokenizer(spm_hello(), "small");
  EXPECT_EQ(pieces_of(tokenizer, "h\u20ACo"),
            (Pieces{"\u2581", "h", "<0xE2>", "<0x82>", "<0xAC>", "o"}));
  EXPECT_EQ(pieces_of(tokenizer, "\n"), (Pieces{"\u2581", "<0x0A>"}));
  EXPECT_EQ(pieces_of(tokenizer, "\xFF\xE2"), (Pieces{"\u2581", "<0xFF>", "<0xE2>"}));
}

TEST(SentencePieceTokenizer, WithoutByteTokensTheUnknownToken) {
  Vocabulary vocabulary = spm_hello();
  vocabulary.byte_tokens.clear();
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "h\u20AC\u20AC"), (Pieces{"\u2581", "h", "<unk>", "<unk>"}));
  vocabulary.fuses_unknown = true;
  const Tokenizer fusing(vocabulary, "small");
  EXPECT_EQ(
      pieces_of(fusing, "h\u20AC\u20ACo\xFF\u20AC\xFFl \n \n\n"),
      (Pieces{"\u2581", "h", "<unk>", "o", "<unk>", "l", "\u2581", "<unk>", "\u2581", "<unk>"}));
}

TEST(SentencePieceTokenizer, TextNeverBecomesAControlOrByteToken) {
  Vocabulary vocabulary = sentencepiece_vocabulary(
      {"_", "<", "s", ">", "<s", "0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"});
  vocabulary.scores[1] = 5;  // "<s>" itself would win if it took part
  vocabulary.scores[3 + 0x41] = 5;
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "<s>"), (Pieces{"\u2581", "<s", ">"}));
  EXPECT_EQ(pieces_of(tokenizer, "<0x41>"), (Pieces{"\u2581", "<0x41", ">"}));
  EXPECT_EQ(pieces_of(tokenizer, "<s>", {.add_bos = false, .parse_special = true}),
            (Pieces{"<s>"}));
}

TEST(SentencePieceTokenizer, DummySpaceAfterAddedTokens) {
  Vocabulary vocabulary = spm_hello();
  const EncodeOptions options = {.add_bos = false, .parse_special = true};
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "hello</s>hello</s>", options),
            (Pieces{"\u2581hello", "</s>", "\u2581hello", "</s>"}));
  vocabulary.prepend_once = true;
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "hello</s>hello", options),
            (Pieces{"\u2581hello", "</s>", "hello"}));
  vocabulary.prepend_if_absent = true;
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), " hello", options), (Pieces{"\u2581hello"}));
  vocabulary.prepend_space = false;
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "hello", options), (Pieces{"hello"}));
}

TEST(SentencePieceTokenizer, RankedMergesInPlaceOfScores) {
  Vocabulary vocabulary = spm_hello();
  std::vector<PiecePair> merges = {{"l", "l"}, {"h", "e"}, {"he", "ll"}, {"hell", "o"}};
  resolve_merges(vocabulary, merges, "small");
  EXPECT_EQ(pieces_of(Tokenizer(vocabulary, "small"), "hello"), (Pieces{"\u2581", "hello"}));
}

// A piece with a space inside makes merges cross words; cutting the text at spaces would miss it.
TEST(SentencePieceTokenizer, PiecesThatSpanWords) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"_", "a", "b", "a_", "a_b"}), "small");
  EXPECT_EQ(pieces_of(tokenizer, "a b"), (Pieces{"\u2581", "a\u2581b"}));
}

TEST(SentencePieceTokenizer, RoundTrips) {
  const Tokenizer tokenizer(spm_hello(), "small");
  for (const std::string& text :
       {std::string("hello world"), std::string("  hello  "), std::string("\xFFh\n\t"),
        std::string(" "), std::string("w\u00F6rld \U0001F642"), std::string("a\0b", 3)})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

// --- both ---

// Completes only because merging is n log n: the square of a million is out of reach.
TEST(Tokenizer, AMegabyteInOneWord) {
  std::vector<std::string> merges;
  for (std::string run = "a"; run.size() < 64; run += run) merges.push_back(run + " " + run);
  for (std::string run = "_"; run.size() < 64; run += run) merges.push_back(run + " " + run);
  const Tokenizer tokenizer(byte_level_vocabulary(merges), "small");
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'a'), {.add_bos = false}).size(), 15'625u);
  for (const char letter : {'a', ' ', 'z', '\n', '<'}) {
    const std::string text(200'000, letter);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << letter;
  }

  const Tokenizer spm(sentencepiece_vocabulary({"_", "a", "aa", "aaaa", "__", "____"}), "small");
  EXPECT_EQ(spm.encode(std::string(1'000'000, 'a'), {.add_bos = false}).size(), 250'001u);
  EXPECT_EQ(spm.encode(std::string(199'999, ' '), {.add_bos = false}).size(), 50'000u);
}

TEST(Tokenizer, AMegabyteOfManyPieces) {
  const Tokenizer tokenizer(byte_level_vocabulary({"h e"}, "qwen2"), "small");
  ByteStream random(5);
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes.push_back(static_cast<char>(random.below(256)));
  std::string tags;
  while (tags.size() < 1'000'000) tags += "<tool";
  std::string marks;
  while (marks.size() < 1'000'000) marks += "\u0301\u0316";
  for (const std::string& text : {bytes, tags, marks}) EXPECT_FALSE(tokenizer.encode(text).empty());
}

TEST(Tokenizer, ManyThreads) {
  const Tokenizer tokenizer(hello_world(), "small");
  const std::string text = "hello world, it's 12345 o'clock\n";
  const std::vector<Token> expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) count += tokenizer.encode(text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, FindsPiecesByTextAndKnowsSpecialOnes) {
  const Tokenizer tokenizer(byte_level_vocabulary({"_ a"}), "small");
  EXPECT_EQ(tokenizer.find("\u0120a"), 256);
  EXPECT_EQ(tokenizer.find("<|begin|>"), 257);
  EXPECT_EQ(tokenizer.find("nothing"), -1);
  EXPECT_TRUE(tokenizer.is_eos(258));
  EXPECT_FALSE(tokenizer.is_eos(257));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

// --- hostile vocabularies ---

struct Spoiler {
  const char* what;
  void (*spoil)(Vocabulary&);
};

TEST(Tokenizer, RefusesBrokenVocabularies) {
  const Spoiler spoilers[] = {
      {"empty", [](Vocabulary& v) { v.pieces.clear(); }},
      {"scores", [](Vocabulary& v) { v.scores = {1, 2}; }},
      {"NaN score",
       [](Vocabulary& v) {
         v.scores.assign(v.pieces.size(), std::numeric_limits<float>::quiet_NaN());
       }},
      {"merge id", [](Vocabulary& v) { v.merges[0].first = 1 << 30; }},
      {"negative merge id", [](Vocabulary& v) { v.merges[0].second = -1; }},
      {"merge result", [](Vocabulary& v) { v.merge_results[0] = 100'000; }},
      {"merge that lies", [](Vocabulary& v) { v.merge_results[0] = 'z'; }},
      {"results missing", [](Vocabulary& v) { v.merge_results.pop_back(); }},
      {"bos", [](Vocabulary& v) { v.bos = 1 << 20; }},
      {"bos below", [](Vocabulary& v) { v.bos = -7; }},
      {"unknown", [](Vocabulary& v) { v.unknown = 1 << 20; }},
      {"eos", [](Vocabulary& v) { v.eos.push_back(-1); }},
      {"added id", [](Vocabulary& v) { v.added[0].id = 1 << 20; }},
      {"added length", [](Vocabulary& v) { v.added[0].text.assign(1 << 20, 'x'); }},
      {"byte tokens", [](Vocabulary& v) { v.byte_tokens = {1, 2, 3}; }},
      {"byte token id", [](Vocabulary& v) { v.byte_tokens.assign(256, 1 << 20); }},
      {"no letter a", [](Vocabulary& v) { v.pieces['a'].clear(); }},
      {"pattern", [](Vocabulary& v) { v.split_patterns = {"("}; }},
  };
  for (const Spoiler& spoiler : spoilers) {
    Vocabulary vocabulary = byte_level_vocabulary({"h e"});
    spoiler.spoil(vocabulary);
    try {
      Tokenizer tokenizer(std::move(vocabulary), "model.gguf");
      ADD_FAILURE() << spoiler.what << " was accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("model.gguf")) << error.what();
    }
  }
}

TEST(Tokenizer, RunawayPatternIsAnErrorWhenEncoding) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  vocabulary.split_patterns = {"(?:a+a+)+b|(a|aa)+c"};
  const Tokenizer tokenizer(std::move(vocabulary), "small");
  EXPECT_NO_THROW(tokenizer.encode("aab"));
  EXPECT_ERROR(tokenizer.encode(std::string(60, 'a')), "split pattern 0: split pattern fails");
}

// Pieces that occur twice, are empty, or are not UTF-8.
TEST(Tokenizer, OddPiecesAreHarmless) {
  Vocabulary vocabulary = byte_level_vocabulary({"h e"});
  vocabulary.pieces.push_back(vocabulary.pieces[256]);
  vocabulary.pieces.emplace_back();
  vocabulary.pieces.emplace_back("\xFF\xFE");
  const Tokenizer tokenizer(std::move(vocabulary), "small");
  EXPECT_EQ(tokenizer.encode("he", {.add_bos = false}), (std::vector<Token>{256}));
  EXPECT_EQ(tokenizer.token_bytes(static_cast<Token>(tokenizer.size()) - 1), "\xFF\xFE");
  EXPECT_EQ(tokenizer.token_bytes(static_cast<Token>(tokenizer.size()) - 2), "");
}

}  // namespace
}  // namespace tyto
