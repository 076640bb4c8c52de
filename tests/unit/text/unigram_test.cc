#include "text/tokenizer/unigram.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "support/expect_error.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

Tokenizer letters() {
  return Tokenizer(unigram_vocabulary({{"_", -3.0f},
                                       {"a", -2.0f},
                                       {"b", -2.5f},
                                       {"ab", -3.0f},
                                       {"_a", -3.5f},
                                       {"_ab", -9.0f},
                                       {"ba", -4.75f}}),
                   "small");
}

TEST(UnigramTokenizer, TakesTheLikeliestPieces) {
  const Tokenizer tokenizer = letters();
  EXPECT_EQ(pieces_of(tokenizer, "a"), (Pieces{"\u2581a", "</s>"}));
  // _a + b is -6, _ + ab is -6 too: the way whose last piece begins first.
  EXPECT_EQ(pieces_of(tokenizer, "ab", {.add_eos = false}), (Pieces{"\u2581", "ab"}));
  EXPECT_EQ(pieces_of(tokenizer, "aab", {.add_eos = false}), (Pieces{"\u2581a", "ab"}));
  EXPECT_EQ(pieces_of(tokenizer, "a ab", {.add_eos = false}), (Pieces{"\u2581a", "\u2581", "ab"}));
  EXPECT_EQ(pieces_of(tokenizer, "", {.add_eos = false}), Pieces{});
}

TEST(UnigramTokenizer, TheSpaceStandsBeforeText) {
  const Tokenizer tokenizer = letters();
  EXPECT_EQ(pieces_of(tokenizer, "  ", {.add_eos = false}), (Pieces{"\u2581", "\u2581"}));
  EXPECT_EQ(pieces_of(tokenizer, "  a", {.add_eos = false}),
            (Pieces{"\u2581", "\u2581", "\u2581a"}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("  a")), "  a");
}

TEST(UnigramTokenizer, OneUnknownTokenForAllThatFollow) {
  const Tokenizer tokenizer = letters();
  EXPECT_EQ(pieces_of(tokenizer, "axyzb", {.add_eos = false}), (Pieces{"\u2581a", "<unk>", "b"}));
  EXPECT_EQ(pieces_of(tokenizer, "a\u4F60\u597D\xFF\xE2", {.add_eos = false}),
            (Pieces{"\u2581a", "<unk>"}));
}

