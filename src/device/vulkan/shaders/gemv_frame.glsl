// What the kernels for products with a few rows have in common: arguments, which workgroup makes which
// rows, and what is done with the sums. A kernel brings the products and defines TURNS: 2 if its
// workgroups make several groups of rows, else 1.
//
// Specialization constants:
//   0 workgroup size
//   1 ROWS     rows of x, at most; as many as the call says are stored
//   2 OUTPUTS  rows of W that a workgroup makes together
//   3 MODE     0 y0|y1|y2 = W0|W1|W2 x; 1 y0 += W0 x; 2 + activation (gates.glsl)
//              y0 = gate(W0 x) * (W1 x)
//   4 NORM     1: x is RMS-normalised, with weights `norm`
//   5 GATHER   1: row t of x is the one that the call's table of rows names
//   6 BIAS     1: b0|b1|b2 are added
//   8 EXPERTS  1: W0 and W1 hold n2 experts of n0 rows; workgroup y makes what the expert that
//              w2[y] names gives for row y / n1 of x, or for row y of x with `flags`: one of n1 for
//              each row of the call. 2: workgroup y adds up what the n1 experts of the call's row y
//              give, each for a row of x of its own, times y1's weights. ROWS is 1
// Groups of rows: in mode 0 the sum of ceil(n / OUTPUTS) over the matrices, else ceil(n0 / OUTPUTS).
// Order of sums: by workgroup size, subgroup size and the weights' form alone.

#include "gates.glsl"
#include "gemv_units.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1;
layout(constant_id = 2) const uint OUTPUTS = 4;
layout(constant_id = 3) const uint MODE = 0;
layout(constant_id = 4) const uint NORM = 0;
layout(constant_id = 5) const uint GATHER = 0;
layout(constant_id = 6) const uint BIAS = 0;
layout(constant_id = 8) const uint EXPERTS = 0;

const uint STORE = 0, ADD = 1, GATED = 2;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Fours { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Result { float at[]; };

layout(push_constant) uniform Push {
  Floats x;
  Words call;
  Floats norm;
  Words w0, w1, w2;
  Result y0, y1, y2;
  Floats b0, b1, b2;
  uint k_values, n0, n1, n2;
  float eps;
  uint flags;
};

const uint STREAMS = MODE >= GATED ? 2 * OUTPUTS : OUTPUTS;  // rows of weights read side by side
const uint SUMS = STREAMS * ROWS;
const uint MOST_SUBGROUPS = gl_WorkGroupSize.x / 4;  // none is narrower than 4
shared float partial[TURNS][SUMS * MOST_SUBGROUPS];  // [sum][subgroup]
shared float squares[ROWS * MOST_SUBGROUPS];

// Rows of one matrix that a workgroup makes together: from `first` on, out of `rows` that begin at
// row `base` of `matrix_rows`.
struct Target {
  Words w;
  Result y;
  Floats b;
  uint rows, first, base, matrix_rows;
};

const uint CHOSEN = 1, MIXED = 2;  // EXPERTS

// The row that choice `i` of the workgroup's takes its weights from.
uint expert_base(uint i) {
  return w2.at[gl_WorkGroupID.y * (EXPERTS == MIXED ? n1 : 1) + i] * n0;
}

uint group_count() {
  const uint first = (n0 + OUTPUTS - 1) / OUTPUTS;
  return MODE != STORE || EXPERTS != 0 ? first : first + (n1 + OUTPUTS - 1) / OUTPUTS + (n2 + OUTPUTS - 1) / OUTPUTS;
}

Target target(uint group) {
  if (EXPERTS != 0)
    return Target(w0, y0, b0, n0, group * OUTPUTS, EXPERTS == CHOSEN ? expert_base(0) : 0, n0 * n2);
  if (MODE != STORE) return Target(w0, y0, b0, n0, group * OUTPUTS, 0, n0);
  const uint groups0 = (n0 + OUTPUTS - 1) / OUTPUTS, groups1 = (n1 + OUTPUTS - 1) / OUTPUTS;
  if (group < groups0) return Target(w0, y0, b0, n0, group * OUTPUTS, 0, n0);
  group -= groups0;
  if (group < groups1) return Target(w1, y1, b1, n1, group * OUTPUTS, 0, n1);
  return Target(w2, y2, b2, n2, (group - groups1) * OUTPUTS, 0, n2);
}

// The row of x that is the call's row t.
uint source_row(uint t, uint rows) {
  if (EXPERTS == CHOSEN) return flags != 0u ? gl_WorkGroupID.y : gl_WorkGroupID.y / n1;
  const uint row = t < rows ? t : 0u;
  return GATHER == 0u ? row : call.at[8u + 4u * row + 2u];
}

// Four values of a row. Rows of blocks are whole, others end anywhere: then zeros follow, and rows
// begin at multiples of 16 bytes only if K allows it.
vec4 four_at(Floats values, uint row, uint k) {
#if defined(HAS_BLOCKS)
  return Fours(values).at[(row * k_values + k) / 4u];
#else
  if ((k_values & 3u) == 0u) return k < k_values ? Fours(values).at[(row * k_values + k) / 4u] : vec4(0.0);
  vec4 result = vec4(0.0);
  for (uint i = 0; i < 4; ++i)
    if (k + i < k_values) result[i] = values.at[row * k_values + k + i];
  return result;
#endif
}

void read_units(Target to, uint index, out Unit units[STREAMS]) {
  [[unroll]] for (uint i = 0; i < STREAMS; ++i) {
    const uint row = min(to.first + i % OUTPUTS, to.rows - 1u);
    if (i < OUTPUTS) units[i] = read_unit(to.w, to.matrix_rows, k_values, to.base + row, index);
    else units[i] = read_unit(w1, to.matrix_rows, k_values, to.base + row, index);
  }
}

// A sum over the workgroup's subgroups.
float total(uint turn, uint index) {
  float result = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) result += partial[turn][index * gl_NumSubgroups + i];
  return result;
}

