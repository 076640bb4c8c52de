// Packed block-quantised matrices times activations in eight bits. Compiled once per instruction
// set (see src/CMakeLists.txt).
#include <cstring>
#include <limits>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/quant_dot.h"

namespace tyto::cpu::TYTO_ISA {
#if !defined(TYTO_SIMD_GENERIC)
namespace {

// Twelve vectors of products. With 32 registers their sums as floats lie beside them; with 16 those
// are in memory and are touched once per block, which is cheaper than fewer tokens, each of which
// would share its loads of codes with fewer others.
#if defined(TYTO_SIMD_AVX512)
constexpr int kTilePanels = 2, kTileTokens = 6;
#else
constexpr int kTilePanels = 1, kTileTokens = 6;
#endif
constexpr int kTileVecs = kTilePanels * static_cast<int>(kPanelVecs);

TYTO_INLINE size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// Few tokens: the codes go straight from memory into dot products.
// ---------------------------------------------------------------------------------------------

// Panels lie one after the other, so what comes next is simply what lies ahead, scales included.
// The second-level cache is asked: the first waits for too few lines at a time to fill the bus.
// Where a byte is more work, further ahead is better; both distances are measured.
constexpr int kFirstLevel = 3, kSecondLevel = 2;

template <size_t kBytes>  // a block of a panel, its share of the scales included
TYTO_INLINE void prefetch_block(const uint8_t* block) {
  constexpr size_t kAhead = kBytes < 512 ? 16384 : 8192;
  for (size_t line = 0; line < kBytes; line += 64)
    __builtin_prefetch(block + kAhead + line, 0, kSecondLevel);
}

// codes(group, vector) of a block; with kWide codes(2 group + part, vector).
template <DType kType, bool kWide>
struct BlockCodes {
  const uint8_t* block;
  Format<kType> format;

