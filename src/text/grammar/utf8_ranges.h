// Ranges of characters as ranges of bytes in UTF-8.
#pragma once

#include <cstdint>
#include <vector>

#include "text/grammar/gbnf.h"

namespace tyto {

struct ByteRange {
  uint8_t first = 0;
  uint8_t last = 0;
};

// One to four bytes, each any of its range.
using ByteRanges = std::vector<ByteRange>;

// Sequences that together spell every character of the range, and nothing else. Surrogates have no
// spelling.
std::vector<ByteRanges> utf8_sequences(CharacterRange range);

}  // namespace tyto
