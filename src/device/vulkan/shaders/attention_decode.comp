// Attention of rows that are few, each split over several workgroups by positions: the keys and
// values of a KV head are read once for all its query heads. FUSED with what comes before it where
// each row is the only one of its sequence: norm and rope of q and k, k and v into the caches.
//
// Constants: 0 workgroup size, a multiple of the subgroup's; 1 .. 6 as in heads.glsl; 7 OUT, the
// type of y; 8 GROUP, query heads of a workgroup: heads / kv_heads or a divisor of it; 9 LANES,
// threads that share a position, a power of two that is at most the subgroup's size (best
// HEAD_DIM / 8); 10 FUSED; 11 UNROLL, positions that a thread has in flight; 12 SUBGROUP, the
// smallest size of a subgroup, for the size of shared memory; 13 PREFETCH: the last so many z of
// the grid read `prefetch` into the cache of the GPU instead, as what comes next will want it.
// Grid: x = heads / GROUP, y = splits, z = rows + PREFETCH.
// `partial`: rows * heads * splits * (HEAD_DIM + 1) floats. `counters`: rows * heads / GROUP words
// that are 0 before and after. Without FUSED q is rotated, the rows are in the caches, and k, v,
// angles and norms are not read.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "heads.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 7) const uint OUT = F32;
layout(constant_id = 8) const uint GROUP = 4;
layout(constant_id = 9) const uint LANES = 8;
layout(constant_id = 10) const uint FUSED = 0;
layout(constant_id = 11) const uint UNROLL = 4;
layout(constant_id = 12) const uint SUBGROUP = 32;
layout(constant_id = 13) const uint PREFETCH = 0;

// Written by one workgroup, read by another of the same dispatch.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats { float at[]; };

layout(push_constant) uniform Push {
  Floats q, k, v, angles, q_norm, k_norm;
  Words k_cache, v_cache, y;
  SharedFloats partial;
  Words counters, call, prefetch;
  uint heads, kv_heads, splits;
  float eps;
  uint prefetch_bytes;
};

const uint TEAMS = gl_WorkGroupSize.x / LANES;
const uint SUBGROUPS = gl_WorkGroupSize.x / SUBGROUP;
const uint PIECES = (HEAD_DIM + 8 * LANES - 1) / (8 * LANES);  // of 8 dimensions, for each lane
const uint LOCAL = GROUP * PIECES * 2;  // vec4 that a lane has of all its heads
const float LOWEST = -3.0e38;           // less than any score, and finite: its weight is 0, not NaN

shared float rotated[(GROUP + 1) * HEAD_DIM];  // q, times what scores are multiplied by; then k
shared float new_v[HEAD_DIM];
shared float norm_scales[GROUP + 1];
shared float merged[SUBGROUPS * GROUP * HEAD_DIM];
shared vec2 merged_sums[SUBGROUPS * GROUP];  // largest score, sum of weights
shared bool is_last;

uint lane() {
  return gl_LocalInvocationID.x % LANES;
}

uint team() {
  return gl_LocalInvocationID.x / LANES;
}

float lanes_sum(float value) {
  [[unroll]] for (uint mask = LANES / 2; mask > 0; mask /= 2)
    value += subgroupShuffleXor(value, mask);
  return value;
}

// First dimension of a lane's piece. Neighbouring lanes read neighbouring memory.
uint piece_dim(uint piece) {
  return (piece * LANES + lane()) * 8;
}

// Eight dimensions of a row as they lie in memory; `high` is of F32 caches alone.
struct Piece {
  uvec4 low, high;
};

uint row_words() {
  return CACHE == F32 ? HEAD_DIM : HALF;
}