  template <int kStep>
  [[gnu::always_inline]] IVec operator()(std::integral_constant<int, kStep>, int v) const {
    constexpr int kGroup = kWide ? kStep / 2 : kStep;
    const IVec code = format.template codes<kGroup>(block, static_cast<size_t>(v));
    if constexpr (kWide) return widened<kStep % 2>(code);
    return code;
  }
};

template <DType kType, int T>
TYTO_INLINE void multiply_panel(const uint8_t* panel, const PackedMatrix& matrix,
                                const BlockActivations& x, Vec (&acc)[kPanelVecs][T]) {
  using F = Format<kType>;
  const F format = format_for<F>(matrix.type);
  const size_t k = matrix.k;
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr size_t kBlockBytes = kLayout.code_bytes + kLayout.scale_bytes / kLayout.scale_blocks;
  constexpr bool kWide = kWidened<F> && T > 2;  // signs cost less than widening for so few
  const uint8_t* codes = panel + kLayout.scales_size(k);
  const uint8_t* place = panel;
  const size_t blocks = k / kBlockValues;
  for (size_t block = 0; block < blocks; panel += kLayout.scale_bytes) {
    typename F::Scales scales[kPanelVecs];
    for (size_t v = 0; v < kPanelVecs; ++v) scales[v] = F::Scales::at(panel, v);
    for (size_t b = 0; b < kLayout.scale_blocks; ++b, ++block, codes += kLayout.code_bytes) {
      prefetch_block<kBlockBytes>(place);
      place += kBlockBytes;
      add_block<F, kWide>(
          BlockCodes<kType, kWide>{codes, format},
          [&](size_t half, int v)
              __attribute__((always_inline)) { return scales[v].factor(b, half); },
          [&](size_t half, int v)
              __attribute__((always_inline)) { return scales[v].minimum(b, half); },
          x, block, acc);
    }
  }
}

// Panel p of the matrix times all T tokens.
template <DType kType, int T>
void multiply_few(const PackedMatmul& job, size_t p) {
  const PackedMatrix& matrix = *job.matrix;
  Vec acc[kPanelVecs][T];
  for (size_t v = 0; v < kPanelVecs; ++v)
    for (int t = 0; t < T; ++t) acc[v][t] = zero();
  multiply_panel<kType, T>(matrix.panel(p), matrix, job.x, acc);
  const size_t rows = smaller(kPanelRows, matrix.rows - p * kPanelRows);
  for (size_t t = 0; t < T; ++t) {
    float result[kPanelRows];
    for (size_t v = 0; v < kPanelVecs; ++v) store(result + v * kLanes, acc[v][t]);
    std::memcpy(job.y + t * job.y_stride + p * kPanelRows, result, rows * sizeof(float));
  }
}

template <DType kType>
void multiply_directly(const PackedMatmul& job) {
  static_assert(kTileTokens == 6);
  using Multiply = void (*)(const PackedMatmul&, size_t);
  constexpr Multiply kMultiply[kTileTokens] = {multiply_few<kType, 1>, multiply_few<kType, 2>,
                                               multiply_few<kType, 3>, multiply_few<kType, 4>,
                                               multiply_few<kType, 5>, multiply_few<kType, 6>};
  const Multiply multiply_tokens = kMultiply[job.tokens - 1];
  for (size_t p = job.first_panel; p < job.first_panel + job.panels; ++p) multiply_tokens(job, p);
}

// Many tokens: a chunk of codes is unpacked once into the first-level cache and meets every
// token there.
// ---------------------------------------------------------------------------------------------

constexpr size_t kChunkBlocks = 16;
constexpr size_t kTileRows = kTilePanels * kPanelRows;

struct Unpacked {
  // [block][group][vector], or for codes of 16 bits [block][group][2 parts][vector]
  alignas(64) uint8_t codes[kChunkBlocks * kGroups * (kHasDot4 ? 1 : 2) * kTileVecs * kVecBytes];
  alignas(64) float factors[kChunkBlocks * 2 * kTileRows];  // [block][half][row]
  alignas(64) float minima[kChunkBlocks * 2 * kTileRows];   // [block][half][row]
};

Unpacked& thread_buffer() {
  static thread_local Unpacked buffer;
  return buffer;
}

// Blocks `first` to `first + count - 1` of a panel, as panel `place` of P that are multiplied
// together.
template <DType kType, int P>
TYTO_INLINE void unpack(const uint8_t* panel, const PackedMatrix& matrix, size_t first,
                        size_t count, size_t place, Unpacked& out) {
  using F = Format<kType>;
  const F format = format_for<F>(matrix.type);
  constexpr PackedLayout kLayout = packed_layout(kType);
  constexpr size_t V = P * kPanelVecs;
  const uint8_t* codes = panel + kLayout.scales_size(matrix.k) + first * kLayout.code_bytes;
  for (size_t i = 0; i < count; ++i, codes += kLayout.code_bytes)
    for (size_t v = 0; v < kPanelVecs; ++v) {
      const size_t to = place * kPanelVecs + v;
      unroll(std::make_integer_sequence<int, kGroups>(),
             [&](auto g) __attribute__((always_inline)) {
               constexpr int kGroup = decltype(g)::value;
               const IVec code = format.template codes<kGroup>(codes, v);
               if constexpr (kWidened<F>) {
                 uint8_t* parts = out.codes + ((i * kGroups + kGroup) * 2 * V + to) * kVecBytes;
                 store_bytes(parts, widened<0>(code));
                 store_bytes(parts + V * kVecBytes, widened<1>(code));
               } else {
                 store_bytes(out.codes + ((i * kGroups + kGroup) * V + to) * kVecBytes, code);
               }
             });
      const size_t block = first + i;
      const auto scales =
          F::Scales::at(panel + block / kLayout.scale_blocks * kLayout.scale_bytes, v);
      const size_t in_unit = block % kLayout.scale_blocks;
      for (size_t half = 0; half < F::kHalves; ++half) {
        const size_t at = ((i * F::kHalves + half) * V + to) * kLanes;
        store(out.factors + at, scales.factor(in_unit, half));
        if constexpr (F::kHasMin) store(out.minima + at, scales.minimum(in_unit, half));
      }
    }
}

// Lines that a tile asks for on behalf of the next chunk, a few with each block: asked for all at
// once they would stop the core until most have arrived.
struct Ahead {
  const uint8_t* from;
  const uint8_t* end;
  size_t per_block;  // bytes

