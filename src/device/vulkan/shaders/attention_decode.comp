// Attention of rows that are few, each split over several workgroups by positions: the keys and
// values of a KV head are read once for all its query heads. FUSED with what comes before it where
// each row is the only one of its sequence: norm and rope of q and k, k and v into the caches.
// The workgroup of a row that finishes last adds up.
//
// A subgroup takes blocks of neighbouring positions. Teams of LANES threads have a key each, for
// scores; then slices of COLUMNS threads have the values of PER_SLICE positions each, a thread the
// same dimensions of all of them, so that nothing is added across threads before the end.
//
// Constants: 0 workgroup size, a multiple of the subgroup's; 1 .. 7 as in heads.glsl; 8 OUT, the
// type of y; 9 GROUP, query heads of a workgroup: heads / kv_heads or a divisor of it; 10 LANES,
// threads that share a key, a power of two that is at most the subgroup's size (best
// HEAD_DIM / 8); 11 FUSED; 12 UNROLL, keys that a thread has in flight; 13 SUBGROUP, the smallest
// size of a subgroup; 14 CAP of the scores, 0: none; 15 SINKS: each head's softmax has one more
// term. PAGE is a multiple of the positions that a subgroup has in flight.
// Grid: x = heads / GROUP, y = splits, z = rows.
// `partial`: rows * heads * splits * (HEAD_DIM + 1) floats. `counters`: rows * heads / GROUP words
// that are 0 before and after. Without FUSED q is rotated, the rows are in the caches, and k, v,
// angles and norms are not read.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "gates.glsl"
#include "heads.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 8) const uint OUT = F32;
layout(constant_id = 9) const uint GROUP = 4;
layout(constant_id = 10) const uint LANES = 8;
layout(constant_id = 11) const uint FUSED = 0;
layout(constant_id = 12) const uint UNROLL = 4;
layout(constant_id = 13) const uint SUBGROUP = 32;
layout(constant_id = 14) const float CAP = 0;
layout(constant_id = 15) const uint SINKS = 0;

#include "cache_pieces.glsl"

// Written by one workgroup, read by another of the same dispatch.
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer SharedFloats {
  float at[];
};

layout(push_constant) uniform Push {
  Floats q, k, v, angles, q_norm, k_norm;
  Words k_cache, v_cache, y;
  SharedFloats partial;
  Words counters;
  Floats sinks;
  Words call;
  uint heads, kv_heads, splits;
  float eps, q_factor;
};

const uint TEAMS = gl_WorkGroupSize.x / LANES;
const uint STEP = TEAMS * UNROLL;  // positions of a workgroup in flight
const uint PIECES = (HEAD_DIM + 8 * LANES - 1) / (8 * LANES);  // pieces of 8 dimensions, for each lane
const uint COLUMNS = 4 * LANES < SUBGROUP ? 4 * LANES : SUBGROUP;
const uint PAIRS_OF_COLUMN = (HALF + COLUMNS - 1) / COLUMNS;
const uint SLICES = gl_WorkGroupSize.x / COLUMNS;
const uint PER_SLICE = UNROLL * COLUMNS / LANES;
// Sums of lanes are scattered: each has those of OWN heads then.
const uint SCATTER = GROUP % 4 == 0 && LANES >= 4 ? 4 : (GROUP % 2 == 0 && LANES >= 2 ? 2 : 1);
const uint OWN = GROUP / SCATTER;
const uint QUADS = (GROUP + 3) / 4;  // four heads each
const float LOG2_E = 1.4426950408889634;
const float LOWEST = -3.0e38;  // less than any score, and finite: its weight is 0, not NaN

// q, times what scores are multiplied by; then k
shared vec4 rotated[((GROUP + 1) * HEAD_DIM + 3) / 4];
shared vec4 weights[TEAMS * UNROLL * QUADS];  // the positions' of a subgroup's block
shared vec2 of_block[SLICES * GROUP];  // each subgroup's largest score, and by what it shrinks sums
shared vec2 merged[SLICES * GROUP * HALF];
shared vec2 merged_sums[SLICES * GROUP];  // largest score, sum of weights
shared float new_v[HEAD_DIM];
shared float norm_scales[GROUP + 1];
// The row that is appended, as the caches hold it: k, then v; and its scores.
shared uint new_words[2 * (CACHE == F32 ? HEAD_DIM : HALF)];
shared float new_scores[GROUP];
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

float rotated_at(uint head, uint d) {
  const uint i = head * HEAD_DIM + d;
  return rotated[i / 4][i % 4];
}

