// The K largest values of each row, in two dispatches of this kernel. The first finds the largest of
// every group of neighbours. The K largest values are in the K groups whose largest are largest, so
// the second, one workgroup for a row, chooses groups and then values of them.
//
// Constants: 0 workgroup size, a multiple of the subgroup's; 1 CHOOSES: 0 the first dispatch, 1 the
// second; 2 LANES: threads of a group of 4 * LANES values, a power of two that is at most the
// subgroup's size; 3 K; 4 VALUES: of a thread of the second dispatch, so that size * VALUES is at
// least `groups` and at least 8 * K * LANES; 5 SUBGROUP: the smallest size of a subgroup.
// Grid: x = ceil(groups * LANES / size) where groups = ceil(cols / (4 * LANES)), 1 in the second
// dispatch; y = rows.
// `found`: rows * groups * 3 words: for all groups the key of the largest value, the sum of all
// exp(value - largest), how many values are not finite. `result`: rows of 2 * K + 2 words: K pairs
// of value and id, larger values first and smaller ids first among equal ones; how many values are
// not finite, which are in no pair; the logarithm of the sum of all exp(value). Where there are less
// than K values the last pairs have -inf and the id -1.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "call.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint CHOOSES = 0;
layout(constant_id = 2) const uint LANES = 8;
layout(constant_id = 3) const uint K = 64;
layout(constant_id = 4) const uint VALUES = 8;
layout(constant_id = 5) const uint SUBGROUP = 32;

layout(push_constant) uniform Push {
  Floats logits;
  Words found, result, call;
  uint cols, groups;
};

const uint GROUP = 4 * LANES;
#define INFINITY uintBitsToFloat(0x7f800000u)

