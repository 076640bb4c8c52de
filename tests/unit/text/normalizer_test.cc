#include "text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/utf8.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

std::string normalized(const std::vector<Normalizer>& steps, std::string_view text) {
  Vocabulary vocabulary;
  vocabulary.normalizers = steps;
  return TextNormalizer(vocabulary, "small").apply(text);
}

TEST(Normalizer, EachStepChangesWhatItSays) {
  using enum Normalizer;
  EXPECT_EQ(normalized({}, " A\u00C4 "), " A\u00C4 ");
  EXPECT_EQ(normalized({nfd}, "\u00C4\uAC01"), "A\u0308\u1100\u1161\u11A8");
  EXPECT_EQ(normalized({nfkc}, "\uFB01\u2460\uFF21"), "fi1A");
  EXPECT_EQ(normalized({nfkd}, "\uFDFA").size(), 33u);  // the longest of all
  EXPECT_EQ(normalized({nfd, strip_accents, lower_case}, "\u00C4\u1E9E\u0130\u03A3"),
            "a\u00DFi\u03C3");
  EXPECT_EQ(normalized({strip_accents}, "\u0928\u093F"), "\u0928\u093F");  // a spacing mark
  EXPECT_EQ(normalized({strip_marks}, "\u0928\u093F"), "\u0928");
  EXPECT_EQ(normalized({clean_controls}, std::string("a\0\x7F\u200B\uFFFD\tb\u2003", 14)), "a b ");
  EXPECT_EQ(normalized({space_ideographs}, "a\u4F60\U00020000b"), "a \u4F60  \U00020000 b");
  EXPECT_EQ(normalized({spaces}, "a\n\u3000b"), "a  b");
  EXPECT_EQ(normalized({merge_spaces}, "  a   b "), " a b ");
  EXPECT_EQ(normalized({trim_left}, "  a "), "a ");
  EXPECT_EQ(normalized({trim_right}, "  a "), "  a");
  EXPECT_EQ(normalized({trim_left, trim_right}, "   "), "");
}

TEST(Charsmap, LongestPrefixIsReplaced) {
  const Charsmap map(
      compiled_charsmap({{"a", "1"}, {"ab", "2"}, {"\u00E9", "e"}, {"x", ""}, {"long", "short"}}),
      "table");
  EXPECT_EQ(map.apply("aabacb"), "121cb");
  EXPECT_EQ(map.apply("\u00E9x\u00E8lon long"), "e\u00E8lon short");
  EXPECT_EQ(map.apply(""), "");
  EXPECT_EQ(map.apply(std::string("\0a", 2)), std::string("\0"
                                                          "1",
                                                          2));
}

TEST(Charsmap, BrokenTablesAreErrors) {
  const std::string whole = compiled_charsmap({{"a", "b"}});
  EXPECT_EQ(Charsmap(whole, "table").apply("a"), "b");
  for (const size_t bytes : {size_t{0}, size_t{3}, size_t{4}, size_t{1000}, whole.size() - 1})
    EXPECT_ERROR(Charsmap(whole.substr(0, bytes), "table"), "are not a table of") << bytes;
  std::string no_end = whole;
  no_end.back() = 'x';
  EXPECT_ERROR(Charsmap(no_end, "table"), "are not a table of");
  // Any unit that leads out of the trie or behind the replacements.
  for (size_t at = 4; at < whole.size(); at += 4) {
    std::string bad = whole;
    bad.replace(at, 3, "\xFF\xFD\xFF");
    try {
      Charsmap(bad, "table").apply("abc \xC3\xA9");
    } catch (const Error&) {
    }
  }
  EXPECT_ERROR(Charsmap(compiled_charsmap({{"a", std::string(1000, 'b')}}), "table").apply("aaa"),
               "more than 64 times as long");
}

TEST(Charsmap, WhatATableBreaksIsMended) {
  Vocabulary vocabulary;
  vocabulary.normalizers = {Normalizer::charsmap, Normalizer::nfc};
  vocabulary.charsmap = compiled_charsmap({{"\xC3", "\xE2"}, {"a", "\xFF"}});
  const std::string text = TextNormalizer(vocabulary, "small").apply("a\u00E9");
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
}

TEST(Charsmap, Base64IsReadAndCheckedWhole) {
  EXPECT_EQ(from_base64("", "t"), "");
  EXPECT_EQ(from_base64("TQ==", "t"), "M");
  EXPECT_EQ(from_base64("TWE=", "t"), "Ma");
  EXPECT_EQ(from_base64("TWFu/+8", "t"), "Man\xFF\xEF");
  EXPECT_ERROR(from_base64("TW F", "t"), "byte 2 is not a letter of base64");
}

}  // namespace
}  // namespace tyto
