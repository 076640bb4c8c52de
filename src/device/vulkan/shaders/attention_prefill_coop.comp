// Attention of many rows with cooperative matrices of f16, sums and softmax in f32. HEAD_DIM is a
// multiple of EDGE. attention_prefill.glsl says what is computed, and the constants up to 11.
// After the compiler comes spirv_rewrite: docs/decisions/011.
//
// Further constants: 12 BLOCKS: of EDGE rows, for each subgroup; the workgroup has GROUP * TILE /
// EDGE / BLOCKS subgroups, which are full. 13 LAYOUT: how this GPU's matrices lie in
// registers, as coop_layout.comp says; 0: weights go through shared memory, right on any GPU.
// 1000 .. 1003: EDGE, the rows and columns of all matrices, four times, as their numbers tell
// spirv_rewrite what each is used for. Without LAYOUT TILE * GROUP <= 2 * KEYS.
// Shared memory: 2 * KEYS * (HEAD_DIM / 8 + 1) * 16 bytes, with LAYOUT twice that, and without it for
// each subgroup EDGE * (KEYS + 4) * 4 + EDGE * (KEYS + 8) * 2 + EDGE * EDGE * 4 + EDGE * BLOCKS * 8
// more.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model
#include "attention_prefill.glsl"
#include "coop_layout.glsl"

layout(constant_id = 12) const uint BLOCKS = 1;
layout(constant_id = 13) const uint LAYOUT = 0;
layout(constant_id = 1000) const uint ROWS_OF_A = 16;
layout(constant_id = 1001) const uint DEPTH = 16;
layout(constant_id = 1002) const uint ROWS_OF_SUMS = 16;
layout(constant_id = 1003) const uint COLUMNS = 16;
#define MATRIX_A fcoopmatNV<16, gl_ScopeSubgroup, ROWS_OF_A, DEPTH>
#define MATRIX_B fcoopmatNV<16, gl_ScopeSubgroup, DEPTH, COLUMNS>
#define MATRIX_SUMS fcoopmatNV<32, gl_ScopeSubgroup, ROWS_OF_SUMS, COLUMNS>

