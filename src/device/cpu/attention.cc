#include "device/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "device/cpu/scratch_buffer.h"

namespace tyto::cpu {
namespace {

// Query rows that share the widened keys and values: enough to pay for widening them.
constexpr size_t kMostRows = 32;

// Some rows of one segment against one KV head.
struct Tile {
  const Segment* segment;
  size_t kv_head;
  size_t first;   // row in the segment
  size_t tokens;  // rows of the call
  size_t begin;   // the first split that its first row sees
  size_t splits;  // from there to the last that its last row sees
  size_t unit;    // splits of all tiles before it
};

// The first split that a token at `position` sees.
size_t first_split(size_t position, size_t window) {
  return window != 0 && position >= window ? (position + 1 - window) / kSplitPositions : 0;
}

size_t splits_of(size_t positions) {
  return (positions + kSplitPositions - 1) / kSplitPositions;
}

// Everything that follows from the call's shape.
struct Plan {
  Plan(const Attention& a, std::vector<Tile>& memory)
      : group(a.shape.heads / a.shape.kv_heads),
        padded_dim(attention_padded(a.shape.head_dim)),
        tiles(memory) {
    const size_t most = std::max<size_t>(1, kMostRows / group);
    size_t tile_tokens = 1;
    tiles.clear();
    for (const Segment& segment : a.segments)
      for (size_t first = 0; first < segment.rows; first += most) {
        const size_t tokens = std::min<size_t>(most, segment.rows - first);
        const size_t position = segment.position + first;
        const size_t begin = first_split(position, a.shape.window);
        const size_t seen = splits_of(position + tokens) - begin;
        tile_tokens = std::max(tile_tokens, tokens);
        most_splits = std::max(most_splits, seen);
        for (size_t head = 0; head < a.shape.kv_heads; ++head) {
          tiles.push_back({&segment, head, first, tokens, begin, seen, units});
          units += seen;
          work += 2 * tokens * group * (segment.end() - begin * kSplitPositions) * a.shape.head_dim;
        }
      }
    rows = tile_tokens * group;
  }

  size_t group;  // query heads per KV head
  size_t padded_dim;
  std::vector<Tile>& tiles;
  size_t units = 0;  // splits of all tiles
  size_t most_splits = 0;
  size_t rows = 0;  // in the largest tile
  size_t work = 0;  // multiply-adds

  size_t part_floats() const { return rows * (2 + padded_dim); }
  AttentionPart part(float* memory) const { return {memory, memory + rows, memory + 2 * rows}; }
};

// The tile's queries one after the other, scaled.
void gather_queries(const Attention& a, const Plan& plan, const Tile& tile, float* q) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(a.shape.head_dim));
  const size_t width = plan.group * a.shape.head_dim;
  for (size_t t = 0; t < tile.tokens; ++t) {
    const size_t row = tile.segment->first_row + tile.first + t;
    const float* in = a.q + (row * a.shape.kv_heads + tile.kv_head) * width;
    for (size_t i = 0; i < width; ++i) q[t * width + i] = scale * in[i];
  }
}

// Where a head's positions of a split begin, in rows of the cache.
size_t split_row(const LaunchShape& shape, const Tile& tile, size_t split) {
  const size_t position = split * kSplitPositions;
  if (shape.page == 0) return tile.kv_head * shape.context + position;
  const size_t page = tile.segment->pages_of(shape.window)[position / shape.page];
  return (page * shape.kv_heads + tile.kv_head) * shape.page + position % shape.page;
}

void attend_to_split(const Attention& a, const Plan& plan, const Tile& tile, size_t split,
                     const float* q, const AttentionPart& out, const AttentionLoops& loops) {
  static thread_local ScratchBuffer<float> scratch;
  const uint64_t row = row_bytes(a.kv_type, a.shape.head_dim);
  const uint64_t at = split_row(a.shape, tile, split) * row;
  const bool is_last = split + 1 == tile.begin + tile.splits;
  loops.attend({.q = q,
                .rows = tile.tokens * plan.group,
                .group = plan.group,
                .head_dim = a.shape.head_dim,
                .k = a.k + at,
                .v = a.v + at,
                .next_k = is_last ? nullptr : a.k + split_row(a.shape, tile, split + 1) * row,
                .kv_type = a.kv_type,
                .first = split * kSplitPositions,
                .position = tile.segment->position + tile.first,
                .window = a.shape.window,
                .cap = a.shape.score_cap,
                .out = out,
                .scratch = scratch.at_least(attention_scratch(plan.rows, a.shape.head_dim))});
}

// The rest of a part, from one of its rows on.
AttentionPart from_row(const AttentionPart& part, size_t row, size_t padded_dim) {
  return {part.largest + row, part.total + row, part.mixed + row * padded_dim};
}