// Zeros beyond the row.
Piece load_piece(Words cache, uint row, uint d) {
  Piece piece = Piece(uvec4(0), uvec4(0));
  if (d >= HEAD_DIM) return piece;
  const uint first = CACHE == F32 ? d : d / 2, at = row * row_words() + first;
  if (HEAD_DIM % 8 == 0) {
    piece.low = WordQuads(cache).at[at / 4];
    if (CACHE == F32) piece.high = WordQuads(cache).at[at / 4 + 1];
    return piece;
  }
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (first + i < row_words()) piece.low[i] = cache.at[at + i];
    if (CACHE == F32 && first + i + 4 < row_words()) piece.high[i] = cache.at[at + i + 4];
  }
  return piece;
}

void store_piece(Words cache, uint row, uint d, Piece piece) {
  const uint first = CACHE == F32 ? d : d / 2, at = row * row_words() + first;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (first + i < row_words()) cache.at[at + i] = piece.low[i];
    if (CACHE == F32 && first + i + 4 < row_words()) cache.at[at + i + 4] = piece.high[i];
  }
}

// The four values of a half of a piece.
vec4 values_of(Piece piece, uint part) {
  if (CACHE == F32) return uintBitsToFloat(part == 0 ? piece.low : piece.high);
  const uvec2 words = part == 0 ? piece.low.xy : piece.low.zw;
  return vec4(unpack16(words.x, CACHE), unpack16(words.y, CACHE));
}

// One value of the row that is being appended.
float new_value(bool is_k, uint d) {
  if (d >= HEAD_DIM) return 0;
  return is_k ? rotated[GROUP * HEAD_DIM + d] : new_v[d];
}

// Eight of them, as the cache will hold them.
Piece new_piece(bool is_k, uint d) {
  Piece piece;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (CACHE == F32) {
      piece.low[i] = floatBitsToUint(new_value(is_k, d + i));
      piece.high[i] = floatBitsToUint(new_value(is_k, d + 4 + i));
    } else {
      piece.low[i] = pack16(vec2(new_value(is_k, d + 2 * i), new_value(is_k, d + 2 * i + 1)), CACHE);
    }
  }
  return piece;
}

// One value of the projections: of query head `head` of the group, or of k.
float projected(uint row, uint kv_head, uint head, uint d) {
  const uint first_head = gl_WorkGroupID.x * GROUP;
  return head < GROUP ? q.at[(row * heads + first_head + head) * HEAD_DIM + d]
                      : k.at[(row * kv_heads + kv_head) * HEAD_DIM + d];
}

void find_norm_scales(uint row, uint kv_head) {
  for (uint first = 0; first <= GROUP; first += TEAMS) {
    const uint head = first + team();
    float squares = 0;
    for (uint d = lane(); head <= GROUP && d < HEAD_DIM; d += LANES) {
      const float value = projected(row, kv_head, head, d);
      squares += value * value;
    }
    squares = lanes_sum(squares);
    if (head <= GROUP) norm_scales[head] = 1 / sqrt(squares / float(HEAD_DIM) + eps);
  }
  barrier();
}

float normed(uint row, uint kv_head, uint head, uint d) {
  const float value = projected(row, kv_head, head, d);
  if (NORM == 0) return value;
  return value * norm_scales[head] * (head < GROUP ? q_norm.at[d] : k_norm.at[d]);
}

// q and the new k, v into shared memory, rotated where that is not done yet.
void prepare_heads(uint row, uint position, uint kv_head) {
  if (FUSED != 0 && NORM != 0) find_norm_scales(row, kv_head);
  const float scale = 1.4426950408889634 / sqrt(float(HEAD_DIM));  // scores are powers of two
  const uint count = (FUSED != 0 ? GROUP + 1 : GROUP) * HEAD_DIM;
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    const uint head = i / HEAD_DIM, d = i % HEAD_DIM;
    float value;
    if (FUSED != 0) {
      const vec2 turn = rope_cos_sin(angles, row, position, rope_index(d));
      value = normed(row, kv_head, head, d) * turn.x +
              rope_sign(d) * normed(row, kv_head, head, rope_partner(d)) * turn.y;
    } else {
      value = projected(row, kv_head, head, d);
    }
    rotated[i] = head < GROUP ? value * scale : value;
  }
  if (FUSED != 0)
    for (uint d = gl_LocalInvocationID.x; d < HEAD_DIM; d += gl_WorkGroupSize.x)
      new_v[d] = v.at[(row * kv_heads + kv_head) * HEAD_DIM + d];
  barrier();
}

