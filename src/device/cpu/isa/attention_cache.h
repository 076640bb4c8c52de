// How attention reads a KV cache. Keys are turned so that a lane is a position, which needs no sum
// across lanes; they are turned as narrow as the cache holds them, since a shuffle then moves two
// or four times as many values, and widened when they are used. Values are used as they lie.
#pragma once

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
template <size_t kBytes>         // of a step, or a few less
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

// Blocks of 34 bytes: an f16 scale, 32 codes (attention_words.h).
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
