// Split patterns that more than one file format refers to without writing them out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

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

// The normalizers of a vocabulary: what is done to a text before it is cut into words.

// SentencePiece's precompiled table of replacements (normalizer_spec.precompiled_charsmap): a
// double-array trie of UTF-8 prefixes (Darts-clone's units), then the replacements, each with a NUL
// behind it.

class Charsmap {
 public:
  // Every place that a walk may come to is checked here. `name` is how errors call the table.
  Charsmap(std::string_view table, const std::string& name);

  // Valid UTF-8 with the longest prefix that the table has replaced at each place; what it lacks
  // stays. A table that makes a text many times as long is an Error.
  std::string apply(std::string_view text) const;

 private:
  struct Found {
    size_t bytes = 0;  // what is replaced; 0: the table has no prefix of the text
    uint32_t replacement = 0;
  };
  Found longest(std::string_view text) const;

  std::string name_;
  std::vector<uint32_t> units_;  // a multiple of 256
  std::string replacements_;     // ends with a NUL
};

// The bytes that a text in base64 stands for, as tokenizer.json has the table. What is no base64 is
// an Error that begins with `where`.
std::string from_base64(std::string_view letters, const std::string& where);

class TextNormalizer {
 public:
  TextNormalizer() = default;
  // `name` is how errors call the vocabulary.
  TextNormalizer(const Vocabulary& vocabulary, const std::string& name);

  bool changes_nothing() const { return steps_.empty(); }

  // Valid UTF-8 to valid UTF-8, in time linear in the text.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Normalizer> steps_;
  std::optional<Charsmap> charsmap_;
};

// The text with U+FFFD for what is not UTF-8.
std::string as_valid_utf8(std::string_view text);

}  // namespace tyto
