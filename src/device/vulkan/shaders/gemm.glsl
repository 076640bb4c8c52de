// What gemm_coop.comp and gemm_tiled.comp have in common: the push block, how activations are read, which rows of which
// matrix a tile holds, and where results go.
//
// Y[T][n] = X[T][K] W[n][K]^T. T is call[0]. Specialization constants:
//   0 threads of a workgroup
//   1 BM, 2 BN, 3 BK: a workgroup's tile, rows of x by rows of w, in steps of BK along K
//   4 MODE: 0 y0 | y1 | y2 = x w0 | w1 | w2 (a matrix that is not there has no rows); 1 y0 += x w0;
//     2 + activation (gates.glsl) y0 = gate(x w0) * (x w1)
//   5 X: how x is read. 0 f32, any K; 1 f32, K a multiple of 32; 2 packed 16-bit rows of K values as sixteen_bit.glsl
//     narrows them (bf16 beside bf16 weights, f16 beside all others), K a multiple of 32
//   6 Y16: 1 writes y0 as X = 2 reads it; n0 is then a multiple of 8
//   7 BIAS: 1 adds b0 | b1 | b2 (f32)
//   10 EXPERTS: w0 and w1 hold n2 experts of n0 rows; tiles of rows are those of a plan at w2
//     (group_experts.comp) with n1 tiles, rows of y are choices; 1: row c of x is that of choice c;
//     beyond 1: row c / (EXPERTS - 1)
// Grid: x = tiles of rows of x, y = tiles of rows of w: the sum over the matrices of ceil(n / BN); with a gate
// ceil(n0 / (BN / 2)). A tile without rows returns at once. BK divides round_up(K, 32). A matrix has fewer than 2^32
// values.

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint MODE = 0;
layout(constant_id = 5) const uint X = 0;
layout(constant_id = 6) const uint Y16 = 0;
layout(constant_id = 7) const uint BIAS = 0;
layout(constant_id = 10) const uint EXPERTS = 0;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer Words { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Float4s { vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 v[]; };

layout(push_constant, std430) uniform Push {
  Quads x;
  Words call;
  Quads w0, w1, w2;
  Floats y0, y1, y2;
  Words b0, b1, b2;
  uint K, n0, n1, n2;
} push;  // 104 bytes

const uint GATED = 2;

#include "gates.glsl"
#include "sixteen_bit.glsl"

#ifdef TYPE_BF16
#define PACK16 pack_bf16
#define UNPACK16 unpack_bf16
#else
#define PACK16 pack_f16
#define UNPACK16 unpackHalf2x16
#endif

// The matrix and the columns of y that this workgroup has.
struct Target {
  Quads w;
  Quads w_up;    // for gates
  Floats y;
  Words bias, bias_up;
  uint n;        // rows of w, from row `base` of `matrix_rows` on
  uint first;    // the tile's
  uint base, matrix_rows;
};

// Rows of x that a workgroup multiplies, or with EXPERTS the places of their choices in the plan.
struct RowTile {
  uint first, count, expert;
};

RowTile row_tile() {
  const uint at = gl_WorkGroupID.x;
  if (EXPERTS == 0) {
    const uint rows = push.call.v[0], first = at * BM;
    return RowTile(first, first < rows ? min(rows - first, BM) : 0, 0);
  }
  Words plan = Words(push.w2);
  return RowTile(plan.v[4 * at + 1], plan.v[4 * at + 2], plan.v[4 * at]);
}

// The row of y that is a tile's row: beyond its end the last one again.
uint y_row(RowTile tile, uint row) {
  const uint at = tile.first + min(row, tile.count - 1);
  return EXPERTS == 0 ? at : Words(push.w2).v[4 * push.n1 + at];
}

uint x_row(RowTile tile, uint row) {
  const uint choice = y_row(tile, row);
  return EXPERTS > 1 ? choice / (EXPERTS - 1) : choice;
}

Target target_of(uint tile, uint expert) {
  const uint width = MODE >= GATED ? BN / 2 : BN;
  const uint tiles0 = (push.n0 + width - 1) / width;
  if (EXPERTS != 0) {
    const uint rows = push.n0;
    return Target(push.w0, push.w1, push.y0, push.b0, push.b1, rows, tile * width, expert * rows, push.n2 * rows);
  }
  if (MODE != 0 || tile < tiles0)
    return Target(push.w0, push.w1, push.y0, push.b0, push.b1, push.n0, tile * width, 0, push.n0);
  tile -= tiles0;
  const uint tiles1 = (push.n1 + width - 1) / width;
  if (tile < tiles1) return Target(push.w1, push.w1, push.y1, push.b1, push.b1, push.n1, tile * width, 0, push.n1);
  return Target(push.w2, push.w2, push.y2, push.b2, push.b2, push.n2, (tile - tiles1) * width, 0, push.n2);
}

// Eight values of a row of x, as they lie in memory: they are loaded a step before they are needed, and looked at only
// then.
struct RawX {
  uvec4 first;
  uvec4 last;  // for X 0 and 1
};

RawX fetch_x(uint row, uint k) {
  const uint at = row * push.K + k;
  if (X == 2) return RawX(push.x.v[at / 8], uvec4(0));
  if (X == 1) return RawX(push.x.v[at / 4], push.x.v[at / 4 + 1]);
  Words words = Words(push.x);
  RawX raw;
  for (uint i = 0; i < 4; ++i) {
    raw.first[i] = k + i < push.K ? words.v[at + i] : 0;
    raw.last[i] = k + 4 + i < push.K ? words.v[at + 4 + i] : 0;
  }
  return raw;
}

// Adds the biases of four neighbours of a row of y, which `bias` has from target.base on.
vec4 biased(Target target, Words bias, uint column, vec4 value) {
  if (BIAS == 0) return value;
  for (uint i = 0; i < 4; ++i) value[i] += uintBitsToFloat(bias.v[target.base + min(column + i, target.n - 1)]);
  return value;
}

// Four neighbours of a row of y, of which those beyond the edge are left alone.
void write_y(Target target, uint row, uint column, vec4 value) {
  const uint at = row * target.n + column;
  if ((target.n & 3u) == 0) {
    if (column >= target.n) return;
    if (Y16 == 1) {
      Pairs(target.y).v[at / 4] = uvec2(PACK16(value.xy), PACK16(value.zw));
    } else if (MODE == 1) {
      Float4s(target.y).v[at / 4] += value;
    } else {
      Float4s(target.y).v[at / 4] = value;
    }
    return;
  }
  for (uint i = 0; i < 4 && column + i < target.n; ++i) {
    float one = value[i];
    if (MODE == 1) one += target.y.v[at + i];
    target.y.v[at + i] = one;
  }
}
