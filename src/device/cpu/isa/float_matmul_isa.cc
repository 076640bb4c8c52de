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

constexpr size_t kRowBlock = 32;         // the most rows that stay in L2 while tokens pass by;
constexpr size_t kBlockBytes = 1 << 18;  // as much again is on its way there
constexpr size_t kChunkBytes = 2048;  // a token's: six of them and four rows stay in the L1 cache

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
  const uint8_t* weights;  // the first row's, at the first step
  size_t row_bytes;
  const uint8_t* x;   // [step][T]
  size_t steps;       // whole ones
  size_t tail_bytes;  // a row's in a last, partial step; 0: there is none
  Vec* acc;           // [row][T], rows acc_stride apart
  size_t acc_stride;
  // The part of what the next block of rows reads here that is this tile's to ask for; nullptr:
  // none. A line of each row every `pace` steps.
  const uint8_t* next;
  size_t pace;
};

// One token reads each weight once, from memory. Asking for them in the order of their addresses,
// well ahead, into the second-level cache keeps the bus busy although several rows are read at a
// time. A file is mapped in small pages: one line of each is asked for further ahead, so that the
// walk through the page tables is over when the others are.
constexpr size_t kPrefetchBytes = 32768, kPageAheadBytes = kPrefetchBytes + 65536;
constexpr size_t kPageBytes = 4096;
constexpr int kSecondLevel = 2;

// Several tokens use a block of rows while the next one comes: all of their tiles share the asking,
// lest the bus be idle for most of the time.
template <int R, size_t kStride>
TYTO_INLINE void ask_for(const uint8_t* first, size_t row_bytes) {
  for (int r = 0; r < R; ++r)
    for (size_t line = 0; line < kStride; line += 64)
      __builtin_prefetch(first + static_cast<size_t>(r) * row_bytes + line, 0, kSecondLevel);
}

template <typename Step, int R, int T>
TYTO_INLINE void add_step(const uint8_t* const (&weights)[R], const uint8_t* x, Vec (&acc)[R][T]) {
  typename Step::W w[R];
  for (int r = 0; r < R; ++r) w[r] = Step::weights(weights[r]);
  for (int t = 0; t < T; ++t) {
    const typename Step::X token = Step::activations(x + t * kStepXBytes<Step>);
    for (int r = 0; r < R; ++r) acc[r][t] = Step::add_product(w[r], token, acc[r][t]);
  }
}

// The steps of one token, in the order of their addresses.
template <typename Step, int R>
TYTO_INLINE void add_steps(const Tile& tile, const uint8_t* (&weights)[R], const uint8_t*& x,
                           Vec (&acc)[R][1]) {
  constexpr size_t kBytes = R * kStepBytes<Step>, kStepsPerPage = kPageBytes / kBytes;
  for (size_t i = 0; i < tile.steps; ++i, x += kStepXBytes<Step>) {
    const uint8_t* here = tile.weights + i * kBytes;
    ask_for<1, kBytes>(here + kPrefetchBytes, 0);
    if (i % kStepsPerPage == 0) ask_for<1, 1>(here + kPageAheadBytes, 0);
    add_step<Step>(weights, x, acc);
    for (int r = 0; r < R; ++r) weights[r] += kStepBytes<Step>;
  }
}

