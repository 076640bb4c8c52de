// Products of many rows with cooperative matrices: gemm.glsl says what is computed, this file how.
// variants: gemm_coop_bf16=-DTYPE_BF16; gemm_coop_f16=-DTYPE_F16; gemm_coop_q8_0=-DTYPE_Q8_0; gemm_coop_q4_0=-DTYPE_Q4_0; gemm_coop_q4_k=-DTYPE_Q4_K; gemm_coop_q6_k=-DTYPE_Q6_K; gemm_coop_i8=-DTYPE_I8; gemm_coop_q4_1=-DTYPE_Q4_1; gemm_coop_q5_0=-DTYPE_Q5_0; gemm_coop_q5_1=-DTYPE_Q5_1; gemm_coop_q2_k=-DTYPE_Q2_K; gemm_coop_q3_k=-DTYPE_Q3_K; gemm_coop_q5_k=-DTYPE_Q5_K; gemm_coop_iq4_nl=-DTYPE_IQ4_NL; gemm_coop_iq4_xs=-DTYPE_IQ4_XS; gemm_coop_mxfp4=-DTYPE_MXFP4
// After the compiler comes spirv_rewrite (for gemm_coop_bf16 with --bf16): docs/decisions/011.
//
// Operands are 16-bit: bf16 for bf16 weights, f16 for all others, which are unpacked on their way to shared memory.
// Sums are f32. Further specialization constants, beyond gemm.glsl's:
//   8 WM, 9 WN: a subgroup's part of the tile. THREADS is (BM / WM) * (BN / WN) subgroups, which are full.
//   1000 and 1002 rows of a matrix of x and of sums, 1001 depth, 1003 columns; their numbers tell spirv_rewrite what
//   each matrix is used for
// Shared memory: max((BM + BN) * (BK / 8 + 1), subgroups * (with a gate 2) * 16 * 5) * 16 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#pragma use_vulkan_memory_model

#include "gemm.glsl"
#include "gemm_weights.glsl"

layout(constant_id = 8) const uint WM = 32;
layout(constant_id = 9) const uint WN = 32;
layout(constant_id = 1000) const uint CM = 16;
layout(constant_id = 1001) const uint CK = 16;
layout(constant_id = 1002) const uint CM_OF_SUMS = 16;
layout(constant_id = 1003) const uint CN = 16;

// Eight values are a uvec4. One more than needed per row: eight rows then begin in eight different groups of banks.
const uint STRIDE = BK / 8 + 1;
const uint TILE = (BM + BN) * STRIDE;
const uint SUMS_STRIDE = CN / 4 + 1;
const uint SUMS = CM * SUMS_STRIDE;
const uint BLOCKS = MODE >= GATED ? 2 : 1;
const uint SUMS_OF_ALL = BM / WM * (BN / WN) * BLOCKS * SUMS;
shared uvec4 tiles[TILE > SUMS_OF_ALL ? TILE : SUMS_OF_ALL];

const uint X_CHUNKS = BM * BK / 8;
const uint W_CHUNKS = BN * BK / CHUNK;
const uint X_LOADS = (X_CHUNKS + THREADS - 1) / THREADS;
const uint W_LOADS = (W_CHUNKS + THREADS - 1) / THREADS;
const uint ROW_BLOCKS = WM / CM;
const uint COLUMN_BLOCKS = WN / CN;
const uint WRITTEN_BLOCKS = COLUMN_BLOCKS / BLOCKS;
const uint LANES = THREADS / (BM / WM * (BN / WN));
const uint PASSES = (CM * CN / 4 + LANES - 1) / LANES;

uint x_rows[X_LOADS];
RawX x_next[X_LOADS];
RawW w_next[W_LOADS];
fcoopmatNV<32, gl_ScopeSubgroup, CM_OF_SUMS, CN> sums[ROW_BLOCKS * COLUMN_BLOCKS];

// With a gate a subgroup's columns are WN / 2 of w0 and the same ones of w1.
uint w_row(uint chunk, Target target) {
  uint row = chunk / (BK / CHUNK);
  if (MODE >= GATED) row = row / WN * (WN / 2) + row % (WN / 2);
  return target.base + min(target.first + row, target.n - 1);
}

bool is_up(uint chunk) { return MODE >= GATED && chunk / (BK / CHUNK) % WN >= WN / 2; }

// Without branches, also at the last step, which loads itself again: NVIDIA's driver does not let loads behind a branch
// run beside the products, which costs a quarter of the speed.
void fetch(Target target, uint k) {
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
    const uint chunk = min(i * THREADS + gl_LocalInvocationID.x, X_CHUNKS - 1);
    x_next[i] = fetch_x(x_rows[i], k + chunk % (BK / 8) * 8);
  }
  [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
    const uint chunk = min(i * THREADS + gl_LocalInvocationID.x, W_CHUNKS - 1);
    Quads w = is_up(chunk) ? target.w_up : target.w;
    w_next[i] = fetch_w(w, target.matrix_rows, w_row(chunk, target), k + chunk % (BK / CHUNK) * CHUNK);
  }
}

uvec4 pack_weights(vec4 low, vec4 high) {
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
}