const uint EDGE = ROWS_OF_A;
const uint PIECES = HEAD_DIM / 8;  // pieces of a row, in words of a uvec4
const uint STRIDE = PIECES + 1;    // rows begin in different banks
const uint KEY_BLOCKS = KEYS / EDGE;
const uint DIM_BLOCKS = HEAD_DIM / EDGE;
const uint SUBGROUPS = GROUP * TILE / (EDGE * BLOCKS);
const uint LOADS = (KEYS * PIECES + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint ELEMENTS = 8;  // elements of a matrix in each thread (LAYOUT)

// With LAYOUT two blocks take turns, so that one is filled while slow threads still read the other.
const uint BUFFERS = LAYOUT != 0 ? 2 : 1;
shared uvec4 tiles[BUFFERS * 2 * KEYS * STRIDE];  // keys, then values; without LAYOUT at first q

// Without LAYOUT, for each subgroup. All sizes are multiples of 16 bytes, as matrices are loaded
// from addresses that are.
const uint ASIDE = LAYOUT != 0 ? 0 : SUBGROUPS;
const uint SCORES_STRIDE = KEYS + 4, WEIGHTS_STRIDE = KEYS / 8 + 1;
shared float scores_aside[ASIDE * EDGE * SCORES_STRIDE + 4];
shared uvec4 weights_aside[ASIDE * EDGE * WEIGHTS_STRIDE + 1];
shared float divisors_aside[ASIDE * EDGE * EDGE + 4];

uvec4 next_k[LOADS], next_v[LOADS];
MATRIX_A query[BLOCKS * DIM_BLOCKS];
MATRIX_A weights[BLOCKS * KEY_BLOCKS];
MATRIX_SUMS scores[BLOCKS * KEY_BLOCKS];
MATRIX_SUMS sums[BLOCKS * DIM_BLOCKS];
float largest[BLOCKS * ELEMENTS], total[BLOCKS * ELEMENTS];  // LAYOUT: by row_of_thread

// Eight values of a cache's row as f16.
uvec4 load_piece(Words cache, uint row, uint piece) {
  if (CACHE == F16) return WordQuads(cache).at[row * PIECES + piece];
  vec4 low, high;
  if (CACHE == F32) {
    low = Quads(cache).at[(row * PIECES + piece) * 2];
    high = Quads(cache).at[(row * PIECES + piece) * 2 + 1];
  } else {
    const uvec4 words = WordQuads(cache).at[row * PIECES + piece];
    low = vec4(unpack16(words.x, CACHE), unpack16(words.y, CACHE));
    high = vec4(unpack16(words.z, CACHE), unpack16(words.w, CACHE));
  }
  return uvec4(pack16(saturated(low.xy, F16), F16), pack16(saturated(low.zw, F16), F16),
               pack16(saturated(high.xy, F16), F16), pack16(saturated(high.zw, F16), F16));
}

// A thread's share of a block, whose first row is `first_row`. Where blocks do not cross pages that
// says where all of it is.
void fetch(Work work, uint first_key, uint first_row) {
  const uint most = work.keys - 1 - first_key;
  const uint least = work.first_key > first_key ? work.first_key - first_key : 0;
  uint rows[LOADS];
  [[unroll]] for (uint i = 0; i < LOADS; ++i) {
    const uint key = min((i * gl_WorkGroupSize.x + gl_LocalInvocationID.x) / PIECES, KEYS - 1);
    rows[i] = PAGE % KEYS == 0 ? first_row + clamp(key, least, most) : key_row(work, first_key + key);
  }
  const uint piece = gl_LocalInvocationID.x;
  [[unroll]] for (uint i = 0; i < LOADS; ++i)
    next_k[i] = load_piece(k_cache, rows[i], (i * gl_WorkGroupSize.x + piece) % PIECES);
  [[unroll]] for (uint i = 0; i < LOADS; ++i)
    next_v[i] = load_piece(v_cache, rows[i], (i * gl_WorkGroupSize.x + piece) % PIECES);
}

void put(uint buffer_at) {
  [[unroll]] for (uint i = 0; i < LOADS; ++i) {
    const uint at = i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (at >= KEYS * PIECES) continue;
    const uint to = buffer_at + at / PIECES * STRIDE + at % PIECES;
    tiles[to] = next_k[i];
    tiles[KEYS * STRIDE + to] = next_v[i];
  }
}

void load_queries(Work work) {
  for (uint i = gl_LocalInvocationID.x; i < GROUP * TILE * PIECES; i += gl_WorkGroupSize.x) {
    const uint row = i / PIECES, piece = i % PIECES;
    const uint from = (q_base(work, row / TILE, row % TILE) + 8 * piece) / 4;
    const vec4 low = Quads(q).at[from] * score_scale(), high = Quads(q).at[from + 1] * score_scale();
    tiles[row * STRIDE + piece] =
        uvec4(pack16(saturated(low.xy, F16), F16), pack16(saturated(low.zw, F16), F16),
              pack16(saturated(high.xy, F16), F16), pack16(saturated(high.zw, F16), F16));
  }
  barrier();
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS; ++i) {
    const uint row = (gl_SubgroupID * BLOCKS + i / DIM_BLOCKS) * EDGE;
    coopMatLoadNV(query[i], tiles, row * STRIDE + i % DIM_BLOCKS * EDGE / 8, STRIDE, false);
  }
  barrier();
}

uint element_row(uint element) {
  return number_in_matrix(LAYOUT, gl_SubgroupInvocationID, element) / 16;
}

uint element_column(uint element) {
  return number_in_matrix(LAYOUT, gl_SubgroupInvocationID, element) % 16;
}

void load_queries_into_registers(Work work) {
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS * ELEMENTS; i += 2) {
    const uint matrix = i / ELEMENTS, e = i % ELEMENTS;
    const uint row = (gl_SubgroupID * BLOCKS + matrix / DIM_BLOCKS) * EDGE + element_row(e);
    const uint d = matrix % DIM_BLOCKS * EDGE + element_column(e);
    const uvec2 pair = WordPairs(q).at[(q_base(work, row / TILE, row % TILE) + d) / 2];
    const vec2 scaled = saturated(uintBitsToFloat(pair) * score_scale(), F16);
    const f16vec2 value = unpackFloat2x16(packHalf2x16(scaled));
    query[matrix][e] = value.x;
    query[matrix][e + 1] = value.y;
  }
}

