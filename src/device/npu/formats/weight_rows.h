// Reading weight tensors of any dtype as f32, piece by piece and without allocating, for the
// formats an NPU image wants them in. A value no such format can hold is found here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tensor/view.h"

namespace tyto {

// A tensor under the name messages give it.
struct WeightSource {
  std::string name;
  TensorView tensor;
};

// Pieces begin at multiples of this: the longest block of any dtype divides it.
constexpr uint64_t kPieceValues = 256;

// Above this, a range or a rounded bf16 could become infinite. Real weights are near 1.
constexpr float kLargestWeight = 0x1p126f;

// Throws an Error that names the tensor unless it has this shape, a dtype of numbers and as many
// bytes as the two need.
void check_source(const WeightSource& source, uint64_t rows, uint64_t cols);

// Values [first, first + out.size()) of a row; `first` is a multiple of kPieceValues.
void read_piece(const TensorView& tensor, uint64_t row, uint64_t first, std::span<float> out);

// The largest |value|; NaN if there is one.
float largest_magnitude(std::span<const float> values);

// Keeps the lowest of all values that any thread offers.
void keep_lowest(std::atomic<uint64_t>& lowest, uint64_t value);

// Names the first value of a row that is not within kLargestWeight; there must be one.
[[noreturn]] void fail_unusable(const WeightSource& source, uint64_t row);

}  // namespace tyto
