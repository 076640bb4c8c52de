#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace tyto {
namespace {

// Tokens found in the text and the stretches between them, "[id]" and text.
std::string marked(const std::vector<AddedToken>& added, std::string_view text,
                   bool with_special = true) {
  const AddedTokenMatcher matcher(added, with_special);
  std::string out;
  size_t done = 0;
  while (true) {
    const auto match = matcher.find(text, done);
    out += text.substr(done, (match.token != nullptr ? match.begin : text.size()) - done);
    if (match.token == nullptr) return out;
    out += '[' + std::to_string(match.token->id) + ']';
    done = match.end;
  }
}

TEST(AddedTokens, LongestAtEachPlaceFromLeftToRight) {
  const std::vector<AddedToken> added = {{1, "<a>"}, {2, "<a><a>"}, {3, "<"}, {4, "b<"}};
  EXPECT_EQ(marked(added, "x<a><a><a>y"), "x[2][1]y");
  EXPECT_EQ(marked(added, "b<a>"), "[4]a>");
  EXPECT_EQ(marked(added, "<<a"), "[3][3]a");
  EXPECT_EQ(marked(added, ""), "");
  EXPECT_EQ(marked({}, "<a>"), "<a>");
}

TEST(AddedTokens, LongestFallsBackToAShorterOne) {
  const std::vector<AddedToken> added = {{1, "ab"}, {2, "abcde"}, {3, "cd"}};
  EXPECT_EQ(marked(added, "abcdx"), "[1][3]x");
  EXPECT_EQ(marked(added, "abcde"), "[2]");
  EXPECT_EQ(marked(added, "abc"), "[1]c");
}

TEST(AddedTokens, SpecialOnesOnlyWhenAskedFor) {
  const std::vector<AddedToken> added = {{1, "<s>", true}, {2, "<t>", false}, {3, "<s><t>", true}};
  EXPECT_EQ(marked(added, "<s><t>", false), "<s>[2]");
  EXPECT_EQ(marked(added, "<s><t>", true), "[3]");
}

TEST(AddedTokens, SpecialOnesDoNotCoverPlainBytes) {
  const std::vector<AddedToken> added = {
      {1, "<s>", true}, {2, "<s><t>", true}, {3, "<t>", false}, {4, "s><", false}};
  const AddedTokenMatcher matcher(added, true);
  const auto found = [&](std::string_view text, const std::vector<size_t>& plain) {
    std::vector<Token> ids;
    for (auto match = matcher.find(text, 0, plain); match.token != nullptr;
         match = matcher.find(text, match.end, plain))
      ids.push_back(match.token->id);
    return ids;
  };
  using Ids = std::vector<Token>;
  EXPECT_EQ(found("<s><t>", {}), (Ids{2}));
  EXPECT_EQ(found("<s><t>", {3}), (Ids{1, 3}));  // the shorter one ends before it
  EXPECT_EQ(found("<s><t>", {5}), (Ids{1, 3}));
  EXPECT_EQ(found("<s><t>", {0}), (Ids{4}));
  EXPECT_EQ(found("<s>x<s>", {2}), (Ids{1}));
  EXPECT_EQ(found("<s>x<s>", {0, 4}), Ids{});
  EXPECT_EQ(found("<s>x<s>", {3, 7, 9}), (Ids{1, 1}));
}

TEST(AddedTokens, PlainBytesAndSwallowedWhiteSpace) {
  const std::vector<AddedToken> added = {{1, "<b>", true, true, true}};
  const AddedTokenMatcher matcher(added, true);
  const std::vector<size_t> plain = {2};
  const auto match = matcher.find("  <b>  <b>  ", 0, plain);
  EXPECT_EQ(match.at, 7u);
  EXPECT_EQ(match.begin, 5u);
  EXPECT_EQ(match.end, 12u);
}

TEST(AddedTokens, SwallowWhiteSpace) {
  const std::vector<AddedToken> added = {{1, "<l>", false, true, false},
                                         {2, "<r>", false, false, true},
                                         {3, "<b>", false, true, true}};
  EXPECT_EQ(marked(added, "a  <l>  b"), "a[1]  b");
  EXPECT_EQ(marked(added, "a  <r> \n b"), "a  [2]b");
  EXPECT_EQ(marked(added, "a\u00A0\u3000<b>\u2003b"), "a[3]b");
  EXPECT_EQ(marked(added, "  <l>"), "[1]");
  EXPECT_EQ(marked(added, "<r>  <l>"), "[2][1]");
  // Not white space, and not UTF-8 either.
  EXPECT_EQ(marked(added, "\x80\x80<l>"), "\x80\x80[1]");
  EXPECT_EQ(marked(added, "\u200B<l>"), "\u200B[1]");
}

TEST(AddedTokens, OfTwoWithOneTextTheFirstListed) {
  EXPECT_EQ(marked({{5, "x"}, {4, "x"}}, "x"), "[5]");
}

TEST(AddedTokens, BytesAboveAsciiSortAsBytes) {
  const std::vector<AddedToken> added = {{1, "\xFFz"}, {2, "a"}, {3, "\u2581"}, {4, "\xFF"}};
  EXPECT_EQ(marked(added,
                   "\xFF\xFFz\u2581"
                   "ab"),
            "[4][1][3][2]b");
}

}  // namespace
}  // namespace tyto