float norm_factor(uint t) {
  if (NORM == 0u) return 1.0;
  float sum = 0.0;
  for (uint i = 0; i < gl_NumSubgroups; ++i) sum += squares[t * gl_NumSubgroups + i];
  return inversesqrt(sum / float(k_values) + eps);
}

// What a row's sums are multiplied by.
float row_scale(Words w, uint rows, uint row) {
#if defined(I8)
  return uintBitsToFloat(w.at[plane_words(rows * (padded(k_values) / 4u)) + row]);
#else
  return 1.0;
#endif
}

// The biases of the experts that are mixed, of one row of theirs.
float mixed_bias(uint row) {
  float sum = 0.0;
  for (uint i = 0; i < n1; ++i) sum += y1.at[gl_WorkGroupID.y * n1 + i] * b0.at[expert_base(i) + row];
  return sum;
}

void finish(Target to, uint turn, uint output_row, uint t) {
  const uint row = to.first + output_row;
  const float factor = norm_factor(t);
  float value = total(turn, output_row * ROWS + t) * factor * row_scale(to.w, to.matrix_rows, to.base + row);
  if (BIAS != 0u) value += EXPERTS == MIXED ? mixed_bias(row) : to.b.at[to.base + row];
  if (MODE >= GATED) {
    float up = total(turn, (OUTPUTS + output_row) * ROWS + t) * factor * row_scale(w1, to.matrix_rows, to.base + row);
    if (BIAS != 0u) up += b1.at[to.base + row];
    value = gated(MODE - GATED, value, up);
  }
  const uint at = (EXPERTS != 0 ? gl_WorkGroupID.y : t) * to.rows + row;
  if (MODE == ADD) value += to.y.at[at];
  to.y.at[at] = value;
}

// Adds the threads' sums up and stores what they become; all threads come here. Where a workgroup makes
// several groups `turn` alternates, so that no thread overwrites what a slower one still reads.
void finish_group(Target to, uint turn, uint rows, const float sums[SUMS]) {
  [[unroll]] for (uint i = 0; i < SUMS; ++i) {
    const float sum = subgroupAdd(sums[i]);
    if (subgroupElect()) partial[turn][i * gl_NumSubgroups + gl_SubgroupID] = sum;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < OUTPUTS * ROWS; i += gl_WorkGroupSize.x) {
    const uint output_row = i / ROWS, t = i % ROWS;
    if (t < rows && to.first + output_row < to.rows) finish(to, turn, output_row, t);
  }
}

// Before the first finish_group.
void share_squares(uint t, float square) {
  if (NORM == 0u) return;
  const float sum = subgroupAdd(square);
  if (subgroupElect()) squares[t * gl_NumSubgroups + gl_SubgroupID] = sum;
}
