// Attention of many rows in f32, for GPUs without cooperative matrices and for heads of any size.
// attention_prefill.glsl says what is computed, and the constants up to 11; GROUP is 1.
//
// Further constants: 12 ROWS, 13 COLUMNS: of a block's scores, for each thread. The workgroup is
// TILE / ROWS by KEYS / COLUMNS threads. A thread then has the same rows of the sums, and every
// (KEYS / COLUMNS)-th dimension.
// Shared memory: ((TILE + KEYS) * (HEAD_DIM + 1) + TILE * (KEYS + 1)) * 4 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "attention_prefill.glsl"

layout(constant_id = 12) const uint ROWS = 2;
layout(constant_id = 13) const uint COLUMNS = 4;

const uint ACROSS = KEYS / COLUMNS;  // threads that share rows
const uint DIMS = (HEAD_DIM + ACROSS - 1) / ACROSS;
const uint STRIDE = HEAD_DIM + 1, SCORES_STRIDE = KEYS + 1;  // rows begin in different banks

shared float queries[TILE * STRIDE];
shared float cached[KEYS * STRIDE];  // keys, then values
shared float scores[TILE * SCORES_STRIDE];

uint column() {
  return gl_LocalInvocationID.x % ACROSS;
}

uint first_row() {
  return gl_LocalInvocationID.x / ACROSS * ROWS;
}

void load_queries(Work work) {
  for (uint i = gl_LocalInvocationID.x; i < TILE * HEAD_DIM; i += gl_WorkGroupSize.x) {
    const uint row = i / HEAD_DIM, d = i % HEAD_DIM;
    queries[row * STRIDE + d] = q.at[q_base(work, 0, row) + d] * score_scale();
  }
}

void load_cached(Words cache, Work work, uint first_key) {
  for (uint i = gl_LocalInvocationID.x; i < KEYS * HALF; i += gl_WorkGroupSize.x) {
    const uint key = i / HALF, pair = i % HALF, row = key_row(work, first_key + key);
    const vec2 value = CACHE == F32 ? uintBitsToFloat(uvec2(cache.at[row * HEAD_DIM + 2 * pair],
                                                            cache.at[row * HEAD_DIM + 2 * pair + 1]))
                                    : unpack16(cache.at[row * HALF + pair], CACHE);
    cached[key * STRIDE + 2 * pair] = value.x;
    cached[key * STRIDE + 2 * pair + 1] = value.y;
  }
}

// A thread's own.
struct Scores {
  float at[ROWS * COLUMNS];
};

struct Sums {
  float largest[ROWS], total[ROWS], values[ROWS * DIMS];
};

void multiply_keys(Work work, uint first_key, out Scores own) {
  [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; ++i) own.at[i] = 0;
  for (uint d = 0; d < HEAD_DIM; ++d) {
    float key[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) key[c] = cached[(c * ACROSS + column()) * STRIDE + d];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      const float query = queries[(first_row() + r) * STRIDE + d];
      [[unroll]] for (uint c = 0; c < COLUMNS; ++c) own.at[r * COLUMNS + c] += query * key[c];
    }
  }
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
      const uint key = first_key + c * ACROSS + column();
      own.at[r * COLUMNS + c] = sees(work.position + first_row() + r, key)
                                    ? bounded_score(own.at[r * COLUMNS + c])
                                    : LOWEST;
    }
}

void put_scores(Scores own) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r)
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
      scores[(first_row() + r) * SCORES_STRIDE + c * ACROSS + column()] = own.at[r * COLUMNS + c];
}

// Scores become weights with respect to the largest score so far, and sums go with it.
void weigh(inout Scores own, inout Sums sums) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    float largest = sums.largest[r];
    for (uint i = 0; i < KEYS; ++i)
      largest = max(largest, scores[(first_row() + r) * SCORES_STRIDE + i]);
    const float kept = exp2(sums.largest[r] - largest);
    sums.largest[r] = largest;
    sums.total[r] *= kept;
    [[unroll]] for (uint i = 0; i < DIMS; ++i) sums.values[r * DIMS + i] *= kept;
    [[unroll]] for (uint c = 0; c < COLUMNS; ++c)
      own.at[r * COLUMNS + c] = exp2(own.at[r * COLUMNS + c] - largest);
  }
}

void multiply_values(inout Sums sums) {
  for (uint key = 0; key < KEYS; ++key) {
    float weights[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
      weights[r] = scores[(first_row() + r) * SCORES_STRIDE + key];
      sums.total[r] += weights[r];
    }
    [[unroll]] for (uint i = 0; i < DIMS; ++i) {
      const uint d = i * ACROSS + column();
      const float value = d < HEAD_DIM ? cached[key * STRIDE + d] : 0;
      [[unroll]] for (uint r = 0; r < ROWS; ++r) sums.values[r * DIMS + i] += weights[r] * value;
    }
  }
}

// Pairs of dimensions are two threads' until they are in shared memory.
void write_sums(Work work, Sums sums) {
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    const float total = sums.total[r] + sink_weight(0, sums.largest[r]);
    [[unroll]] for (uint i = 0; i < DIMS; ++i) {
      const uint d = i * ACROSS + column();
      if (d < HEAD_DIM) queries[(first_row() + r) * STRIDE + d] = sums.values[r * DIMS + i] / total;
    }
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < TILE * HALF; i += gl_WorkGroupSize.x) {
    const uint row = i / HALF, d = i % HALF * 2;
    write_pair(work, 0, row, d, vec2(queries[row * STRIDE + d], queries[row * STRIDE + d + 1]));
  }
}

void main() {
  const Work work = work_of_workgroup();
  if (work.tile.rows == 0) return;
  load_queries(work);
  Sums sums;
  [[unroll]] for (uint r = 0; r < ROWS; ++r) {
    sums.largest[r] = LOWEST;
    sums.total[r] = 0;
  }
  [[unroll]] for (uint i = 0; i < ROWS * DIMS; ++i) sums.values[i] = 0;

  for (uint first_key = work.first_key / KEYS * KEYS; first_key < work.keys; first_key += KEYS) {
    load_cached(k_cache, work, first_key);
    barrier();
    Scores own;
    multiply_keys(work, first_key, own);
    put_scores(own);
    barrier();
    weigh(own, sums);
    load_cached(v_cache, work, first_key);
    barrier();
    put_scores(own);
    barrier();
    multiply_values(sums);
    barrier();
  }
  write_sums(work, sums);
}
