// Packed matrices of f32, f16 and bf16 (packed_weights.h) times activations. Compiled once per
// instruction set (see src/CMakeLists.txt).
//
// Rows lie across the lanes and each output is one chain of additions in the order of k, whatever
// is computed beside it: one token or many, a chunk of k or all of it. With f32 products the bits
// are therefore those of every other vector width.
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
#if !defined(TYTO_SIMD_GENERIC)
namespace {

constexpr size_t kPanelVecs = kFloatPanelRows / kLanes;
constexpr int kTileVecs = 2;
#if defined(TYTO_SIMD_AVX512)
constexpr int kTileTokens = 12;  // 24 accumulators of 32 registers
constexpr size_t kWidenedBytes = 24576;
#else
constexpr int kTileTokens = 6;  // 12 of 16
constexpr size_t kWidenedBytes = 16384;
#endif
constexpr size_t kParts = kPanelVecs / kTileVecs;  // parts of a panel that meet tokens in turn
constexpr size_t kTileFloats = kTileVecs * kLanes;

// Pairs of k whose weights, widened to f32, stay in the first-level cache while all tokens pass by
// a part. Cores with AVX-512 have 32 KB of it or more, and longer chunks spare round trips of sums.
constexpr size_t kChunkPairs = kWidenedBytes / (2 * kTileFloats * sizeof(float));
// Activations that stay in the second-level cache while a thread's panels pass by.
constexpr size_t kActivationBytes = 1 << 19;
constexpr size_t kAheadBytes = 8192;
constexpr int kFirstLevel = 3, kSecondLevel = 2;

TYTO_INLINE size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

TYTO_INLINE size_t pairs_of(size_t k) {
  return (k + 1) / 2;
}

// How the weights of a pair of k are read: the even one's (kOdd 0) or the odd one's, f32.
// ---------------------------------------------------------------------------------------------

struct F32Weights {
  static constexpr size_t kPairBytes = 8 * kFloatPanelRows;
  template <int kOdd>
  TYTO_INLINE Vec at(const uint8_t* pair, size_t v) {
    return load(reinterpret_cast<const float*>(pair) + kOdd * kFloatPanelRows + v * kLanes);
  }
};

struct F16Weights {
  static constexpr size_t kPairBytes = 4 * kFloatPanelRows;
  template <int kOdd>
  TYTO_INLINE Vec at(const uint8_t* pair, size_t v) {
    return load_f16(pair + 2 * (kOdd * kFloatPanelRows + v * kLanes));
  }
};

struct Bf16Weights {
  static constexpr size_t kPairBytes = 4 * kFloatPanelRows;
  template <int kOdd>
  TYTO_INLINE Vec at(const uint8_t* pair, size_t v) {
    Vec even, odd;
    load_bf16_pairs(pair + v * kVecBytes, even, odd);
    return kOdd == 1 ? odd : even;
  }
};

// A part of a panel as widen() leaves it.
struct WidenedWeights {
  static constexpr size_t kPairBytes = 2 * kTileFloats * sizeof(float);
  template <int kOdd>
  TYTO_INLINE Vec at(const uint8_t* pair, size_t v) {
    return load(reinterpret_cast<const float*>(pair) + kOdd * kTileFloats + v * kLanes);
  }
};

// Products. A prepared token is one 32-bit word per product of a lane.
// ---------------------------------------------------------------------------------------------

template <typename Weights>
struct F32Products {
  static constexpr size_t kWords = 2;  // a token's per pair of k
  static constexpr size_t kPairBytes = Weights::kPairBytes;

  template <int V, int T>
  TYTO_INLINE void add_pair(const uint8_t* pair, size_t first_vec, const float* x,
                            Vec (&acc)[V][T]) {
    add<0>(pair, first_vec, x, acc);
    add<1>(pair, first_vec, x + T, acc);
  }

 private:
  template <int kOdd, int V, int T>
  TYTO_INLINE void add(const uint8_t* pair, size_t first_vec, const float* x, Vec (&acc)[V][T]) {
    Vec w[V];
    for (int v = 0; v < V; ++v)
      w[v] = Weights::template at<kOdd>(pair, first_vec + static_cast<size_t>(v));
    for (int t = 0; t < T; ++t) {
      const Vec token = broadcast(x[t]);
      for (int v = 0; v < V; ++v) acc[v][t] = fma(w[v], token, acc[v][t]);
    }
  }
};

#if defined(__AVX512BF16__)
// Activations are rounded to bf16 as well; both products of a pair are added by one instruction.
struct Bf16Products {
  static constexpr size_t kWords = 1;
  static constexpr size_t kPairBytes = Bf16Weights::kPairBytes;

