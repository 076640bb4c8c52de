#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace tyto {
namespace {

// Longer ones are nobody's typing error, and the table below grows with the product of lengths.
constexpr size_t kMostLetters = 200;
constexpr size_t kLeastPrefix = 3;

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// The fewest letters to replace, drop, insert or swap with their neighbour.
size_t edits(std::string_view from, std::string_view to) {
  const size_t width = to.size() + 1;
  std::vector<size_t> table((from.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> size_t& { return table[i * width + j]; };
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const size_t differs = from[i - 1] != to[j - 1] ? 1 : 0;
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + differs});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(from.size(), to.size());
}

bool begins_like(std::string_view one, std::string_view other) {
  const size_t shared = std::min(one.size(), other.size());
  return shared >= kLeastPrefix && one.substr(0, shared) == other.substr(0, shared);
}

}  // namespace

std::optional<std::string> nearest(std::string_view typed, std::span<const std::string> names) {
  if (typed.empty() || typed.size() > kMostLetters) return std::nullopt;
  const std::string wanted = lower_case(typed);
  std::optional<std::string> best;
  size_t least = 0;
  for (const std::string& name : names) {
    if (name.size() > kMostLetters) continue;
    const std::string known = lower_case(name);
    const size_t distance = edits(wanted, known);
    const size_t most = std::max<size_t>(1, std::max(wanted.size(), known.size()) / 3);
    // Of two letters one is half of it: "ps" is not "p".
    const bool is_close = distance <= most && wanted.size() > 2;
    if (!is_close && !begins_like(wanted, known)) continue;
    if (best && least <= distance) continue;
    best = name;
    least = distance;
  }
  return best;
}

}  // namespace tyto
