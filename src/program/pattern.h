// Where the values of a matrix lie in a buffer, said the way a DMA descriptor says it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tyto {

// Dimensions outermost first, in values; none: one value after the other. A matrix of R x C values
// may have any number of dimensions as long as their sizes multiply to R * C, row after row:
//   transposed        {{R, 1}, {C, R}}
//   every second row  {{R, 2 * C}, {C, 1}}
struct Pattern {
  struct Dim {
    uint64_t size = 0;
    uint64_t stride = 0;
    bool operator==(const Dim&) const = default;
  };

  uint64_t offset = 0;
  std::vector<Dim> dims = {};

  bool is_contiguous() const { return dims.empty(); }
  bool operator==(const Pattern&) const = default;
};

Pattern transposed(uint64_t rows, uint64_t cols);
Pattern rows_apart(uint64_t offset, uint64_t rows, uint64_t cols, uint64_t stride);

// One past the last value that `values` values reach.
uint64_t end_of(const Pattern& pattern, uint64_t values);

// The same values in the same order in as few dimensions as can say it; none when one follows the
// other.
Pattern simplified(const Pattern& pattern);

// The stretches of a pattern in order: `count` values of the matrix from `first` on lie at `at`,
// `stride` apart.
struct Stretch {
  uint64_t first, count, at, stride;
};
void for_each_stretch(const Pattern& pattern, uint64_t values,
                      const std::function<void(const Stretch&)>& visit);
// For the values [begin, end) alone.
void for_each_stretch(const Pattern& pattern, uint64_t begin, uint64_t end,
                      const std::function<void(const Stretch&)>& visit);

}  // namespace tyto
