#include "device/vulkan/attention_shape.h"

#include <algorithm>
#include <bit>

namespace tyto::vulkan {
namespace {

constexpr uint32_t kEdge = 16;  // rows and columns of a cooperative matrix

uint32_t largest_divisor(uint32_t value, uint32_t most) {
  uint32_t divisor = std::min(value, most);
  while (value % divisor != 0) --divisor;
  return divisor;
}

uint32_t few_rows_bytes(const AttentionSite& site, const FewRowsShape& shape) {
  const uint32_t slices = shape.threads / std::min(4 * shape.lanes, site.subgroup_size);
  const uint32_t heads = (shape.group + 1) * (site.head_dim + 2) + 3 * site.head_dim;
  const uint32_t weights = shape.positions_at_once() * ((shape.group + 3) / 4 * 4);
  return 4 * (heads + weights + slices * shape.group * (site.head_dim + 4)) + 32;
}

uint32_t plain_bytes(const AttentionSite& site, const ManyRowsShape& shape) {
  return 4 * ((shape.tile + shape.keys) * (site.head_dim + 1) + shape.tile * (shape.keys + 1));
}

uint32_t cooperative_bytes(const AttentionSite& site, const ManyRowsShape& shape) {
  const uint32_t tiles = 2 * shape.keys * (site.head_dim / 8 + 1) * 16;
  if (shape.columns != 0) return 2 * tiles + 128;
  const uint32_t subgroup =
      kEdge * ((shape.keys + 4) * 4 + (shape.keys + 8) * 2 + kEdge * 4) + kEdge * shape.rows * 8;
  return tiles + shape.threads / site.subgroup_size * subgroup + 128;
}

ManyRowsShape cooperative_shape(const AttentionSite& site, uint32_t table_tile, uint32_t layout) {
  ManyRowsShape shape{.is_cooperative = true, .rows = 1, .columns = layout};
  // An H200 took 72 us for 2048 rows of 32 heads of 64 with four heads and two blocks of rows for
  // each subgroup, which is all its registers; 92 us with one of each. Larger heads do not fit so.
  const bool is_shared = layout != 0 && site.head_dim <= 64 &&
                         site.heads / site.kv_heads % 4 == 0 && table_tile >= 2 * kEdge;
  if (is_shared) shape.group = 4, shape.rows = 2;
  for (shape.keys = 32; shape.keys >= kEdge; shape.keys /= 2) {
    shape.tile = is_shared ? 2 * kEdge : std::min({table_tile, 2 * shape.keys, 4 * kEdge});
    shape.threads = site.subgroup_size * (shape.group * shape.tile / kEdge) / shape.rows;
    shape.parts = table_tile / shape.tile;
    shape.shared_bytes = cooperative_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

ManyRowsShape plain_shape(const AttentionSite& site, uint32_t table_tile) {
  ManyRowsShape shape{.columns = 4};
  for (shape.tile = std::min(table_tile, 32u); shape.tile > 0; shape.tile /= 2) {
    shape.keys = std::clamp(shape.tile, 8u, 32u);
    shape.rows = shape.tile >= 16 ? 2 : 1;
    shape.threads = shape.tile / shape.rows * (shape.keys / shape.columns);
    shape.parts = table_tile / shape.tile;
    shape.shared_bytes = plain_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

}  // namespace

FewRowsShape few_rows_shape(const AttentionSite& site) {
  // An H200 took 6.9 us for 512 positions of 8 KV heads of 64 and 10.9 us for 2200 with two in
  // flight (80 registers of a thread), 7.9 and 11.0 us with four (112 registers).
  FewRowsShape shape{.unroll = 2};
  shape.lanes =
      std::min(std::bit_floor(site.subgroup_size), std::bit_ceil((site.head_dim + 7) / 8));
  // Sums and q of a thread's heads are in registers: at most 32 values of each.
  const uint32_t pieces = (site.head_dim + 8 * shape.lanes - 1) / (8 * shape.lanes);
  shape.group = largest_divisor(site.heads / site.kv_heads, std::max(1u, 4 / pieces));
  for (shape.threads = 256; shape.threads >= site.subgroup_size; shape.threads /= 2) {
    shape.shared_bytes = few_rows_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

uint32_t attention_splits(const AttentionSite& site, uint32_t rows, uint32_t positions,
                          uint32_t workgroups) {
  const FewRowsShape shape = few_rows_shape(site);
  const uint32_t own = rows * site.heads / shape.group;
  const uint32_t at_once = shape.positions_at_once();
  const uint32_t most = std::clamp((positions + at_once - 1) / at_once, 1u, 64u);
  return std::clamp((workgroups + own - 1) / own, 1u, most);
}

ManyRowsShape many_rows_shape(const AttentionSite& site, uint32_t table_tile, bool has_matrices,
                              uint32_t layout) {
  if (has_matrices && site.head_dim % kEdge == 0 && table_tile >= kEdge) {
    const ManyRowsShape shape = cooperative_shape(site, table_tile, layout);
    if (shape.is_cooperative) return shape;
  }
  return plain_shape(site, table_tile);
}

}  // namespace tyto::vulkan
