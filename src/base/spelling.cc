#include "base/spelling.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace tyto {

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  constexpr double kStep = 1000, kRoundsUp = 999.95;  // which would be shown as 1000.0
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= (unit == 0 ? kStep : kRoundsUp) && unit + 1 < kUnits.size(); ++unit)
    value /= kStep;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

namespace {

// Longer ones are no typing errors, and the table below grows with the product of lengths.
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
    // One of two letters is half of it: "ps" is not "p".
    const bool is_close = distance <= most && wanted.size() > 2;
    if (!is_close && !begins_like(wanted, known)) continue;
    if (best && least <= distance) continue;
    best = name;
    least = distance;
  }
  return best;
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789-_./:=,+@%") == std::string::npos;
  if (plain) return word;
  std::string result = "'";
  for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string utc_now() {
  return utc_time(seconds_since_1970());
}

std::string utc_time(int64_t seconds_since_1970) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(seconds_since_1970)));
}

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tyto
