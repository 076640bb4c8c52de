// Blocks are read back with plain arithmetic from the format's definition.
#include "device/npu/formats/q4nx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/compare.h"
#include "tensor/float16.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

using Bytes = std::vector<std::byte>;

struct Matrix {
  uint64_t rows, cols;
  std::vector<float> values;

  Matrix(uint64_t r, uint64_t c) : rows(r), cols(c), values(r * c) {}
  float* row(uint64_t r) { return values.data() + r * cols; }
  TensorView view() const { return {DType::f32, rows, cols, std::as_bytes(std::span(values))}; }
};

Matrix gaussian(uint64_t rows, uint64_t cols, unsigned seed, float mean = 0, float deviation = 1) {
  Matrix result(rows, cols);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  for (float& value : result.values) value = normal(random);
  return result;
}

Q4nxPhase phase_for(uint64_t rows, uint64_t cols) {
  return {0, (rows + 511) / 512 * 512, (cols + 255) / 256 * 256};
}

Bytes pack(const Q4nxPhase& phase, const WeightSource& source, unsigned threads = 2) {
  ThreadPool pool(threads);
  Bytes out(phase.elements() * 2, std::byte{0xa5});
  const Q4nxPiece piece = {&source, 0, 0, source.tensor.rows};
  pack_q4nx(phase, {&piece, 1}, out, pool);
  return out;
}

Bytes pack(const Matrix& matrix) {
  return pack(phase_for(matrix.rows, matrix.cols), {"w", matrix.view()});
}

uint16_t element(std::span<const std::byte> bytes, size_t index) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(bytes[2 * index]) |
                               std::to_integer<unsigned>(bytes[2 * index + 1]) << 8);
}

std::vector<float> row_of(const Q4nxPhase& phase, std::span<const std::byte> bytes, uint64_t row) {
  std::vector<float> out(phase.cols);
  for (uint64_t col = 0; col < phase.cols; ++col) {
    const uint64_t block = q4nx_block_index(phase, row / 32, col / 256) * 2560;
    const uint64_t parameter = block + col % 256 / 32 * 32 + row % 32;
    const uint64_t code_at =
        (block + 512) * 2 + row % 32 / 16 * 2048 + col % 256 * 8 + row % 16 / 2;
    const unsigned codes = std::to_integer<unsigned>(bytes[code_at]);
    const float code = static_cast<float>(row % 2 == 0 ? codes & 15 : codes >> 4);
    out[col] = code * bf16_to_f32(element(bytes, parameter)) +
               bf16_to_f32(element(bytes, parameter + 256));
  }
  return out;
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Q4nx, BlocksFollowTheStreamsOfTheFourColumns) {
  for (const Q4nxPhase& phase : {Q4nxPhase{0, 512, 256}, Q4nxPhase{0, 3072, 2048},
                                 Q4nxPhase{0, 2048, 8192}, Q4nxPhase{0, 1024, 768}}) {
    const uint64_t passes = phase.rows / 512, col_blocks = phase.cols / 256;
    uint64_t index = 0;
    for (uint64_t cx = 0; cx < 4; ++cx)
      for (uint64_t half = 0; half < 2; ++half)
        for (uint64_t i = 0; i < passes; ++i)
          for (uint64_t j = 0; j < col_blocks; ++j)
            for (uint64_t cy = 2 * half; cy < 2 * half + 2; ++cy)
              EXPECT_EQ(q4nx_block_index(phase, i * 16 + cx * 4 + cy, j), index++);
    EXPECT_EQ(index * kQ4nxBlockElements, phase.elements());
  }
}

