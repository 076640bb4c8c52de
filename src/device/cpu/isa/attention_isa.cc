// Attention of several query rows to one split of one KV head's positions: in f32, and in integers
// where the cache has codes of eight bits. Compiled once per instruction set (see
// src/CMakeLists.txt).
//
// A split is a fixed range of positions, so that a row's result is the same whether one token asks
// or many, and whether one thread walks the splits or several share them. Inside a split positions
// come in blocks. The rows of a decode step fit one tile, which widens keys and values as it uses
// them; more rows share a block that is widened once. Both add the same values in the same order.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {

// How attention reads a KV cache. Keys are turned so that a lane is a position, which needs no sum
// across lanes; they are turned as narrow as the cache holds them, since a shuffle then moves two
// or four times as many values, and widened when they are used. Values are used as they lie.

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

// Blocks of 34 bytes: an f16 scale, 32 codes.
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

namespace {

// Sums that a tile keeps in registers: kTileRows times kTileVecs, of positions' scores or of a
// value row's columns.
constexpr size_t kTileRows = 4;
constexpr size_t kTileVecs = 2;

static_assert(kSplitPositions % kBlockPositions == 0 &&
              kBlockPositions % (kTileVecs * kLanes) == 0);

TYTO_INLINE size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

template <int N>
struct Count {
  static constexpr int value = N;
};

// Calls tile(Count<R>, first row) for rows in tiles of kTileRows and what is left.
template <typename Tile>
TYTO_INLINE void for_row_tiles(size_t rows, const Tile& tile) {
  static_assert(kTileRows == 4);
  size_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) tile(Count<4>{}, r);
  if (rows - r == 3) tile(Count<3>{}, r);
  if (rows - r == 2) tile(Count<2>{}, r);
  if (rows - r == 1) tile(Count<1>{}, r);
}

// The working memory of a split (attention_scratch).
struct Scratch {
  Scratch(float* memory, size_t padded_dim)
      : wide(memory),
        copied(reinterpret_cast<uint8_t*>(wide + kBlockPositions * padded_dim)),
        narrow(copied + kBlockPositions * padded_dim * sizeof(float)),
        scales(wide + 5 * kBlockPositions * padded_dim / 2),
        scores(wide + 3 * kBlockPositions * padded_dim) {}

  float* wide;      // a block's keys [column][position], then its values [position][column]
  uint8_t* copied;  // the rows of a block that ends before kBlockPositions
  uint8_t* narrow;  // a block's keys as the cache has them, [column][position]
  float* scales;    // [block of columns][position]
  float* scores;    // [row][kSplitPositions]
};

// The rows that come kAhead positions after position p: of `rows`, and behind their end of `then`.
TYTO_INLINE const uint8_t* rows_ahead(const uint8_t* rows, const uint8_t* then, size_t stride,
                                      size_t p) {
  constexpr size_t kAhead = 128;
  const size_t at = p + kAhead;
  return at < kSplitPositions ? rows + at * stride
         : then != nullptr    ? then + (at - kSplitPositions) * stride
                              : rows;
}

// Scores and weighted sums, R rows at a time.
// ---------------------------------------------------------------------------------------------