  template <int V, int T>
  TYTO_INLINE void add_pair(const uint8_t* pair, size_t first_vec, const float* x,
                            Vec (&acc)[V][T]) {
    IVec w[V];
    for (int v = 0; v < V; ++v)
      w[v] = load_bytes(pair + (first_vec + static_cast<size_t>(v)) * kVecBytes);
    for (int t = 0; t < T; ++t) {
      const IVec token = broadcast4(x + t);
      for (int v = 0; v < V; ++v)
        acc[v][t] = _mm512_dpbf16_ps(acc[v][t], (__m512bh)w[v], (__m512bh)token);
    }
  }
};
#else
using Bf16Products = F32Products<Bf16Weights>;
#endif

// One token: panels lie one after the other, so what comes next is what lies ahead.
// ---------------------------------------------------------------------------------------------

template <typename Products>
void multiply_one(const PackedFloatMatmul& job) {
  const PackedMatrix& matrix = *job.matrix;
  const size_t pairs = pairs_of(matrix.k);
  for (size_t p = job.first_panel; p < job.first_panel + job.panels; ++p) {
    Vec acc[kPanelVecs][1];
    for (size_t v = 0; v < kPanelVecs; ++v) acc[v][0] = zero();
    const uint8_t* pair = matrix.panel(p);
    const float* x = static_cast<const float*>(job.x);
    for (size_t i = 0; i < pairs; ++i, pair += Products::kPairBytes, x += Products::kWords) {
      for (size_t line = 0; line < Products::kPairBytes; line += 64)
        __builtin_prefetch(pair + kAheadBytes + line, 0, kSecondLevel);
      Products::add_pair(pair, 0, x, acc);
    }
    float result[kFloatPanelRows];
    for (size_t v = 0; v < kPanelVecs; ++v) store(result + v * kLanes, acc[v][0]);
    const size_t rows = smaller(kFloatPanelRows, matrix.rows - p * kFloatPanelRows);
    std::memcpy(job.y + p * kFloatPanelRows, result, rows * sizeof(float));
  }
}

// Several tokens.
// ---------------------------------------------------------------------------------------------

// Lines that a tile asks for on behalf of the next chunk, as many with each pair as a lone tile of
// tokens must: asked for all at once they would stop the core until most have arrived.
struct Ahead {
  const uint8_t* from;
  size_t lines;
};

struct Tile {
  const uint8_t* weights;  // begin with the first pair
  size_t first_vec;        // in each pair
  const float* x;
  size_t pairs;
  float* y;  // [T] rows of kTileFloats, y_stride apart
  size_t y_stride;
  bool first;  // else y holds what earlier pairs gave
  Ahead ahead;
};

template <typename Products, int T>
void multiply_tile(const Tile& tile) {
  constexpr size_t kLinesPerPair = 2 / kParts;
  Vec acc[kTileVecs][T];
  for (int t = 0; t < T; ++t)
    for (int v = 0; v < kTileVecs; ++v) acc[v][t] = zero();
  if (!tile.first)
    for (int t = 0; t < T; ++t)
      for (int v = 0; v < kTileVecs; ++v) acc[v][t] = load(tile.y + t * tile.y_stride + v * kLanes);
  const uint8_t* pair = tile.weights;
  const float* x = tile.x;
  const uint8_t* line = tile.ahead.from;
  const uint8_t* const last_line = line + 64 * tile.ahead.lines;
  for (size_t i = 0; i < tile.pairs; ++i) {
    if (line < last_line)
      for (size_t n = 0; n < kLinesPerPair; ++n, line += 64)
        __builtin_prefetch(line, 0, kSecondLevel);
    Products::add_pair(pair, tile.first_vec, x, acc);
    pair += Products::kPairBytes;
    x += Products::kWords * T;
  }
  for (int t = 0; t < T; ++t)
    for (int v = 0; v < kTileVecs; ++v) store(tile.y + t * tile.y_stride + v * kLanes, acc[v][t]);
}

template <typename Products, int T = kTileTokens>
TYTO_INLINE void multiply_tile_of(size_t tokens, const Tile& tile) {
  if (tokens == T) return multiply_tile<Products, T>(tile);
  if constexpr (T > 1) multiply_tile_of<Products, T - 1>(tokens, tile);
}

// Some pairs of a panel, apart in parts: [part][pair][2][kTileVecs].
template <typename Weights>
TYTO_INLINE void widen(const uint8_t* pair, size_t pairs, float* out) {
  for (size_t i = 0; i < pairs; ++i, pair += Weights::kPairBytes)
    for (size_t v = 0; v < kPanelVecs; ++v) {
      const size_t part = v / kTileVecs, place = v % kTileVecs;
      float* to = out + (part * kChunkPairs + i) * 2 * kTileFloats + place * kLanes;
      store(to, Weights::template at<0>(pair, v));
      store(to + kTileFloats, Weights::template at<1>(pair, v));
    }
}

// Some pairs of one panel times every token.
struct Chunk {
  const uint8_t* weights;
  size_t first_pair;
  size_t pairs;
  size_t bytes;
  float* y;
  size_t y_stride;
  const uint8_t* next;  // as many bytes that are multiplied after it
};

template <typename Products>
TYTO_INLINE void multiply_tiles(const PackedFloatMatmul& job, const Chunk& chunk,
                                const uint8_t* weights, size_t part, size_t first_vec) {
  const size_t tiles = token_tiles(job.tokens, kTileTokens);
  const size_t lines = chunk.bytes / 64;
  for (size_t i = 0; i < tiles; ++i) {
    const TokenTile tokens = token_tile(job.tokens, kTileTokens, i);
    const size_t piece = part * tiles + i, pieces = kParts * tiles;
    const size_t line = lines * piece / pieces;
    // Rows of sums are far apart, often by a power of two, and come from a distant cache.
    for (size_t t = tokens.first + tokens.count;
         t < smaller(job.tokens, tokens.first + 2 * tokens.count); ++t)
      for (size_t at = 0; at < kTileFloats; at += 16)
        __builtin_prefetch(chunk.y + t * chunk.y_stride + part * kTileFloats + at, 1, kFirstLevel);
    multiply_tile_of<Products>(
        tokens.count, {.weights = weights,
                       .first_vec = first_vec,
                       .x = static_cast<const float*>(job.x) +
                            Products::kWords * (tokens.first * pairs_of(job.matrix->k) +
                                                chunk.first_pair * tokens.count),
                       .pairs = chunk.pairs,
                       .y = chunk.y + tokens.first * chunk.y_stride + part * kTileFloats,
                       .y_stride = chunk.y_stride,
                       .first = chunk.first_pair == 0,
                       .ahead = {chunk.next + 64 * line, lines * (piece + 1) / pieces - line}});
  }
}

// Products that need no widening take the weights as they lie, and so do few tokens: until several
// tiles share it, writing the widened weights and reading them again costs what it saves.
constexpr size_t kDirectTiles = 3;

template <typename Products>
struct Route {
  TYTO_INLINE void multiply(const PackedFloatMatmul& job, const Chunk& chunk) {
    for (size_t part = 0; part < kParts; ++part)
      multiply_tiles<Products>(job, chunk, chunk.weights, part, part * kTileVecs);
  }
};

template <typename Weights>
struct Route<F32Products<Weights>> {
  TYTO_INLINE void multiply(const PackedFloatMatmul& job, const Chunk& chunk) {
    if (job.tokens <= kDirectTiles * kTileTokens) {
      for (size_t part = 0; part < kParts; ++part)
        multiply_tiles<F32Products<Weights>>(job, chunk, chunk.weights, part, part * kTileVecs);
      return;
    }
    alignas(64) static thread_local float widened[kParts * kChunkPairs * 2 * kTileFloats];
    widen<Weights>(chunk.weights, chunk.pairs, widened);
    for (size_t part = 0; part < kParts; ++part)
      multiply_tiles<F32Products<WidenedWeights>>(
          job, chunk,
          reinterpret_cast<const uint8_t*>(widened + part * kChunkPairs * 2 * kTileFloats), part,
          0);
  }
};

// Pairs `first` to `end - 1` of all panels.
template <typename Products>
TYTO_INLINE void multiply_panels(const PackedFloatMatmul& job, size_t first, size_t end) {
  const PackedMatrix& matrix = *job.matrix;
  const size_t last_panel = job.first_panel + job.panels - 1;
  for (size_t p = job.first_panel; p <= last_panel; ++p) {
    const bool is_whole = (p + 1) * kFloatPanelRows <= matrix.rows;
    Chunk chunk{.weights = nullptr,
                .first_pair = first,
                .pairs = 0,
                .bytes = 0,
                .y = is_whole ? job.y + p * kFloatPanelRows : job.aside,
                .y_stride = is_whole ? job.y_stride : kFloatPanelRows,
                .next = nullptr};
    for (; chunk.first_pair < end; chunk.first_pair += chunk.pairs) {
      chunk.pairs = smaller(kChunkPairs, end - chunk.first_pair);
      chunk.bytes = chunk.pairs * Products::kPairBytes;
      const size_t next = chunk.first_pair + chunk.pairs;
      chunk.weights = matrix.panel(p) + chunk.first_pair * Products::kPairBytes;
      if (next < end)
        chunk.next = matrix.panel(p) + next * Products::kPairBytes;
      else if (p < last_panel)
        chunk.next = matrix.panel(p + 1) + first * Products::kPairBytes;
      else
        chunk.next = matrix.panel(job.first_panel) + end * Products::kPairBytes;
      Route<Products>::multiply(job, chunk);
    }
  }
}

template <typename Products>
void multiply_many(const PackedFloatMatmul& job) {
  const PackedMatrix& matrix = *job.matrix;
  const size_t pairs = pairs_of(matrix.k);
  const size_t fitting = kActivationBytes / (job.tokens * Products::kWords * sizeof(float));
  const size_t stride = fitting < kChunkPairs ? kChunkPairs : fitting / kChunkPairs * kChunkPairs;
  for (size_t first = 0; first < pairs; first += stride)
    multiply_panels<Products>(job, first, smaller(pairs, first + stride));
  const size_t panel = job.first_panel + job.panels - 1;
  if ((panel + 1) * kFloatPanelRows <= matrix.rows) return;
  const size_t rows = matrix.rows - panel * kFloatPanelRows;
  for (size_t t = 0; t < job.tokens; ++t)
    std::memcpy(job.y + t * job.y_stride + panel * kFloatPanelRows, job.aside + t * kFloatPanelRows,
                rows * sizeof(float));
}

template <typename Products>
void multiply_of(const PackedFloatMatmul& job) {
  if (job.tokens == 1)
    multiply_one<Products>(job);
  else
    multiply_many<Products>(job);
}

void multiply(const PackedFloatMatmul& job) {
  // is_float() is true for these three.
  if (job.matrix->type == DType::f32)
    multiply_of<F32Products<F32Weights>>(job);
  else if (job.matrix->type == DType::f16)
    multiply_of<F32Products<F16Weights>>(job);
  else if (job.matrix->type == DType::bf16)
    multiply_of<Bf16Products>(job);
}

// Activations: [word][T] of a tile.
// ---------------------------------------------------------------------------------------------

struct F32Words {
  static constexpr size_t kValues = 1;  // x in a word
  TYTO_INLINE Vec at(const float* x) { return load(x); }
};

#if defined(__AVX512BF16__)
struct Bf16Words {
  static constexpr size_t kValues = 2;
  TYTO_INLINE Vec at(const float* x) {
    return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(load(x + kLanes), load(x)));
  }
};
#else
using Bf16Words = F32Words;
#endif