void write_y(uint row, uint pair, vec2 value) {
  const uint at = (row * heads + gl_WorkGroupID.x * GROUP) * HALF + pair;
  if (OUT == F32) {
    y.at[2 * at] = floatBitsToUint(value.x);
    y.at[2 * at + 1] = floatBitsToUint(value.y);
  } else {
    y.at[at] = pack16(saturated(value, OUT), OUT);
  }
}

// Where a split's results begin: GROUP * HEAD_DIM values, then a logarithm of each head's sum.
uint partial_at(uint row, uint split) {
  return ((row * gl_NumWorkGroups.x + gl_WorkGroupID.x) * splits + split) * GROUP * (HEAD_DIM + 1);
}

// The results of all splits of a row, by the workgroup that finishes last.
void combine(uint row, uint used) {
  for (uint pair = gl_LocalInvocationID.x; pair < GROUP * HALF; pair += gl_WorkGroupSize.x) {
    const uint head = pair / HALF;
    float largest = LOWEST, total = 0;
    vec2 value = vec2(0);
    for (uint first = 0; first < used; first += 8) {
      float logs[8];
      vec2 parts[8];
      [[unroll]] for (uint i = 0; i < 8; ++i) {  // all loads before any use
        const uint at = partial_at(row, min(first + i, used - 1));
        logs[i] = partial.at[at + GROUP * HEAD_DIM + head];
        parts[i] = vec2(partial.at[at + 2 * pair], partial.at[at + 2 * pair + 1]);
      }
      [[unroll]] for (uint i = 0; i < 8; ++i) {
        if (first + i >= used) break;
        const float now = max(largest, logs[i]);
        const float kept = exp2(largest - now), weight = exp2(logs[i] - now);
        total = total * kept + weight;
        value = value * kept + parts[i] * weight;
        largest = now;
      }
    }
    write_y(row, pair, value / total);
  }
}

// Of the subgroups' sums in shared memory: a row's result, or a split's.
void merge(uint row, uint split, uint used) {
  const uint at = partial_at(row, split);
  for (uint pair = gl_LocalInvocationID.x; pair < GROUP * HALF; pair += gl_WorkGroupSize.x) {
    const uint head = pair / HALF;
    float largest = LOWEST, total = 0;
    [[unroll]] for (uint i = 0; i < SUBGROUPS; ++i)
      if (i < gl_NumSubgroups) largest = max(largest, merged_sums[i * GROUP + head].x);
    vec2 value = vec2(0);
    [[unroll]] for (uint i = 0; i < SUBGROUPS; ++i) {
      if (i >= gl_NumSubgroups) break;
      const vec2 sums = merged_sums[i * GROUP + head];
      const float weight = exp2(sums.x - largest);
      const uint from = i * GROUP * HEAD_DIM + 2 * pair;
      total += weight * sums.y;
      value += weight * vec2(merged[from], merged[from + 1]);
    }
    value /= total;
    if (used == 1) {
      write_y(row, pair, value);
    } else {
      partial.at[at + 2 * pair] = value.x;
      partial.at[at + 2 * pair + 1] = value.y;
      if (pair % HALF == 0) partial.at[at + GROUP * HEAD_DIM + head] = largest + log2(total);
    }
  }
}

