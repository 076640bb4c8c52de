// Products of many rows without cooperative matrices: gemm.glsl says what is computed, this file how. All in f32.
// variants: gemm_tiled_bf16=-DTYPE_BF16; gemm_tiled_f16=-DTYPE_F16; gemm_tiled_f32=-DTYPE_F32; gemm_tiled_q8_0=-DTYPE_Q8_0; gemm_tiled_q4_0=-DTYPE_Q4_0; gemm_tiled_q4_k=-DTYPE_Q4_K; gemm_tiled_q6_k=-DTYPE_Q6_K; gemm_tiled_i8=-DTYPE_I8; gemm_tiled_q4_1=-DTYPE_Q4_1; gemm_tiled_q5_0=-DTYPE_Q5_0; gemm_tiled_q5_1=-DTYPE_Q5_1; gemm_tiled_q2_k=-DTYPE_Q2_K; gemm_tiled_q3_k=-DTYPE_Q3_K; gemm_tiled_q5_k=-DTYPE_Q5_K; gemm_tiled_iq4_nl=-DTYPE_IQ4_NL; gemm_tiled_iq4_xs=-DTYPE_IQ4_XS; gemm_tiled_mxfp4=-DTYPE_MXFP4
//
// Further specialization constants, beyond gemm.glsl's:
//   8 TM, 9 TN: rows and columns of y that a thread has, multiples of 4; TN one of 8 with a gate.
//     THREADS is (BM / TM) * (BN / TN).
// Shared memory: BK * (BM + BN + 8) * 4 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require

#include "gemm.glsl"
#include "gemm_weights.glsl"

layout(constant_id = 8) const uint TM = 4;
layout(constant_id = 9) const uint TN = 4;

// Both tiles lie along K, so that a thread reads four rows with one load. The padding keeps threads that write
// neighbours in K from meeting in one bank.
const uint X_STRIDE = BM / 4 + 1;
const uint W_STRIDE = BN / 4 + 1;
shared vec4 x_tile[BK * X_STRIDE];
shared vec4 w_tile[BK * W_STRIDE];

const uint X_CHUNKS = BM * BK / 8;
const uint W_CHUNKS = BN * BK / CHUNK;
const uint X_LOADS = (X_CHUNKS + THREADS - 1) / THREADS;
const uint W_LOADS = (W_CHUNKS + THREADS - 1) / THREADS;
const uint ROW_THREADS = BM / TM;
const uint COLUMN_THREADS = BN / TN;

uint x_rows[X_LOADS];
RawX x_next[X_LOADS];
RawW w_next[W_LOADS];
vec4 sums[TM * (TN / 4)];

// With a gate the first half of the tile's columns are of w0, the second the same ones of w1.
uint w_row(uint chunk, Target target) {
  const uint row = MODE >= GATED ? chunk % (BN / 2) : chunk % BN;
  return target.base + min(target.first + row, target.n - 1);
}

void fetch(Target target, uint k) {
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk < X_CHUNKS) x_next[i] = fetch_x(x_rows[i], k + chunk / BM * 8);
  }
  [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk >= W_CHUNKS) continue;
    const uint row = w_row(chunk, target), at = k + chunk / BN * CHUNK;
    if (MODE >= GATED && chunk % BN >= BN / 2) {
      w_next[i] = fetch_w(target.w_up, target.matrix_rows, row, at);
    } else {
      w_next[i] = fetch_w(target.w, target.matrix_rows, row, at);
    }
  }
}

void put(Target target, uint k) {
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk >= X_CHUNKS) continue;
    const uint row = chunk % BM, at = chunk / BM * 8;
    const uvec4 raw = x_next[i].first;
    vec4 low = uintBitsToFloat(raw), high = uintBitsToFloat(x_next[i].last);
    if (X == 2) {
      low = vec4(UNPACK16(raw.x), UNPACK16(raw.y));
      high = vec4(UNPACK16(raw.z), UNPACK16(raw.w));
    }
    [[unroll]] for (uint j = 0; j < 8; ++j) x_tile[(at + j) * X_STRIDE + row / 4][row % 4] = j < 4 ? low[j] : high[j - 4];
  }
  [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
    const uint chunk = i * THREADS + gl_LocalInvocationID.x;
    if (chunk >= W_CHUNKS) continue;
    const uint row = chunk % BN, at = chunk / BN * CHUNK;
    vec4 values[CHUNK / 4];
    unpack_w(w_next[i], w_row(chunk, target), k + at, values);
    [[unroll]] for (uint j = 0; j < CHUNK; ++j) w_tile[(at + j) * W_STRIDE + row / 4][row % 4] = values[j / 4][j % 4];
  }
}

// A thread has every ROW_THREADS-th group of four rows and every COLUMN_THREADS-th group of four columns: its
// neighbours read what lies beside what it reads.
void multiply(uint row_thread, uint column_thread) {
  for (uint k = 0; k < BK; ++k) {
    vec4 w[TN / 4];
    [[unroll]] for (uint j = 0; j < TN / 4; ++j) w[j] = w_tile[k * W_STRIDE + j * COLUMN_THREADS + column_thread];
    [[unroll]] for (uint i = 0; i < TM / 4; ++i) {
      const vec4 x = x_tile[k * X_STRIDE + i * ROW_THREADS + row_thread];
      [[unroll]] for (uint r = 0; r < 4; ++r) {
        [[unroll]] for (uint j = 0; j < TN / 4; ++j) {
          sums[(i * 4 + r) * (TN / 4) + j] = fma(vec4(x[r]), w[j], sums[(i * 4 + r) * (TN / 4) + j]);
        }
      }
    }
  }
}

void write_sums(Target target, RowTile tile, uint row_thread, uint column_thread) {
  [[unroll]] for (uint i = 0; i < TM; ++i) {
    const uint row = (i / 4 * ROW_THREADS + row_thread) * 4 + i % 4;
    if (row >= tile.count) continue;
    // The groups of the second half are those of the first, BN / 2 columns on.
    [[unroll]] for (uint j = 0; j < (MODE >= GATED ? TN / 8 : TN / 4); ++j) {
      const uint column = target.first + (j * COLUMN_THREADS + column_thread) * 4;
      vec4 value = biased(target, target.bias, column, sums[i * (TN / 4) + j]);
      if (MODE >= GATED)
        value = gated(MODE - GATED, value, biased(target, target.bias_up, column, sums[i * (TN / 4) + TN / 8 + j]));
      write_y(target, y_row(tile, row), column, value);
    }
  }
}

void main() {
  const RowTile tile = row_tile();
  if (tile.count == 0) return;
  Target target = target_of(gl_WorkGroupID.y, tile.expert);
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) x_rows[i] = x_row(tile, (i * THREADS + gl_LocalInvocationID.x) % BM);
  const uint row_thread = gl_LocalInvocationID.x / COLUMN_THREADS;
  const uint column_thread = gl_LocalInvocationID.x % COLUMN_THREADS;
  [[unroll]] for (uint i = 0; i < TM * (TN / 4); ++i) sums[i] = vec4(0.0);
  fetch(target, 0);
  const uint end = k_padded();
  for (uint k = 0; k < end; k += BK) {
    put(target, k);
    barrier();
    if (k + BK < end) fetch(target, k + BK);
    multiply(row_thread, column_thread);
    barrier();
  }
  write_sums(target, tile, row_thread, column_thread);
}
