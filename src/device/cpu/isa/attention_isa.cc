// Attention of several query rows to one split of one KV head's positions: in f32, and in integers
// where the cache has codes of eight bits. Compiled once per instruction set (see
// src/CMakeLists.txt).
//
// A split is a fixed range of positions, so that a row's result is the same whether one token asks
// or many, and whether one thread walks the splits or several share them. Inside a split positions
// come in blocks. The rows of a decode step fit one tile, which widens keys and values as it uses
// them; more rows share a block that is widened once. Both add the same values in the same order.
#include <cmath>
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/attention_cache.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
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