void multiply_keys(uint buffer_at) {
  [[unroll]] for (uint j = 0; j < KEY_BLOCKS; ++j) {
    [[unroll]] for (uint b = 0; b < BLOCKS; ++b) scores[b * KEY_BLOCKS + j] = MATRIX_SUMS(0.0);
    [[unroll]] for (uint n = 0; n < DIM_BLOCKS; ++n) {
      MATRIX_B keys;
      coopMatLoadNV(keys, tiles, buffer_at + j * EDGE * STRIDE + n * EDGE / 8, STRIDE, true);
      [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
        scores[b * KEY_BLOCKS + j] =
            coopMatMulAddNV(query[b * DIM_BLOCKS + n], keys, scores[b * KEY_BLOCKS + j]);
    }
  }
}

void multiply_values(uint buffer_at) {
  [[unroll]] for (uint j = 0; j < KEY_BLOCKS; ++j)
    [[unroll]] for (uint n = 0; n < DIM_BLOCKS; ++n) {
      MATRIX_B values;
      const uint from = buffer_at + (KEYS + j * EDGE) * STRIDE + n * EDGE / 8;
      coopMatLoadNV(values, tiles, from, STRIDE, false);
      [[unroll]] for (uint b = 0; b < BLOCKS; ++b)
        sums[b * DIM_BLOCKS + n] =
            coopMatMulAddNV(weights[b * KEY_BLOCKS + j], values, sums[b * DIM_BLOCKS + n]);
    }
}

// The head, of the workgroup's, that a subgroup's block is of.
uint head_of_block(uint block) {
  return (gl_SubgroupID * BLOCKS + block) * EDGE / TILE;
}

// The tile's row that a subgroup's block begins with.
uint block_row(uint block) {
  return (gl_SubgroupID * BLOCKS + block) * EDGE % TILE;
}

void bound_scores() {
  [[unroll]] for (uint i = 0; i < BLOCKS * KEY_BLOCKS * ELEMENTS; ++i)
    scores[i / ELEMENTS][i % ELEMENTS] = bounded_score(scores[i / ELEMENTS][i % ELEMENTS]);
}

void mask(Work work, uint first_key) {
  [[unroll]] for (uint i = 0; i < BLOCKS * KEY_BLOCKS * ELEMENTS; ++i) {
    const uint matrix = i / ELEMENTS, e = i % ELEMENTS;
    const uint key = first_key + matrix % KEY_BLOCKS * EDGE + element_column(e);
    if (!sees(work.position + block_row(matrix / KEY_BLOCKS) + element_row(e), key)) scores[matrix][e] = LOWEST;
  }
}

float largest_of_row(float value) {
  [[unroll]] for (uint bit = 0; bit < 5; ++bit)
    if (shares_rows(LAYOUT, bit)) value = max(value, subgroupShuffleXor(value, 1 << bit));
  return value;
}

float sum_of_row(float value) {
  [[unroll]] for (uint bit = 0; bit < 5; ++bit)
    if (shares_rows(LAYOUT, bit)) value += subgroupShuffleXor(value, 1 << bit);
  return value;
}

// Which of a thread's rows an element of a block's matrices is in.
uint row_slot(uint block, uint element) {
  return block * ELEMENTS + row_of_thread(LAYOUT, element);
}

// Scores to weights in registers. A thread's `total` is of its own elements until the end. Loops
// are flat: in nested ones the driver of NVIDIA tends to put matrices into memory.
void weigh_in_registers() {
  float now[BLOCKS * ELEMENTS], kept[BLOCKS * ELEMENTS];
  [[unroll]] for (uint i = 0; i < BLOCKS * ELEMENTS; ++i) now[i] = largest[i];
  [[unroll]] for (uint i = 0; i < BLOCKS * KEY_BLOCKS * ELEMENTS; ++i) {
    const uint slot = row_slot(i / ELEMENTS / KEY_BLOCKS, i % ELEMENTS);
    now[slot] = max(now[slot], scores[i / ELEMENTS][i % ELEMENTS]);
  }
  [[unroll]] for (uint i = 0; i < BLOCKS * ELEMENTS; ++i) {
    if (row_slot(i / ELEMENTS, i % ELEMENTS) == i) now[i] = largest_of_row(now[i]);
    kept[i] = exp2(largest[i] - now[i]);
    largest[i] = now[i];
    total[i] *= kept[i];
  }
  [[unroll]] for (uint i = 0; i < BLOCKS * KEY_BLOCKS * ELEMENTS; i += 2) {
    const uint matrix = i / ELEMENTS, e = i % ELEMENTS, slot = row_slot(matrix / KEY_BLOCKS, e);
    const vec2 weight = exp2(vec2(scores[matrix][e], scores[matrix][e + 1]) - now[slot]);
    total[slot] += weight.x + weight.y;
    const f16vec2 narrow = unpackFloat2x16(packHalf2x16(weight));
    weights[matrix][e] = narrow.x;
    weights[matrix][e + 1] = narrow.y;
  }
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS * ELEMENTS; ++i)
    sums[i / ELEMENTS][i % ELEMENTS] *= kept[row_slot(i / ELEMENTS / DIM_BLOCKS, i % ELEMENTS)];
}

