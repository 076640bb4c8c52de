#include "text/tokenizer/unigram.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

constexpr EncodeOptions kBare = {.add_bos = false, .add_eos = false};

Tokenizer words() {
  return Tokenizer(word_piece_vocabulary({"_un", "aff", "able", "_a", "_b", "c", "_.", "_,", "_'",
                                          "_\u4F60", "_\u597D", "_unaf", "_e", "_$"}),
                   "small");
}

Pieces cut(std::string_view text) {
  return pieces_of(words(), text, kBare);
}

TEST(WordPieceTokenizer, LongestPieceFirst) {
  EXPECT_EQ(cut("unable"), (Pieces{"\u2581un", "able"}));
  // "unaf" is longer than "un", and nothing goes on from it.
  EXPECT_EQ(cut("unaffable"), (Pieces{"[UNK]"}));
  EXPECT_EQ(cut("ac bc"), (Pieces{"\u2581a", "c", "\u2581b", "c"}));
  EXPECT_EQ(cut("able c"), (Pieces{"[UNK]", "[UNK]"}));  // go on, but begin nothing
  EXPECT_EQ(cut(""), Pieces{});
  EXPECT_EQ(cut(" \t\n "), Pieces{});
}

TEST(WordPieceTokenizer, PunctuationAndIdeographsAreWords) {
  EXPECT_EQ(cut("a,b.a"), (Pieces{"\u2581a", "\u2581,", "\u2581b", "\u2581.", "\u2581a"}));
  EXPECT_EQ(cut("a$a'a"), (Pieces{"\u2581a", "\u2581$", "\u2581a", "\u2581'", "\u2581a"}));
  EXPECT_EQ(cut("a\u4F60\u597Da"), (Pieces{"\u2581a", "\u2581\u4F60", "\u2581\u597D", "\u2581a"}));
}

TEST(WordPieceTokenizer, CaseAccentsAndControlCharacters) {
  EXPECT_EQ(cut("\u00C4C \u00C9"), (Pieces{"\u2581a", "c", "\u2581e"}));
  EXPECT_EQ(cut("a\u00ADc\x01"), (Pieces{"\u2581a", "c"}));
  EXPECT_EQ(cut("a\xFF"
                "c\uFFFD"),
            (Pieces{"\u2581a", "c"}));
  EXPECT_EQ(cut("a\u3000\u00A0b"), (Pieces{"\u2581a", "\u2581b"}));
  Vocabulary cased = word_piece_vocabulary({"_a", "_A"});
  cased.normalizers = bert_normalizers({.strip_accents = false, .lower_case = false});
  EXPECT_EQ(pieces_of(Tokenizer(cased, "small"), "A \u00C4", kBare), (Pieces{"\u2581"
                                                                             "A",
                                                                             "[UNK]"}));
}

TEST(WordPieceTokenizer, WordsLongerThanTheFileSaysAreUnknown) {
  Vocabulary vocabulary = word_piece_vocabulary({"_a", "a", "\u00E9"});
  vocabulary.normalizers = {};
  vocabulary.longest_word = 5;
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "a\u00E9\u00E9\u00E9\u00E9", kBare).size(), 5u);
  EXPECT_EQ(pieces_of(tokenizer, "aaaaaa", kBare), (Pieces{"[UNK]"}));
}

TEST(WordPieceTokenizer, ClassAndSeparator) {
  const Tokenizer tokenizer = words();
  EXPECT_EQ(pieces_of(tokenizer, "a", {}), (Pieces{"[CLS]", "\u2581a", "[SEP]"}));
  EXPECT_EQ(pieces_of(tokenizer, "a[SEP]b", {.parse_special = true}),
            (Pieces{"[CLS]", "\u2581a", "[SEP]", "\u2581b", "[SEP]"}));
  EXPECT_EQ(cut("[SEP]").front(), "[UNK]");
}

TEST(WordPieceTokenizer, BackToText) {
  const Tokenizer tokenizer = words();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Unable a, bc.")), "unable a, bc.");
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a'a")), "a ' a");
  Detokenizer stream(tokenizer);
  std::string text;
  for (const Token token : tokenizer.encode("a, bc")) text += stream.push(token);
  EXPECT_EQ(text + stream.finish(), "a, bc");
}

TEST(WordPieceTokenizer, LongWordsTakeTimeInProportion) {
  std::vector<std::string> pieces = {"_a"};
  for (size_t length = 1; length <= 64; ++length) pieces.emplace_back(length, 'a');
  const Tokenizer tokenizer(word_piece_vocabulary(pieces), "small");
  EXPECT_EQ(tokenizer.encode(std::string(300'000, 'a'), kBare).size(), 1 + (300'000 - 1 + 63) / 64);
  EXPECT_EQ(tokenizer.encode(std::string(300'000, 'a') + "z", kBare).size(), 1u);
}

TEST(WordPieceTokenizer, NeedsAnUnknownToken) {
  Vocabulary vocabulary = word_piece_vocabulary({"_a"});
  vocabulary.unknown = -1;
  EXPECT_ERROR(Tokenizer(vocabulary, "small"), "no token for byte 0x0A");
}

// RWKV's pieces are bytes.
TEST(LongestMatchTokenizer, AnyBytesComeBack) {
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::longest_match;
  for (int byte = 0; byte < 256; ++byte) vocabulary.pieces.emplace_back(1, static_cast<char>(byte));
  vocabulary.pieces.insert(vocabulary.pieces.end(), {" th", " the", "ab", "abcd"});
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "a the thx"), (Pieces{"a", " the", " th", "x"}));
  EXPECT_EQ(pieces_of(tokenizer, "abc"), (Pieces{"ab", "c"}));
  for (const char* text : {"abcd \xFF\xE2\x82", "\u4F60\n"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  vocabulary.pieces['q'].clear();
  EXPECT_ERROR(Tokenizer(vocabulary, "small"), "no token for byte 0x71");
}

}  // namespace
}  // namespace tyto