// Values that are their own codes after a scale and a minimum of the row's choosing, all exact.
TEST(Q4nx, EveryFieldOfABlockIsWhereTheFormatPutsIt) {
  const auto code = [](uint64_t r, uint64_t c) { return (r * 7 + c * 3 + c / 32) % 16; };
  const auto scale = [](uint64_t r, uint64_t c) { return std::ldexp(1.0f, int((r + c / 32) % 5)); };
  const auto low = [](uint64_t r, uint64_t c) { return float(r % 100) - float(c / 32); };
  Matrix matrix(1024, 768);
  for (uint64_t r = 0; r < matrix.rows; ++r)
    for (uint64_t c = 0; c < matrix.cols; ++c)
      matrix.row(r)[c] = low(r, c) + static_cast<float>(code(r, c)) * scale(r, c);
  const Bytes bytes = pack(matrix);
  const Q4nxPhase phase = phase_for(1024, 768);
  for (uint64_t r = 0; r < matrix.rows; ++r) {
    for (uint64_t c = 0; c < matrix.cols; ++c) {
      const uint64_t block = q4nx_block_index(phase, r / 32, c / 256) * 5120;
      const std::span<const std::byte> in(bytes.data() + block, 5120);
      const uint64_t row = r % 32, col = c % 256;
      ASSERT_EQ(bf16_to_f32(element(in, col / 32 * 32 + row)), scale(r, c)) << r << " " << c;
      ASSERT_EQ(bf16_to_f32(element(in, 256 + col / 32 * 32 + row)), low(r, c)) << r << " " << c;
      const unsigned byte =
          std::to_integer<unsigned>(in[1024 + row / 16 * 2048 + col * 8 + row % 16 / 2]);
      ASSERT_EQ(row % 2 == 0 ? byte & 15 : byte >> 4, code(r, c)) << r << " " << c;
    }
    const std::vector<float> decoded = row_of(phase, bytes, r);
    ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), matrix.row(r))) << r;
  }
}

// Half a step, and what the rounding of the scale to bf16 can take from the highest level.
TEST(Q4nx, NoWeightMovesByMoreThanHalfAStep) {
  for (const float mean : {0.0f, 0.3f, -5.0f, 1000.0f, -1e30f, 1e-30f}) {
    for (const float deviation : {1.0f, 1e-3f, 50.0f}) {
      const float size = std::max(std::fabs(mean), 1e-3f);
      Matrix matrix = gaussian(64, 256, 11, mean, deviation * size);
      const Bytes bytes = pack(matrix);
      for (uint64_t r = 0; r < matrix.rows; ++r) {
        const std::vector<float> decoded = row_of(phase_for(64, 256), bytes, r);
        for (uint64_t group = 0; group < 256; group += 32) {
          const float* values = matrix.row(r) + group;
          const auto [low, high] = std::minmax_element(values, values + 32);
          // The minimum rounds down by less than one in the eighth significant bit.
          const double range = double{*high} - *low + std::fabs(*low) * 0x1p-7;
          for (uint64_t i = 0; i < 32; ++i)
            ASSERT_LE(std::fabs(double{decoded[group + i]} - values[i]), range / 15 * 0.54)
                << mean << " " << deviation << " row " << r << " column " << group + i;
        }
      }
    }
  }
}

TEST(Q4nx, ConstantRowsKeepTheirValue) {
  const float exact[] = {0.0f, 1.0f, -1.0f, 0.15625f, -384.0f, 0x1p-126f, 0x1p126f, -0x1p126f};
  const float rounded[] = {0.1f, -0.1f, 3.14159f, -1e20f, 1e-20f, 123456.789f};
  Matrix matrix(32, 256);
  for (uint64_t r = 0; r < 32; ++r)
    std::fill_n(matrix.row(r), 256, r < std::size(exact) ? exact[r] : rounded[r % 6]);
  const Bytes bytes = pack(matrix);
  for (uint64_t r = 0; r < 32; ++r) {
    const float expected = matrix.row(r)[0];
    for (const float value : row_of(phase_for(32, 256), bytes, r)) {
      if (r < std::size(exact))
        ASSERT_EQ(value, expected) << r;
      else
        ASSERT_LE(std::fabs(value - expected), std::fabs(expected) * 0x1p-7f * 0x1p-8f) << r;
    }
  }
}

TEST(Q4nx, ZerosAreExactEvenWhenNegativeOrBesideOtherGroups) {
  Matrix matrix = gaussian(32, 512, 3);
  std::fill_n(matrix.row(0), 512, -0.0f);
  std::fill_n(matrix.row(1) + 64, 32, 0.0f);
  const Bytes bytes = pack(matrix);
  const Q4nxPhase phase = phase_for(32, 512);
  for (const float value : row_of(phase, bytes, 0)) ASSERT_EQ(value, 0.0f);
  const std::vector<float> one = row_of(phase, bytes, 1);
  for (size_t i = 64; i < 96; ++i) ASSERT_EQ(one[i], 0.0f);
  EXPECT_NE(one[63], 0.0f);
}