// Values as numbers whose order is that of the values; 0, of those that are not finite, is less than
// all of them.
uint key_of(float value) {
  const uint bits = value == 0 ? 0 : floatBitsToUint(value);  // -0 is no less than 0
  if ((bits & 0x7f800000u) == 0x7f800000u) return 0;
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

float value_of(uint key) {
  return key == 0 ? -INFINITY : uintBitsToFloat(key ^ (key >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

uint found_at(uint plane) {
  return (gl_WorkGroupID.y * 3 + plane) * groups;
}

void look_at_group(uint group, uint lane) {
  const uint first = group * GROUP + 4 * lane;
  const vec4 quad = first < cols ? load_row_quad(logits, gl_WorkGroupID.y * cols, first, cols) : vec4(0);
  uint keys[4], largest = 0, bad = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    keys[i] = first + i < cols ? key_of(quad[i]) : 0;
    bad += uint(first + i < cols && keys[i] == 0);
    largest = max(largest, keys[i]);
  }
  [[unroll]] for (uint mask = LANES / 2; mask > 0; mask /= 2)
    largest = max(largest, subgroupShuffleXor(largest, mask));
  float sum = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i)
    if (keys[i] != 0) sum += exp(quad[i] - value_of(largest));
  [[unroll]] for (uint mask = LANES / 2; mask > 0; mask /= 2) {
    sum += subgroupShuffleXor(sum, mask);
    bad += subgroupShuffleXor(bad, mask);
  }
  if (lane != 0 || group >= groups) return;
  found.at[found_at(0) + group] = largest;
  found.at[found_at(1) + group] = floatBitsToUint(sum);
  found.at[found_at(2) + group] = bad;
}

const uint BINS = 1024;
const uint BINS_OF_THREAD = (BINS + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
const uint MOST = 2 * K;  // that are chosen: some more than K are as good, they are put in order anyway
const uint MOST_SUBGROUPS = gl_WorkGroupSize.x / SUBGROUP;
shared uint bins[BINS];
shared uvec4 of_subgroups[MOST_SUBGROUPS];
shared uint subgroup_counts[MOST_SUBGROUPS];
shared uvec3 edge;  // a bin; how many are in it or beyond; how many are in it
shared uint chosen_groups[MOST];
shared uvec2 chosen[MOST];  // key and id
shared uint places[MOST];
shared uint chosen_count;

struct Keys {
  uint of[VALUES];
};

// The id of a thread's value: of a group in the first round, of a value in the second.
uint id_of(uint round, uint i) {
  const uint index = i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
  if (round == 0) return index;
  return chosen_groups[min(index / GROUP, MOST - 1)] * GROUP + index % GROUP;
}

void load_keys(uint round, uint chosen_before, out Keys keys) {
  uint words[VALUES];  // all loads before any use
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const uint id = id_of(round, i), index = i * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    words[i] = 0x7f800000u;
    if (round == 0 && id < groups) words[i] = found.at[found_at(0) + id];
    if (round == 1 && index / GROUP < chosen_before && id < cols)
      words[i] = floatBitsToUint(logits.at[gl_WorkGroupID.y * cols + id]);
  }
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const bool is_there = round == 1 || i * gl_WorkGroupSize.x + gl_LocalInvocationID.x < groups;
    keys.of[i] = !is_there ? 0 : round == 0 ? words[i] : key_of(uintBitsToFloat(words[i]));
  }
}

// The smallest and the largest key of all; ~0 and 0 where there is none.
uvec2 range_of(Keys keys) {
  uvec2 range = uvec2(~0u, 0);
  [[unroll]] for (uint i = 0; i < VALUES; ++i)
    if (keys.of[i] != 0) range = uvec2(min(range.x, keys.of[i]), max(range.y, keys.of[i]));
  range = uvec2(subgroupMin(range.x), subgroupMax(range.y));
  if (subgroupElect()) of_subgroups[gl_SubgroupID].xy = range;
  barrier();
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
    range = uvec2(min(range.x, of_subgroups[i].x), max(range.y, of_subgroups[i].y));
  return uvec2(subgroupMin(range.x), subgroupMax(range.y));
}

// What is looked at: keys from low to high; or of the ids whose key is `tie`, their complements.
struct Search {
  uint low, high, tie;
  bool is_by_id;
  uint beyond;  // how many are above all that
};

bool is_looked_at(Search search, uint key, uint id) {
  if (search.is_by_id) return key == search.tie && ~id >= search.low && ~id <= search.high;
  return key != 0 && key >= search.low && key <= search.high;
}

bool is_chosen(Search search, uint key, uint id) {
  if (search.is_by_id) return key > search.tie || (key == search.tie && ~id >= search.low);
  return key != 0 && key >= search.low;
}

// Fills the bins.
void count_bins(uint round, Keys keys, Search search, uint shift) {
  for (uint i = gl_LocalInvocationID.x; i < BINS; i += gl_WorkGroupSize.x) bins[i] = 0;
  barrier();
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const uint id = id_of(round, i);
    if (is_looked_at(search, keys.of[i], id))
      atomicAdd(bins[((search.is_by_id ? ~id : keys.of[i]) - search.low) >> shift], 1);
  }
  barrier();
}

// The bin where K are reached, from the highest one; the lowest where they are not.
void find_edge(uint beyond) {
  const uint first = gl_LocalInvocationID.x * BINS_OF_THREAD;
  uint own = 0;
  for (uint i = first; i < min(first + BINS_OF_THREAD, BINS); ++i) own += bins[BINS - 1 - i];
  uint before = subgroupExclusiveAdd(own);
  const uint all = subgroupAdd(own);
  if (subgroupElect()) subgroup_counts[gl_SubgroupID] = all;
  barrier();
  uint others = 0, total = 0;
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
    if (i < gl_SubgroupID) others += subgroup_counts[i];
    total += subgroup_counts[i];
  }
  before += subgroupAdd(others) + beyond;
  total = subgroupAdd(total) + beyond;
  if (total < K) {
    if (gl_LocalInvocationID.x == 0) edge = uvec3(0, total, bins[0]);
  } else if (before < K && before + own >= K) {
    for (uint i = first; before < K; ++i) {
      const uint bin = BINS - 1 - i;
      before += bins[bin];
      edge = uvec3(bin, before, bins[bin]);
    }
  }
  barrier();
}

