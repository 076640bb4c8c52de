#include "device/vnpu/images/q4nx_blocks.h"

#include <algorithm>
#include <cstring>

#include "tensor/float16.h"

namespace tyto::vxrt {
namespace {

// A block is 32 rows by 256 columns:
//   bf16 scales [8 groups of 32 columns][32 rows], bf16 minima [8][32],
//   then bytes [2 halves of 16 rows][256 columns][8 pairs of rows], low nibble first.
constexpr uint64_t kBlockRows = 32, kBlockCols = 256, kGroupCols = 32, kHalfRows = 16;
constexpr uint64_t kMinimaAt = 512, kCodesAt = 1024, kBlockBytes = 5120;

// The stream feeds 4 columns of the array, each through two shim channels; a channel brings the
// blocks of two of its column's four cores in turns. Core (column, row) works on the row blocks
// 16 * pass + 4 * column + row.
uint64_t block_at(const Q4nxPlace& place, uint64_t row_block, uint64_t col_block) {
  const uint64_t passes = place.phase_rows / (kBlockRows * 16);
  const uint64_t across = place.phase_cols / kBlockCols;
  const uint64_t pass = row_block / 16, column = row_block % 16 / 4, core = row_block % 4;
  const uint64_t channel = column * 2 + core / 2;
  return ((channel * passes + pass) * across + col_block) * 2 + core % 2;
}

float bf16_at(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bf16_to_f32(bits);
}

// `count` columns of one row of a block.
void decode_row(const std::byte* block, uint64_t row, uint64_t count, uint16_t* out) {
  const std::byte* codes =
      block + kCodesAt + row / kHalfRows * kBlockCols * 8 + row % kHalfRows / 2;
  const int shift = row % 2 == 0 ? 0 : 4;
  for (uint64_t col = 0; col < count; ++col) {
    const uint64_t parameter = (col / kGroupCols * kBlockRows + row) * 2;
    const float scale = bf16_at(block + parameter);
    const float minimum = bf16_at(block + kMinimaAt + parameter);
    const int code = std::to_integer<int>(codes[col * 8] >> shift) & 15;
    out[col] = f32_to_bf16(static_cast<float>(code) * scale + minimum);
  }
}

}  // namespace

void decode_q4nx(const std::byte* phase, const Q4nxPlace& place, uint64_t rows, uint64_t cols,
                 uint16_t* out, ThreadPool& pool) {
  pool.parallel_for(rows, kBlockRows, [&](size_t begin, size_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint64_t row =
          place.first_row + r / place.chunk_rows * place.chunk_stride + r % place.chunk_rows;
      for (uint64_t col = 0; col < cols; col += kBlockCols) {
        const uint64_t block = block_at(place, row / kBlockRows, col / kBlockCols);
        decode_row(phase + block * kBlockBytes, row % kBlockRows, std::min(kBlockCols, cols - col),
                   out + r * cols + col);
      }
    }
  });
}

}  // namespace tyto::vxrt