  [[gnu::always_inline]] void fetch(size_t block) const {
    const uint8_t* line = from + block * per_block;
    const uint8_t* stop = line + per_block < end ? line + per_block : end;
    for (; line < stop; line += 64) __builtin_prefetch(line, 0, kFirstLevel);
  }
};

struct Tile {
  const Unpacked* weights;
  Ahead ahead[kTilePanels];
  BlockActivations x;  // the tile's, from the chunk's first block on
  size_t blocks;
  float* y;  // [T] rows of V * kLanes, y_stride apart
  size_t y_stride;
  bool first;  // else y holds what earlier chunks gave
};

// What a tile needs to know of a Format: its codes are unpacked, so types that agree in these share
// a function.
template <int kHalvesOf, bool kHasMinOf, int kShiftOf, int kChainOf>
struct TileFormat {
  static constexpr int kHalves = kHalvesOf, kShift = kShiftOf, kChain = kChainOf;
  static constexpr bool kHasMin = kHasMinOf;
};
template <typename F>
using TileFormatOf = TileFormat<F::kHalves, F::kHasMin, F::kShift, kHasDot4 ? 0 : F::kChain>;

template <typename F, int P, int T>
void multiply_tile(const Tile& tile) {
  constexpr int V = P * static_cast<int>(kPanelVecs);
  Vec acc[V][T];
  for (int t = 0; t < T; ++t)
    for (int v = 0; v < V; ++v)
      acc[v][t] = tile.first ? zero() : load(tile.y + t * tile.y_stride + v * kLanes);
  const Unpacked* weights = tile.weights;
  asm("" : "+r"(weights));  // else the compiler asks for the thread's buffer again in every block
  const Unpacked& w = *weights;
  for (size_t i = 0; i < tile.blocks; ++i) {
    for (int p = 0; p < P; ++p) tile.ahead[p].fetch(i);
    add_block<F, kWidened<F>>(
        [&](auto g, int v) __attribute__((always_inline)) {
          constexpr size_t kSteps = kWidened<F> ? 2 * kGroups : kGroups;
          return load_bytes(w.codes + ((i * kSteps + decltype(g)::value) * V + v) * kVecBytes);
        },
        [&](size_t half, int v) __attribute__((always_inline)) {
          return load(w.factors + ((i * F::kHalves + half) * V + v) * kLanes);
        },
        [&](size_t half, int v) __attribute__((always_inline)) {
          return load(w.minima + ((i * F::kHalves + half) * V + v) * kLanes);
        },
        tile.x, i, acc);
  }
  for (int t = 0; t < T; ++t)
    for (int v = 0; v < V; ++v) store(tile.y + t * tile.y_stride + v * kLanes, acc[v][t]);
}

// Tiles of more than kTileTokens tokens are never smaller than half of it.
template <typename F, int P>
TYTO_INLINE void multiply_tile_of(size_t tokens, const Tile& tile) {
  switch (tokens) {
    case 3:
      return multiply_tile<F, P, 3>(tile);
    case 4:
      return multiply_tile<F, P, 4>(tile);
    case 5:
      return multiply_tile<F, P, 5>(tile);
    default:
      return multiply_tile<F, P, 6>(tile);
  }
}

// A tile's planes from one of its blocks on.
TYTO_INLINE BlockActivations activations_at(const BlockActivations& all, size_t k,
                                            const TokenTile& tile, size_t block) {
  const size_t before = tile.first * (k / kBlockValues) + block * tile.count;
  return {all.codes + before * kBlockValues,
          all.wide_codes + (kHasDot4 ? 0 : before * kBlockValues),
          all.scales + before,
          all.negated_sum + before,
          all.negated_half_sums + 2 * before,
          all.scaled_sum + before};
}

// What a chunk's tiles ask for on behalf of the next one, a piece each.
struct Upcoming {
  const uint8_t* from;
  size_t bytes;