// scores[row][position] = q[row] . key of one block's positions.
template <int R, typename T>
TYTO_INLINE void score_rows(const float* q, size_t head_dim, const T* keys, Ahead ahead,
                            float* scores) {
  for (size_t p = 0; p < kBlockPositions; p += kTileVecs * kLanes) {
    Vec acc[R][kTileVecs];
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < kTileVecs; ++v) acc[r][v] = zero();
    for (size_t column = 0; column < head_dim; ++column) {
      if constexpr (sizeof(T) != sizeof(float)) ask<sizeof(T) * kTileVecs * kLanes / 2>(ahead);
      Vec key[kTileVecs];
      for (size_t v = 0; v < kTileVecs; ++v)
        key[v] = widened(keys + column * kBlockPositions + p + v * kLanes);
      for (int r = 0; r < R; ++r) {
        const Vec value = broadcast(q[r * head_dim + column]);
        for (size_t v = 0; v < kTileVecs; ++v) acc[r][v] = fma(value, key[v], acc[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < kTileVecs; ++v)
        store(scores + r * kSplitPositions + p + v * kLanes, acc[r][v]);
  }
}

// A block's values [position][column], as the cache has them or widened.
template <typename Cache>
struct NarrowValues {
  static constexpr size_t kValueBytes = sizeof(typename Cache::Narrow);
  const uint8_t* rows;
  size_t stride;
  TYTO_INLINE Vec at(const NarrowValues& values, size_t position, size_t column) {
    return Cache::load_at(values.rows + position * values.stride, column);
  }
};
struct WideValues {
  static constexpr size_t kValueBytes = 0;  // nothing to ask for: the cache is not read here
  const float* rows;
  size_t stride;
  TYTO_INLINE Vec at(const WideValues& values, size_t position, size_t column) {
    return load(values.rows + position * values.stride + column);
  }
};

// out[row] += weights[row][position] * value of one block's positions, in their order.
template <int R, int V, typename Values>
TYTO_INLINE void mix_columns(const float* weights, const Values& values, size_t column,
                             size_t padded_dim, size_t count, Ahead& ahead, float* out) {
  Vec acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) acc[r][v] = load(out + r * padded_dim + column + v * kLanes);
  for (size_t p = 0; p < count; ++p) {
    if constexpr (Values::kValueBytes != 0) ask<Values::kValueBytes * V * kLanes>(ahead);
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = Values::at(values, p, column + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(weights[r * kSplitPositions + p]);
      for (int v = 0; v < V; ++v) acc[r][v] = fma(weight, value[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(out + r * padded_dim + column + v * kLanes, acc[r][v]);
}

template <int R, typename Values>
TYTO_INLINE void mix_rows(const float* scores, const Values& values, size_t padded_dim,
                          size_t count, Ahead ahead, float* out) {
  size_t column = 0;
  for (; column + kTileVecs * kLanes <= padded_dim; column += kTileVecs * kLanes)
    mix_columns<R, kTileVecs>(scores, values, column, padded_dim, count, ahead, out);
  for (; column < padded_dim; column += kLanes)
    mix_columns<R, 1>(scores, values, column, padded_dim, count, ahead, out);
}

struct SoftmaxParts {
  float largest;
  float total;
};

// Positions of a split, [begin, end).
struct Range {
  size_t begin, end;
};

// Softmax but for the division by the total: scores of the positions that are seen, and there is
// one, become exp(score - largest), the others zero.
TYTO_INLINE SoftmaxParts exp_scores(float* scores, const Range& seen, float cap) {
  const size_t first = seen.begin / kLanes * kLanes;
  const size_t padded = (seen.end + kLanes - 1) / kLanes * kLanes;
  for (size_t p = first; p < seen.begin; ++p) scores[p] = scores[seen.begin];
  for (size_t p = seen.end; p < padded; ++p) scores[p] = scores[seen.begin];
  if (cap != 0)
    for (size_t p = first; p < padded; p += kLanes)
      store(scores + p, mul(broadcast(cap), tanh(mul(load(scores + p), broadcast(1.0f / cap)))));
  Vec most = load(scores + first);
  for (size_t p = first + kLanes; p < padded; p += kLanes) most = max(most, load(scores + p));
  const float largest_score = largest(most);
  const Vec shift = broadcast(largest_score);
  for (size_t p = first; p < padded; p += kLanes)
    store(scores + p, exp(sub(load(scores + p), shift)));
  for (size_t p = 0; p < seen.begin; ++p) scores[p] = 0.0f;
  for (size_t p = seen.end; p < kSplitPositions; ++p) scores[p] = 0.0f;
  Vec total = load(scores + first);
  for (size_t p = first + kLanes; p < padded; p += kLanes) total = add(total, load(scores + p));
  return {largest_score, sum(total)};
}

// Which of the split's positions a row sees; none: an empty range.
TYTO_INLINE Range seen_by(const AttentionSplit& job, size_t row) {
  const size_t limit = job.position + row / job.group + 1;
  const size_t end = limit > job.first ? smaller(limit - job.first, kSplitPositions) : 0;
  const size_t from = job.window != 0 && limit > job.window ? limit - job.window : 0;
  return {from > job.first ? smaller(from - job.first, end) : 0, end};
}

// Whether the rows use keys and values as the cache has them: in one tile, each is widened once.
TYTO_INLINE bool widens_in_place(const AttentionSplit& job) {
  return job.rows <= kTileRows && job.head_dim == attention_padded(job.head_dim);
}

// A block's rows, kBlockPositions of them: what lies behind the last may not be read, and zeros
// score nothing.
template <typename Cache>
TYTO_INLINE const uint8_t* whole_block(const uint8_t* rows, size_t count, size_t head_dim,
                                       const Scratch& scratch) {
  if (count == kBlockPositions) return rows;
  const size_t bytes = count * Cache::row_bytes(head_dim);
  std::memcpy(scratch.copied, rows, bytes);
  std::memset(scratch.copied + bytes, 0, kBlockPositions * Cache::row_bytes(head_dim) - bytes);
  return scratch.copied;
}

template <typename Cache>
TYTO_INLINE void score_block(const AttentionSplit& job, const Scratch& scratch, const uint8_t* rows,
                             const uint8_t* next, float* scores) {
  using Narrow = typename Cache::Narrow;
  const size_t dim = job.head_dim;
  Narrow* keys = reinterpret_cast<Narrow*>(scratch.narrow);
  if constexpr (sizeof(Narrow) == sizeof(float)) keys = scratch.wide;
  const size_t stride = Cache::row_bytes(dim);
  Ahead ahead = {next, kBlockPositions * stride / dim / 2};
  turn_columns(rows, stride, dim, ahead, keys);
  const auto score = [&](const auto* turned) __attribute__((always_inline)) {
    for_row_tiles(job.rows, [&](auto tile, size_t r) __attribute__((always_inline)) {
      score_rows<tile.value>(job.q + r * dim, dim, turned,
                             Ahead{ahead.next, stride * kTileVecs * kLanes / dim / 2},
                             scores + r * kSplitPositions);
    });
  };
  if constexpr (sizeof(Narrow) != sizeof(float)) {
    if (widens_in_place(job)) return score(keys);
    for (size_t i = 0; i < dim * kBlockPositions; i += kLanes)
      store(scratch.wide + i, widened(keys + i));
  }
  ask_at_once(ahead.next, kBlockPositions * stride / 2);
  score(static_cast<const float*>(scratch.wide));
}

template <typename Cache>
TYTO_INLINE void mix_block(const AttentionSplit& job, const Scratch& scratch, const uint8_t* rows,
                           size_t count, const uint8_t* next, const float* scores) {
  const size_t dim = job.head_dim, padded_dim = attention_padded(dim);
  const size_t stride = Cache::row_bytes(dim);
  const auto mix = [&](const auto& values) __attribute__((always_inline)) {
    for_row_tiles(job.rows, [&](auto tile, size_t r) __attribute__((always_inline)) {
      mix_rows<tile.value>(scores + r * kSplitPositions, values, padded_dim, count,
                           Ahead{next, stride * kTileVecs * kLanes / dim},
                           job.out.mixed + r * padded_dim);
    });
  };
  if (widens_in_place(job)) return mix(NarrowValues<Cache>{.rows = rows, .stride = stride});
  ask_at_once(next, kBlockPositions * stride);
  widen_values<Cache>(rows, dim, padded_dim, count, scratch.wide);
  mix(WideValues{.rows = scratch.wide, .stride = padded_dim});
}

// The same of a q8_0 cache.
// ---------------------------------------------------------------------------------------------

// Behind the scores.
TYTO_INLINE QueryWords query_words(const AttentionSplit& job, const Scratch& scratch) {
  const size_t dim = job.head_dim, blocks = dim / Q8Cache::kBlockColumns;
  float* scales = scratch.scores + job.rows * kSplitPositions;
  int16_t* words = reinterpret_cast<int16_t*>(scales + job.rows * blocks);
  for (size_t r = 0; r < job.rows; ++r)
    round_queries(job.q + r * dim, dim, words + r * dim, scales + r * blocks);
  return {words, scales};
}

TYTO_INLINE void score_codes(const AttentionSplit& job, const QueryWords& q, const Scratch& scratch,
                             const uint8_t* rows, const uint8_t* next, float* scores) {
  const size_t dim = job.head_dim, blocks = dim / Q8Cache::kBlockColumns;
  const size_t stride = Q8Cache::row_bytes(dim);
  uint16_t* keys = reinterpret_cast<uint16_t*>(scratch.narrow);  // a pair of codes is turned as one
  gather_scales(rows, dim, kBlockPositions, scratch.scales);
  Ahead ahead = {next, kBlockPositions * stride / dim};
  for (size_t block = 0; block < blocks; ++block)
    turn_columns(rows + block * Q8Cache::kBlockBytes + 2, stride, kPairs, ahead,
                 keys + block * kPairs * kBlockPositions);
  for_row_tiles(job.rows, [&](auto tile, size_t r) __attribute__((always_inline)) {
    score_words<tile.value>({q.words + r * dim, q.scales + r * blocks}, dim, keys, scratch.scales,
                            {ahead.next, stride * 2 * kLanes / dim}, scores + r * kSplitPositions);
  });
}

TYTO_INLINE void mix_codes(const AttentionSplit& job, const Scratch& scratch, const uint8_t* rows,
                           size_t count, const uint8_t* next, const float* scores) {
  const size_t dim = job.head_dim, stride = Q8Cache::row_bytes(dim);
  const size_t padded_dim = attention_padded(dim);
  gather_scales(rows, dim, count, scratch.scales);
  for_row_tiles(job.rows, [&](auto tile, size_t r) __attribute__((always_inline)) {
    constexpr int R = tile.value;
    const float* weights = scores + r * kSplitPositions;
    Ahead ahead = {next, stride * 4 * kLanes / dim};
    for (size_t column = 0; column < dim; column += Q8Cache::kBlockColumns) {
      const size_t block = column / Q8Cache::kBlockColumns;
      WeightWords<R> words;
      round_weights<R>(weights, scratch.scales + block * kBlockPositions, words);
      mix_words<R>(words, rows + block * Q8Cache::kBlockBytes + 2, stride, count, padded_dim, ahead,
                   job.out.mixed + r * padded_dim + column);
    }
  });
}

template <typename Cache>
constexpr bool kInWords = false;
template <>
constexpr bool kInWords<Q8Cache> = true;

template <typename Cache>
TYTO_INLINE void attend_of(const AttentionSplit& job) {
  const size_t rows = job.rows, padded_dim = attention_padded(job.head_dim);
  const size_t stride = Cache::row_bytes(job.head_dim);
  // The last row sees farthest, the first one the most of what a window leaves behind.
  const size_t positions = seen_by(job, rows - 1).end;
  const size_t begin = seen_by(job, 0).begin / kBlockPositions * kBlockPositions;
  const uint8_t* keys = static_cast<const uint8_t*>(job.k);
  const uint8_t* values = static_cast<const uint8_t*>(job.v);
  const Scratch scratch(job.scratch, padded_dim);
  [[maybe_unused]] QueryWords words;
  if constexpr (kInWords<Cache>) words = query_words(job, scratch);
  for (size_t p = begin; p < positions; p += kBlockPositions) {
    const size_t count = smaller(kBlockPositions, positions - p);
    const uint8_t* block = whole_block<Cache>(keys + p * stride, count, job.head_dim, scratch);
    const uint8_t* next = rows_ahead(keys, values, stride, p);
    if constexpr (kInWords<Cache>)
      score_codes(job, words, scratch, block, next, scratch.scores + p);
    else
      score_block<Cache>(job, scratch, block, next, scratch.scores + p);
  }
  for (size_t r = 0; r < rows; ++r) {
    const Range seen = seen_by(job, r);
    float* scores = scratch.scores + r * kSplitPositions;
    job.out.largest[r] = -INFINITY;
    job.out.total[r] = 0;
    if (seen.begin == seen.end) {
      std::memset(scores, 0, kSplitPositions * sizeof(float));
    } else {
      const SoftmaxParts found = exp_scores(scores, seen, job.cap);
      job.out.largest[r] = found.largest;
      job.out.total[r] = found.total;
    }
  }
  std::memset(job.out.mixed, 0, rows * padded_dim * sizeof(float));
  const uint8_t* then = static_cast<const uint8_t*>(job.next_k);
  for (size_t p = begin; p < positions; p += kBlockPositions) {
    const size_t count = smaller(kBlockPositions, positions - p);
    const uint8_t* next = rows_ahead(values, then, stride, p);
    if constexpr (kInWords<Cache>)
      mix_codes(job, scratch, values + p * stride, count, next, scratch.scores + p);
    else
      mix_block<Cache>(job, scratch, values + p * stride, count, next, scratch.scores + p);
  }
}

void attend(const AttentionSplit& job) {
  // The interpreter widens caches of other types.
  if (job.kv_type == DType::f32)
    attend_of<F32Cache>(job);
  else if (job.kv_type == DType::f16)
    attend_of<F16Cache>(job);
  else if (job.kv_type == DType::q8_0)
    attend_of<Q8Cache>(job);
}

// Splits, merged in their order.
// ---------------------------------------------------------------------------------------------

TYTO_INLINE void scale_and_add(float* to, float factor, const float* from, float other,
                               size_t count) {
  for (size_t i = 0; i < count; i += kLanes)
    store(to + i, fma(load(to + i), broadcast(factor), mul(load(from + i), broadcast(other))));
}

TYTO_INLINE float exp_of(float x) {
  float lanes[kLanes];
  store(lanes, exp(broadcast(x)));
  return lanes[0];
}

void merge(const AttentionPart& into, const AttentionPart& from, size_t rows, size_t padded_dim,
           bool first) {
  for (size_t r = 0; r < rows; ++r) {
    float* mixed = into.mixed + r * padded_dim;
    const float* other = from.mixed + r * padded_dim;
    if (first || into.total[r] == 0) {  // zero: the row saw nothing before this split
      into.largest[r] = from.largest[r];
      into.total[r] = from.total[r];
      std::memcpy(mixed, other, padded_dim * sizeof(float));
    } else if (from.total[r] != 0) {  // zero: the row sees nothing of this split
      const float ours = into.largest[r], theirs = from.largest[r];
      const float both = ours > theirs ? ours : theirs;
      const float our_factor = exp_of(ours - both), their_factor = exp_of(theirs - both);
      into.largest[r] = both;
      into.total[r] = into.total[r] * our_factor + from.total[r] * their_factor;
      scale_and_add(mixed, our_factor, other, their_factor, padded_dim);
    }
  }
}

constexpr AttentionLoops kLoops = {attend, merge};

}  // namespace

const AttentionLoops& attention_loops() {
  return kLoops;
}

}  // namespace tyto::cpu::TYTO_ISA