void write_from_registers(Work work) {
  [[unroll]] for (uint i = 0; i < BLOCKS * ELEMENTS; ++i)
    total[i] = sum_of_row(total[i]) + sink_weight(head_of_block(i / ELEMENTS), largest[i]);
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS * ELEMENTS; i += 2) {
    const uint matrix = i / ELEMENTS, e = i % ELEMENTS, b = matrix / DIM_BLOCKS;
    const vec2 value = vec2(sums[matrix][e], sums[matrix][e + 1]) / total[row_slot(b, e)];
    write_pair(work, head_of_block(b), block_row(b) + element_row(e),
               matrix % DIM_BLOCKS * EDGE + element_column(e), value);
  }
}

void wait_for_subgroup() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// The same through shared memory, where it is known which element is which. A thread has rows
// `lane`, `lane + size` ... of a block.
shared float largest_aside[ASIDE * BLOCKS * EDGE + 4], total_aside[ASIDE * BLOCKS * EDGE + 4];

void weigh_aside(Work work, uint first_key) {
  const uint at = gl_SubgroupID * EDGE * SCORES_STRIDE, to = gl_SubgroupID * EDGE * WEIGHTS_STRIDE;
  const uint divisors_at = gl_SubgroupID * EDGE * EDGE;
  [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
    [[unroll]] for (uint j = 0; j < KEY_BLOCKS; ++j)
      coopMatStoreNV(scores[b * KEY_BLOCKS + j], scores_aside, at + j * EDGE, SCORES_STRIDE, false);
    wait_for_subgroup();
    for (uint row = gl_SubgroupInvocationID; row < EDGE; row += gl_SubgroupSize) {
      const uint of_row = (gl_SubgroupID * BLOCKS + b) * EDGE + row;
      const uint position = work.position + block_row(b) + row;
      float now = largest_aside[of_row];
      for (uint i = 0; i < KEYS; ++i)
        if (sees(position, first_key + i))
          now = max(now, bounded_score(scores_aside[at + row * SCORES_STRIDE + i]));
      const float kept = exp2(largest_aside[of_row] - now);
      float sum = 0;
      for (uint piece = 0; piece < KEYS / 8; ++piece) {
        uvec4 packed;
        for (uint w = 0; w < 4; ++w) {
          vec2 weight = vec2(0);
          for (uint i = 0; i < 2; ++i) {
            const uint key = piece * 8 + w * 2 + i;
            if (sees(position, first_key + key))
              weight[i] = exp2(bounded_score(scores_aside[at + row * SCORES_STRIDE + key]) - now);
          }
          sum += weight.x + weight.y;
          packed[w] = packHalf2x16(weight);
        }
        weights_aside[to + row * WEIGHTS_STRIDE + piece] = packed;
      }
      // Matrices are divided element by element, not multiplied; 0 / inf is right at the beginning.
      for (uint i = 0; i < EDGE; ++i) divisors_aside[divisors_at + row * EDGE + i] = exp2(now - largest_aside[of_row]);
      largest_aside[of_row] = now;
      total_aside[of_row] = total_aside[of_row] * kept + sum;
    }
    wait_for_subgroup();
    MATRIX_SUMS divisor;
    coopMatLoadNV(divisor, divisors_aside, divisors_at, EDGE, false);
    [[unroll]] for (uint n = 0; n < DIM_BLOCKS; ++n)
      sums[b * DIM_BLOCKS + n] = sums[b * DIM_BLOCKS + n] / divisor;
    [[unroll]] for (uint j = 0; j < KEY_BLOCKS; ++j)
      coopMatLoadNV(weights[b * KEY_BLOCKS + j], weights_aside, to + j * EDGE / 8, WEIGHTS_STRIDE, false);
    wait_for_subgroup();
  }
}

