// Numbers between bounds, as GBNF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tyto {

struct NumberBound {
  int64_t value = 0;
  bool is_open = false;  // the value itself is outside
};

struct NumberBounds {
  std::optional<NumberBound> least;
  std::optional<NumberBound> most;
};

// One of the numbers, without an exponent. Digits are bounded where the bounds do not say, so that
// a number ends.
std::string gbnf_integer(const NumberBounds& bounds);
std::string gbnf_number(const NumberBounds& bounds);

}  // namespace tyto
