#include "device/vulkan/weight_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/float16.h"
#include "tensor/int8_rows.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto::vulkan {
namespace {

constexpr uint64_t kPlaneAlignment = 256;
constexpr uint64_t kPaddedValues = 32;

// A run of bytes inside a block of a file's type that a plane holds for each block.
struct Field {
  size_t offset = 0;
  size_t bytes = 0;
};

// Rows of a plane: `row_bytes`, and `bytes` for each unit of `values` values.
struct PlaneShape {
  uint64_t values = 1;
  uint64_t bytes = 0;
  uint64_t row_bytes = 0;
  Field field = {};  // where a block of the file holds them; of no bytes in forms of no blocks
};

struct FormShape {
  std::string_view name;
  uint64_t padded_to = 1;  // values
  std::vector<PlaneShape> planes;
};

template <typename Block>
constexpr PlaneShape of_block(size_t offset, size_t bytes) {
  return {Block::kValues, bytes, 0, {offset, bytes}};
}

const FormShape& shape(WeightForm form) {
  static const std::array<FormShape, 8> kShapes = {{
      {"f32", kPaddedValues, {{1, 4, 0}}},
      {"f16", kPaddedValues, {{1, 2, 0}}},
      {"bf16", kPaddedValues, {{1, 2, 0}}},
      {"q8_0",
       1,
       {of_block<BlockQ8_0>(offsetof(BlockQ8_0, code), 32),
        of_block<BlockQ8_0>(offsetof(BlockQ8_0, d), 2)}},
      {"q4_0",
       1,
       {of_block<BlockQ4_0>(offsetof(BlockQ4_0, code), 16),
        of_block<BlockQ4_0>(offsetof(BlockQ4_0, d), 2)}},
      {"q4_k",
       1,
       {of_block<BlockQ4K>(offsetof(BlockQ4K, code), 128),
        of_block<BlockQ4K>(offsetof(BlockQ4K, d), 16)}},
      {"q6_k",
       1,
       {of_block<BlockQ6K>(offsetof(BlockQ6K, low), 128),
        of_block<BlockQ6K>(offsetof(BlockQ6K, high), 64),
        of_block<BlockQ6K>(offsetof(BlockQ6K, scale), 16),
        of_block<BlockQ6K>(offsetof(BlockQ6K, d), 2)}},
      {"i8", kPaddedValues, {{1, 1, 0}, {1, 0, 4}}},
  }};
  return kShapes.at(static_cast<size_t>(form));
}

uint64_t plane_row_bytes(const FormShape& form, const PlaneShape& plane, uint64_t cols) {
  return plane.row_bytes + round_up(cols, form.padded_to) / plane.values * plane.bytes;
}

// One field of every block of a row.
void write_fields(const TensorView& view, Field field, uint64_t row, std::span<std::byte> to) {
  const std::byte* block = view.row(row).data() + field.offset;
  const size_t stride = info(view.dtype).block_bytes;
  for (size_t at = 0; at < to.size(); at += field.bytes, block += stride)
    std::memcpy(to.data() + at, block, field.bytes);
}

void write_padded(std::span<const std::byte> values, std::span<std::byte> to) {
  std::memcpy(to.data(), values.data(), values.size());
  std::ranges::fill(to.subspan(values.size()), std::byte{0});
}

void write_f16(std::span<const float> values, std::span<std::byte> to) {
  const size_t bytes = row_bytes(DType::f16, values.size());
  quantize(DType::f16, values, to.first(bytes));
  std::ranges::fill(to.subspan(bytes), std::byte{0});
}

void write_i8(std::span<const float> values, size_t plane, std::span<std::byte> to) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const Int8RowScale chosen = int8_row_scale(largest);
  if (plane == 1) {
    std::memcpy(to.data(), &chosen.scale, sizeof chosen.scale);
    return;
  }
  encode_int8(values, chosen.inverse, reinterpret_cast<int8_t*>(to.data()));
  std::ranges::fill(to.subspan(values.size()), std::byte{0});
}

}  // namespace

std::string_view name(WeightForm form) {
  return shape(form).name;
}

WeightForm weight_form(DType type) {
  using Kept = std::pair<DType, WeightForm>;
  constexpr Kept kKept[] = {
      {DType::f32, WeightForm::f32},   {DType::bf16, WeightForm::bf16},
      {DType::q8_0, WeightForm::q8_0}, {DType::q4_0, WeightForm::q4_0},
      {DType::q4_k, WeightForm::q4_k}, {DType::q6_k, WeightForm::q6_k},
      {DType::i8, WeightForm::i8},
  };
  const auto found = std::ranges::find(kKept, type, &Kept::first);
  return found == std::end(kKept) ? WeightForm::f16 : found->second;
}

WeightLayout weight_layout(WeightForm form, uint64_t rows, uint64_t cols) {
  WeightLayout layout;
  for (const PlaneShape& plane : shape(form).planes) {
    const uint64_t bytes = plane_row_bytes(shape(form), plane, cols);
    layout.planes.push_back({layout.bytes, bytes});
    layout.bytes += round_up(rows * bytes, kPlaneAlignment);
  }
  return layout;
}

void write_plane(const TensorView& view, WeightForm form, size_t plane, uint64_t first_row,
                 std::span<std::byte> to) {
  const PlaneShape& of = shape(form).planes.at(plane);
  const uint64_t bytes = plane_row_bytes(shape(form), of, view.cols);
  const uint64_t rows = to.size() / bytes;
  TYTO_ASSERT(to.size() == rows * bytes && first_row + rows <= view.rows);
  const bool as_it_is = weight_form(view.dtype) == form && info(view.dtype).name == name(form);
  TYTO_ASSERT(as_it_is ? form != WeightForm::i8 || plane == 0
                       : form == WeightForm::f16 || form == WeightForm::i8);
  std::vector<float> values(as_it_is ? 0 : view.cols);
  for (uint64_t i = 0; i < rows; ++i) {
    const std::span<std::byte> row = to.subspan(i * bytes, bytes);
    if (as_it_is) {
      if (of.field.bytes > 0)
        write_fields(view, of.field, first_row + i, row);
      else
        write_padded(view.row(first_row + i), row);
      continue;
    }
    dequantize(view.dtype, view.row(first_row + i), values);
    if (form == WeightForm::f16)
      write_f16(values, row);
    else
      write_i8(values, plane, row);
  }
}

}  // namespace tyto::vulkan
