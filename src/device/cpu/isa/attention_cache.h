// How attention reads a KV cache. Keys are turned so that a lane is a position, which needs no sum
// across lanes; they are turned as narrow as the cache holds them, since a shuffle then moves two
// or four times as many values, and widened when they are used. Values are used as they lie.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/isa/simd.h"

#ifdef TYTO_ISA
namespace tyto::cpu::TYTO_ISA {

constexpr size_t kBlockPositions = 32;  // that are turned and widened together

// What will be read next, asked for a little in each step of a loop: a core's own prefetching stops
// at the end of a page and does not fill the bus, and many requests at once hold it up.
struct Ahead {
  const uint8_t* next;
  size_t step;  // bytes
};
constexpr int kSecondLevel = 2;  // whose cache can wait for more lines at a time than the first
template <size_t kBytes>         // a step's, or a few less
TYTO_INLINE void ask(Ahead& ahead) {
  for (size_t line = 0; line < kBytes; line += 64)
    __builtin_prefetch(ahead.next + line, 0, kSecondLevel);
  ahead.next += ahead.step;
}
TYTO_INLINE void ask_at_once(const uint8_t* next, size_t bytes) {
  for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + line, 0, kSecondLevel);
}

TYTO_INLINE float half_at(const uint8_t* p) {
  _Float16 value;
  std::memcpy(&value, p, sizeof value);
  return static_cast<float>(value);
}

// Small squares of a cache's rows, turned.
// ---------------------------------------------------------------------------------------------
#if defined(TYTO_SIMD_GENERIC)

template <typename T>
TYTO_INLINE void turn_sixteen_bytes(const uint8_t* rows, size_t stride, T* out) {
  for (size_t p = 0; p < kBlockPositions; ++p)
    for (size_t column = 0; column < 16 / sizeof(T); ++column)
      std::memcpy(out + column * kBlockPositions + p, rows + p * stride + column * sizeof(T),
                  sizeof(T));
}

#else

// Rows are taken 16 bytes at a time, one in each 128-bit part of a register: unpacking works inside
// the parts. The parts of register i have rows i, 8 + i and so on.
#if defined(TYTO_SIMD_AVX512)

constexpr size_t kRegisterRows = 32;
TYTO_INLINE IVec load_rows(const uint8_t* p, size_t stride) {
  const auto part = [&](size_t row) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + row * stride));
  };
  IVec rows = _mm512_castsi128_si512(part(0));
  rows = _mm512_inserti32x4(rows, part(8), 1);
  rows = _mm512_inserti32x4(rows, part(16), 2);
  return _mm512_inserti32x4(rows, part(24), 3);
}
#define TYTO_UNPACK(name) _mm512_##name

#else

constexpr size_t kRegisterRows = 16;
TYTO_INLINE IVec load_rows(const uint8_t* p, size_t stride) {
  const auto part = [&](size_t row) __attribute__((always_inline)) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + row * stride));
  };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(8), 1);
}
#define TYTO_UNPACK(name) _mm256_##name

#endif

