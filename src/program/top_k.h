// The row that Kernel::top_k writes for each row of logits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tyto {

// In 32-bit words: pairs of a value (f32) and its index, larger values first and of equal
// ones, as -0 and 0 are, the smaller index; how many values of the row are not finite, and if there
// are any the other words mean nothing; the logarithm of the sum of all values' exponentials (f32).
struct TopKRow {
  std::span<const int32_t> words;

  static constexpr uint64_t words_for(uint64_t count) { return 2 * count + 2; }
  size_t count() const { return words.size() / 2 - 1; }
  float value(size_t i) const { return std::bit_cast<float>(words[2 * i]); }
  int32_t index(size_t i) const { return words[2 * i + 1]; }
  int32_t not_finite() const { return words[words.size() - 2]; }
  float log_sum() const { return std::bit_cast<float>(words.back()); }
};

}  // namespace tyto
