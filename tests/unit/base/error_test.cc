#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace tyto {
namespace {

std::string line(const std::string& where, const std::string& what) {
  return Error(ErrorCode::input, where, what).what();
}

TEST(Error, NamesPlaceThenFact) {
  EXPECT_EQ(line("a.gguf: tensor 3", "offset 9 is past the end"),
            "a.gguf: tensor 3: offset 9 is past the end");
  EXPECT_EQ(line("", "alone"), "alone");
}

TEST(Error, CarriesCodeAndHint) {
  const Error error(ErrorCode::unsupported, "x", "y", "do z");
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.hint, "do z");
  EXPECT_EQ(Error(ErrorCode::input, "x", "y", "see \x1b[2J\n\u202Ez").hint,
            "see \\u001b[2J\\u000a\\u202ez");
}

TEST(Error, StaysOnOneLine) {
  EXPECT_EQ(line("a\nb\x1b[2J", "c\td\x7f"), "a\\u000ab\\u001b[2J: c\\u0009d\\u007f");
  EXPECT_EQ(line(std::string("nul\0!", 5), "x"), "nul\\u0000!: x");
}

TEST(Error, KeepsUtf8AndEscapesOtherBytes) {
  EXPECT_EQ(line("h\u00e9.json", "\u2713"), "h\u00e9.json: \u2713");
  EXPECT_EQ(line("h\xe9.json", "x"), "h\\xe9.json: x");
}

TEST(Error, BoundsItsLengthBetweenCodePoints) {
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string name(shift, 'x');
    while (name.size() < 1'000'000) name += "\u2713";
    const std::string text = line(name, "too long");
    EXPECT_LT(text.size(), 6000u);
    ASSERT_TRUE(text.ends_with("…"));
    EXPECT_EQ((text.size() - 3 - shift) % 3, 0u) << "cut inside a code point";
  }
}

TEST(Error, FailHelpersFormat) {
  try {
    fail_input("file", "{} of {}", 3, 7);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::input);
    EXPECT_STREQ(error.what(), "file: 3 of 7");
  }
  try {
    fail_unsupported("arch", "{}", "mamba");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "arch: mamba");
  }
}

TEST(ErrorDeathTest, AssertNamesTheCondition) {
  EXPECT_DEATH(TYTO_ASSERT(1 == 2), "internal error: 1 == 2");
}

}  // namespace
}  // namespace tyto
