// Split patterns that more than one file format refers to without writing them out.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

// The pattern with line breaks, tabs and characters outside of ASCII as escapes: the one spelling
// in which two that mean the same are compared.
std::string spelled_out(std::string_view pattern);

// What ByteLevel{use_regex} means in tokenizer.json, and "gpt-2" in GGUF.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One character of what tokenizer.json calls Punctuation: ASCII's, and Unicode's category P.
inline constexpr std::string_view kPunctuationPattern = R"([\p{P}$+<=>^`|~])";

// What a WordPiece vocabulary's words are told apart by, besides punctuation.
inline constexpr std::string_view kWhiteSpacePattern = R"(\s+)";

// One character of what tokenizer.json calls Digits.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";

// Numbers cut into threes from the right. A group looks as far as its number goes, so that a long
// number takes the square of its length; SplitPattern knows these three and does them by hand.
inline constexpr std::string_view kGroupedNumberPattern = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
inline constexpr std::string_view kGroupedDigitPattern = "[0-9]{1,3}(?=(?:[0-9]{3})*(?![0-9]))";
inline constexpr std::string_view kGroupedWholeNumberPattern = R"(\d{1,3}(?=(?:\d{3})*\b))";

}  // namespace tyto
