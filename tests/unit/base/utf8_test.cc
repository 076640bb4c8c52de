#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

using Kind = Utf8Head::Kind;

struct HeadCase {
  std::string_view text;
  Kind kind;
  size_t bytes;
  char32_t code_point;
};

TEST(Utf8, HeadOfEveryKindOfSequence) {
  const HeadCase cases[] = {
      {"a", Kind::valid, 1, 'a'},
      {"\u00E9x", Kind::valid, 2, 0xE9},
      {"\u20AC", Kind::valid, 3, 0x20AC},
      {"\U0001F642", Kind::valid, 4, 0x1F642},
      {"\xF4\x8F\xBF\xBF", Kind::valid, 4, 0x10FFFF},
      {"\x80", Kind::invalid, 1, 0},              // continuation byte alone
      {"\xC0\x80", Kind::invalid, 1, 0},          // overlong NUL
      {"\xE0\x80\x80", Kind::invalid, 1, 0},      // overlong
      {"\xED\xA0\x80", Kind::invalid, 1, 0},      // surrogate
      {"\xF4\x90\x80\x80", Kind::invalid, 1, 0},  // past U+10FFFF
      {"\xF5\x80", Kind::invalid, 1, 0},
      {"\xE2\x82x", Kind::invalid, 2, 0},  // maximal subpart: both bytes are one error
      {"\xF0\x9F\x99x", Kind::invalid, 3, 0},
      {"\xE2", Kind::truncated, 1, 0},
      {"\xE2\x82", Kind::truncated, 2, 0},
      {"\xF0\x9F\x99", Kind::truncated, 3, 0},
  };
  for (const HeadCase& c : cases) {
    const Utf8Head head = utf8_head(c.text);
    EXPECT_EQ(head.kind, c.kind) << c.text;
    EXPECT_EQ(head.bytes, c.bytes) << c.text;
    EXPECT_EQ(head.code_point, c.code_point) << c.text;
  }
}

TEST(Utf8, AppendIsTheInverseOfHead) {
  for (const char32_t point :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(point, text);
    const Utf8Head head = utf8_head(text);
    EXPECT_EQ(head.kind, Kind::valid);
    EXPECT_EQ(head.bytes, text.size());
    EXPECT_EQ(head.code_point, point);
  }
}

TEST(Utf8, ValidPrefixStopsAtTheFirstBadByte) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  EXPECT_EQ(valid_utf8_prefix("h\u00E9"), 3u);
  EXPECT_EQ(valid_utf8_prefix("h\xC3"), 1u);
  EXPECT_EQ(valid_utf8_prefix("h\xFFz"), 1u);
}

}  // namespace
}  // namespace tyto