TEST(UnigramTokenizer, BytesForWhatIsNoPiece) {
  Vocabulary vocabulary = unigram_vocabulary({{"_", -3.0f}, {"a", -2.0f}});
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.pieces.push_back(fmt::format("<0x{:02X}>", byte));
    vocabulary.scores.push_back(0);
  }
  find_byte_tokens(vocabulary);
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, "a\u00E9", {.add_eos = false}),
            (Pieces{"\u2581", "a", "<0xC3>", "<0xA9>"}));
  for (const char* text : {"a\u00E9a", "\xFF", "a\xE2\x82", "<0x41>", "x  y"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(UnigramTokenizer, TextNeverBecomesAnAddedToken) {
  const Tokenizer tokenizer = letters();
  const EncodeOptions special = {.add_eos = false, .parse_special = true};
  EXPECT_EQ(pieces_of(tokenizer, "</s>", {.add_eos = false}), (Pieces{"\u2581", "<unk>"}));
  EXPECT_EQ(pieces_of(tokenizer, "a</s>a", special), (Pieces{"\u2581a", "</s>", "\u2581a"}));
}

TEST(UnigramTokenizer, NormalizersRunBeforeSpacesAreMarked) {
  Vocabulary vocabulary = unigram_vocabulary({{"_", -3.0f}, {"a", -2.0f}, {"_a", -2.5f}});
  vocabulary.charsmap = compiled_charsmap({{"A", "a"}, {"\u3000", " "}, {"\t", " "}});
  vocabulary.normalizers = {Normalizer::charsmap, Normalizer::trim_left, Normalizer::trim_right,
                            Normalizer::merge_spaces};
  const Tokenizer tokenizer(vocabulary, "small");
  EXPECT_EQ(pieces_of(tokenizer, " \t A\u3000 a ", {.add_eos = false}),
            (Pieces{"\u2581a", "\u2581a"}));
  EXPECT_EQ(pieces_of(tokenizer, " \u3000 ", {.add_eos = false}), Pieces{});
}

// All ways to cut the text, tried one by one.
double best_by_trying(const std::vector<std::string>& pieces, const std::vector<float>& scores,
                      double unknown, std::string_view text) {
  if (text.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  const size_t character = utf8_head(text).bytes;
  bool is_piece = false;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!text.starts_with(pieces[id])) continue;
    is_piece = is_piece || pieces[id].size() == character;
    best = std::max(
        best, scores[id] + best_by_trying(pieces, scores, unknown, text.substr(pieces[id].size())));
  }
  if (!is_piece)
    best =
        std::max(best, unknown + best_by_trying(pieces, scores, unknown, text.substr(character)));
  return best;
}

TEST(UnigramCutter, IsAsGoodAsTryingEverything) {
  ByteStream random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> pieces;
    std::vector<float> scores;
    for (int i = 0; i < 12; ++i) {
      std::string piece;
      const uint32_t length = 1 + random.below(4);
      for (uint32_t j = 0; j < length; ++j)
        piece += std::string("ab\u00E9").substr(random.below(3) == 2 ? 2 : random.below(2), 1);
      if (valid_utf8_prefix(piece) != piece.size()) piece = "\u00E9";
      if (std::find(pieces.begin(), pieces.end(), piece) != pieces.end()) continue;
      pieces.push_back(piece);
      scores.push_back(-static_cast<float>(random.below(64)) / 8);
    }
    std::string text;
    const uint32_t length = random.below(9);
    for (uint32_t j = 0; j < length; ++j)
      text += std::vector<std::string>{"a", "b", "\u00E9", "c"}[random.below(4)];
    const PieceTrie trie(pieces, std::vector<bool>(pieces.size()), "small");
    UnigramCutter cutter(trie, scores, -20);
    std::vector<Symbol> symbols;
    cutter.cut(text, symbols);
    double sum = 0;
    size_t begin = 0;
    for (const Symbol& symbol : symbols) {
      const std::string part = text.substr(begin, symbol.end - begin);
      begin = symbol.end;
      if (symbol.token >= 0) {
        ASSERT_EQ(part, pieces[static_cast<size_t>(symbol.token)]);
        sum += double{scores[static_cast<size_t>(symbol.token)]};
        continue;
      }
      for (std::string_view rest = part; !rest.empty(); rest.remove_prefix(utf8_head(rest).bytes))
        sum -= 20;
    }
    ASSERT_EQ(begin, text.size());
    ASSERT_EQ(sum, best_by_trying(pieces, scores, -20, text)) << text;
  }
}

TEST(UnigramTokenizer, LongTextsTakeTimeInProportion) {
  std::vector<std::pair<std::string, float>> pieces = {{"_", -1.0f}};
  for (size_t length = 1; length <= 64; ++length)
    pieces.emplace_back(std::string(length, 'a'), -static_cast<float>(length));
  const Tokenizer tokenizer(unigram_vocabulary(pieces), "small");
  const std::string text(300'000, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.encode(std::string(300'000, 'z'), {.add_eos = false}).size(), 2u);
}

TEST(UnigramTokenizer, BadVocabulariesAreRefused) {
  Vocabulary without = unigram_vocabulary({{"a", -1.0f}});
  without.scores.clear();
  EXPECT_ERROR(Tokenizer(without, "small"), "without scores");
  Vocabulary broken = unigram_vocabulary({{"a", -1.0f}});
  broken.normalizers = {Normalizer::charsmap};
  EXPECT_ERROR(Tokenizer(broken, "small"), "are not a table of");
  EXPECT_ERROR(Tokenizer(unigram_vocabulary({{std::string(257, 'a'), -1.0f}}), "small"),
               "piece 3 is 257 bytes long");
  Vocabulary no_unknown = unigram_vocabulary({{"a", -1.0f}});
  no_unknown.unknown = -1;
  EXPECT_ERROR(Tokenizer(no_unknown, "small"), "no token for byte 0x0A");
}

TEST(PieceTrie, FindsTheLongest) {
  const std::vector<std::string> pieces = {"a", "abc", "", "b", "abd", "a", "\xFF\x80"};
  std::vector<bool> left_out(pieces.size(), false);
  left_out[3] = true;
  const PieceTrie trie(pieces, left_out, "small");
  EXPECT_EQ(trie.longest("abcd").token, 1);
  EXPECT_EQ(trie.longest("abcd").bytes, 3u);
  EXPECT_EQ(trie.longest("abx").token, 0);  // the first of two
  EXPECT_EQ(trie.longest("abd").token, 4);
  EXPECT_EQ(trie.longest("b").token, -1);
  EXPECT_EQ(trie.longest("").token, -1);
  EXPECT_EQ(trie.longest("\xFF\x80x").token, 6);
}

}  // namespace
}  // namespace tyto