template <typename Words>
TYTO_INLINE size_t words_of(size_t k) {
  return pairs_of(k) * (2 / Words::kValues);
}

// kLanes words of each token; a row of the result takes kLanes words' room, of which the first
// `count` are the tile's and the others are overwritten by the rows after it.
template <typename Words>
TYTO_INLINE void prepare_words(const float* x, size_t x_stride, size_t count, float* out) {
  if (count == 1) return store(out, Words::at(x));
  Vec words[kLanes];
  for (size_t t = 0; t < kLanes; ++t) words[t] = t < count ? Words::at(x + t * x_stride) : zero();
  transpose(words);
  for (size_t i = 0; i < kLanes; ++i) store(out + i * count, words[i]);
}

template <typename Words>
void prepare_of(const float* x, size_t x_stride, size_t k, const TokenTile& tile, float* all) {
  const size_t words = words_of<Words>(k);
  float* out = all + tile.first * words;
  const float* in = x + tile.first * x_stride;
  size_t word = 0;
  // Two vectors before the end, since rows are stored longer than they are.
  for (; (word + 2 * kLanes) * Words::kValues <= k; word += kLanes)
    prepare_words<Words>(in + word * Words::kValues, x_stride, tile.count, out + word * tile.count);
  for (; word < words; word += kLanes) {
    const size_t first = word * Words::kValues, count = smaller(kLanes, words - word);
    for (size_t t = 0; t < tile.count; ++t) {
      float padded[kLanes * Words::kValues] = {}, result[kLanes];
      const size_t values = smaller(kLanes * Words::kValues, k > first ? k - first : 0);
      std::memcpy(padded, in + t * x_stride + first, values * sizeof(float));
      store(result, Words::at(padded));
      for (size_t i = 0; i < count; ++i)
        std::memcpy(out + (word + i) * tile.count + t, result + i, sizeof(float));
    }
  }
}

void prepare_tile(DType type, const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                  void* out) {
  if (type == DType::bf16)
    prepare_of<Bf16Words>(x, x_stride, k, tile, static_cast<float*>(out));
  else
    prepare_of<F32Words>(x, x_stride, k, tile, static_cast<float*>(out));
}

size_t token_bytes(DType type, size_t k) {
  return 4 * (type == DType::bf16 ? words_of<Bf16Words>(k) : words_of<F32Words>(k));
}

constexpr PackedFloatLoops kLoops = {kTileTokens, token_bytes, prepare_tile, multiply};

}  // namespace

const PackedFloatLoops* packed_float_loops() {
  return &kLoops;
}

#else

const PackedFloatLoops* packed_float_loops() {
  return nullptr;
}

#endif

}  // namespace tyto::cpu::TYTO_ISA
