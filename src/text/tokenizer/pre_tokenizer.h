// Split patterns that more than one file format refers to without writing them out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// A pre-tokeniser's regular expression, run through PCRE2. Patterns come from model files, so a bad
// or runaway one is an Error, not a hang.

// Rewrites what model files mean (Oniguruma and tiktoken read them) but PCRE2 reads otherwise: \s
// and \S are the property White_Space (PCRE2 adds U+180E). Throws unsupported on class
// intersections, which PCRE2 would read as literals. `where` names the file and field.
std::string to_pcre2_dialect(std::string_view pattern, const std::string& where);

// What matching needs besides the pattern: one per thread, for any number of patterns and texts.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

 private:
  friend class SplitPattern;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class SplitPattern {
 public:
  // `where` is how errors call the pattern.
  SplitPattern(std::string_view pattern, const std::string& where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // `ends` holds where each part of `text` (valid UTF-8, less than 2^32 bytes) ends; each part is
  // split further: every match is a part of its own, and so is every stretch between matches.
  // Parts do not see each other.
  void split(std::string_view text, MatchScratch& scratch, std::vector<uint32_t>& ends) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

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
