#include "shell/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace tyto {
namespace {

std::string wrapped(std::string_view text, size_t columns, size_t piece = std::string::npos) {
  WordWrap wrap(columns);
  std::string out;
  for (size_t at = 0; at < text.size(); at += std::min(piece, text.size() - at))
    out += wrap.push(text.substr(at, piece));
  return out + wrap.finish();
}

TEST(WordWrap, BreaksLinesAtSpaces) {
  EXPECT_EQ(wrapped("Once upon a time there was a fox.", 12),
            "Once upon a\ntime there\nwas a fox.");
  EXPECT_EQ(wrapped("four four five!", 9), "four four\nfive!");  // a full line takes no space more
  EXPECT_EQ(wrapped("one\n\ntwo three", 6), "one\n\ntwo\nthree");
  EXPECT_EQ(wrapped("  ", 10), "  ");
  EXPECT_EQ(wrapped("", 10), "");
}

TEST(WordWrap, TextPassesAsItIsWhereThereIsNoTerminal) {
  const std::string text = "a line that is longer than any terminal \xC3 and has half a character";
  EXPECT_EQ(wrapped(text, 0, 1), text);
}

TEST(WordWrap, PiecesDoNotMatter) {
  const std::string text =
      "Once upon a time, 漢字かな and a naïve owl\tflew.\n```\nsome code that stays as it is\n```\n"
      "| a | table that stays as it is |\n    indented lines stay as they are\nand prose goes on";
  const std::string whole = wrapped(text, 13);
  for (size_t piece = 1; piece < 9; ++piece) EXPECT_EQ(wrapped(text, 13, piece), whole) << piece;
}

TEST(WordWrap, HoldsBackNoMoreThanOneWord) {
  WordWrap wrap(20);
  EXPECT_EQ(wrap.push("Once up"), "Once");
  EXPECT_EQ(wrap.push("on a"), " upon");
  EXPECT_EQ(wrap.push("\n"), " a\n");
  EXPECT_EQ(wrap.push("end"), "");
  EXPECT_EQ(wrap.finish(), "end");
  EXPECT_EQ(wrap.finish(), "");
}

TEST(WordWrap, CodeTablesAndIndentedLinesAreLeftAlone) {
  for (const char* text :
       {"```cpp\nint x = 1; // and a long remark\n```", "~~~\na b c d e f g\n~~~",
        "    int x = 1; // remark", "\tint x = 1; // remark", "| name | size of it |",
        "1. a\n   ```\n   long code here\n   ```"})
    EXPECT_EQ(wrapped(text, 10), text);
  EXPECT_EQ(wrapped("```\na long line\n```\na long line", 6),
            "```\na long line\n```\na long\nline");
  EXPECT_EQ(wrapped("`a` and `b` or", 8), "`a` and\n`b` or");
}

TEST(WordWrap, LongWordsAreLeftToTheTerminal) {
  const std::string address = "https://example.org/a/long/way";
  EXPECT_EQ(wrapped("see " + address + " now", 10), "see " + address + " now");
  EXPECT_EQ(wrapped("see " + address + " and then", 10), "see " + address + " and\nthen");
}

TEST(WordWrap, CountsAsTheTerminalDoes) {
  EXPECT_EQ(wrapped("漢字漢字漢字", 5), "漢字\n漢字\n漢字");
  EXPECT_EQ(wrapped("e\xCC\x81ta e\xCC\x81ta", 7), "e\xCC\x81ta e\xCC\x81ta");  // combining accents
  EXPECT_EQ(wrapped("a\tb c", 10), "a\tb\nc");  // a tab reaches column 8
}

TEST(WordWrap, NoLineIsTooWideAndOnlyBreaksAreAdded) {
  const std::string text =
      "The owl, who was as old as the tree, said: \"Who are you?\" and waited.  ";
  for (size_t columns = 7; columns < 90; ++columns) {
    const std::string shown = wrapped(text, columns);
    std::string same = shown;
    for (char& c : same)
      if (c == '\n') c = ' ';
    EXPECT_EQ(same, text);
    for (size_t begin = 0; begin <= shown.size();) {
      const size_t end = std::min(shown.find('\n', begin), shown.size());
      if (end < shown.size()) {
        EXPECT_LE(columns_of(shown.substr(begin, end - begin)), columns) << columns;
      }
      begin = end + 1;
    }
  }
}

TEST(WordWrap, ALineThatSomethingElseEndedBeginsAgain) {
  WordWrap wrap(10);
  EXPECT_EQ(wrap.push("12345678 "), "12345678");
  EXPECT_EQ(wrap.finish(), " ");
  wrap.begin_line();
  EXPECT_EQ(wrap.push("abcdefgh "), "abcdefgh");
}

}  // namespace
}  // namespace tyto
