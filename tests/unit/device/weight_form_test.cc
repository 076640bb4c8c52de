// The GPU's forms of matrices, read back by plain loops, against the types' own definitions.
#include "device/vulkan/kernel_shapes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "support/random_blocks.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto::vulkan {
namespace {

struct Matrix {
  Matrix(DType type, uint64_t rows, uint64_t cols) : bytes(rows * row_bytes(type, cols)) {
    std::mt19937 random(7);
    values.resize(rows * cols);
    for (float& value : values)
      value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 300.0f;
    if (is_encodable(type))
      quantize(type, values, bytes);
    else
      bytes = testing_support::random_blocks(type, rows * cols, 2, random);
    dequantize(type, bytes, values);
    view = {type, rows, cols, bytes};
  }
  std::vector<std::byte> bytes;
  std::vector<float> values;  // what the bytes mean
  TensorView view;
};

// All planes, written a few rows at a time, between bytes that must not change.
std::vector<std::byte> written(const TensorView& view, WeightForm form, uint64_t rows_at_once) {
  const WeightLayout layout = weight_layout(form, view.rows, view.cols);
  std::vector<std::byte> result(layout.bytes, std::byte{0xee});
  for (size_t plane = 0; plane < layout.planes.size(); ++plane)
    for (uint64_t row = 0; row < view.rows; row += rows_at_once) {
      const auto [offset, bytes] = layout.planes[plane];
      const uint64_t rows = std::min(rows_at_once, view.rows - row);
      write_plane(view, form, plane, row,
                  std::span(result).subspan(offset + row * bytes, rows * bytes));
    }
  return result;
}

// Where blocks of the file hold what the planes do, in the planes' order.
struct BlockField {
  size_t offset, bytes;
};
std::vector<BlockField> fields_of(WeightForm form) {
  switch (form) {
    case WeightForm::q4_1:
      return {{4, 16}, {0, 4}};
    case WeightForm::q5_0:
      return {{6, 16}, {2, 4}, {0, 2}};
    case WeightForm::q5_1:
      return {{8, 16}, {4, 4}, {0, 4}};
    case WeightForm::q2_k:
      return {{16, 64}, {0, 16}, {80, 4}};
    case WeightForm::q3_k:
      return {{32, 64}, {0, 32}, {96, 12}, {108, 2}};
    case WeightForm::q5_k:
      return {{48, 128}, {0, 16}, {16, 32}};
    case WeightForm::iq4_nl:
      return {{2, 16}, {0, 2}};
    case WeightForm::iq4_xs:
      return {{8, 128}, {0, 8}};
    case WeightForm::mxfp4:
      return {{1, 16}, {0, 1}};
    case WeightForm::f32:
    case WeightForm::f16:
    case WeightForm::bf16:
    case WeightForm::q8_0:
    case WeightForm::q4_0:
    case WeightForm::q4_k:
    case WeightForm::q6_k:
    case WeightForm::i8:
      break;
  }
  return {};
}

// A matrix in its form; offsets written down again, as the shaders do.
class Reader {
 public:
  Reader(const TensorView& view, WeightForm form)
      : type_(view.dtype),
        form_(form),
        rows_(view.rows),
        k_(view.cols),
        bytes_(written(view, form, 3)) {}

  float value(uint64_t row, uint64_t k) const {
    const uint64_t block = row * (k_ / 32) + k / 32, super = row * (k_ / 256) + k / 256;
    switch (form_) {
      case WeightForm::f32:
        return read<float>(4 * (row * padded() + k));
      case WeightForm::f16:
        return half(2 * (row * padded() + k));
      case WeightForm::bf16:
        return bf16_to_f32(read<uint16_t>(2 * (row * padded() + k)));
      case WeightForm::q8_0:
        return half(up(rows_ * k_) + 2 * block) * read<int8_t>(row * k_ + k);
      case WeightForm::q4_0: {
        const int pair = read<uint8_t>(16 * block + k % 16);
        return half(up(rows_ * k_ / 2) + 2 * block) * (((pair >> (k % 32 / 16 * 4)) & 15) - 8);
      }
      case WeightForm::q4_k:
        return q4_k(super, k % 256);
      case WeightForm::q6_k:
        return q6_k(super, k % 256);
      case WeightForm::q4_1:
      case WeightForm::q5_0:
      case WeightForm::q5_1:
      case WeightForm::q2_k:
      case WeightForm::q3_k:
      case WeightForm::q5_k:
      case WeightForm::iq4_nl:
      case WeightForm::iq4_xs:
      case WeightForm::mxfp4:
        return of_block(row, k);
      case WeightForm::i8:
        return read<float>(up(rows_ * padded()) + 4 * row) * read<int8_t>(row * padded() + k);
    }
    return 0;
  }
  std::vector<std::byte> padding(uint64_t row, uint64_t value_bytes) const {
    const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(value_bytes * row * padded());
    return {begin + static_cast<ptrdiff_t>(value_bytes * k_),
            begin + static_cast<ptrdiff_t>(value_bytes * padded())};
  }

 private:
  static uint64_t up(uint64_t bytes) { return (bytes + 255) / 256 * 256; }
  uint64_t padded() const { return (k_ + 31) / 32 * 32; }
  template <typename T>
  T read(uint64_t at) const {
    T result;
    std::memcpy(&result, bytes_.data() + at, sizeof result);
    return result;
  }
  float half(uint64_t at) const { return f16_to_f32(read<uint16_t>(at)); }