void write_from_aside(Work work) {
  const uint at = gl_SubgroupID * EDGE * SCORES_STRIDE;
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS; ++i) {
    const uint b = i / DIM_BLOCKS, head = head_of_block(b);
    wait_for_subgroup();
    coopMatStoreNV(sums[i], scores_aside, at, SCORES_STRIDE, false);
    wait_for_subgroup();
    for (uint pair = gl_SubgroupInvocationID; pair < EDGE * EDGE / 2; pair += gl_SubgroupSize) {
      const uint row = pair / (EDGE / 2), column = pair % (EDGE / 2) * 2, from = at + row * SCORES_STRIDE + column;
      const uint of_row = (gl_SubgroupID * BLOCKS + b) * EDGE + row;
      write_pair(work, head, block_row(b) + row, i % DIM_BLOCKS * EDGE + column,
                 vec2(scores_aside[from], scores_aside[from + 1]) /
                     (total_aside[of_row] + sink_weight(head, largest_aside[of_row])));
    }
  }
}

// The row in the cache where a block of keys begins, if blocks do not cross pages: as much before
// the first key that is seen as the block is.
uint block_row_of(Work work, uint first_key) {
  return key_row(work, first_key) - (max(first_key, work.first_key) - first_key);
}

// The first row of the block after the next, looked up that early: its keys are fetched without a
// wait for the page.
uint row_ahead(Work work, uint first_key) {
  return key_row(work, min(first_key, work.keys - 1));
}

void main() {
  const Work work = work_of_workgroup();
  if (work.tile.rows == 0) return;
  const uint begin = work.first_key / KEYS * KEYS;
  fetch(work, begin, block_row_of(work, begin));
  uint next_row = row_ahead(work, begin + KEYS);
  if (LAYOUT != 0) load_queries_into_registers(work);
  else load_queries(work);
  [[unroll]] for (uint i = 0; i < BLOCKS * ELEMENTS; ++i) {
    largest[i] = LOWEST;
    total[i] = 0;
  }
  [[unroll]] for (uint i = 0; i < BLOCKS * DIM_BLOCKS; ++i) sums[i] = MATRIX_SUMS(0.0);
  if (LAYOUT == 0)
    for (uint i = gl_LocalInvocationID.x; i < ASIDE * BLOCKS * EDGE; i += gl_WorkGroupSize.x) {
      largest_aside[i] = LOWEST;
      total_aside[i] = 0;
    }

  uint buffer_at = 0;
  for (uint first_key = begin; first_key < work.keys; first_key += KEYS) {
    put(buffer_at);
    barrier();
    if (first_key + KEYS < work.keys) {
      fetch(work, first_key + KEYS, next_row);
      next_row = row_ahead(work, first_key + 2 * KEYS);
    }
    multiply_keys(buffer_at);
    if (LAYOUT != 0) {
      if (CAP != 0) bound_scores();
      if (first_key + KEYS > work.position + 1 ||
          (WINDOW != 0 && first_key + WINDOW < work.position + TILE))
        mask(work, first_key);
      weigh_in_registers();
    } else {
      weigh_aside(work, first_key);
    }
    multiply_values(buffer_at);
    if (BUFFERS == 1) barrier();
    else buffer_at = 2 * KEYS * STRIDE - buffer_at;
  }
  if (LAYOUT != 0) write_from_registers(work);
  else write_from_aside(work);
}
