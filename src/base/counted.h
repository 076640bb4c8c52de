// A number and its noun, in the singular or the plural.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tyto {

// "1 token", "2 tokens", "0 launches".
inline std::string counted(uint64_t count, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with('s');
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace tyto
