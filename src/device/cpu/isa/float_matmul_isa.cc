// Matrices of f32, f16 and bf16, as the file has them, times f32 activations. Compiled once per
// instruction set (see src/CMakeLists.txt).
//
// Each output is one vector of partial sums along k, added in the order of k, then summed across
// its lanes in one fixed order. Tiles of rows and tokens only decide what is computed side by side.
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
namespace {

#if defined(TYTO_SIMD_AVX512)
constexpr int kTileRows = 4, kTileTokens = 6;  // 24 accumulators of 32 registers
#elif defined(TYTO_SIMD_AVX2)
constexpr int kTileRows = 2, kTileTokens = 6;  // 12 of 16
#else
constexpr int kTileRows = 2, kTileTokens = 2;
#endif

constexpr size_t kRowBlock = 32;      // rows that stay in the L2 cache while tokens pass by
constexpr size_t kChunkBytes = 2048;  // of a token: six of them and four rows stay in the L1 cache

TYTO_INLINE size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// How a type's weights meet activations: kValues of k at a time.
// ---------------------------------------------------------------------------------------------

struct F32Step {
  static constexpr size_t kValues = kLanes, kWeightBytes = 4, kXBytes = 4;
  struct W {
    Vec v;
  };
  using X = W;
  TYTO_INLINE W weights(const uint8_t* p) { return {load(reinterpret_cast<const float*>(p))}; }
  TYTO_INLINE X activations(const uint8_t* p) { return {load(reinterpret_cast<const float*>(p))}; }
  TYTO_INLINE Vec add_product(const W& w, const X& x, Vec acc) { return fma(w.v, x.v, acc); }
  TYTO_INLINE void prepare(const float* x, uint8_t* out) {
    std::memcpy(out, x, kValues * sizeof(float));
  }
};

struct F16Step : F32Step {
  static constexpr size_t kWeightBytes = 2;
  TYTO_INLINE W weights(const uint8_t* p) { return {load_f16(p)}; }
};

#if defined(__AVX512BF16__)
constexpr bool kRoundsToBf16 = true;
// The activations are rounded to bf16 as well; products are added in f32, two at a time.
struct Bf16Step {
  static constexpr size_t kValues = 2 * kLanes, kWeightBytes = 2, kXBytes = 2;
  struct W {
    __m512i v;
  };
  using X = W;
  TYTO_INLINE W weights(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  TYTO_INLINE X activations(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  TYTO_INLINE Vec add_product(const W& w, const X& x, Vec acc) {
    return _mm512_dpbf16_ps(acc, (__m512bh)w.v, (__m512bh)x.v);
  }
  TYTO_INLINE void prepare(const float* x, uint8_t* out) {
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(load(x + kLanes), load(x)));
  }
};
#else
constexpr bool kRoundsToBf16 = false;
// Two bf16 in 32 bits become two f32 with one operation each; activations are laid out to match.
struct Bf16Step {
  static constexpr size_t kValues = 2 * kLanes, kWeightBytes = 2, kXBytes = 4;
  struct W {
    Vec even, odd;
  };
  using X = W;
  TYTO_INLINE W weights(const uint8_t* p) {
    W result;
    load_bf16_pairs(p, result.even, result.odd);
    return result;
  }
  TYTO_INLINE X activations(const uint8_t* p) {
    const float* x = reinterpret_cast<const float*>(p);
    return {load(x), load(x + kLanes)};
  }
  TYTO_INLINE Vec add_product(const W& w, const X& x, Vec acc) {
    return fma(w.odd, x.odd, fma(w.even, x.even, acc));
  }
  TYTO_INLINE void prepare(const float* x, uint8_t* out) {
    float* apart = reinterpret_cast<float*>(out);
    for (size_t i = 0; i < kLanes; ++i) {
      apart[i] = x[2 * i];
      apart[kLanes + i] = x[2 * i + 1];
    }
  }
};
#endif

template <typename Step>
constexpr size_t kStepBytes = Step::kValues * Step::kWeightBytes;
template <typename Step>
constexpr size_t kStepXBytes = Step::kValues * Step::kXBytes;

template <typename Step>
TYTO_INLINE size_t steps_of(size_t k) {
  return (k + Step::kValues - 1) / Step::kValues;
}

// Tiles.
// ---------------------------------------------------------------------------------------------

// Some consecutive steps of R rows and T tokens.
struct Tile {
  const uint8_t* weights;  // of the first row, at the first step
  size_t row_bytes;
  const uint8_t* x;   // [step][T]
  size_t steps;       // whole ones
  size_t tail_bytes;  // of a row in a last, partial step; 0: there is none
  Vec* acc;           // [row][T], rows acc_stride apart
  size_t acc_stride;
  const uint8_t* next;  // what the tile after this one reads, if it comes from memory
};

// One token reads each weight once, from memory. Asking for them in the order of their addresses,
// well ahead, into the second-level cache keeps the bus busy although several rows are read at a
// time.
constexpr size_t kPrefetchBytes = 32768;
constexpr int kSecondLevel = 2;

template <typename Step, int R, int T>
TYTO_INLINE void add_step(const uint8_t* const (&weights)[R], const uint8_t* x, Vec (&acc)[R][T]) {
  typename Step::W w[R];
  for (int r = 0; r < R; ++r) w[r] = Step::weights(weights[r]);
  for (int t = 0; t < T; ++t) {
    const typename Step::X token = Step::activations(x + t * kStepXBytes<Step>);
    for (int r = 0; r < R; ++r) acc[r][t] = Step::add_product(w[r], token, acc[r][t]);
  }
}

template <typename Step, int R, int T>
void add_tile(const Tile& tile) {
  Vec acc[R][T];
  const uint8_t* weights[R];
  for (int r = 0; r < R; ++r) {
    weights[r] = tile.weights + r * tile.row_bytes;
    for (int t = 0; t < T; ++t) acc[r][t] = tile.acc[r * tile.acc_stride + t];
  }
  const uint8_t* x = tile.x;
  for (size_t i = 0; i < tile.steps; ++i, x += T * kStepXBytes<Step>) {
    if constexpr (T == 1)
      for (size_t line = 0; line < R * kStepBytes<Step>; line += 64)
        __builtin_prefetch(tile.weights + kPrefetchBytes + i * R * kStepBytes<Step> + line, 0,
                           kSecondLevel);
    else if (tile.next != nullptr)
      for (int r = 0; r < R; ++r)
        __builtin_prefetch(tile.next + r * tile.row_bytes + i * kStepBytes<Step>, 0, kSecondLevel);
    add_step<Step>(weights, x, acc);
    for (int r = 0; r < R; ++r) weights[r] += kStepBytes<Step>;
  }
  if (tile.tail_bytes != 0) {  // read no further than the row goes; the activations end in zeros
    uint8_t padded[R][kStepBytes<Step>] = {};
    const uint8_t* last[R];
    for (int r = 0; r < R; ++r) {
      std::memcpy(padded[r], weights[r], tile.tail_bytes);
      last[r] = padded[r];
    }
    add_step<Step>(last, x, acc);
  }
  for (int r = 0; r < R; ++r)
    for (int t = 0; t < T; ++t) tile.acc[r * tile.acc_stride + t] = acc[r][t];
}

template <typename Step, int R>
TYTO_INLINE void add_tile_of(size_t tokens, const Tile& tile) {
  switch (tokens) {
    case 1:
      return add_tile<Step, R, 1>(tile);
    case 2:
      return add_tile<Step, R, 2>(tile);
#if !defined(TYTO_SIMD_GENERIC)
    case 3:
      return add_tile<Step, R, 3>(tile);
    case 4:
      return add_tile<Step, R, 4>(tile);
    case 5:
      return add_tile<Step, R, 5>(tile);
    case 6:
      return add_tile<Step, R, 6>(tile);
#endif
  }
}

// Rows of one block by one tile of tokens, chunk of k after chunk.
template <typename Step>
TYTO_INLINE void add_block(const FloatMatmul& job, size_t row, size_t rows, const TokenTile& tokens,
                           Vec* acc) {
  const size_t whole = job.k / Step::kValues, steps = steps_of<Step>(job.k);
  const size_t tail_bytes = job.k % Step::kValues * Step::kWeightBytes;
  const size_t chunk = tokens.count == 1 ? steps : kChunkBytes / kStepXBytes<Step>;
  const uint8_t* x = static_cast<const uint8_t*>(job.x) + tokens.first * steps * kStepXBytes<Step>;
  for (size_t step = 0; step < steps; step += chunk) {
    const bool last = step + chunk >= steps;
    Tile tile{nullptr,
              job.row_stride,
              x + step * tokens.count * kStepXBytes<Step>,
              smaller(whole, step + chunk) - smaller(whole, step),
              last ? tail_bytes : 0,
              nullptr,
              tokens.count,
              nullptr};
    const uint8_t* weights = static_cast<const uint8_t*>(job.weights) + row * job.row_stride;
    size_t r = 0;
    for (; r < rows; r += r + kTileRows <= rows ? kTileRows : 1) {
      tile.weights = weights + r * job.row_stride + step * kStepBytes<Step>;
      if (tokens.first == 0) {  // the other tokens find the rows in the second-level cache
        tile.next = tile.weights + kTileRows * job.row_stride;
        if (r + 2 * kTileRows > rows)
          tile.next = last ? weights + kRowBlock * job.row_stride
                           : weights + (step + chunk) * kStepBytes<Step>;
      }
      tile.acc = acc + r * tokens.count;
      if (r + kTileRows <= rows)
        add_tile_of<Step, kTileRows>(tokens.count, tile);
      else
        add_tile_of<Step, 1>(tokens.count, tile);
    }
  }
}

template <typename Step>
void multiply_of(const FloatMatmul& job) {
  Vec acc[kRowBlock * kTileTokens];  // [row][token]
  for (size_t row = job.first_row; row < job.first_row + job.rows; row += kRowBlock) {
    const size_t rows = smaller(kRowBlock, job.first_row + job.rows - row);
    for (size_t tile = 0; tile < token_tiles(job.tokens, kTileTokens); ++tile) {
      const TokenTile tokens = token_tile(job.tokens, kTileTokens, tile);
      const size_t padded_rows = (rows + kLanes - 1) / kLanes * kLanes;
      for (size_t i = 0; i < padded_rows * tokens.count; ++i) acc[i] = zero();
      add_block<Step>(job, row, rows, tokens, acc);
      for (size_t t = 0; t < tokens.count; ++t) {
        float sums[kRowBlock];
        for (size_t r = 0; r < rows; r += kLanes) {
          Vec column[kLanes];
          for (size_t j = 0; j < kLanes; ++j) column[j] = acc[(r + j) * tokens.count + t];
          store(sums + r, sums_of(column));
        }
        std::memcpy(job.y + (tokens.first + t) * job.y_stride + row, sums, rows * sizeof(float));
      }
    }
  }
}

void multiply(const FloatMatmul& job) {
  switch (job.type) {
    case DType::f32:
      return multiply_of<F32Step>(job);
    case DType::f16:
      return multiply_of<F16Step>(job);
    case DType::bf16:
      return multiply_of<Bf16Step>(job);
    default:
      return;  // other types are packed, or widened by the caller
  }
}

// Activations.
// ---------------------------------------------------------------------------------------------

template <typename Step>
TYTO_INLINE void prepare_of(const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                            void* out) {
  const size_t whole = k / Step::kValues, steps = steps_of<Step>(k);
  uint8_t* to = static_cast<uint8_t*>(out) + tile.first * steps * kStepXBytes<Step>;
  for (size_t t = 0; t < tile.count; ++t) {
    const float* in = x + (tile.first + t) * x_stride;
    for (size_t step = 0; step < whole; ++step)
      Step::prepare(in + step * Step::kValues, to + (step * tile.count + t) * kStepXBytes<Step>);
    if (whole == steps) continue;
    float padded[Step::kValues] = {};
    std::memcpy(padded, in + whole * Step::kValues, (k - whole * Step::kValues) * sizeof(float));
    Step::prepare(padded, to + (whole * tile.count + t) * kStepXBytes<Step>);
  }
}

void prepare_tile(DType type, const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                  void* out) {
  if (type == DType::bf16)
    prepare_of<Bf16Step>(x, x_stride, k, tile, out);
  else
    prepare_of<F32Step>(x, x_stride, k, tile, out);
}

size_t token_bytes(DType type, size_t k) {
  return type == DType::bf16 ? steps_of<Bf16Step>(k) * kStepXBytes<Bf16Step>
                             : steps_of<F32Step>(k) * kStepXBytes<F32Step>;
}

constexpr FloatLoops kLoops = {kTileTokens, kRoundsToBf16, token_bytes, prepare_tile, multiply};

}  // namespace

const FloatLoops& float_loops() {
  return kLoops;
}

}  // namespace tyto::cpu::TYTO_ISA