TEST(Q4nx, DenormalRangesAreNeitherInfiniteNorNan) {
  Matrix matrix(32, 256);
  for (uint64_t r = 0; r < 32; ++r)
    for (uint64_t c = 0; c < 256; ++c)
      matrix.row(r)[c] = static_cast<float>(c % 32) * std::ldexp(1.0f, -149 + int(r));
  const Bytes bytes = pack(matrix);
  for (size_t i = 0; i < 256; ++i) {  // what a device that flushes denormals reads the same
    const float scale = bf16_to_f32(element(bytes, i));
    EXPECT_TRUE(scale == 0 || scale >= 0x1p-126f) << scale;
  }
  for (uint64_t r = 0; r < 32; ++r) {
    const std::vector<float> decoded = row_of(phase_for(32, 256), bytes, r);
    // Half a step, or all 15 steps of a scale that would not have been normal.
    const double bound = std::max(15 * 0x1p-126, 31 * std::ldexp(1.0, -149 + int(r)) / 15 * 0.54);
    for (uint64_t c = 0; c < 256; ++c)
      ASSERT_LE(std::fabs(double{decoded[c]} - matrix.row(r)[c]), bound) << r << " " << c;
  }
}

TEST(Q4nx, GaussianRowsKeepTheirDirection) {
  Matrix matrix = gaussian(512, 2048, 5, 0.0f, 0.02f);
  const Bytes bytes = pack(matrix);
  const Q4nxPhase phase = phase_for(512, 2048);
  for (uint64_t r = 0; r < 512; ++r) {
    const Comparison result = compare(row_of(phase, bytes, r), {matrix.row(r), 2048});
    ASSERT_GE(result.cosine, 0.99) << r;
    ASSERT_TRUE(result.finite);
  }
}

// What a block format holds is packed as its decoded values are.
TEST(Q4nx, EveryDtypeIsPackedFromItsDecodedValues) {
  for (const DType type : {DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1,
                           DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k}) {
    const uint64_t cols = info(type).block_values == 256 ? 512 : 288;
    Matrix matrix = gaussian(40, cols, 9);
    Bytes stored(matrix.rows * row_bytes(type, cols));
    quantize(type, matrix.values, stored);
    dequantize(type, stored, matrix.values);
    const WeightSource source = {"w", {type, matrix.rows, cols, stored}};
    EXPECT_EQ(pack(phase_for(40, cols), source), pack(matrix)) << info(type).name;
  }
}

// Also where a group does not use its outermost levels, from which others would be chosen.
TEST(Q4nx, GroupsWithLevelsInBf16KeepThemAndTheirCodes) {
  std::mt19937 random(3);
  std::vector<BlockQ4_1> groups(40 * 9);
  for (BlockQ4_1& group : groups) {
    const float scale = bf16_to_f32(f32_to_bf16(static_cast<float>(random() % 1000 + 1) * 1e-4f));
    const float minimum = bf16_to_f32(f32_to_bf16(static_cast<float>(random() % 2000) * -1e-3f));
    group.d = std::bit_cast<Half>(f32_to_f16(scale));
    group.m = std::bit_cast<Half>(f32_to_f16(minimum));
    for (uint8_t& code : group.code) code = static_cast<uint8_t>(0x33 + random() % 8 * 17);
  }
  groups[5].d = {};  // a constant group
  Matrix matrix(40, 288);
  dequantize(DType::q4_1, std::as_bytes(std::span(groups)), matrix.values);
  const Q4nxPhase phase = phase_for(40, 288);
  const Bytes bytes = pack(phase, {"w", {DType::q4_1, 40, 288, std::as_bytes(std::span(groups))}});
  for (uint64_t r = 0; r < 40; ++r) {
    const std::vector<float> decoded = row_of(phase, bytes, r);
    ASSERT_TRUE(std::equal(matrix.row(r), matrix.row(r) + 288, decoded.begin())) << r;
  }
}

TEST(Q4nx, TheNumberOfThreadsChangesNothing) {
  const Matrix matrix = gaussian(700, 320, 21);
  const WeightSource source = {"w", matrix.view()};
  const Bytes one = pack(phase_for(700, 320), source, 1);
  EXPECT_EQ(one, pack(phase_for(700, 320), source, 3));
}

