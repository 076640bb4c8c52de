#include "text/grammar/json_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tyto {
namespace {

constexpr uint64_t kMost = 9'999'999'999'999'999;  // 16 digits: what a double holds
const std::string kFraction = "(\".\" [0-9]{1,16})?";
const std::string kNoDigits = "[]";

std::string any_of(const std::vector<std::string>& choices) {
  return choices.empty() ? kNoDigits : fmt::format("({})", fmt::join(choices, " | "));
}

// Numbers of as many digits, from one to the other.
std::string between_digits(const std::string& low, const std::string& high) {
  if (low == high) return "\"" + low + "\"";
  const bool is_all = low == std::string(low.size(), '0') && high == std::string(high.size(), '9');
  if (is_all) return fmt::format("[0-9]{{{}}}", low.size());
  const auto same = static_cast<size_t>(std::ranges::mismatch(low, high).in1 - low.begin());
  const std::string prefix = same == 0 ? "" : "\"" + low.substr(0, same) + "\" ";
  const size_t rest = low.size() - same - 1;
  if (rest == 0) return fmt::format("{}[{}-{}]", prefix, low[same], high[same]);
  std::vector<std::string> choices;
  const auto digit = [&](char first, const std::string& from, const std::string& to) {
    choices.push_back(fmt::format("\"{}\" {}", first, between_digits(from, to)));
  };
  digit(low[same], low.substr(same + 1), std::string(rest, '9'));
  if (low[same] + 1 < high[same])
    choices.push_back(fmt::format("[{}-{}] [0-9]{{{}}}", static_cast<char>(low[same] + 1),
                                  static_cast<char>(high[same] - 1), rest));
  digit(high[same], std::string(rest, '0'), high.substr(same + 1));
  return prefix + any_of(choices);
}

// Of any number of digits, without a sign.
std::string between(uint64_t low, uint64_t high) {
  std::vector<std::string> choices;
  while (low <= high) {
    const std::string digits = std::to_string(low);
    const std::string nines(digits.size(), '9');
    const bool is_last = std::to_string(high).size() == digits.size();
    choices.push_back(between_digits(digits, is_last ? std::to_string(high) : nines));
    if (is_last) break;
    low = std::stoull(nines) + 1;
  }
  return any_of(choices);
}

// A part of the numbers on one side of zero, by what they are without their sign.
struct Magnitudes {
  uint64_t low = 0;
  uint64_t high = kMost;
  bool low_is_open = false;
  bool high_is_open = false;

  bool is_empty() const { return low > high || (low == high && (low_is_open || high_is_open)); }
};

uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

Magnitudes positive(const NumberBounds& bounds) {
  Magnitudes part;
  if (bounds.least && bounds.least->value >= 0) {
    part.low = magnitude(bounds.least->value);
    part.low_is_open = bounds.least->is_open;
    part.high = std::max(kMost, part.low + 1);
  }
  if (bounds.most && bounds.most->value < 0) return {.low = 1, .high = 0};
  if (bounds.most) {
    part.high = magnitude(bounds.most->value);
    part.high_is_open = bounds.most->is_open;
  }
  return part;
}

Magnitudes negative(const NumberBounds& bounds) {
  NumberBounds mirrored;
  const auto mirror = [](const std::optional<NumberBound>& bound) {
    std::optional<NumberBound> result = bound;
    if (result) result->value = -std::max(result->value, -INT64_MAX);
    return result;
  };
  mirrored.least = mirror(bounds.most);
  mirrored.most = mirror(bounds.least);
  Magnitudes part = positive(mirrored);
  if (part.low == 0) part.low_is_open = true;  // there is no -0
  return part;
}

std::string integers(const Magnitudes& part) {
  return between(part.low + part.low_is_open, part.high - part.high_is_open);
}

std::string numbers(const Magnitudes& part) {
  std::vector<std::string> choices;
  const uint64_t first = part.low + part.low_is_open;
  if (first < part.high) choices.push_back(between(first, part.high - 1) + " " + kFraction);
  if (part.low_is_open) choices.push_back(fmt::format("\"{}.\" [0-9]{{0,15}} [1-9]", part.low));
  if (!part.high_is_open)
    choices.push_back(fmt::format("\"{}\" (\".\" \"0\"{{1,16}})?", part.high));
  return any_of(choices);
}

std::string with_signs(const NumberBounds& bounds, std::string (*write)(const Magnitudes&)) {
  std::vector<std::string> choices;
  if (const Magnitudes part = positive(bounds); !part.is_empty()) choices.push_back(write(part));
  if (const Magnitudes part = negative(bounds); !part.is_empty())
    choices.push_back("\"-\" " + write(part));
  return any_of(choices);
}

}  // namespace

std::string gbnf_integer(const NumberBounds& bounds) {
  return with_signs(bounds, integers);
}

std::string gbnf_number(const NumberBounds& bounds) {
  return with_signs(bounds, numbers);
}

}  // namespace tyto