// First dimension of a lane's piece. Neighbouring lanes read neighbouring memory.
uint piece_dim(uint piece) {
  return (piece * LANES + lane()) * 8;
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

// The two dimensions that angle `angle` turns, beyond ROTATED two neighbours that nothing turns.
uvec2 turned_dims(uint angle) {
  return PAIRS != 0 || angle >= ROTATED / 2 ? uvec2(2 * angle, 2 * angle + 1)
                                            : uvec2(angle, angle + ROTATED / 2);
}

// q and the new k into shared memory, rotated where that is not done yet.
void prepare_heads(uint row, uint kv_head) {
  if (FUSED != 0 && NORM != 0) find_norm_scales(row, kv_head);
  const float scale = q_factor * LOG2_E / sqrt(float(HEAD_DIM));  // scores are powers of two
  const uint count = (FUSED != 0 ? GROUP + 1 : GROUP) * HALF;
  for (uint i = gl_LocalInvocationID.x; i < count; i += gl_WorkGroupSize.x) {
    const uint head = i / HALF, angle = i % HALF;
    const uvec2 d = turned_dims(angle);
    vec2 value = vec2(projected(row, kv_head, head, d.x), projected(row, kv_head, head, d.y));
    if (FUSED != 0) {
      if (NORM != 0)
        value *= norm_scales[head] * (head < GROUP ? vec2(q_norm.at[d.x], q_norm.at[d.y])
                                                   : vec2(k_norm.at[d.x], k_norm.at[d.y]));
      if (angle < ROTATED / 2) {
        const vec2 turn = rope_cos_sin(angles, row, angle);
        value = value * turn.x + vec2(-value.y, value.x) * turn.y;
      }
    }
    if (head < GROUP) value *= scale;
    const uvec2 to = head * HEAD_DIM + d;
    rotated[to.x / 4][to.x % 4] = value.x;
    rotated[to.y / 4][to.y % 4] = value.y;
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

// The weight of a head's sink, which has no value.
float sink_weight(uint head, float largest) {
  return SINKS == 0 ? 0 : exp2(LOG2_E * sinks.at[gl_WorkGroupID.x * GROUP + head] - largest);
}

float bounded_score(float score) {
  return CAP != 0 ? capped(score, CAP * LOG2_E) : score;
}

// Where a split's results begin: GROUP * HEAD_DIM values, then a logarithm of each head's sum.
uint partial_at(uint row, uint split) {
  return ((row * gl_NumWorkGroups.x + gl_WorkGroupID.x) * splits + split) * GROUP * (HEAD_DIM + 1);
}

// The results of all splits of a row, by the workgroup that finishes last.
void combine(uint row, uint used) {
  for (uint pair = gl_LocalInvocationID.x; pair < GROUP * HALF; pair += gl_WorkGroupSize.x) {
    const uint head = pair / HALF, stride = GROUP * (HEAD_DIM + 1);
    float largest = LOWEST, total = 0;
    vec2 value = vec2(0);
    for (uint first = 0; first < used; first += 8) {
      const uint at = partial_at(row, first);
      float logs[8];
      vec2 parts[8];
      [[unroll]] for (uint i = 0; i < 8; ++i) {  // all loads before any use
        logs[i] = LOWEST;
        parts[i] = vec2(0);
        if (first + i >= used) continue;
        logs[i] = partial.at[at + i * stride + GROUP * HEAD_DIM + head];
        parts[i].x = partial.at[at + i * stride + 2 * pair];
        parts[i].y = partial.at[at + i * stride + 2 * pair + 1];
      }
      float now = largest;
      [[unroll]] for (uint i = 0; i < 8; ++i) now = max(now, logs[i]);
      const float kept = exp2(largest - now);
      total *= kept;
      value *= kept;
      [[unroll]] for (uint i = 0; i < 8; ++i) {
        const float weight = exp2(logs[i] - now);
        total += weight;
        value += parts[i] * weight;
      }
      largest = now;
    }
    write_y(row, pair, value / (total + sink_weight(head, largest)));
  }
}

// Two dimensions of the row that is appended: of k where `which` is 0, of v where it is 1.
vec2 new_pair(uint which, uint pair) {
  const uint at = which * row_words();
  return pair_of(CACHE == F32 ? uvec2(new_words[at + 2 * pair], new_words[at + 2 * pair + 1])
                              : uvec2(new_words[at + pair], 0));
}

// Makes a split's result of the slices' sums in shared memory, and the new row's.
void merge(uint row, uint split, uint used, bool has_new) {
  const uint at = partial_at(row, split);
  for (uint pair = gl_LocalInvocationID.x; pair < GROUP * HALF; pair += gl_WorkGroupSize.x) {
    const uint head = pair / HALF;
    float largest = has_new ? new_scores[head] : LOWEST, total = 0;
    vec2 value = vec2(0);
    [[unroll]] for (uint i = 0; i < SLICES; ++i)
      largest = max(largest, merged_sums[i * GROUP + head].x);
    if (has_new) {
      total = exp2(new_scores[head] - largest);
      value = total * new_pair(1, pair % HALF);
    }
    [[unroll]] for (uint i = 0; i < SLICES; ++i) {
      const vec2 sums = merged_sums[i * GROUP + head];
      const float weight = exp2(sums.x - largest);
      total += weight * sums.y;
      value += weight * merged[i * GROUP * HALF + pair];
    }
    if (used == 1) {
      write_y(row, pair, value / (total + sink_weight(head, largest)));
    } else {
      value /= total;
      partial.at[at + 2 * pair] = value.x;
      partial.at[at + 2 * pair + 1] = value.y;
      if (pair % HALF == 0) partial.at[at + GROUP * HEAD_DIM + head] = largest + log2(total);
    }
  }
}

// Keys and values of a thread's positions of a block.
struct Block {
  Piece k[UNROLL * PIECES];
  uvec2 v[PER_SLICE * PAIRS_OF_COLUMN];
};

uint teams_of_subgroup() {
  return gl_SubgroupSize / LANES;
}

uint block_positions() {
  return teams_of_subgroup() * UNROLL;
}

uint key_of_block(uint u) {
  return gl_SubgroupInvocationID / LANES * UNROLL + u;
}

uint value_of_block(uint j) {
  return gl_SubgroupInvocationID / COLUMNS * PER_SLICE + j;
}

uint page_of(uint position, uint pages) {
  return call.at[pages + position / PAGE];
}

// Rows of the page outside of begin .. end - 1 are read too; their values, which may be anything, become
// zeros here, and their scores nothing in find_scores.
void load_block(uint first, uint begin, uint end, uint page, uint kv_head, out Block block) {
  const uint row = (page * kv_heads + kv_head) * PAGE + first % PAGE;
  const uint column = gl_SubgroupInvocationID % COLUMNS, words = row_words() / HALF;
  Words keys = cache_at(k_cache, row + key_of_block(0), 4 * words * lane());
  Words values = cache_at(v_cache, row + value_of_block(0), words * column);
  [[unroll]] for (uint i = 0; i < UNROLL * PIECES; ++i)
    block.k[i] = load_piece(keys, i / PIECES * row_words() + i % PIECES * LANES * 4 * words,
                            piece_dim(i % PIECES));
  [[unroll]] for (uint i = 0; i < PER_SLICE * PAIRS_OF_COLUMN; ++i) {
    const uint pair = i % PAIRS_OF_COLUMN * COLUMNS, j = i / PAIRS_OF_COLUMN;
    const uint at = j * row_words() + pair * words;
    block.v[i] = uvec2(0);
    if (HALF % COLUMNS != 0 && pair + column >= HALF) continue;
    block.v[i] = CACHE == F32 ? WordPairs(values).at[at / 2] : uvec2(values.at[at], 0);
  }
  if ((WINDOW == 0 || first >= begin) && first + block_positions() <= end) return;
  [[unroll]] for (uint i = 0; i < PER_SLICE * PAIRS_OF_COLUMN; ++i) {
    const uint position = first + value_of_block(i / PAIRS_OF_COLUMN);
    if ((WINDOW != 0 && position < begin) || position >= end) block.v[i] = uvec2(0);
  }
}

struct Query {
  vec4 values[GROUP * PIECES * 2];
};

void load_query(out Query query) {
  [[unroll]] for (uint i = 0; i < GROUP * PIECES * 2; ++i) {
    const uint head = i / (2 * PIECES), part = i % (2 * PIECES);
    const uint d = piece_dim(part / 2) + part % 2 * 4;
    if (HEAD_DIM % 8 == 0) {
      query.values[i] = rotated[(head * HEAD_DIM + min(d, HEAD_DIM - 4)) / 4];
    } else {
      [[unroll]] for (uint j = 0; j < 4; ++j)
        query.values[i][j] = d + j < HEAD_DIM ? rotated_at(head, d + j) : 0;
    }
  }
}

// The first head of those whose sums a lane has after `scattered`.
uint first_own_head() {
  return lane() / (LANES / SCATTER) * OWN;
}

struct Scores {
  float of[UNROLL * OWN];
};

void find_scores(uint first, uint begin, uint end, Query query, Block block, out Scores scores) {
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
    float sums[GROUP];
    [[unroll]] for (uint g = 0; g < GROUP; ++g) sums[g] = 0;
    [[unroll]] for (uint i = 0; i < 2 * PIECES; ++i) {
      const vec4 key = values_of(block.k[u * PIECES + i / 2], i % 2);
      [[unroll]] for (uint g = 0; g < GROUP; ++g)
        sums[g] += dot(query.values[g * 2 * PIECES + i], key);
    }
    // Two lanes give each other half of what they have.
    [[unroll]] for (uint s = SCATTER, mask = LANES / 2; s > 1; s /= 2, mask /= 2) {
      const uint width = OWN * s / 2;
      const bool upper = (lane() & mask) != 0;
      [[unroll]] for (uint i = 0; i < width; ++i) {
        const float given = upper ? sums[i] : sums[i + width];
        const float own = upper ? sums[i + width] : sums[i];
        sums[i] = own + subgroupShuffleXor(given, mask);
      }
    }
    [[unroll]] for (uint o = 0; o < OWN; ++o) {
      [[unroll]] for (uint mask = LANES / SCATTER / 2; mask > 0; mask /= 2)
        sums[o] += subgroupShuffleXor(sums[o], mask);
      const uint position = first + key_of_block(u);
      const bool is_seen = position < end && (WINDOW == 0 || position >= begin);
      scores.of[u * OWN + o] = is_seen ? bounded_score(sums[o]) : LOWEST;
    }
  }
}

// What a thread has of its share of positions.
struct Sums {
  float largest[OWN];  // the largest scores of its heads
  float total[GROUP];
  vec2 values[GROUP * PAIRS_OF_COLUMN];
};

void wait_for_subgroup() {
  subgroupMemoryBarrierShared();
  subgroupBarrier();
}

// Where the weights of a position of the subgroup's block begin.
uint weights_at(uint of_block) {
  return (gl_SubgroupID * block_positions() + of_block) * QUADS;
}

void weigh(Scores scores, inout Sums sums) {
  [[unroll]] for (uint o = 0; o < OWN; ++o) {
    float largest = sums.largest[o];
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) largest = max(largest, scores.of[u * OWN + o]);
    for (uint mask = LANES; mask < gl_SubgroupSize; mask *= 2)
      largest = max(largest, subgroupShuffleXor(largest, mask));
    const uint head = first_own_head() + o;
    if (lane() % (LANES / SCATTER) == 0) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u)
        weights[weights_at(key_of_block(u)) + head / 4][head % 4] = exp2(scores.of[u * OWN + o] - largest);
      of_block[gl_SubgroupID * GROUP + head] = vec2(largest, exp2(sums.largest[o] - largest));
    }
    sums.largest[o] = largest;
  }
  wait_for_subgroup();
}

