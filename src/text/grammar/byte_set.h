#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace tyto {

// A set of bytes.
struct ByteSet {
  std::array<uint64_t, 4> words{};

  void add(unsigned byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
  bool has(unsigned byte) const { return (words[byte / 64] >> (byte % 64) & 1) != 0; }
  bool is_empty() const { return *this == ByteSet{}; }
  ByteSet& operator|=(const ByteSet& other) {
    for (size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
    return *this;
  }
  auto operator<=>(const ByteSet&) const = default;
};

}  // namespace tyto