template <typename Step, int R, int T>
TYTO_INLINE void add_steps(const Tile& tile, const uint8_t* (&weights)[R], const uint8_t*& x,
                           Vec (&acc)[R][T]) {
  const uint8_t* next = tile.next;
  // The pages that the tile of rows after this one will ask for.
  if (next != nullptr) ask_for<R, 1>(next + R * tile.row_bytes, tile.row_bytes);
  for (size_t i = 0; i < tile.steps;) {
    if (next != nullptr) {
      ask_for<R, kStepBytes<Step>>(next, tile.row_bytes);
      next += kStepBytes<Step>;
    }
    for (const size_t until = smaller(tile.steps, i + tile.pace); i < until; ++i) {
      add_step<Step>(weights, x, acc);
      for (int r = 0; r < R; ++r) weights[r] += kStepBytes<Step>;
      x += T * kStepXBytes<Step>;
    }
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
  add_steps<Step>(tile, weights, x, acc);
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

// One block of rows, as one of the call's tiles of tokens meets it.
struct Block {
  size_t row;
  size_t rows;
  size_t stride;  // rows from block to block
  size_t tile, tiles;
};

// Chunk of k after chunk.
template <typename Step>
TYTO_INLINE void add_block(const FloatMatmul& job, const Block& block, const TokenTile& tokens,
                           Vec* acc) {
  const size_t whole = job.k / Step::kValues, steps = steps_of<Step>(job.k);
  const size_t tail_bytes = job.k % Step::kValues * Step::kWeightBytes;
  const size_t chunk = tokens.count == 1 ? steps : kChunkBytes / kStepXBytes<Step>;
  const uint8_t* x = static_cast<const uint8_t*>(job.x) + tokens.first * steps * kStepXBytes<Step>;
  const uint8_t* weights = static_cast<const uint8_t*>(job.weights) + block.row * job.row_stride;
  for (size_t step = 0; step < steps; step += chunk) {
    Tile tile{.weights = nullptr,
              .row_bytes = job.row_stride,
              .x = x + step * tokens.count * kStepXBytes<Step>,
              .steps = smaller(whole, step + chunk) - smaller(whole, step),
              .tail_bytes = step + chunk >= steps ? tail_bytes : 0,
              .acc = nullptr,
              .acc_stride = tokens.count,
              .next = nullptr,
              .pace = block.tiles};
    const size_t share = (tile.steps + block.tiles - 1) / block.tiles;
    const bool asks = block.tile * share < tile.steps;
    const size_t ahead = block.stride * job.row_stride + block.tile * share * kStepBytes<Step>;
    for (size_t r = 0; r < block.rows; r += r + kTileRows <= block.rows ? kTileRows : 1) {
      tile.weights = weights + r * job.row_stride + step * kStepBytes<Step>;
      tile.next = asks ? tile.weights + ahead : nullptr;
      tile.acc = acc + r * tokens.count;
      if (r + kTileRows <= block.rows)
        add_tile_of<Step, kTileRows>(tokens.count, tile);
      else
        add_tile_of<Step, 1>(tokens.count, tile);
    }
  }
}

// Sums across the lanes of each row's accumulator.
TYTO_INLINE void store_sums(const Vec* acc, size_t rows, size_t tokens, float* y, size_t y_stride) {
  for (size_t t = 0; t < tokens; ++t) {
    float sums[kRowBlock];
    for (size_t r = 0; r < rows; r += kLanes) {
      Vec column[kLanes];
      for (size_t j = 0; j < kLanes; ++j) column[j] = acc[(r + j) * tokens + t];
      store(sums + r, sums_of(column));
    }
    std::memcpy(y + t * y_stride, sums, rows * sizeof(float));
  }
}

template <typename Step>
void multiply_of(const FloatMatmul& job) {
  Vec acc[kRowBlock * kTileTokens];  // [row][token]
  const size_t most = kBlockBytes / job.row_stride / kTileRows * kTileRows;
  const size_t stride = most < kTileRows ? kTileRows : smaller(most, kRowBlock);
  const size_t end = job.first_row + job.rows, tiles = token_tiles(job.tokens, kTileTokens);
  for (size_t row = job.first_row; row < end; row += stride) {
    const size_t rows = smaller(stride, end - row);
    for (size_t i = 0; i < tiles; ++i) {
      const TokenTile tokens = token_tile(job.tokens, kTileTokens, i);
      const size_t padded_rows = (rows + kLanes - 1) / kLanes * kLanes;
      for (size_t j = 0; j < padded_rows * tokens.count; ++j) acc[j] = zero();
      add_block<Step>(job, {row, rows, stride, i, tiles}, tokens, acc);
      store_sums(acc, rows, tokens.count, job.y + tokens.first * job.y_stride + row, job.y_stride);
    }
  }
}

void multiply(const FloatMatmul& job) {
  // Other types are packed, or widened by the caller.
  if (job.type == DType::f32)
    multiply_of<F32Step>(job);
  else if (job.type == DType::f16)
    multiply_of<F16Step>(job);
  else if (job.type == DType::bf16)
    multiply_of<Bf16Step>(job);
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