void add_values(Block block, inout Sums sums) {
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    const float kept = of_block[gl_SubgroupID * GROUP + g].y;
    sums.total[g] *= kept;
    [[unroll]] for (uint w = 0; w < PAIRS_OF_COLUMN; ++w)
      sums.values[g * PAIRS_OF_COLUMN + w] *= kept;
  }
  [[unroll]] for (uint j = 0; j < PER_SLICE; ++j) {
    vec4 quads[QUADS];
    [[unroll]] for (uint i = 0; i < QUADS; ++i)
      quads[i] = weights[weights_at(value_of_block(j)) + i];
    [[unroll]] for (uint g = 0; g < GROUP; ++g) sums.total[g] += quads[g / 4][g % 4];
    [[unroll]] for (uint w = 0; w < PAIRS_OF_COLUMN; ++w) {
      const vec2 value = pair_of(block.v[j * PAIRS_OF_COLUMN + w]);
      [[unroll]] for (uint g = 0; g < GROUP; ++g)
        sums.values[g * PAIRS_OF_COLUMN + w] += quads[g / 4][g % 4] * value;
    }
  }
  wait_for_subgroup();
}

void leave_sums(Sums sums) {
  const uint slice = gl_LocalInvocationID.x / COLUMNS, column = gl_SubgroupInvocationID % COLUMNS;
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    if (column == 0)
      merged_sums[slice * GROUP + g] = vec2(of_block[gl_SubgroupID * GROUP + g].x, sums.total[g]);
    [[unroll]] for (uint w = 0; w < PAIRS_OF_COLUMN; ++w) {
      const uint pair = w * COLUMNS + column;
      if (pair < HALF)
        merged[(slice * GROUP + g) * HALF + pair] = sums.values[g * PAIRS_OF_COLUMN + w];
    }
  }
}

