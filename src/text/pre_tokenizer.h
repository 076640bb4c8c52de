// Split patterns that more than one file format refers to without writing them out.
#pragma once

#include <string_view>

namespace tyto {

// What ByteLevel{use_regex} means in tokenizer.json, and "gpt-2" in GGUF.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// One character of what tokenizer.json calls Punctuation: ASCII's, and Unicode's category P.
inline constexpr std::string_view kPunctuationPattern = R"([\p{P}$+<=>^`|~])";

// One character of what tokenizer.json calls Digits.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";

}  // namespace tyto
