#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

TEST(PieceIndex, FindsPiecesByText) {
  const std::vector<std::string> pieces = {"a", "b", "", "ab", "a", "\u2581"};
  const PieceIndex index(pieces);
  EXPECT_EQ(index.find("ab"), 3);
  EXPECT_EQ(index.find("a"), 0);  // the lowest of two
  EXPECT_EQ(index.find("\u2581"), 5);
  EXPECT_EQ(index.find(""), -1);
  EXPECT_EQ(index.find("abc"), -1);
  EXPECT_EQ(PieceIndex().find("a"), -1);
}

TEST(PieceIndex, LeftOutPiecesAreNotFound) {
  const std::vector<std::string> pieces = {"a", "b", "a"};
  EXPECT_EQ(PieceIndex(pieces, {true, false, false}).find("a"), 2);
  EXPECT_EQ(PieceIndex(pieces, {true, true, false}).find("b"), -1);
}

TEST(MergeTable, FirstRuleOfAPairWins) {
  MergeTable table(2);
  table.add(1, 2, {7, 3});
  table.add(1, 2, {8, 4});
  EXPECT_EQ(table.find(1, 2).rank, 7u);
  EXPECT_EQ(table.find(1, 2).result, 3);
  EXPECT_EQ(table.find(2, 1).rank, Merge::kNever);
  EXPECT_EQ(table.find(-1, -1).rank, Merge::kNever);
  EXPECT_EQ(MergeTable().find(0, 0).rank, Merge::kNever);
}

TEST(MergeTable, HoldsAsManyAsItWasMadeFor) {
  constexpr Token kSide = 300;
  MergeTable table(static_cast<size_t>(kSide) * kSide);
  for (Token left = 0; left < kSide; ++left)
    for (Token right = 0; right < kSide; ++right)
      table.add(left, right, {static_cast<uint32_t>(left * kSide + right), right});
  for (Token left = 0; left < kSide; ++left)
    for (Token right = 0; right < kSide; ++right)
      ASSERT_EQ(table.find(left, right).rank, static_cast<uint32_t>(left * kSide + right));
}

std::vector<Symbol> symbols(const std::vector<Token>& tokens) {
  std::vector<Symbol> word;
  for (size_t i = 0; i < tokens.size(); ++i)
    word.push_back({tokens[i], static_cast<uint32_t>(i + 1)});
  return word;
}

// The definition: scan for the lowest rank, leftmost first, join, start again.
std::vector<Symbol> merged_by_definition(const MergeTable& table, std::vector<Symbol> word) {
  while (true) {
    Merge best;
    size_t at = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const Merge merge = table.find(word[i].token, word[i + 1].token);
      if (merge.rank < best.rank) {
        best = merge;
        at = i;
      }
    }
    if (best.rank == Merge::kNever) return word;
    word[at] = {best.result, word[at + 1].end};
    word.erase(word.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

bool equal(const std::vector<Symbol>& a, const std::vector<Symbol>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Symbol& x, const Symbol& y) {
    return x.token == y.token && x.end == y.end;
  });
}

// Random rules over few symbols, so that merges overlap, chain and tie; words on both sides of the
// length where the merger changes its method.
TEST(WordMerger, AgreesWithTheDefinition) {
  ByteStream random(7);
  for (int round = 0; round < 300; ++round) {
    MergeTable table(64);
    const uint32_t tokens = 3 + random.below(20);
    for (int rule = 0; rule < 60; ++rule) {
      const auto token = [&] { return static_cast<Token>(random.below(tokens)); };
      const Token left = token();
      const Token right = token();
      table.add(left, right, {random.below(12), token()});
    }
    std::vector<Token> word;
    const uint32_t length = random.below(200);
    for (uint32_t i = 0; i < length; ++i)
      word.push_back(static_cast<Token>(random.below(tokens + 1)) - 1);  // -1: no token
    std::vector<Symbol> merged = symbols(word);
    WordMerger(table).merge(merged);
    ASSERT_TRUE(equal(merged, merged_by_definition(table, symbols(word)))) << "round " << round;
  }
}

TEST(ScoredMerges, HigherScoreFirstAndEqualScoresShareARank) {
  Vocabulary vocabulary;
  vocabulary.pieces = {"a", "b", "c", "ab", "bc", "abc", "cc"};
  vocabulary.scores = {0, 0, 0, -2, -1, -3, -2};
  const PieceIndex index(vocabulary.pieces);
  const MergeTable table = scored_merges(vocabulary, index, "test");
  EXPECT_LT(table.find(1, 2).rank, table.find(0, 1).rank);  // bc before ab
  EXPECT_EQ(table.find(0, 1).rank, table.find(2, 2).rank);  // ab and cc
  EXPECT_EQ(table.find(0, 4).result, 5);                    // a + bc
  EXPECT_EQ(table.find(3, 2).result, 5);                    // ab + c
  EXPECT_EQ(table.find(0, 2).rank, Merge::kNever);
}

TEST(ScoredMerges, RefusesPiecesTooLongToSplitEveryWay) {
  Vocabulary vocabulary;
  vocabulary.pieces = {"a", std::string(100'000, 'a')};
  vocabulary.scores = {0, 0};
  EXPECT_ERROR(scored_merges(vocabulary, PieceIndex(vocabulary.pieces), "test"),
               "at most 256 are supported");
}

TEST(ResolveMerges, BothSidesAndTheWholeMustBePieces) {
  Vocabulary vocabulary;
  vocabulary.pieces = {"a", "b", "ab"};
  resolve_merges(vocabulary, {{"a", "b"}}, "test");
  EXPECT_EQ(vocabulary.merges, (std::vector<std::pair<Token, Token>>{{0, 1}}));
  EXPECT_EQ(vocabulary.merge_results, (std::vector<Token>{2}));
  EXPECT_ERROR(resolve_merges(vocabulary, {{"a", "c"}}, "test"),
               "a piece that is not in the vocabulary");
  EXPECT_ERROR(resolve_merges(vocabulary, {{"b", "a"}}, "test"),
               "a piece that is not in the vocabulary");
  EXPECT_ERROR(resolve_merges(vocabulary, {{"", "a"}}, "test"),
               "a piece that is not in the vocabulary");
}

TEST(SplitMerge, AtTheFirstSpaceThatLeavesALeftSide) {
  EXPECT_EQ(split_merge("a b"), (PiecePair{"a", "b"}));
  EXPECT_EQ(split_merge("  x"), (PiecePair{" ", "x"}));
  EXPECT_EQ(split_merge("a b c"), (PiecePair{"a", "b c"}));
  EXPECT_EQ(split_merge("ab"), std::nullopt);
  EXPECT_EQ(split_merge(""), std::nullopt);
  EXPECT_EQ(split_merge(" "), std::nullopt);
}

}  // namespace
}  // namespace tyto