// The row that this call appends goes into the caches, and its scores are found.
void append(uint cache_row, bool writes) {
  const uint to = cache_row * row_words();
  for (uint i = gl_LocalInvocationID.x; i < 2 * row_words(); i += gl_WorkGroupSize.x) {
    const bool is_k = i < row_words();
    const uint word = is_k ? i : i - row_words(), d = CACHE == F32 ? word : 2 * word;
    const uint next = CACHE == F32 ? 0 : 1;
    const vec2 value = is_k ? vec2(rotated_at(GROUP, d), rotated_at(GROUP, d + next))
                            : vec2(new_v[d], new_v[d + next]);
    new_words[i] = CACHE == F32 ? floatBitsToUint(value.x) : pack16(value, CACHE);
    if (!writes) continue;
    if (is_k) k_cache.at[to + word] = new_words[i];
    else v_cache.at[to + word] = new_words[i];
  }
  barrier();
  for (uint head = team(); head < GROUP; head += TEAMS) {
    float score = 0;
    for (uint pair = lane(); pair < HALF; pair += LANES)
      score += dot(vec2(rotated_at(head, 2 * pair), rotated_at(head, 2 * pair + 1)),
                   new_pair(0, pair));
    score = lanes_sum(score);
    if (lane() == 0) new_scores[head] = bounded_score(score);
  }
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
  const uint row = gl_WorkGroupID.z, split = gl_WorkGroupID.y;
  const uint rows = call_rows(call);
  const uvec4 about = WordQuads(call).at[2 + row];
  if (row >= rows) return;
  const uint position = about.y, pages = list_of_pages(call, about.w);
  const uint cached = FUSED != 0 ? position : position + 1;
  const uint seen = first_seen(position);
  const uint skipped = seen / STEP * STEP;
  const uint share = (cached - skipped + splits - 1) / splits;
  // In whole steps: a shorter last one takes as long.
  const uint chunk = max(1, (share + STEP - 1) / STEP) * STEP;
  const uint used = max(1, (cached - skipped + chunk - 1) / chunk);
  if (split >= used) return;
  const uint begin = skipped + split * chunk, end = min(begin + chunk, cached);
  const uint per_kv_head = heads / kv_heads, first_head = gl_WorkGroupID.x * GROUP;
  const uint kv_head = first_head / per_kv_head;
  const bool has_new = FUSED != 0 && split + 1 == used;

  uint own = begin + gl_SubgroupID * block_positions();
  while (WINDOW != 0 && own < end && own + block_positions() <= seen) own += STEP;
  // On their way while q is prepared.
  const uint new_page = has_new ? page_of(position, pages) : 0;
  uint page = own < end ? page_of(own, pages) : 0;
  prepare_heads(row, kv_head);
  if (has_new)
    append((new_page * kv_heads + kv_head) * PAGE + position % PAGE, first_head % per_kv_head == 0);
  Query query;
  load_query(query);
  Sums sums;
  [[unroll]] for (uint o = 0; o < OWN; ++o) sums.largest[o] = LOWEST;
  [[unroll]] for (uint g = 0; g < GROUP; ++g) {
    sums.total[g] = 0;
    [[unroll]] for (uint w = 0; w < PAIRS_OF_COLUMN; ++w)
      sums.values[g * PAIRS_OF_COLUMN + w] = vec2(0);
  }
  if (own >= end && gl_SubgroupInvocationID < GROUP)
    of_block[gl_SubgroupID * GROUP + gl_SubgroupInvocationID] = vec2(LOWEST, 0);
  for (uint first = own; first < end; first += STEP) {
    Block block;
    load_block(first, seen, end, page, kv_head, block);
    if (first + STEP < end) page = page_of(first + STEP, pages);
    Scores scores;
    find_scores(first, seen, end, query, block, scores);
    weigh(scores, sums);
    add_values(block, sums);
  }
  wait_for_subgroup();
  leave_sums(sums);
  barrier();
  merge(row, split, used, has_new);
  if (used > 1 && finishes(row, used)) combine(row, used);
}
