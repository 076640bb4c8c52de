// Sizes of the kernels for attention on a GPU: their constants and grids follow from them. Where
// none fits into a workgroup's shared memory, which takes heads of more than 256, `threads` is 0.
#pragma once

#include <cstdint>

namespace tyto::vulkan {

// The heads of a model, and what a GPU's workgroups have.
struct AttentionSite {
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t subgroup_size = 0;
  uint32_t shared_bytes = 0;
};

// Of shaders/attention_decode.comp.
struct FewRowsShape {
  uint32_t threads = 0;
  uint32_t group = 0;   // query heads of a workgroup
  uint32_t lanes = 0;   // threads that share a position
  uint32_t unroll = 0;  // positions that a thread has in flight
  uint32_t shared_bytes = 0;

  uint32_t positions_at_once() const { return threads / lanes * unroll; }
};
FewRowsShape few_rows_shape(const AttentionSite& site);

// Workgroups that share the positions of a row, when `rows` rows of at most `positions` are
// attended to at once on a GPU that wants `workgroups`.
uint32_t attention_splits(const AttentionSite& site, uint32_t rows, uint32_t positions,
                          uint32_t workgroups);

// Of shaders/attention_prefill_coop.comp, else of shaders/attention_prefill.comp.
struct ManyRowsShape {
  bool is_cooperative = false;
  uint32_t threads = 0;
  uint32_t group = 1;    // heads of a workgroup
  uint32_t tile = 0;     // rows of a workgroup
  uint32_t keys = 0;     // that it takes at once
  uint32_t rows = 0;     // of a thread; of cooperative matrices: blocks of rows of a subgroup
  uint32_t columns = 0;  // of a thread; of cooperative matrices: their layout
  uint32_t parts = 0;    // workgroups that share a tile of the call's table
  uint32_t shared_bytes = 0;
};
// `has_matrices`: cooperative ones of f16, 16 x 16 x 16; `layout`: what coop_layout.comp says of
// them; `table_tile`: most rows of the table's tiles, a power of two.
ManyRowsShape many_rows_shape(const AttentionSite& site, uint32_t table_tile, bool has_matrices,
                              uint32_t layout);

}  // namespace tyto::vulkan