// Memory is read for the GPU's cache to have it; the sum is written never, which no compiler knows.
void read_ahead() {
  const uint z = gl_WorkGroupID.z - (gl_NumWorkGroups.z - PREFETCH);
  const uint group = (z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint threads = gl_NumWorkGroups.x * gl_NumWorkGroups.y * PREFETCH * gl_WorkGroupSize.x;
  uint seen = 0;
  for (uint i = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x; i < prefetch_bytes / 32; i += threads)
    seen |= prefetch.at[8 * i];  // memory comes in sectors of 32 bytes
  if (seen != 0 && prefetch_bytes == 0) counters.at[0] = seen;
}

// What a lane has of its share of positions.
struct Sums {
  float largest[GROUP], total[GROUP];
  vec4 values[LOCAL];
};

struct Query {
  vec4 values[LOCAL];
};

// Keys and values of UNROLL positions.
struct Block {
  Piece k[UNROLL * PIECES], v[UNROLL * PIECES];
};

void load_block(uint first, uint end, uint pages, uint kv_head, out Block block) {
  uint rows[UNROLL];  // all pages before any key: threads wait in order
  [[unroll]] for (uint u = 0; u < UNROLL; ++u)
    rows[u] = cache_row(call, pages, kv_heads, kv_head, min(first + u * TEAMS + team(), end - 1));
  [[unroll]] for (uint i = 0; i < UNROLL * PIECES; ++i)
    block.k[i] = load_piece(k_cache, rows[i / PIECES], piece_dim(i % PIECES));
  [[unroll]] for (uint i = 0; i < UNROLL * PIECES; ++i)
    block.v[i] = load_piece(v_cache, rows[i / PIECES], piece_dim(i % PIECES));
}

// The row that this call appends is not in the caches yet: it comes from the projections, and the
// team that has it writes it.
void take_new_row(uint first, uint end, uint pages, uint kv_head, bool writes, inout Block block) {
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
    const uint position = first + u * TEAMS + team();
    if (position + 1 < end) continue;
    const uint row = cache_row(call, pages, kv_heads, kv_head, end - 1);
    [[unroll]] for (uint piece = 0; piece < PIECES; ++piece) {
      const Piece key = new_piece(true, piece_dim(piece));
      const Piece value = new_piece(false, piece_dim(piece));
      block.k[u * PIECES + piece] = key;
      block.v[u * PIECES + piece] = value;
      if (writes && position + 1 == end && piece_dim(piece) < HEAD_DIM) {
        store_piece(k_cache, row, piece_dim(piece), key);
        store_piece(v_cache, row, piece_dim(piece), value);
      }
    }
  }
}

void attend(uint first, uint end, Query query, Block block, inout Sums sums) {
  float scores[UNROLL * GROUP];
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
    const bool inside = first + u * TEAMS + team() < end;
    [[unroll]] for (uint g = 0; g < GROUP; ++g) scores[u * GROUP + g] = 0;
    [[unroll]] for (uint i = 0; i < 2 * PIECES; ++i) {
      const vec4 key = values_of(block.k[u * PIECES + i / 2], i % 2);
      [[unroll]] for (uint g = 0; g < GROUP; ++g)
        scores[u * GROUP + g] += dot(query.values[g * 2 * PIECES + i], key);
    }
    [[unroll]] for (uint g = 0; g < GROUP; ++g) {
      const float score = lanes_sum(scores[u * GROUP + g]);
      scores[u * GROUP + g] = inside ? score : LOWEST;
    }
  }
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    float largest = sums.largest[g];
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) largest = max(largest, scores[u * GROUP + g]);
    const float kept = exp2(sums.largest[g] - largest);
    sums.largest[g] = largest;
    sums.total[g] *= kept;
    [[unroll]] for (uint i = 0; i < 2 * PIECES; ++i) sums.values[g * 2 * PIECES + i] *= kept;
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
      scores[u * GROUP + g] = exp2(scores[u * GROUP + g] - largest);
      sums.total[g] += scores[u * GROUP + g];
    }
  }
  [[unroll]] for (uint u = 0; u < UNROLL; ++u)
    [[unroll]] for (uint i = 0; i < 2 * PIECES; ++i) {
      const vec4 value = values_of(block.v[u * PIECES + i / 2], i % 2);
      [[unroll]] for (uint g = 0; g < GROUP; ++g)
        sums.values[g * 2 * PIECES + i] += scores[u * GROUP + g] * value;
    }
}

