#include "tensor/float16.h"

#include <algorithm>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tyto {
namespace {

constexpr uint64_t kSide = 8;

// 32 rows in turn fill whole cache lines of the result while few enough pages are open at a time.
constexpr uint64_t kRowsAtOnce = 32;

void turn_block(const uint16_t* in, uint64_t in_stride, uint16_t* out, uint64_t out_stride) {
#if defined(__SSE2__)
  __m128i row[kSide], pairs[kSide], fours[kSide];
  for (uint64_t r = 0; r < kSide; ++r)
    row[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * in_stride));
  for (uint64_t r = 0; r < kSide; r += 2) {
    pairs[r] = _mm_unpacklo_epi16(row[r], row[r + 1]);      // columns 0..3 of two rows
    pairs[r + 1] = _mm_unpackhi_epi16(row[r], row[r + 1]);  // columns 4..7
  }
  for (uint64_t half = 0; half < 2; ++half)  // rows 0..3, rows 4..7
    for (uint64_t side = 0; side < 2; ++side) {
      const __m128i first = pairs[4 * half + side], second = pairs[4 * half + 2 + side];
      fours[4 * half + 2 * side] = _mm_unpacklo_epi32(first, second);
      fours[4 * half + 2 * side + 1] = _mm_unpackhi_epi32(first, second);
    }
  for (uint64_t i = 0; i < kSide / 2; ++i) {  // two columns of eight rows each
    __m128i* const even = reinterpret_cast<__m128i*>(out + 2 * i * out_stride);
    __m128i* const odd = reinterpret_cast<__m128i*>(out + (2 * i + 1) * out_stride);
    _mm_storeu_si128(even, _mm_unpacklo_epi64(fours[i], fours[i + 4]));
    _mm_storeu_si128(odd, _mm_unpackhi_epi64(fours[i], fours[i + 4]));
  }
#else
  for (uint64_t r = 0; r < kSide; ++r)
    for (uint64_t c = 0; c < kSide; ++c) out[c * out_stride + r] = in[r * in_stride + c];
#endif
}

}  // namespace

void transpose_16bit(const uint16_t* in, uint64_t in_stride, uint64_t rows, uint64_t cols,
                     uint16_t* out, uint64_t out_stride) {
  const uint64_t whole_rows = rows / kSide * kSide, whole_cols = cols / kSide * kSide;
  for (uint64_t first = 0; first < whole_rows; first += kRowsAtOnce) {
    const uint64_t end = std::min(whole_rows, first + kRowsAtOnce);
    for (uint64_t c = 0; c < whole_cols; c += kSide)
      for (uint64_t r = first; r < end; r += kSide)
        turn_block(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
  }
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c)
      out[c * out_stride + r] = in[r * in_stride + c];
}

}  // namespace tyto
