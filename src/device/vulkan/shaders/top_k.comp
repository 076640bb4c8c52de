// The K largest values of each row, in two dispatches of this kernel: workgroups choose among a
// chunk of the row each, then one workgroup chooses among what they chose.
//
// Constants: 0 workgroup size, a multiple of the subgroup's; 1 FINAL: 0 the first dispatch, 1 the
// second; 2 VALUES: of each thread, so that size * VALUES is the length of a chunk, in the second
// dispatch at least K * chunks (a multiple of 4 in the first); 3 K.
// Grid: x = chunks = ceil(cols / length of a chunk), 1 in the second dispatch; y = rows.
// `chosen`: rows * chunks * (2 * K + 4) words: keys, ids, then how many values are not finite, the
// largest, and the sum of exp(value - largest). `result`: rows of 2 * K + 2 words: K pairs of value
// and id, larger values first and smaller ids first among equal ones; how many values are not
// finite, which are in no pair; the logarithm of the sum of all exp(value). Where there are less
// than K values the last pairs have -inf and the id -1.
// Shared memory: (size * (VALUES + 2) + 2 * K) * 4 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FINAL = 0;
layout(constant_id = 2) const uint VALUES = 8;
layout(constant_id = 3) const uint K = 64;

layout(push_constant) uniform Push {
  Floats logits;
  Words chosen, result, call;
  uint cols, chunks;
};

const uint CHUNK_WORDS = 2 * K + 4;
#define INFINITY uintBitsToFloat(0x7f800000u)

// Values as numbers whose order is that of the values; 0 is less than all of them. Thread t has
// number i at own_key(i).
shared uint keys[VALUES * gl_WorkGroupSize.x];

uint own_key(uint i) {
  return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
}

// Words of each subgroup, in two halves that take turns: a fast thread may write the next ones
// while a slow one reads.
const uint MOST_SUBGROUPS = gl_WorkGroupSize.x / 4;  // no GPU has smaller ones
shared uvec4 of_subgroups[2 * MOST_SUBGROUPS];
shared uint best_keys[K];
shared uint best_ids[K];

