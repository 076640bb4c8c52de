// GBNF, the grammar notation of llama.cpp: text to rules (docs/grammar.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;
};

inline constexpr char32_t kLastCharacter = 0x10FFFF;
inline constexpr uint32_t kMaxRepetition = 65536;  // the most that one expression may have

// Sorted and disjoint.
std::vector<CharacterRange> normalized(std::vector<CharacterRange> ranges);
std::vector<CharacterRange> complement(std::vector<CharacterRange> ranges);

struct Expression {
  enum class Kind : uint8_t {
    text,        // these bytes
    characters,  // one character of the ranges
    rule,        // whatever the rule matches
    sequence,    // the parts in order; without parts the empty text
    choice,      // one of the parts
    repeat,      // the one part, `least` to `most` times
  };
  static constexpr uint32_t kForever = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::sequence;
  uint32_t rule = 0;  // index in GrammarText
  uint32_t least = 0;
  uint32_t most = 0;
  std::string text = {};
  std::vector<CharacterRange> ranges = {};
  std::vector<Expression> parts = {};
};

struct GrammarText {
  struct Rule {
    std::string name;
    size_t line = 0;
    Expression body = {};
  };
  std::vector<Rule> rules;
  uint32_t root = 0;
};

// Every rule that is named is there. What is not in the notation is an input Error with its line.
GrammarText parse_gbnf(std::string_view source);

// Writing GBNF: texts and classes of characters as the notation spells them.

std::string gbnf_text(std::string_view text);  // in quotes; UTF-8
std::string gbnf_class(const std::vector<CharacterRange>& ranges);

}  // namespace tyto