// The teams of a subgroup add up in registers, and leave the sum in shared memory.
void add_teams(Sums sums) {
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    float largest = sums.largest[g];
    for (uint mask = LANES; mask < gl_SubgroupSize; mask *= 2)
      largest = max(largest, subgroupShuffleXor(largest, mask));
    const float kept = exp2(sums.largest[g] - largest);
    float total = sums.total[g] * kept;
    for (uint mask = LANES; mask < gl_SubgroupSize; mask *= 2) total += subgroupShuffleXor(total, mask);
    if (gl_SubgroupInvocationID == 0) merged_sums[gl_SubgroupID * GROUP + g] = vec2(largest, total);
    [[unroll]] for (uint i = 0; i < 2 * PIECES; ++i) {
      vec4 value = sums.values[g * 2 * PIECES + i] * kept;
      for (uint mask = LANES; mask < gl_SubgroupSize; mask *= 2) value += subgroupShuffleXor(value, mask);
      const uint d = piece_dim(i / 2) + i % 2 * 4;
      if (gl_SubgroupInvocationID < LANES)
        [[unroll]] for (uint j = 0; j < 4; ++j)
          if (d + j < HEAD_DIM) merged[(gl_SubgroupID * GROUP + g) * HEAD_DIM + d + j] = value[j];
    }
  }
  barrier();
}

// True in the last workgroup of a row's `used` ones, which then sees what the others wrote. All
// threads wait for the GPU at once: one that does so for all of them took 0.6 us longer on an H200.
bool finishes(uint row, uint used) {
  memoryBarrierBuffer();
  barrier();
  if (gl_LocalInvocationID.x == 0) {
    const uint counter = row * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    is_last = atomicAdd(counters.at[counter], 1) + 1 == used;
    if (is_last) counters.at[counter] = 0;
  }
  barrier();
  memoryBarrierBuffer();
  return is_last;
}

void main() {
  if (PREFETCH > 0 && gl_WorkGroupID.z >= gl_NumWorkGroups.z - PREFETCH) {
    read_ahead();
    return;
  }
  const uint row = gl_WorkGroupID.z, split = gl_WorkGroupID.y;
  if (row >= call_rows(call)) return;
  const Row about = row_at(call, row);
  const uint length = about.position + 1;
  const uint share = (length + splits - 1) / splits;
  const uint chunk = (share + TEAMS - 1) / TEAMS * TEAMS, used = (length + chunk - 1) / chunk;
  if (split >= used) return;
  const uint begin = split * chunk, end = min(begin + chunk, length);
  const uint pages = about.pages;
  const uint per_kv_head = heads / kv_heads, first_head = gl_WorkGroupID.x * GROUP;
  const uint kv_head = first_head / per_kv_head;
  const bool writes = first_head % per_kv_head == 0;

  Block block;
  load_block(begin, end, pages, kv_head, block);  // on its way while q is prepared
  prepare_heads(row, about.position, kv_head);
  Query query;
  [[unroll]] for (uint i = 0; i < LOCAL; ++i) {
    const uint head = i / (2 * PIECES), part = i % (2 * PIECES);
    const uint d = piece_dim(part / 2) + part % 2 * 4;
    [[unroll]] for (uint j = 0; j < 4; ++j)
      query.values[i][j] = d + j < HEAD_DIM ? rotated[head * HEAD_DIM + d + j] : 0;
  }
  Sums sums;
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    sums.largest[g] = LOWEST;
    sums.total[g] = 0;
  }
  [[unroll]] for (uint i = 0; i < LOCAL; ++i) sums.values[i] = vec4(0);

  for (uint first = begin; first < end; first += TEAMS * UNROLL) {
    if (first != begin) load_block(first, end, pages, kv_head, block);
    if (FUSED != 0 && end == length) take_new_row(first, end, pages, kv_head, writes, block);
    attend(first, end, query, block, sums);
  }
  add_teams(sums);
  merge(row, split, used);
  if (used > 1 && finishes(row, used)) combine(row, used);
}