// What one row of a tile came to.
void write_row(const Attention& a, const Plan& plan, const Tile& tile, size_t row,
               const AttentionPart& merged) {
  const size_t dim = a.shape.head_dim, token = row / plan.group;
  const size_t own = tile.kv_head * plan.group + row % plan.group;
  const size_t head = (tile.segment->first_row + tile.first + token) * a.shape.heads + own;
  const float sink = a.sinks == nullptr ? 0.0f : std::exp(a.sinks[own] - *merged.largest);
  const float scale = 1.0f / (*merged.total + sink);
  for (size_t i = 0; i < dim; ++i) a.y[head * dim + i] = scale * merged.mixed[i];
}

// Enough tiles for all: each thread walks the splits of its own.
void attend_by_tile(const Attention& a, const Plan& plan, ThreadPool& pool,
                    const AttentionLoops& loops) {
  // Some three microseconds: a query over a few positions is done sooner than another thread
  // begins.
  constexpr size_t kWorthSharing = 16 << 10;  // multiply-adds
  const size_t grain = kWorthSharing / (plan.work / plan.tiles.size() + 1);
  pool.parallel_for(plan.tiles.size(), grain, [&](size_t begin, size_t end) {
    static thread_local ScratchBuffer<float> memory;
    float* q = memory.at_least(plan.rows * a.shape.head_dim + 2 * plan.part_floats());
    const AttentionPart merged = plan.part(q + plan.rows * a.shape.head_dim);
    const AttentionPart part = plan.part(merged.largest + plan.part_floats());
    for (size_t i = begin; i < end; ++i) {
      const Tile& tile = plan.tiles[i];
      gather_queries(a, plan, tile, q);
      for (size_t split = 0; split < tile.splits; ++split) {
        attend_to_split(a, plan, tile, tile.begin + split, q, part, loops);
        loops.merge(merged, part, tile.tokens * plan.group, plan.padded_dim, split == 0);
      }
      for (size_t row = 0; row < tile.tokens * plan.group; ++row)
        write_row(a, plan, tile, row, from_row(merged, row, plan.padded_dim));
    }
  });
}

// Few tiles, a long cache: threads share the splits, and then the rows, whose splits are merged.
void attend_by_split(const Attention& a, const Plan& plan, ThreadPool& pool,
                     const AttentionLoops& loops) {
  static thread_local ScratchBuffer<float> memory;
  const size_t q_floats = plan.rows * a.shape.head_dim, tiles = plan.tiles.size();
  float* q =
      memory.at_least(tiles * (q_floats + plan.part_floats()) + plan.units * plan.part_floats());
  float* parts = q + tiles * q_floats;
  float* merged = parts + plan.units * plan.part_floats();
  for (size_t i = 0; i < tiles; ++i) gather_queries(a, plan, plan.tiles[i], q + i * q_floats);
  pool.parallel_for(plan.units, 1, [&](size_t begin, size_t end) {
    const auto after = std::upper_bound(plan.tiles.begin(), plan.tiles.end(), begin,
                                        [](size_t unit, const Tile& t) { return unit < t.unit; });
    auto i = static_cast<size_t>(after - plan.tiles.begin()) - 1;
    for (size_t unit = begin; unit < end; ++unit) {
      while (unit >= plan.tiles[i].unit + plan.tiles[i].splits) ++i;
      const Tile& tile = plan.tiles[i];
      attend_to_split(a, plan, tile, tile.begin + unit - tile.unit, q + i * q_floats,
                      plan.part(parts + unit * plan.part_floats()), loops);
    }
  });
  constexpr size_t kSplitsWorthSharing = 4;
  const size_t rows = tiles * plan.rows;
  pool.parallel_for(
      rows, plan.most_splits < kSplitsWorthSharing ? rows : 1, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
          const Tile& tile = plan.tiles[i / plan.rows];
          const size_t row = i % plan.rows;
          if (row >= tile.tokens * plan.group) continue;
          const auto of_row = [&](float* part) {
            return from_row(plan.part(part), row, plan.padded_dim);
          };
          const AttentionPart into = of_row(merged + i / plan.rows * plan.part_floats());
          for (size_t split = 0; split < tile.splits; ++split)
            loops.merge(into, of_row(parts + (tile.unit + split) * plan.part_floats()), 1,
                        plan.padded_dim, split == 0);
          write_row(a, plan, tile, row, into);
        }
      });
}

}  // namespace

void attend(const Attention& attention, ThreadPool& pool, const AttentionLoops& loops) {
  static thread_local std::vector<Tile> tiles;
  const Plan plan(attention, tiles);
  constexpr size_t kTilesPerThread = 4;
  if (plan.most_splits == 1 || plan.tiles.size() >= kTilesPerThread * pool.threads())
    attend_by_tile(attention, plan, pool, loops);
  else
    attend_by_split(attention, plan, pool, loops);
}

}  // namespace tyto::cpu