// Narrows a search until those from its low end on are K, or some more. True when done.
bool narrow(uint round, Keys keys, inout Search search) {
  const uint shift = uint(max(0, findMSB(search.high - search.low) - 9));
  count_bins(round, keys, search, shift);
  find_edge(search.beyond);
  search.low += edge.x << shift;
  if (edge.y <= MOST) return true;
  search.high = search.low + min((1u << shift) - 1, search.high - search.low);
  search.beyond = edge.y - edge.z;
  if (shift == 0) search = Search(~(round == 0 ? groups : cols), ~0u, search.low, true, search.beyond);
  return false;
}

// Makes the list of a round's chosen ones, and says how many they are.
uint put_chosen(uint round, Keys keys, Search search) {
  if (gl_LocalInvocationID.x == 0) chosen_count = 0;
  barrier();
  [[unroll]] for (uint i = 0; i < VALUES; ++i) {
    const uint id = id_of(round, i);
    if (!is_chosen(search, keys.of[i], id)) continue;
    const uint to = atomicAdd(chosen_count, 1);
    if (round == 0) chosen_groups[to] = id;
    else chosen[to] = uvec2(keys.of[i], id);
  }
  barrier();
  return chosen_count;
}

// The totals of all groups, with the largest value of the row.
void write_totals(uint at, float largest) {
  float sum = 0;
  uint bad = 0;
  for (uint i = gl_LocalInvocationID.x; i < groups; i += gl_WorkGroupSize.x) {
    const uint key = found.at[found_at(0) + i];
    if (key != 0) sum += uintBitsToFloat(found.at[found_at(1) + i]) * exp(value_of(key) - largest);
    bad += found.at[found_at(2) + i];
  }
  sum = subgroupAdd(sum);
  bad = subgroupAdd(bad);
  if (subgroupElect()) of_subgroups[gl_SubgroupID].zw = uvec2(floatBitsToUint(sum), bad);
  barrier();
  sum = 0;
  bad = 0;
  for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize) {
    sum += uintBitsToFloat(of_subgroups[i].z);
    bad += of_subgroups[i].w;
  }
  sum = subgroupAdd(sum);
  bad = subgroupAdd(bad);
  if (gl_LocalInvocationID.x != 0) return;
  result.at[at + 2 * K] = bad;
  result.at[at + 2 * K + 1] = floatBitsToUint(sum > 0 ? largest + log(sum) : -INFINITY);
}

// Four threads find the place of each.
void write_in_order(uint at, uint count) {
  for (uint i = gl_LocalInvocationID.x; i < MOST; i += gl_WorkGroupSize.x) places[i] = 0;
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < 4 * count; i += gl_WorkGroupSize.x) {
    const uvec2 own = chosen[i / 4];
    uint better = 0;
    for (uint j = i % 4; j < count; j += 4) {
      const uvec2 other = chosen[j];
      better += uint(other.x > own.x || (other.x == own.x && other.y < own.y));
    }
    atomicAdd(places[i / 4], better);
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < max(count, K); i += gl_WorkGroupSize.x) {
    const uint place = i < count ? places[i] : i;
    if (place >= K) continue;
    result.at[at + 2 * place] = floatBitsToUint(i < count ? value_of(chosen[i].x) : -INFINITY);
    result.at[at + 2 * place + 1] = i < count ? chosen[i].y : ~0u;
  }
}

void choose() {
  const uint at = gl_WorkGroupID.y * (2 * K + 2);
  uint count = 0, floor_key = 0;
  for (uint round = 0; round < 2; ++round) {
    Keys keys;
    load_keys(round, count, keys);
    const uvec2 range = range_of(keys);
    if (round == 0) write_totals(at, value_of(range.y));
    // K groups reach floor_key, and so do K values.
    Search search = Search(max(range.x, floor_key), range.y, 0, false, 0);
    if (range.y != 0)
      while (!narrow(round, keys, search)) {
      }
    count = put_chosen(round, keys, search);
    floor_key = count < K ? 0 : search.is_by_id ? search.tie : search.low;
  }
  write_in_order(at, count);
}

void main() {
  if (gl_WorkGroupID.y >= call_rows(call)) return;
  if (CHOOSES != 0) {
    choose();
  } else {
    const uint thread = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    look_at_group(thread / LANES, thread % LANES);
  }
}