uint key_of(float value) {
  const uint bits = value == 0 ? 0 : floatBitsToUint(value);  // -0 is no less than 0
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

float value_of(uint key) {
  return uintBitsToFloat(key ^ (key >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

bool counts(float value) {
  return (floatBitsToUint(value) & 0x7f800000u) != 0x7f800000u;
}

uvec3 workgroup_sum(uvec3 value, uint turn) {
  const uint base = turn % 2 * MOST_SUBGROUPS;
  value = subgroupAdd(value);
  if (subgroupElect()) of_subgroups[base + gl_SubgroupID].xyz = value;
  barrier();
  uvec3 total = uvec3(0);
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
    total += of_subgroups[base + i].xyz;
  return subgroupAdd(total);
}

// The largest key that at least K of the workgroup's keys reach; 0 where there are less than K.
// Two bits a step, from the highest.
uint find_threshold() {
  uint threshold = 0;
  for (uint step = 0; step < 16; ++step) {
    const uint shift = 30 - 2 * step;
    uvec3 reached = uvec3(0);
    [[unroll]] for (uint i = 0; i < VALUES; ++i)
      reached += uvec3(greaterThanEqual(uvec3(keys[own_key(i)]),
                                        uvec3(threshold) + (uvec3(1, 2, 3) << shift)));
    const uvec3 total = workgroup_sum(reached, step);
    threshold += (uint(total.x >= K) + uint(total.y >= K) + uint(total.z >= K)) << shift;
    if (total.x == K || total.y == K || total.z == K) break;
  }
  return threshold;
}

// How many keys of the threads before this one are above the threshold, and how many are at it;
// then how many are above it in all.
uvec3 ranks(uint threshold) {
  uvec2 own = uvec2(0);
  [[unroll]] for (uint i = 0; i < VALUES; ++i)
    own += uvec2(keys[own_key(i)] > threshold, keys[own_key(i)] == threshold);
  const uvec2 before = subgroupExclusiveAdd(own), all = subgroupAdd(own);
  barrier();
  if (subgroupElect()) of_subgroups[gl_SubgroupID].xy = all;
  barrier();
  uvec3 others = uvec3(0);
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
    const uvec2 other = of_subgroups[i].xy;
    if (i < gl_SubgroupID) others.xy += other;
    others.z += other.x;
  }
  return subgroupAdd(others) + uvec3(before, 0);
}

// Thread i has the row's or the list's values from i * VALUES on.
uint first_index() {
  return (FINAL != 0 ? 0 : gl_WorkGroupID.x * gl_WorkGroupSize.x * VALUES) +
         gl_LocalInvocationID.x * VALUES;
}

uint chosen_at(uint chunk) {
  return (gl_WorkGroupID.y * chunks + chunk) * CHUNK_WORDS;
}

uint id_of(uint index) {
  return FINAL != 0 ? chosen.at[chosen_at(index / K) + K + index % K] : index;
}

// Equal keys keep the order of their ids.
void choose() {
  for (uint i = gl_LocalInvocationID.x; i < K; i += gl_WorkGroupSize.x) {
    best_keys[i] = 0;
    best_ids[i] = ~0u;
  }
  const uint threshold = find_threshold();
  uvec3 rank = ranks(threshold);
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const bool above = keys[own_key(i)] > threshold, at = keys[own_key(i)] == threshold;
    const uint place = above ? rank.x : rank.z + rank.y;
    if (keys[own_key(i)] != 0 && (above || at) && place < K) {
      best_keys[place] = keys[own_key(i)];
      best_ids[place] = id_of(first_index() + i);
    }
    rank.xy += uvec2(above, at);
  }
  barrier();
}

// The largest value of a chunk and the sum of all exponentials with respect to it, in f32 as sums
// of the subgroups' sums.
vec2 sum_of_exponentials() {
  float largest = -INFINITY;
  [[unroll]] for (uint i = 0; i < VALUES; ++i)
    if (keys[own_key(i)] != 0) largest = max(largest, value_of(keys[own_key(i)]));
  largest = subgroupMax(largest);
  barrier();
  if (subgroupElect()) of_subgroups[gl_SubgroupID].x = floatBitsToUint(largest);
  barrier();
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
    largest = max(largest, uintBitsToFloat(of_subgroups[i].x));
  largest = subgroupMax(largest);
  float sum = 0;
  [[unroll]] for (uint i = 0; i < VALUES; ++i)
    if (keys[own_key(i)] != 0) sum += exp(value_of(keys[own_key(i)]) - largest);
  sum = subgroupAdd(sum);
  if (subgroupElect()) of_subgroups[MOST_SUBGROUPS + gl_SubgroupID].x = floatBitsToUint(sum);
  barrier();
  sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
    sum += uintBitsToFloat(of_subgroups[MOST_SUBGROUPS + i].x);
  sum = subgroupAdd(sum);
  barrier();
  return vec2(largest, sum);
}

void choose_from_chunk() {
  uvec3 not_finite = uvec3(0);
  const uint first = first_index(), base = gl_WorkGroupID.y * cols;
  [[unroll]] for (uint i = 0; i < VALUES; i += 4) {
    const vec4 quad = first + i < cols ? load_row_quad(logits, base, first + i, cols) : vec4(0);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      const bool inside = first + i + j < cols;
      keys[own_key(min(i + j, VALUES - 1))] = inside && counts(quad[j]) ? key_of(quad[j]) : 0;
      not_finite.x += uint(inside && !counts(quad[j]));
    }
  }
  const vec2 exponentials = sum_of_exponentials();
  const uint bad = workgroup_sum(not_finite, 1).x;
  barrier();
  choose();
  const uint at = chosen_at(gl_WorkGroupID.x);
  for (uint i = gl_LocalInvocationID.x; i < K; i += gl_WorkGroupSize.x) {
    chosen.at[at + i] = best_keys[i];
    chosen.at[at + K + i] = best_ids[i];
  }
  if (gl_LocalInvocationID.x == 0) {
    chosen.at[at + 2 * K] = bad;
    chosen.at[at + 2 * K + 1] = floatBitsToUint(exponentials.x);
    chosen.at[at + 2 * K + 2] = floatBitsToUint(exponentials.y);
  }
}

// By one subgroup; chunks in strides, so the order is the same every time.
void write_totals(uint at) {
  uint bad = 0;
  float largest = -INFINITY, sum = 0;
  for (uint i = gl_SubgroupInvocationID; i < chunks; i += gl_SubgroupSize) {
    bad += chosen.at[chosen_at(i) + 2 * K];
    largest = max(largest, uintBitsToFloat(chosen.at[chosen_at(i) + 2 * K + 1]));
  }
  largest = subgroupMax(largest);
  for (uint i = gl_SubgroupInvocationID; i < chunks; i += gl_SubgroupSize) {
    const float one = uintBitsToFloat(chosen.at[chosen_at(i) + 2 * K + 1]);
    if (one != -INFINITY) sum += uintBitsToFloat(chosen.at[chosen_at(i) + 2 * K + 2]) * exp(one - largest);
  }
  bad = subgroupAdd(bad);
  sum = subgroupAdd(sum);
  if (subgroupElect()) {
    result.at[at + 2 * K] = bad;
    result.at[at + 2 * K + 1] = floatBitsToUint(sum > 0 ? largest + log(sum) : -INFINITY);
  }
}

void choose_from_chosen() {
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const uint index = first_index() + i;
    keys[own_key(i)] = index < chunks * K ? chosen.at[chosen_at(index / K) + index % K] : 0;
  }
  const uint at = gl_WorkGroupID.y * (2 * K + 2);
  choose();
  if (gl_SubgroupID == gl_NumSubgroups - 1) write_totals(at);
  for (uint i = gl_LocalInvocationID.x; i < K; i += gl_WorkGroupSize.x) {
    const uint key = best_keys[i], id = best_ids[i];
    uint place = 0;  // empty places have equal keys and ids, and stay in their order
    for (uint j = 0; j < K; ++j) {
      const uint other = best_keys[j], other_id = best_ids[j];
      place += uint(other > key || (other == key && (other_id < id || (other_id == id && j < i))));
    }
    result.at[at + 2 * place] = floatBitsToUint(key == 0 ? -INFINITY : value_of(key));
    result.at[at + 2 * place + 1] = id;
  }
}

void main() {
  if (gl_WorkGroupID.y >= call_rows(call)) return;
  if (FINAL != 0) choose_from_chosen();
  else choose_from_chunk();
}