  [[gnu::always_inline]] Ahead piece(size_t index, size_t pieces, size_t blocks) const {
    const size_t lines = (bytes + 63) / 64;
    const size_t first = lines * index / pieces, end = lines * (index + 1) / pieces;
    return {from + 64 * first, from + 64 * end, 64 * ((end - first + blocks - 1) / blocks)};
  }
};

// The codes after block `block` of a panel, or the panel that will be multiplied after it.
template <DType kType, int P>
TYTO_INLINE Upcoming upcoming(const PackedMatrix& matrix, size_t panel, size_t block) {
  constexpr PackedLayout kLayout = packed_layout(kType);
  const size_t scales = kLayout.scales_size(matrix.k);
  if (block < matrix.k / kBlockValues)
    return {matrix.panel(panel) + scales + block * kLayout.code_bytes,
            kChunkBlocks * kLayout.code_bytes};
  if (panel + P >= matrix.panel_count()) return {nullptr, 0};
  return {matrix.panel(panel + P), scales + kChunkBlocks * kLayout.code_bytes};
}

// P panels times every token.
template <DType kType, int P>
TYTO_INLINE void multiply_panels(const PackedMatmul& job, size_t first_panel, float* y,
                                 size_t y_stride) {
  Unpacked& unpacked = thread_buffer();
  const PackedMatrix& matrix = *job.matrix;
  const size_t blocks = matrix.k / kBlockValues;
  const size_t tiles = token_tiles(job.tokens, kTileTokens);
  for (size_t block = 0; block < blocks; block += kChunkBlocks) {
    const size_t count = smaller(kChunkBlocks, blocks - block);
    Upcoming next[P];
    for (size_t p = 0; p < P; ++p) {
      unpack<kType, P>(matrix.panel(first_panel + p), matrix, block, count, p, unpacked);
      next[p] = upcoming<kType, P>(matrix, first_panel + p, block + count);
    }
    for (size_t i = 0; i < tiles; ++i) {
      const TokenTile tokens = token_tile(job.tokens, kTileTokens, i);
      Tile tile{&unpacked,
                {},
                activations_at(job.x, matrix.k, tokens, block),
                count,
                y + tokens.first * y_stride,
                y_stride,
                block == 0};
      for (size_t p = 0; p < P; ++p) tile.ahead[p] = next[p].piece(i, tiles, count);
      multiply_tile_of<TileFormatOf<Format<kType>>, P>(tokens.count, tile);
    }
  }
}

// The last panel may have fewer than sixteen rows: it is computed aside.
template <DType kType>
void multiply_last(const PackedMatmul& job, size_t panel) {
  multiply_panels<kType, 1>(job, panel, job.aside, kPanelRows);
  const size_t rows = job.matrix->rows - panel * kPanelRows;
  for (size_t t = 0; t < job.tokens; ++t)
    std::memcpy(job.y + t * job.y_stride + panel * kPanelRows, job.aside + t * kPanelRows,
                rows * sizeof(float));
}

template <DType kType>
void multiply_many(const PackedMatmul& job) {
  const size_t end = job.first_panel + job.panels;
  const size_t whole = smaller(end, job.matrix->rows / kPanelRows);
  size_t p = job.first_panel;
  for (; p + kTilePanels <= whole; p += kTilePanels)
    multiply_panels<kType, kTilePanels>(job, p, job.y + p * kPanelRows, job.y_stride);
  for (; p < whole; ++p) multiply_panels<kType, 1>(job, p, job.y + p * kPanelRows, job.y_stride);
  if (p < end) multiply_last<kType>(job, p);
}

template <DType kType>
void multiply_of(const PackedMatmul& job) {
  if (job.tokens <= kTileTokens)  // one pass over the codes
    multiply_directly<kType>(job);
  else
    multiply_many<kType>(job);
}

void multiply(const PackedMatmul& job) {
  switch (job.matrix->type) {
    case DType::q8_0:
      return multiply_of<DType::q8_0>(job);
    case DType::q4_0:
      return multiply_of<DType::q4_0>(job);
    case DType::q4_1:
      return multiply_of<DType::q4_1>(job);
    case DType::q5_0:
      return multiply_of<DType::q5_0>(job);
    case DType::q5_1:
      return multiply_of<DType::q5_1>(job);
    case DType::iq4_nl:
      return multiply_of<DType::iq4_nl>(job);
    case DType::iq4_xs:
      return multiply_of<DType::iq4_xs>(job);
    case DType::mxfp4:
      return multiply_of<DType::mxfp4>(job);
    case DType::q2_k:
      return multiply_of<DType::q2_k>(job);
    case DType::q3_k:
      return multiply_of<DType::q3_k>(job);
    case DType::q4_k:
      return multiply_of<DType::q4_k>(job);
    case DType::q5_k:
      return multiply_of<DType::q5_k>(job);
    case DType::q6_k:
      return multiply_of<DType::q6_k>(job);
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
    case DType::iq1_m:
      return multiply_of<kGridType>(job);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::i8:
      return;  // these have no blocks
  }
}

// Activations.
// ---------------------------------------------------------------------------------------------

TYTO_INLINE __m256i magnitude(__m256 v) {  // as integers, which order NaN above all numbers
  return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

TYTO_INLINE uint32_t largest(__m256i v) {
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

// 32 values to the nearest whole number each, in order. They lie within [-127, 127].
TYTO_INLINE __m256i to_bytes(const __m256 (&x)[4], __m256 factor) {
  __m256i words[4];
  for (int v = 0; v < 4; ++v) words[v] = _mm256_cvtps_epi32(_mm256_mul_ps(x[v], factor));
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(words[0], words[1]),
                                           _mm256_packs_epi32(words[2], words[3]));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Minus the sums of the codes, of the whole block and of its halves, as a chain of products begins
// with them: one integer, or without a dot-product instruction two of 16 bits, of values 0 and 1
// and of values 2 and 3 of each group.
struct NegatedSums {
  int32_t block, first, second;
};

TYTO_INLINE int32_t low_half(__m256i v) {
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(v));
}

TYTO_INLINE NegatedSums negated_sums(__m256i codes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);  // [8 groups][2]
  __m256i sums = kHasDot4 ? _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)) : pairs;
  const auto add = [](__m256i a, __m256i b) __attribute__((always_inline)) {
    return kHasDot4 ? _mm256_add_epi32(a, b) : _mm256_add_epi16(a, b);
  };
  sums = add(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(1, 0, 3, 2)));
  sums = add(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
  const __m256i zeros = _mm256_setzero_si256();
  sums = kHasDot4 ? _mm256_sub_epi32(zeros, sums) : _mm256_sub_epi16(zeros, sums);
  const __m256i other = _mm256_permute2x128_si256(sums, sums, 1);
  return {low_half(add(sums, other)), low_half(sums), low_half(other)};
}