TEST(Q4nx, ValuesThatAreNoWeightsAreRefusedByName) {
  const float bad[] = {
      std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
      std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), 1e38f};
  for (const float value : bad) {
    Matrix matrix = gaussian(600, 512, 1);
    matrix.row(599)[3] = matrix.row(71)[3] = value;
    matrix.row(70)[300] = matrix.row(90)[301] = value;  // the first row is named
    const std::string error =
        error_of([&] { pack(phase_for(600, 512), {"blk.7.up.weight", matrix.view()}, 3); });
    EXPECT_NE(error.find("blk.7.up.weight: "), std::string::npos) << error;
    EXPECT_NE(error.find("at row 70, column 300"), std::string::npos) << error;
  }
}

TEST(Q4nx, TensorsThatDoNotFitAreRefusedByName) {
  const Matrix matrix = gaussian(32, 512, 1);
  const auto refused = [&](TensorView view, const Q4nxPhase& phase) {
    return error_of([&] { pack(phase, {"attn_q", view}); }).starts_with("attn_q: ");
  };
  TensorView view = matrix.view();
  EXPECT_TRUE(refused(view, {0, 512, 256}));
  EXPECT_TRUE(refused(view, {0, 512, 768}));
  view.bytes = view.bytes.first(view.bytes.size() - 4);
  EXPECT_TRUE(refused(view, {0, 512, 512}));
  view = matrix.view();
  view.dtype = DType::i32;
  EXPECT_TRUE(refused(view, {0, 512, 512}));
  view = {DType::q4_k, 1, 288, view.bytes};
  EXPECT_TRUE(refused(view, {0, 512, 512}));
  view = {DType::f32, 1, 40, matrix.view().bytes.first(160)};
  EXPECT_TRUE(refused(view, {0, 512, 256}));
}

// Rows that say, exactly, which tensor and row they are.
Matrix labelled(uint64_t rows, uint64_t cols, float tensor) {
  Matrix result(rows, cols);
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) {
      const float parts[] = {tensor, static_cast<float>(r % 128), static_cast<float>(r / 128),
                             static_cast<float>(c / 32 + 1)};
      result.row(r)[c] = parts[c / 32 % 4];
    }
  return result;
}

class OwletPacking : public testing::Test {
 protected:
  const AirDims dims_ = {5, 512, 8, 2, 64, 768, 4096, 1024};
  const Q4nxLayout layout_ = q4nx_layout(dims_, 256);
  Matrix q_ = labelled(512, 512, 1), k_ = labelled(128, 512, 2), v_ = labelled(128, 512, 3),
         o_ = labelled(512, 512, 4), gate_ = labelled(768, 512, 5), up_ = labelled(768, 512, 6),
         down_ = labelled(512, 768, 7), head_ = labelled(4096, 512, 8);
  Q4nxLayerSources sources_ = {{"q", q_.view()},      {"k", k_.view()},       {"v", v_.view()},
                               {"o", o_.view()},      {"gate", gate_.view()}, {"up", up_.view()},
                               {"down", down_.view()}};
  ThreadPool pool_{2};
};

TEST_F(OwletPacking, EveryRowOfALayerIsWhereItsPhaseWantsIt) {
  constexpr uint32_t kLayer = 3;
  Bytes weights(layout_.weight_elements * 2, std::byte{0xff});
  const std::span<std::byte> layer =
      std::span(weights).subspan(kLayer * layout_.layer_elements * 2, layout_.layer_elements * 2);
  pack_q4nx_layer(layout_, sources_, layer, pool_);
  const auto expect_row = [&](const Q4nxPhase& phase, uint64_t row, Matrix* matrix, uint64_t from) {
    const std::vector<float> decoded =
        row_of(phase, layer.subspan(phase.offset * 2, phase.elements() * 2), row);
    std::vector<float> expected(phase.cols, 0.0f);
    if (matrix != nullptr) std::copy_n(matrix->row(from), matrix->cols, expected.begin());
    ASSERT_EQ(decoded, expected) << "row " << row;
  };
  for (uint64_t r = 0; r < 1024; ++r) {
    Matrix* const from = r < 512 ? &q_ : r < 640 ? &k_ : r < 768 ? &v_ : nullptr;
    expect_row(layout_.qkv, r, from, r < 512 ? r : (r - 512) % 128);
  }
  for (uint64_t r = 0; r < 512; ++r) {
    expect_row(layout_.o, r, &o_, r);
    expect_row(layout_.down, r, &down_, r);
  }
  // up 0..511, gate 0..511, up 512..767 and padding, gate 512..767 and padding.
  for (uint64_t r = 0; r < 2048; ++r) {
    const uint64_t unit = r / 1024 * 512 + r % 512;
    expect_row(layout_.gate_up, r, unit >= 768 ? nullptr : r % 1024 < 512 ? &up_ : &gate_, unit);
  }
  for (uint64_t unit = 0; unit < 768; ++unit) {
    expect_row(layout_.gate_up, q4nx_up_row(layout_, unit), &up_, unit);
    expect_row(layout_.gate_up, q4nx_gate_row(layout_, unit), &gate_, unit);
  }
}