  // As the block says that the planes make together.
  float of_block(uint64_t row, uint64_t k) const {
    const uint64_t values = info(type_).block_values, block = row * (k_ / values) + k / values;
    std::vector<std::byte> bytes(info(type_).block_bytes);
    uint64_t plane = 0;
    for (const auto& [offset, count] : fields_of(form_)) {
      std::memcpy(bytes.data() + offset, bytes_.data() + plane + block * count, count);
      plane += up(rows_ * (k_ / values) * count);
    }
    std::vector<float> decoded(values);
    dequantize(type_, bytes, decoded);
    return decoded[k % values];
  }

  float q4_k(uint64_t super, uint64_t k) const {
    const uint64_t at = up(rows_ * k_ / 2) + 16 * super, sub = k / 32;
    const auto scales = [&](uint64_t i) { return read<uint8_t>(at + 4 + i); };
    const int scale =
        sub < 4 ? scales(sub) & 63 : (scales(sub + 4) & 15) | (scales(sub - 4) >> 6 << 4);
    const int least =
        sub < 4 ? scales(sub + 4) & 63 : (scales(sub + 4) >> 4) | (scales(sub) >> 6 << 4);
    const int code = (read<uint8_t>(128 * super + sub / 2 * 32 + k % 32) >> (sub % 2 * 4)) & 15;
    return half(at) * static_cast<float>(scale * code) - half(at + 2) * static_cast<float>(least);
  }

  float q6_k(uint64_t super, uint64_t k) const {
    const uint64_t supers = rows_ * k_ / 256, high = up(128 * supers);
    const uint64_t scales = high + up(64 * supers), factors = scales + up(16 * supers);
    const uint64_t quarter = k % 128 / 32, in_half = k / 128;
    const int low = read<uint8_t>(128 * super + 64 * in_half + quarter % 2 * 32 + k % 32);
    const int top = read<uint8_t>(high + 64 * super + 32 * in_half + k % 32);
    const int code = ((low >> (quarter / 2 * 4)) & 15) | ((top >> (2 * quarter) & 3) << 4);
    const int scale = read<int8_t>(scales + 16 * super + k / 16);
    return half(factors + 2 * super) * static_cast<float>(scale * (code - 32));
  }

  DType type_;
  WeightForm form_;
  uint64_t rows_, k_;
  std::vector<std::byte> bytes_;
};

class WeightForms : public testing::TestWithParam<DType> {};

TEST_P(WeightForms, ReadBackAreTheValues) {
  const uint64_t k = info(GetParam()).block_values == 1 ? 45 : 768;
  const Matrix matrix(GetParam(), 7, k);
  const Reader reader(matrix.view, weight_form(GetParam()));
  for (uint64_t row = 0; row < 7; ++row)
    for (uint64_t i = 0; i < k; ++i) {
      const float value = matrix.values[row * k + i];
      const bool expanded = name(weight_form(GetParam())) != info(GetParam()).name;
      EXPECT_EQ(reader.value(row, i), expanded ? f16_to_f32(f32_to_f16(value)) : value)
          << "row " << row << " value " << i;
    }
}

TEST_P(WeightForms, BecomeEightBitsAndAScaleForEachRow) {
  const uint64_t k = info(GetParam()).block_values == 1 ? 45 : 256;
  const Matrix matrix(GetParam(), 3, k);
  const Reader reader(matrix.view, WeightForm::i8);
  for (uint64_t row = 0; row < 3; ++row) {
    float largest = 0;
    for (uint64_t i = 0; i < k; ++i)
      largest = std::max(largest, std::fabs(matrix.values[row * k + i]));
    for (uint64_t i = 0; i < k; ++i)
      EXPECT_NEAR(reader.value(row, i), matrix.values[row * k + i], largest / 127 * 0.501f);
    for (const std::byte byte : reader.padding(row, 1)) EXPECT_EQ(byte, std::byte{0});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, WeightForms,
    testing::Values(DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
                    DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k,
                    DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4, DType::iq3_s),
    [](const auto& param) { return std::string(tyto::info(param.param).name); });

TEST(WeightForm, RowsOfPlainValuesEndInZeros) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const Reader reader(Matrix(type, 4, 33).view, weight_form(type));
    for (uint64_t row = 0; row < 4; ++row) {
      const std::vector<std::byte> padding = reader.padding(row, info(type).block_bytes);
      EXPECT_EQ(padding.size(), 31 * info(type).block_bytes);
      for (const std::byte byte : padding) EXPECT_EQ(byte, std::byte{0});
    }
  }
}

TEST(WeightForm, CodesOfEightBitsStayAsTheyAre) {
  std::vector<std::byte> codes(2 * 40);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(3 * i);
  const WeightLayout layout = weight_layout(WeightForm::i8, 2, 40);
  ASSERT_EQ(layout.planes.size(), 2u);
  EXPECT_EQ(layout.planes[1].row_bytes, 4u);
  std::vector<std::byte> rows(2 * layout.planes[0].row_bytes);
  write_plane({DType::i8, 2, 40, codes}, WeightForm::i8, 0, 0, rows);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(rows[i], codes[i]);
    EXPECT_EQ(rows[64 + i], codes[40 + i]);
  }
  for (size_t i = 40; i < 64; ++i) EXPECT_EQ(rows[i], std::byte{0});
}

TEST(WeightForm, PlanesBeginAtMultiplesOf256Bytes) {
  for (int form = 0; form <= static_cast<int>(WeightForm::i8); ++form) {
    const WeightLayout layout = weight_layout(static_cast<WeightForm>(form), 5, 256);
    uint64_t end = 0;
    for (const WeightPlane& plane : layout.planes) {
      EXPECT_EQ(plane.offset % 256, 0u);
      EXPECT_EQ(plane.offset, (end + 255) / 256 * 256);
      end = plane.offset + 5 * plane.row_bytes;
    }
    EXPECT_EQ(layout.bytes, (end + 255) / 256 * 256);
  }
}

}  // namespace
}  // namespace tyto::vulkan
