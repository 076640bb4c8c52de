#include "base/utf8.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace tyto {
namespace {

TEST(Printable, TextStaysAsItIs) {
  for (const std::string text : {"", "plain\nlines\tand tabs", "h\u00E9 \u2713 \U0001F989",
                                 "\u05D0\u0628 right to left", "e\u0301 \uFFFD \u00A0"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(only_text(text), text);
  }
}

TEST(Printable, EveryControlCharacterIsWrittenOutOrLeftOut) {
  for (char32_t c = 0; c < 0xA0; ++c) {
    if ((c >= 0x20 && c < 0x7F) || c == '\n' || c == '\t') continue;
    std::string text = "a";
    if (c < 0x80)
      text += static_cast<char>(c);
    else
      text += {'\xC2', static_cast<char>(c)};
    EXPECT_EQ(printable(text), fmt::format("a\\u{:04x}", static_cast<uint32_t>(c)));
    EXPECT_EQ(printable_line(text), printable(text));
    EXPECT_EQ(only_text(text), "a");
  }
}

TEST(Printable, CharactersThatTurnTheDirectionOfWriting) {
  EXPECT_EQ(printable("a\u202Eb\u2066c\u2069"), "a\\u202eb\\u2066c\\u2069");
  EXPECT_EQ(only_text("\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u2068\u2069x"), "x");
  EXPECT_EQ(only_text("\u2029\u202F\u2065\u206A"), "\u2029\u202F\u2065\u206A");
}

TEST(Printable, TitlesAndCursorsOfATerminal) {
  EXPECT_EQ(printable("\x1b]0;owned\x07 \x1b[2J"), "\\u001b]0;owned\\u0007 \\u001b[2J");
  EXPECT_EQ(only_text("\x1b]0;owned\x07 \x1b[2J\rx"), "]0;owned [2Jx");
}

TEST(Printable, BytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xFF\xE2\x82z"), "a\\xff\\xe2\\x82z");
  EXPECT_EQ(only_text("a\xFF\xE2\x82z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(printable("\x9b[2J"), "\\x9b[2J");  // C1 of an 8-bit terminal
}

TEST(Printable, OneLine) {
  EXPECT_EQ(printable_line("a\nb\tc"), "a\\u000ab\\u0009c");
  EXPECT_EQ(printable_line("abcdef", 6), "abcdef");
  EXPECT_EQ(printable_line("abcdef", 4), "abcd…");
  EXPECT_EQ(printable_line("ab\u2713", 4), "ab…");
  EXPECT_EQ(printable_line("\x80\x80\x80\x80\x80\x80", 5), "\\x80\\x80…");
  EXPECT_EQ(printable_name(std::string(81, 'x')), std::string(80, 'x') + "…");
}

TEST(Printable, JsonStaysTheSameJson) {
  const std::string json = "{\"name\": \"\x7f\u009B\u202E\\u001b\"}";
  EXPECT_EQ(Json::parse(printable(json), "j").at("name").as_string(),
            Json::parse(json, "j").at("name").as_string());
}

}  // namespace
}  // namespace tyto
