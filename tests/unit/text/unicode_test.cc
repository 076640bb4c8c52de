#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/tokenizer/bpe.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

std::string to_nfc(std::string_view text) {
  return to_normal_form(text, NormalForm::nfc);
}

TEST(Unicode, WhiteSpaceIsTheProperty) {
  for (const char32_t space : {0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A,
                               0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    EXPECT_TRUE(is_white_space(space)) << static_cast<uint32_t>(space);
  for (const char32_t other : {0x8, 0x1C, 0x61, 0x180E, 0x200B, 0x2060, 0xFEFF})
    EXPECT_FALSE(is_white_space(other)) << static_cast<uint32_t>(other);
}

TEST(Unicode, NfcComposesAndOrdersMarks) {
  EXPECT_EQ(to_nfc(""), "");
  EXPECT_EQ(to_nfc("plain ASCII\n"), "plain ASCII\n");
  EXPECT_EQ(to_nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(to_nfc("\u00E9"), "\u00E9");
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");               // ANGSTROM SIGN, a singleton
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "\uAC01");   // Hangul jamo
  EXPECT_EQ(to_nfc("a\u0301\u0316"), "\u00E1\u0316");  // marks of different classes reorder
  EXPECT_EQ(to_nfc("a\u0316\u0301"), "\u00E1\u0316");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");        // a composition exclusion
  EXPECT_EQ(to_nfc("\u1E9B\u0323"), "\u1E9B\u0323");  // UAX #15's own example
  EXPECT_EQ(to_nfc("\uFB01"), "\uFB01");              // compatibility forms stay
  EXPECT_EQ(to_nfc("x\U0001D15E"), "x\U0001D157\U0001D165");
}

// Half a million marks in the wrong order: insertion would take 10^11 steps.
TEST(Unicode, NfcOfAnEndlessRunOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0316";
  const std::string composed = to_nfc(text);
  EXPECT_EQ(composed.size(), text.size() - 1);  // "a" and the first U+0301 became U+00E1
  EXPECT_EQ(composed.substr(0, 4), "\u00E1\u0316");
  EXPECT_EQ(composed.substr(composed.size() - 2), "\u0301");
}

TEST(ByteLevel, AlphabetRoundTrips) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(to_byte_level(" a\n"), "\u0120a\u010A");
  EXPECT_EQ(to_byte_level(std::string_view("\0\xAD\x7F", 3)), "\u0100\u0143\u0121");
}

TEST(ByteLevel, WhatIsOutsideTheAlphabetStandsForItself) {
  EXPECT_EQ(from_byte_level("\u2581\u0120"), "\u2581 ");
  EXPECT_EQ(from_byte_level("a\xFF\xC4"), "a\xFF\xC4");
}

}  // namespace
}  // namespace tyto