// out[column][position] of the columns in 16 bytes, two bytes each.
TYTO_INLINE void turn_sixteen_bytes(const uint8_t* rows, size_t stride, uint16_t* out) {
  for (size_t first = 0; first < kBlockPositions; first += kRegisterRows) {
    IVec r[8], pairs[8], fours[8];
    for (size_t i = 0; i < 8; ++i) r[i] = load_rows(rows + (first + i) * stride, stride);
    for (size_t i = 0; i < 4; ++i) {
      pairs[i] = TYTO_UNPACK(unpacklo_epi16)(r[2 * i], r[2 * i + 1]);
      pairs[4 + i] = TYTO_UNPACK(unpackhi_epi16)(r[2 * i], r[2 * i + 1]);
    }
    for (size_t i = 0; i < 8; i += 2) {
      fours[i] = TYTO_UNPACK(unpacklo_epi32)(pairs[i], pairs[i + 1]);
      fours[i + 1] = TYTO_UNPACK(unpackhi_epi32)(pairs[i], pairs[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
      for (size_t j = 0; j < 2; ++j) {
        uint16_t* to = out + (i + 2 * j) * kBlockPositions + first;
        const IVec a = fours[i + j], b = fours[i + 2 + j];
        store_bytes(to, TYTO_UNPACK(unpacklo_epi64)(a, b));
        store_bytes(to + kBlockPositions, TYTO_UNPACK(unpackhi_epi64)(a, b));
      }
  }
}

#undef TYTO_UNPACK

#endif

// All columns of a block's positions: out[column][position].
template <typename T>
TYTO_INLINE void turn_columns(const uint8_t* rows, size_t stride, size_t columns, Ahead& ahead,
                              T* out) {
  size_t column = 0;
  if constexpr (sizeof(T) == sizeof(float)) {
    for (; column + kLanes <= columns; column += kLanes)
      for (size_t p = 0; p < kBlockPositions; p += kLanes) {
        Vec square[kLanes];
        for (size_t i = 0; i < kLanes; ++i)
          square[i] = load(reinterpret_cast<const float*>(rows + (p + i) * stride) + column);
        transpose(square);
        for (size_t i = 0; i < kLanes; ++i)
          store(out + (column + i) * kBlockPositions + p, square[i]);
      }
  } else {
    for (; column + 16 / sizeof(T) <= columns; column += 16 / sizeof(T)) {
      turn_sixteen_bytes(rows + column * sizeof(T), stride, out + column * kBlockPositions);
      ask_at_once(ahead.next, ahead.step * (16 / sizeof(T)));
      ahead.next += ahead.step * (16 / sizeof(T));
    }
  }
  for (; column < columns; ++column)
    for (size_t p = 0; p < kBlockPositions; ++p)
      std::memcpy(out + column * kBlockPositions + p, rows + p * stride + column * sizeof(T),
                  sizeof(T));
}

TYTO_INLINE Vec widened(const float* p) {
  return load(p);
}
TYTO_INLINE Vec widened(const uint16_t* p) {
  return load_f16(p);
}

// The types of a cache.
// ---------------------------------------------------------------------------------------------

struct F32Cache {
  using Narrow = float;
  TYTO_INLINE size_t row_bytes(size_t head_dim) { return 4 * head_dim; }
  TYTO_INLINE Vec load_at(const uint8_t* row, size_t column) {
    return load(reinterpret_cast<const float*>(row) + column);
  }
  TYTO_INLINE float value_at(const uint8_t* row, size_t column) {
    float value;
    std::memcpy(&value, row + 4 * column, sizeof value);
    return value;
  }
};

struct F16Cache {
  using Narrow = uint16_t;
  TYTO_INLINE size_t row_bytes(size_t head_dim) { return 2 * head_dim; }
  TYTO_INLINE Vec load_at(const uint8_t* row, size_t column) { return load_f16(row + 2 * column); }
  TYTO_INLINE float value_at(const uint8_t* row, size_t column) {
    return half_at(row + 2 * column);
  }
};

// Blocks of 34 bytes: an f16 scale, 32 codes (attention_cache.h).
struct Q8Cache {
  static constexpr size_t kBlockColumns = 32, kBlockBytes = 34;
  TYTO_INLINE size_t row_bytes(size_t head_dim) { return head_dim / 32 * 34; }
};

// scales[block of columns][position] of `count` rows, and zeros.
TYTO_INLINE void gather_scales(const uint8_t* rows, size_t head_dim, size_t count, float* scales) {
  const size_t stride = Q8Cache::row_bytes(head_dim);
  for (size_t block = 0; block < head_dim / Q8Cache::kBlockColumns; ++block) {
    alignas(64) uint16_t halves[kBlockPositions] = {};
#pragma GCC unroll 8
    for (size_t p = 0; p < count; ++p)
      std::memcpy(halves + p, rows + p * stride + block * Q8Cache::kBlockBytes, sizeof *halves);
    for (size_t p = 0; p < kBlockPositions; p += kLanes)
      store(scales + block * kBlockPositions + p, load_f16(halves + p));
  }
}

// out[position][column], each row filled up with zeros to padded_dim.
template <typename Cache>
TYTO_INLINE void widen_values(const uint8_t* rows, size_t head_dim, size_t padded_dim, size_t count,
                              float* out) {
  const size_t stride = Cache::row_bytes(head_dim);
  for (size_t p = 0; p < count; ++p) {
    const uint8_t* row = rows + p * stride;
    float* to = out + p * padded_dim;
    size_t column = 0;
    for (; column + kLanes <= head_dim; column += kLanes)
      store(to + column, Cache::load_at(row, column));
    for (; column < head_dim; ++column) to[column] = Cache::value_at(row, column);
    for (; column < padded_dim; ++column) to[column] = 0.0f;
  }
}

}  // namespace tyto::cpu::TYTO_ISA
#endif

#ifdef TYTO_ISA
namespace tyto::cpu::TYTO_ISA {

// Attention to a q8_0 cache in integers: its codes, widened to 16 bits, times queries and weights
// that are rounded to 16 bits. That takes fewer instructions than widening codes to f32. Sums are
// exact, so the order in which they are added does not matter; the rounding is 2^-16 of the largest
// value beside it.

constexpr float kLargestWord = 32767.0f;
constexpr size_t kPairs = Q8Cache::kBlockColumns / 2;  // pairs of columns in a block

// kLanes pairs of words, and as many sums of 32 bits: 32 products of a word and a code fit one.
// ---------------------------------------------------------------------------------------------
#if defined(TYTO_SIMD_GENERIC)

struct Words {
  int16_t word[2 * kLanes];
};
struct Sums {
  int32_t lane[kLanes];
};

TYTO_INLINE Sums no_sums() {
  return {};
}
TYTO_INLINE Words load_codes(const void* p) {
  int8_t codes[2 * kLanes];
  std::memcpy(codes, p, sizeof codes);
  Words result;
  for (size_t i = 0; i < 2 * kLanes; ++i) result.word[i] = codes[i];
  return result;
}
TYTO_INLINE Words broadcast_pair(const int16_t* p) {
  Words result;
  for (size_t i = 0; i < 2 * kLanes; ++i) result.word[i] = p[i % 2];
  return result;
}
TYTO_INLINE Sums dot_pairs(const Sums& total, const Words& a, const Words& b) {
  Sums result;
  for (size_t i = 0; i < kLanes; ++i)
    result.lane[i] =
        total.lane[i] + a.word[2 * i] * b.word[2 * i] + a.word[2 * i + 1] * b.word[2 * i + 1];
  return result;
}
TYTO_INLINE Vec to_float(const Sums& sums) {
  return each_lane([&](size_t i) { return static_cast<float>(sums.lane[i]); });
}
TYTO_INLINE void store_words(int16_t* p, const Vec& v) {
  const Vec within = min(broadcast(kLargestWord), max(broadcast(-kLargestWord), v));
  for (size_t i = 0; i < kLanes; ++i)
    p[i] = static_cast<int16_t>(std::nearbyint(std::isnan(v.lane[i]) ? 0.0f : within.lane[i]));
}
// Columns 0 to 2 kLanes - 1 of two rows side by side, in_order() after they were summed up.
TYTO_INLINE void load_row_pair(const uint8_t* a, const uint8_t* b, Words (&out)[2]) {
  for (size_t i = 0; i < 2 * kLanes; ++i) {
    Words& to = out[i / kLanes];
    to.word[2 * (i % kLanes)] = static_cast<int8_t>(a[i]);
    to.word[2 * (i % kLanes) + 1] = static_cast<int8_t>(b[i]);
  }
}
TYTO_INLINE void in_order(Vec&, Vec&) {}

#else

using Words = IVec;
using Sums = IVec;

TYTO_INLINE Sums no_sums() {
  return broadcast(int32_t{0});
}
TYTO_INLINE Words broadcast_pair(const int16_t* p) {
  return broadcast4(p);
}

#if defined(TYTO_SIMD_AVX512)

TYTO_INLINE Words load_codes(const void* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
TYTO_INLINE Sums dot_pairs(Sums total, Words a, Words b) {
  return _mm512_dpwssd_epi32(total, a, b);
}
TYTO_INLINE void store_words(int16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}
TYTO_INLINE void load_row_pair(const uint8_t* a, const uint8_t* b, Words (&out)[2]) {
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
  const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  out[0] = _mm512_cvtepi8_epi16(_mm256_unpacklo_epi8(first, second));
  out[1] = _mm512_cvtepi8_epi16(_mm256_unpackhi_epi8(first, second));
}
// Unpacking works inside halves of 16 bytes.
TYTO_INLINE void in_order(Vec& a, Vec& b) {
  const Vec low = _mm512_shuffle_f32x4(a, b, 0x44);
  b = _mm512_shuffle_f32x4(a, b, 0xee);
  a = low;
}

#else

TYTO_INLINE Words load_codes(const void* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
TYTO_INLINE Sums dot_pairs(Sums total, Words a, Words b) {
  return _mm256_add_epi32(total, _mm256_madd_epi16(a, b));
}
TYTO_INLINE void store_words(int16_t* p, Vec v) {
  const __m256i whole = _mm256_cvtps_epi32(v);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
}
TYTO_INLINE void load_row_pair(const uint8_t* a, const uint8_t* b, Words (&out)[2]) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  out[0] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second));
  out[1] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(first, second));
}
TYTO_INLINE void in_order(Vec&, Vec&) {}

#endif
#endif

// Queries
// ---------------------------------------------------------------------------------------------

// A row of queries as words, each block with a scale of its own. What is not finite makes the scale
// so, and with it every score.
TYTO_INLINE void round_queries(const float* q, size_t head_dim, int16_t* words, float* scales) {
  for (size_t column = 0; column < head_dim; column += Q8Cache::kBlockColumns) {
    Vec most = zero(), nothing = zero();
    for (size_t i = 0; i < Q8Cache::kBlockColumns; i += kLanes) {
      const Vec x = load(q + column + i);
      most = max(most, max(x, sub(zero(), x)));
      nothing = fma(x, zero(), nothing);
    }
    const float large = largest(most) + sum(nothing);
    const Vec factor = broadcast(large > 0 ? kLargestWord / large : 0.0f);
    for (size_t i = 0; i < Q8Cache::kBlockColumns; i += kLanes)
      store_words(words + column + i, mul(load(q + column + i), factor));
    scales[column / Q8Cache::kBlockColumns] = large / kLargestWord;
  }
}

// Rows of queries for a whole split.
struct QueryWords {
  const int16_t* words;  // [row][head_dim]
  const float* scales;   // [row][head_dim / kBlockColumns]
};

// scores[row][position] = q[row] . key of one block's positions. keys[pair of columns][position].
template <int R>
TYTO_INLINE void score_words(const QueryWords& q, size_t head_dim, const uint16_t* keys,
                             const float* key_scales, Ahead ahead, float* scores) {
  constexpr size_t kVecs = 2;
  const size_t blocks = head_dim / Q8Cache::kBlockColumns;
  for (size_t p = 0; p < kBlockPositions; p += kVecs * kLanes)
    for (size_t block = 0; block < blocks; ++block) {
      Sums acc[R][kVecs];
      for (int r = 0; r < R; ++r)
        for (size_t v = 0; v < kVecs; ++v) acc[r][v] = no_sums();
      for (size_t pair = block * kPairs; pair < (block + 1) * kPairs; ++pair) {
        ask<2 * kLanes>(ahead);
        Words key[kVecs];
        for (size_t v = 0; v < kVecs; ++v)
          key[v] = load_codes(keys + pair * kBlockPositions + p + v * kLanes);
        for (int r = 0; r < R; ++r) {
          const Words value = broadcast_pair(q.words + r * head_dim + 2 * pair);
          for (size_t v = 0; v < kVecs; ++v) acc[r][v] = dot_pairs(acc[r][v], key[v], value);
        }
      }
      for (int r = 0; r < R; ++r)
        for (size_t v = 0; v < kVecs; ++v) {
          float* to = scores + r * kSplitPositions + p + v * kLanes;
          const Vec scale = mul(load(key_scales + block * kBlockPositions + p + v * kLanes),
                                broadcast(q.scales[r * blocks + block]));
          store(to, fma(to_float(acc[r][v]), scale, block == 0 ? zero() : load(to)));
        }
    }
}

// Weights
// ---------------------------------------------------------------------------------------------

// Weights of R rows for one block of positions and columns, with the values' scales in them.
template <int R>
struct WeightWords {
  int16_t words[R][kBlockPositions];
  float factors[R];
};

// What a row does not see has weight 0 and no part in the rounding of what it sees.
template <int R>
TYTO_INLINE void round_weights(const float* scores, const float* scales, WeightWords<R>& out) {
  constexpr size_t kVecs = kBlockPositions / kLanes;
  for (int r = 0; r < R; ++r) {
    Vec weights[kVecs];
    for (size_t v = 0; v < kVecs; ++v)
      weights[v] = mul(load(scores + r * kSplitPositions + v * kLanes), load(scales + v * kLanes));
    Vec most = weights[0];
    for (size_t v = 1; v < kVecs; ++v) most = max(most, weights[v]);
    const float large = largest(most);
    const Vec factor = broadcast(large > 0 ? kLargestWord / large : 0.0f);
    for (size_t v = 0; v < kVecs; ++v)
      store_words(out.words[r] + v * kLanes, mul(weights[v], factor));
    out.factors[r] = large / kLargestWord;
  }
}

// out[row] += weights[row][position] * value of one block's positions and columns.
template <int R>
TYTO_INLINE void mix_words(const WeightWords<R>& weights, const uint8_t* codes, size_t stride,
                           size_t count, size_t padded_dim, Ahead& ahead, float* out) {
  for (size_t column = 0; column < Q8Cache::kBlockColumns; column += 2 * kLanes) {
    Sums acc[R][2];
    for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = no_sums();
    for (size_t p = 0; p < count; p += 2) {
      ask<4 * kLanes>(ahead);
      const uint8_t* row = codes + p * stride + column;
      Words values[2];
      load_row_pair(row, p + 1 < count ? row + stride : row, values);  // the last one's weight is 0
      for (int r = 0; r < R; ++r) {
        const Words weight = broadcast_pair(weights.words[r] + p);
        for (int v = 0; v < 2; ++v) acc[r][v] = dot_pairs(acc[r][v], values[v], weight);
      }
    }
    for (int r = 0; r < R; ++r) {
      Vec low = to_float(acc[r][0]), high = to_float(acc[r][1]);
      in_order(low, high);
      float* to = out + r * padded_dim + column;
      const Vec factor = broadcast(weights.factors[r]);
      store(to, fma(low, factor, load(to)));
      store(to + kLanes, fma(high, factor, load(to + kLanes)));
    }
  }
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