TEST_F(OwletPacking, SourcesOfAnotherShapeAreRefused) {
  Bytes layer(layout_.layer_elements * 2);
  sources_.v.tensor = q_.view();
  EXPECT_EQ(error_of([&] { pack_q4nx_layer(layout_, sources_, layer, pool_); }),
            "v: is 512 x 512, not 128 x 512");
  Bytes head(layout_.head_chunk_elements * 2);
  EXPECT_EQ(error_of([&] { pack_q4nx_head(layout_, sources_.q, head, pool_); }),
            "q: is 512 x 512, not 4096 x 512");
}

TEST_F(OwletPacking, HeadInOneChunk) {
  Bytes bytes(layout_.head_chunks * layout_.head_chunk_elements * 2);
  pack_q4nx_head(layout_, {"head", head_.view()}, bytes, pool_);
  for (uint64_t t = 0; t < 4096; t += 37) {
    const std::vector<float> decoded = row_of(q4nx_head_phase(layout_), bytes, t);
    ASSERT_TRUE(std::equal(decoded.begin(), decoded.end(), head_.row(t))) << t;
  }
}

TEST(Q4nx, HeadInChunksWithAPaddedLastOne) {
  const AirDims dims = {1, 32, 1, 1, 32, 32, 18432 + 700, 64};
  const Q4nxLayout layout = q4nx_layout(dims, 64);
  Matrix head(dims.vocab, 32);
  for (uint64_t t = 0; t < dims.vocab; ++t)  // one group: the bits of t, as the two outer levels
    for (uint64_t c = 0; c < 32; ++c) head.row(t)[c] = (t >> c & 1) != 0 ? 15.0f : 0.0f;
  Bytes weights(layout.weight_elements * 2, std::byte{0xff});
  ThreadPool pool(2);
  pack_q4nx_head(layout, {"head", head.view()}, std::span(weights).subspan(layout.head_offset * 2),
                 pool);
  const Q4nxPhase phase = q4nx_head_phase(layout);
  ASSERT_EQ(layout.head_chunks, 2u);
  std::vector<float> rows;
  for (uint64_t chunk = 0; chunk < 2; ++chunk)
    for (uint64_t r = 0; r < phase.rows; ++r) {
      const uint64_t begin = layout.head_offset + chunk * layout.head_chunk_elements;
      const std::vector<float> row =
          row_of(phase, std::span(weights).subspan(begin * 2, layout.head_chunk_elements * 2), r);
      rows.insert(rows.end(), row.begin(), row.begin() + 32);
    }
  ASSERT_TRUE(std::equal(head.values.begin(), head.values.end(), rows.begin()));
  EXPECT_TRUE(std::all_of(rows.begin() + static_cast<ptrdiff_t>(head.values.size()), rows.end(),
                          [](float value) { return value == 0.0f; }));
}

TEST(Q4nx, PhasesOfLlama1bBeginAtThePublishedBytes) {
  const Q4nxLayout layout = q4nx_layout(kLlama32_1b, 2048);
  EXPECT_EQ(layout.qkv.elements() * 2, 3'932'160u);
  EXPECT_EQ((layout.layer_elements + layout.down.offset) * 2, 38'010'880u + 2 * 13'762'560);
  EXPECT_EQ(layout.down.elements() * 2, 10'485'760u);
  EXPECT_EQ(layout.head_offset * 2, 2u * 304'087'040);
  EXPECT_EQ(layout.head_chunk_elements * 2, 23'592'960u);
  EXPECT_EQ(layout.weight_elements * 2, 773'324'800u);
}

}  // namespace
}  // namespace tyto
