#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

using Lines = std::vector<std::string>;

TEST(Columns, WideCharactersTakeTwoAndCombiningOnesNone) {
  EXPECT_EQ(columns_of(""), 0u);
  EXPECT_EQ(columns_of("owl"), 3u);
  EXPECT_EQ(columns_of("± …"), 3u);
  EXPECT_EQ(columns_of("猫頭鷹"), 6u);
  EXPECT_EQ(columns_of("e\u0301te\u0301"), 3u);
  EXPECT_EQ(columns_of("\xff"), 1u);  // not UTF-8: something stands there
}

TEST(Columns, LongTextIsShortenedInTheMiddle) {
  EXPECT_EQ(shortened("model.gguf", 10), "model.gguf");
  EXPECT_EQ(shortened("model.gguf", 9), "mode…gguf");
  EXPECT_EQ(shortened("model.gguf", 2), "m…");
  EXPECT_EQ(shortened("model.gguf", 1), "…");
  EXPECT_EQ(shortened("model.gguf", 0), "");
  for (size_t most = 0; most < 12; ++most)
    EXPECT_LE(columns_of(shortened("猫頭鷹 e\u0301 猫頭鷹", most)), most);
}

TEST(Columns, SentencesAreCutAtTheEndWithOneMark) {
  EXPECT_EQ(shortened_at_end("Tell me a story", 15), "Tell me a story");
  EXPECT_EQ(shortened_at_end("Tell me a story", 9), "Tell me…");
  EXPECT_EQ(shortened_at_end("Tell me a st…", 9), "Tell me…");
  EXPECT_EQ(shortened_at_end("Tell me…", 7), "Tell m…");
  EXPECT_EQ(shortened_at_end("ab", 1), "…");
  EXPECT_EQ(shortened_at_end("ab", 0), "");
}

TEST(Columns, LinesAreBrokenAtSpaces) {
  EXPECT_EQ(wrapped_lines("", 10), Lines{""});
  EXPECT_EQ(wrapped_lines("one two three", 13), Lines{"one two three"});
  EXPECT_EQ(wrapped_lines("one two three", 12), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped_lines("one  two ", 12), Lines{"one  two "});  // what fits stays as it is
  EXPECT_EQ(wrapped_lines("one\n\ntwo", 12), (Lines{"one", "", "two"}));
  EXPECT_EQ(wrapped_lines("  one two", 7), (Lines{"  one", "  two"}));
}

TEST(Columns, AWordThatIsTooLongIsBroken) {
  EXPECT_EQ(wrapped_lines("a /long/path b", 5), (Lines{"a", "/long", "/path", "b"}));
  EXPECT_EQ(wrapped_lines("猫頭鷹", 5), (Lines{"猫頭", "鷹"}));
  EXPECT_EQ(wrapped_lines("猫頭", 1), (Lines{"猫", "頭"}));  // wider than any line: one each
  EXPECT_EQ(wrapped_lines("ab", 0), (Lines{"a", "b"}));
}

}  // namespace
}  // namespace tyto
