#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tyto {

// A number and its noun, in the singular or the plural.

// "1 token", "2 tokens", "0 launches".
inline std::string counted(uint64_t count, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with('s');
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses ? "es" : "s");
}

// Numbers of bytes for people.

// 1500 -> "1.5 kB": decimal, as disks and downloads are counted.
std::string human_bytes(uint64_t bytes);

// Lists in messages: "a, b, c".

// `text_of` is a function or a member of the items that gives a string.
template <typename Range, typename TextOf = std::identity>
std::string joined(Range&& range, std::string_view separator = ", ", TextOf text_of = {}) {
  std::string text;
  bool is_first = true;
  for (auto&& item : range) {
    if (!is_first) text += separator;
    text += std::invoke(text_of, item);
    is_first = false;
  }
  return text;
}

// "Did you mean …?"

// Which of some names was probably meant by one that is none of them: a few letters wrong, missing,
// too many or in another order, or cut short. Upper and lower case are the same.
std::optional<std::string> nearest(std::string_view typed, std::span<const std::string> names);

// Text that is pasted into a shell.

// As it is where a shell takes it so, else in single quotes.
std::string shell_word(const std::string& word);

// The time of day as records keep it.

std::string utc_now();                             // 2026-01-31T12:00:00Z
std::string utc_time(int64_t seconds_since_1970);  // at that time
int64_t seconds_since_1970();                      // now

}  // namespace tyto
