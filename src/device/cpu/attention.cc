#include "device/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/grown.h"

namespace tyto::cpu {
namespace {

// Query rows that share the widened keys and values: enough to pay for widening them.
constexpr size_t kMostRows = 32;

// Everything that follows from the call's shape.
struct Plan {
  explicit Plan(const Attention& a)
      : group(a.heads / a.kv_heads),
        tile_tokens(std::min(a.tokens, std::max<size_t>(1, kMostRows / group))),
        tiles((a.tokens + tile_tokens - 1) / tile_tokens * a.kv_heads),
        splits((a.position + a.tokens + kSplitPositions - 1) / kSplitPositions),
        rows(tile_tokens * group),
        padded_dim(attention_padded(a.head_dim)) {}

  size_t group;        // query heads per KV head
  size_t tile_tokens;  // the most tokens of one tile
  size_t tiles;        // token tiles times KV heads
  size_t splits;
  size_t rows;  // of a tile
  size_t padded_dim;

  size_t part_floats() const { return rows * (2 + padded_dim); }
  AttentionPart part(float* memory) const { return {memory, memory + rows, memory + 2 * rows}; }
};

// Some tokens' rows against one KV head.
struct Tile {
  size_t kv_head;
  size_t first_token;
  size_t tokens;
};

Tile tile_at(const Attention& a, const Plan& plan, size_t index) {
  const size_t first = index / a.kv_heads * plan.tile_tokens;
  return {index % a.kv_heads, first, std::min(plan.tile_tokens, a.tokens - first)};
}

// The tile's queries one after the other, scaled.
void gather_queries(const Attention& a, const Plan& plan, const Tile& tile, float* q) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  const size_t width = plan.group * a.head_dim;
  for (size_t t = 0; t < tile.tokens; ++t) {
    const float* in = a.q + ((tile.first_token + t) * a.kv_heads + tile.kv_head) * width;
    for (size_t i = 0; i < width; ++i) q[t * width + i] = scale * in[i];
  }
}

void attend_to_split(const Attention& a, const Plan& plan, const Tile& tile, size_t split,
                     const float* q, const AttentionPart& out, const AttentionLoops& loops) {
  static thread_local Grown<float> scratch;
  const uint64_t head_bytes = a.context * row_bytes(a.kv_type, a.head_dim);
  loops.attend({.q = q,
                .rows = tile.tokens * plan.group,
                .group = plan.group,
                .head_dim = a.head_dim,
                .k = a.k + tile.kv_head * head_bytes,
                .v = a.v + tile.kv_head * head_bytes,
                .kv_type = a.kv_type,
                .first = split * kSplitPositions,
                .position = a.position + tile.first_token,
                .out = out,
                .scratch = scratch.at_least(attention_scratch(plan.rows, a.head_dim))});
}

void write_results(const Attention& a, const Plan& plan, const Tile& tile,
                   const AttentionPart& merged) {
  for (size_t t = 0; t < tile.tokens; ++t)
    for (size_t g = 0; g < plan.group; ++g) {
      const size_t row = t * plan.group + g;
      const size_t head = (tile.first_token + t) * a.heads + tile.kv_head * plan.group + g;
      const float scale = 1.0f / merged.total[row];
      const float* mixed = merged.mixed + row * plan.padded_dim;
      for (size_t i = 0; i < a.head_dim; ++i) a.y[head * a.head_dim + i] = scale * mixed[i];
    }
}

void merge_all(const Plan& plan, const Tile& tile, const float* parts, float* merged,
               const AttentionLoops& loops) {
  const AttentionPart into = plan.part(merged);
  for (size_t split = 0; split < plan.splits; ++split)
    loops.merge(into, plan.part(const_cast<float*>(parts) + split * plan.part_floats()),
                tile.tokens * plan.group, plan.padded_dim, split == 0);
}

// Enough tiles for everybody: each thread walks the splits of its own.
void attend_by_tile(const Attention& a, const Plan& plan, ThreadPool& pool,
                    const AttentionLoops& loops) {
  // One query over a short cache is done sooner than another thread is awake.
  constexpr size_t kWorthSharing = 512 << 10;  // multiply-adds
  const size_t per_tile = 2 * plan.rows * (a.position + a.tokens) * a.head_dim;
  pool.parallel_for(plan.tiles, kWorthSharing / per_tile, [&](size_t begin, size_t end) {
    static thread_local Grown<float> memory;
    float* q = memory.at_least(plan.rows * a.head_dim + 2 * plan.part_floats());
    const AttentionPart merged = plan.part(q + plan.rows * a.head_dim);
    const AttentionPart part = plan.part(merged.largest + plan.part_floats());
    for (size_t i = begin; i < end; ++i) {
      const Tile tile = tile_at(a, plan, i);
      gather_queries(a, plan, tile, q);
      const size_t last = a.position + tile.first_token + tile.tokens;
      for (size_t split = 0; split * kSplitPositions < last; ++split) {
        attend_to_split(a, plan, tile, split, q, part, loops);
        loops.merge(merged, part, tile.tokens * plan.group, plan.padded_dim, split == 0);
      }
      write_results(a, plan, tile, merged);
    }
  });
}

// Few tiles, a long cache: threads share the splits, and each tile's are merged afterwards.
void attend_by_split(const Attention& a, const Plan& plan, ThreadPool& pool,
                     const AttentionLoops& loops) {
  static thread_local Grown<float> memory;
  const size_t q_floats = plan.rows * a.head_dim, tile_floats = plan.splits * plan.part_floats();
  float* q = memory.at_least(plan.tiles * (q_floats + tile_floats + plan.part_floats()));
  float* parts = q + plan.tiles * q_floats;
  float* merged = parts + plan.tiles * tile_floats;
  for (size_t i = 0; i < plan.tiles; ++i)
    gather_queries(a, plan, tile_at(a, plan, i), q + i * q_floats);
  pool.parallel_for(plan.tiles * plan.splits, 1, [&](size_t begin, size_t end) {
    for (size_t index = begin; index < end; ++index) {
      const size_t i = index / plan.splits, split = index % plan.splits;
      attend_to_split(a, plan, tile_at(a, plan, i), split, q + i * q_floats,
                      plan.part(parts + i * tile_floats + split * plan.part_floats()), loops);
    }
  });
  constexpr size_t kSplitsWorthSharing = 4;
  pool.parallel_for(plan.tiles, plan.splits < kSplitsWorthSharing ? plan.tiles : 1,
                    [&](size_t begin, size_t end) {
                      for (size_t i = begin; i < end; ++i) {
                        float* result = merged + i * plan.part_floats();
                        const Tile tile = tile_at(a, plan, i);
                        merge_all(plan, tile, parts + i * tile_floats, result, loops);
                        write_results(a, plan, tile, plan.part(result));
                      }
                    });
}

}  // namespace

void attend(const Attention& attention, ThreadPool& pool, const AttentionLoops& loops) {
  const Plan plan(attention);
  constexpr size_t kTilesPerThread = 4;
  if (plan.splits == 1 || plan.tiles >= kTilesPerThread * pool.threads())
    attend_by_tile(attention, plan, pool, loops);
  else
    attend_by_split(attention, plan, pool, loops);
}

}  // namespace tyto::cpu
