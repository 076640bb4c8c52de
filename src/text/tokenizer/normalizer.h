// The normalizers of a vocabulary: what is done to a text before it is cut into words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace tyto {

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
    size_t bytes = 0;  // of the text; 0: the table has no prefix of it
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
