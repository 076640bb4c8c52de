// Attention of several query rows to one split of one KV head's positions, in f32. Compiled once
// per instruction set (see src/CMakeLists.txt).
//
// A split is a fixed range of positions, so that a row's result is the same whether one token asks
// or many, and whether one thread walks the splits or several share them. Inside a split positions
// come in blocks, widened once and used by every row: keys transposed, so that a lane is a position
// and no sum across lanes is needed, values as they lie.
#include <cmath>
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
namespace {

constexpr size_t kBlockPositions = 32;
constexpr size_t kPositionVecs = 2;  // of scores computed side by side
constexpr size_t kTileRows = 4;
constexpr size_t kValueVecs = 2;  // of a value row accumulated side by side

static_assert(kSplitPositions % kBlockPositions == 0 &&
              kBlockPositions % (kPositionVecs * kLanes) == 0);

TYTO_INLINE size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

// Reading a cache's rows.
// ---------------------------------------------------------------------------------------------

struct F32Cache {
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
  TYTO_INLINE size_t row_bytes(size_t head_dim) { return 2 * head_dim; }
  TYTO_INLINE Vec load_at(const uint8_t* row, size_t column) { return load_f16(row + 2 * column); }
  TYTO_INLINE float value_at(const uint8_t* row, size_t column) {
    _Float16 value;
    std::memcpy(&value, row + 2 * column, sizeof value);
    return static_cast<float>(value);
  }
};

// Blocks of 34 bytes: an f16 scale, 32 codes.
struct Q8Cache {
  TYTO_INLINE size_t row_bytes(size_t head_dim) { return head_dim / 32 * 34; }
  TYTO_INLINE float scale_of(const uint8_t* block) {
    _Float16 scale;
    std::memcpy(&scale, block, sizeof scale);
    return static_cast<float>(scale);
  }
  TYTO_INLINE Vec load_at(const uint8_t* row, size_t column) {
    const uint8_t* block = row + column / 32 * 34;
    return mul(load_s8(block + 2 + column % 32), broadcast(scale_of(block)));
  }
  TYTO_INLINE float value_at(const uint8_t* row, size_t column) {
    const uint8_t* block = row + column / 32 * 34;
    return scale_of(block) * static_cast<float>(static_cast<int8_t>(block[2 + column % 32]));
  }
};

// out[column][position] of `count` rows; the positions up to kBlockPositions become zero.
template <typename Cache>
TYTO_INLINE void transpose_block(const uint8_t* rows, size_t head_dim, size_t count, float* out) {
  const size_t stride = Cache::row_bytes(head_dim);
  for (size_t p = 0; p < kBlockPositions; p += kLanes) {
    if (p >= count) {
      for (size_t column = 0; column < head_dim; ++column)
        store(out + column * kBlockPositions + p, zero());
      continue;
    }
    size_t column = 0;
    for (; column + kLanes <= head_dim; column += kLanes) {
      Vec square[kLanes];
      for (size_t i = 0; i < kLanes; ++i)
        square[i] = p + i < count ? Cache::load_at(rows + (p + i) * stride, column) : zero();
      transpose(square);
      for (size_t i = 0; i < kLanes; ++i)
        store(out + (column + i) * kBlockPositions + p, square[i]);
    }
    for (; column < head_dim; ++column)
      for (size_t i = 0; i < kLanes; ++i)
        out[column * kBlockPositions + p + i] =
            p + i < count ? Cache::value_at(rows + (p + i) * stride, column) : 0.0f;
  }
}

// out[position][column], each row filled up with zeros to padded_dim.
template <typename Cache>
TYTO_INLINE void widen_block(const uint8_t* rows, size_t head_dim, size_t padded_dim, size_t count,
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

// Scores and weighted sums, R rows at a time.
// ---------------------------------------------------------------------------------------------

// scores[row][position] = q[row] . key of one block's positions.
template <int R>
TYTO_INLINE void score_rows(const float* q, size_t head_dim, const float* keys, float* scores) {
  for (size_t p = 0; p < kBlockPositions; p += kPositionVecs * kLanes) {
    Vec acc[R][kPositionVecs];
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < kPositionVecs; ++v) acc[r][v] = zero();
    for (size_t column = 0; column < head_dim; ++column) {
      Vec key[kPositionVecs];
      for (size_t v = 0; v < kPositionVecs; ++v)
        key[v] = load(keys + column * kBlockPositions + p + v * kLanes);
      for (int r = 0; r < R; ++r) {
        const Vec value = broadcast(q[r * head_dim + column]);
        for (size_t v = 0; v < kPositionVecs; ++v) acc[r][v] = fma(value, key[v], acc[r][v]);
      }
    }
    for (int r = 0; r < R; ++r)
      for (size_t v = 0; v < kPositionVecs; ++v)
        store(scores + r * kSplitPositions + p + v * kLanes, acc[r][v]);
  }
}

// out[row] += weights[row][position] * value of one block's positions, in their order.
template <int R, int V>
TYTO_INLINE void mix_columns(const float* weights, const float* values, size_t padded_dim,
                             size_t count, float* out) {
  Vec acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) acc[r][v] = load(out + r * padded_dim + v * kLanes);
  for (size_t p = 0; p < count; ++p) {
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = load(values + p * padded_dim + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec weight = broadcast(weights[r * kSplitPositions + p]);
      for (int v = 0; v < V; ++v) acc[r][v] = fma(weight, value[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(out + r * padded_dim + v * kLanes, acc[r][v]);
}

template <int R>
TYTO_INLINE void mix_rows(const float* weights, const float* values, size_t padded_dim,
                          size_t count, float* out) {
  size_t column = 0;
  for (; column + kValueVecs * kLanes <= padded_dim; column += kValueVecs * kLanes)
    mix_columns<R, kValueVecs>(weights, values + column, padded_dim, count, out + column);
  for (; column < padded_dim; column += kLanes)
    mix_columns<R, 1>(weights, values + column, padded_dim, count, out + column);
}

struct SoftmaxParts {
  float largest;
  float total;
};

// Softmax but for the division by the total: scores of the first `seen` positions become
// exp(score - largest), the others zero.
TYTO_INLINE SoftmaxParts exp_scores(float* scores, size_t seen) {
  const size_t padded = (seen + kLanes - 1) / kLanes * kLanes;
  for (size_t p = seen; p < padded; ++p) scores[p] = scores[0];
  Vec most = load(scores);
  for (size_t p = kLanes; p < padded; p += kLanes) most = max(most, load(scores + p));
  const float largest_score = largest(most);
  const Vec shift = broadcast(largest_score);
  for (size_t p = 0; p < padded; p += kLanes) store(scores + p, exp(sub(load(scores + p), shift)));
  for (size_t p = seen; p < kSplitPositions; ++p) scores[p] = 0.0f;
  Vec total = load(scores);
  for (size_t p = kLanes; p < padded; p += kLanes) total = add(total, load(scores + p));
  return {largest_score, sum(total)};
}

// How many of the split's positions a row sees.
TYTO_INLINE size_t seen_by(const AttentionSplit& job, size_t row) {
  const size_t limit = job.position + row / job.group + 1;
  return limit > job.first ? smaller(limit - job.first, kSplitPositions) : 0;
}

template <typename Cache>
TYTO_INLINE void attend_of(const AttentionSplit& job) {
  const size_t dim = job.head_dim, rows = job.rows;
  const size_t padded_dim = attention_padded(dim);
  const size_t stride = Cache::row_bytes(dim);
  const size_t positions = seen_by(job, rows - 1);  // the last row sees the most
  const uint8_t* keys = static_cast<const uint8_t*>(job.k);
  const uint8_t* values = static_cast<const uint8_t*>(job.v);
  float* block = job.scratch;                            // of keys, then of values
  float* scores = block + kBlockPositions * padded_dim;  // [row][kSplitPositions]
  for (size_t p = 0; p < positions; p += kBlockPositions) {
    transpose_block<Cache>(keys + p * stride, dim, smaller(kBlockPositions, positions - p), block);
    size_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows)
      score_rows<kTileRows>(job.q + r * dim, dim, block, scores + r * kSplitPositions + p);
    for (; r < rows; ++r)
      score_rows<1>(job.q + r * dim, dim, block, scores + r * kSplitPositions + p);
  }
  for (size_t r = 0; r < rows; ++r) {
    const size_t seen = seen_by(job, r);
    job.out.largest[r] = -INFINITY;
    job.out.total[r] = 0;
    if (seen == 0) {
      std::memset(scores + r * kSplitPositions, 0, kSplitPositions * sizeof(float));
    } else {
      const SoftmaxParts found = exp_scores(scores + r * kSplitPositions, seen);
      job.out.largest[r] = found.largest;
      job.out.total[r] = found.total;
    }
  }
  std::memset(job.out.mixed, 0, rows * padded_dim * sizeof(float));
  for (size_t p = 0; p < positions; p += kBlockPositions) {
    const size_t count = smaller(kBlockPositions, positions - p);
    widen_block<Cache>(values + p * stride, dim, padded_dim, count, block);
    size_t r = 0;
    for (; r + kTileRows <= rows; r += kTileRows)
      mix_rows<kTileRows>(scores + r * kSplitPositions + p, block, padded_dim, count,
                          job.out.mixed + r * padded_dim);
    for (; r < rows; ++r)
      mix_rows<1>(scores + r * kSplitPositions + p, block, padded_dim, count,
                  job.out.mixed + r * padded_dim);
  }
}

void attend(const AttentionSplit& job) {
  switch (job.kv_type) {
    case DType::f32:
      return attend_of<F32Cache>(job);
    case DType::f16:
      return attend_of<F16Cache>(job);
    case DType::q8_0:
      return attend_of<Q8Cache>(job);
    default:
      return;  // the interpreter widens others
  }
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
    if (first) {
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