void put(Target target, uint k) {
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk >= X_CHUNKS) continue;
    const RawX raw = x_next[i];
    const uint to = chunk / (BK / 8) * STRIDE + chunk % (BK / 8);
    if (X == 2) {
      tiles[to] = raw.first;
    } else {
      const vec4 low = uintBitsToFloat(raw.first), high = uintBitsToFloat(raw.last);
      tiles[to] = uvec4(PACK16(low.xy), PACK16(low.zw), PACK16(high.xy), PACK16(high.zw));
    }
  }
  [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk >= W_CHUNKS) continue;
    const uint column = chunk % (BK / CHUNK);
    const uint to = (BM + chunk / (BK / CHUNK)) * STRIDE + column * (CHUNK / 8);
#if defined(TYPE_BF16) || defined(TYPE_F16)
    tiles[to] = w_next[i].codes;
#else
    vec4 values[CHUNK / 4];
    unpack_w(w_next[i], w_row(chunk, target), k + column * CHUNK, values);
    tiles[to] = pack_weights(values[0], values[1]);
    tiles[to + 1] = pack_weights(values[2], values[3]);
#endif
  }
}

void multiply(uint row, uint column) {
  [[unroll]] for (uint k = 0; k < BK; k += CK) {
    fcoopmatNV<16, gl_ScopeSubgroup, CM, CK> a[ROW_BLOCKS];
    [[unroll]] for (uint i = 0; i < ROW_BLOCKS; ++i) {
      coopMatLoadNV(a[i], tiles, (row + i * CM) * STRIDE + k / 8, STRIDE, false);
    }
    [[unroll]] for (uint j = 0; j < COLUMN_BLOCKS; ++j) {
      fcoopmatNV<16, gl_ScopeSubgroup, CK, CN> b;
      coopMatLoadNV(b, tiles, (BM + column + j * CN) * STRIDE + k / 8, STRIDE, true);
      [[unroll]] for (uint i = 0; i < ROW_BLOCKS; ++i) {
        sums[i * COLUMN_BLOCKS + j] = coopMatMulAddNV(a[i], b, sums[i * COLUMN_BLOCKS + j]);
      }
    }
  }
}

void wait_for_subgroup() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// Sums go through shared memory, a block at a time: only there is it known which element is which. One loop whose length
// the compiler knows, and no loop of unknown length inside: in any other the driver of NVIDIA indexes `sums` at run time,
// which puts them into memory and costs six sevenths of the speed.
void write_sums(Target target, RowTile tile, uint first_row, uint first_column) {
  const uint own = gl_SubgroupID * BLOCKS * SUMS;
  [[unroll]] for (uint block = 0; block < ROW_BLOCKS * WRITTEN_BLOCKS; ++block) {
    const uint i = block / WRITTEN_BLOCKS, j = block % WRITTEN_BLOCKS;
    wait_for_subgroup();
    coopMatStoreNV(sums[i * COLUMN_BLOCKS + j], tiles, own, SUMS_STRIDE, false);
    if (MODE >= GATED) {
      coopMatStoreNV(sums[i * COLUMN_BLOCKS + j + COLUMN_BLOCKS - WRITTEN_BLOCKS], tiles, own + SUMS, SUMS_STRIDE, false);
    }
    wait_for_subgroup();
    [[unroll]] for (uint pass = 0; pass < PASSES; ++pass) {
      const uint element = pass * LANES + gl_SubgroupInvocationID;
      const uint row = element / (CN / 4), quad = element % (CN / 4);
      const uint column = first_column + j * CN + quad * 4;
      vec4 value = biased(target, target.bias, column, uintBitsToFloat(tiles[own + row * SUMS_STRIDE + quad]));
      if (MODE >= GATED) {
        const vec4 up = uintBitsToFloat(tiles[own + (BLOCKS - 1) * SUMS + row * SUMS_STRIDE + quad]);
        value = gated(MODE - GATED, value, biased(target, target.bias_up, column, up));
      }
      const uint of_tile = first_row + i * CM + row;
      if (of_tile < tile.count) write_y(target, y_row(tile, of_tile), column, value);
    }
  }
}

void main() {
  const RowTile tile = row_tile();
  if (tile.count == 0) return;
  Target target = target_of(gl_WorkGroupID.y, tile.expert);
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i)
    x_rows[i] = x_row(tile, min(i * THREADS + gl_LocalInvocationID.x, X_CHUNKS - 1) / (BK / 8));
  const uint row = gl_SubgroupID % (BM / WM) * WM, column = gl_SubgroupID / (BM / WM) * WN;
  [[unroll]] for (uint i = 0; i < ROW_BLOCKS * COLUMN_BLOCKS; ++i) {
    sums[i] = fcoopmatNV<32, gl_ScopeSubgroup, CM_OF_SUMS, CN>(0.0);
  }
  fetch(target, 0);
  const uint end = k_padded();
  for (uint k = 0; k < end; k += BK) {
    put(target, k);
    barrier();
    fetch(target, min(k + BK, end - BK));
    multiply(row, column);
    barrier();
  }
  write_sums(target, tile, row, target.first + column / BLOCKS);
}