// One block of one token, place t of T.
TYTO_INLINE void quantize_block(const float* in, size_t t, size_t T, const BlockActivations& out) {
  __m256 x[4];
  __m256i most_bits = _mm256_setzero_si256();
  for (int v = 0; v < 4; ++v) {
    x[v] = _mm256_loadu_ps(in + 8 * v);
    most_bits = _mm256_max_epi32(most_bits, magnitude(x[v]));
  }
  const uint32_t bits = largest(most_bits);
  float most;
  std::memcpy(&most, &bits, sizeof most);
  const float factor = most > 0 ? 127.0f / most : 0.0f;
  const __m256i codes = to_bytes(x, _mm256_set1_ps(factor));
  uint32_t groups[kGroups];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(groups), codes);
  for (size_t g = 0; g < kGroups; ++g) std::memcpy(out.codes + 4 * (g * T + t), groups + g, 4);
  if constexpr (!kHasDot4) {
    uint32_t even[kGroups], odd[kGroups];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(even), sign_extend_even(codes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(odd), sign_extend_odd(codes));
    for (size_t g = 0; g < kGroups; ++g) {
      std::memcpy(out.wide_codes + 2 * (2 * g * T + t), even + g, 4);
      std::memcpy(out.wide_codes + 2 * ((2 * g + 1) * T + t), odd + g, 4);
    }
  }
  const NegatedSums sums = negated_sums(codes);
  // A NaN or an infinity among the values must show in the results.
  constexpr uint32_t kInfinity = 0x7f800000;
  const float scale =
      bits < kInfinity ? most * (1.0f / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  out.scales[t] = scale;
  out.negated_sum[t] = sums.block;
  out.negated_half_sums[t] = sums.first;
  out.negated_half_sums[T + t] = sums.second;
  out.scaled_sum[t] = scale * static_cast<float>(whole(sums.block));
}

void quantize_tile(const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                   const BlockActivations& out) {
  for (size_t t = 0; t < tile.count; ++t)
    for (size_t block = 0; block < k / kBlockValues; ++block)
      quantize_block(x + (tile.first + t) * x_stride + block * kBlockValues, t, tile.count,
                     activations_at(out, k, tile, block));
}

constexpr PackedLoops kLoops = {kTileTokens, !kHasDot4, quantize_tile, multiply};

}  // namespace

const PackedLoops* packed_loops() {
  return &kLoops;
}

#else

const PackedLoops* packed_loops() {
  return nullptr;
}

#endif

}  // namespace tyto::cpu::TYTO_ISA
