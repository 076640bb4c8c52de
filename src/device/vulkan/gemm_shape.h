// How a product of many rows is cut into workgroups: the specialization constants of
// shaders/gemm_coop.comp and shaders/gemm_tiled.comp. Any shape gives the right result; which one
// is fast depends on the product and on the GPU.
#pragma once

#include <cstdint>

namespace tyto::vulkan {

struct GemmProduct {
  uint64_t rows = 0;     // of x
  uint64_t columns = 0;  // of all matrices of the dispatch together; of swiglu's, both
  uint64_t k = 0;
  bool is_pair = false;  // swiglu
};

struct GemmMachine {
  uint32_t subgroup_size = 32;
  uint32_t compute_units = 1;
  uint32_t shared_bytes = 32768;  // that a workgroup may have
};

struct GemmShape {
  uint32_t bm = 0, bn = 0, bk = 0;  // a workgroup's tile and its step along k
  uint32_t part_rows = 0;  // of the tile that a subgroup has (gemm_coop) or a thread (gemm_tiled)
  uint32_t part_columns = 0;
  uint32_t threads = 0;  // of a workgroup

  bool operator==(const GemmShape&) const = default;
};

GemmShape cooperative_gemm_shape(const GemmProduct& product, const GemmMachine& machine);
GemmShape tiled_gemm_shape(const GemmProduct& product, const GemmMachine& machine);

// What a workgroup of that shape declares.
uint64_t cooperative_shared_bytes(const GemmShape& shape, bool is_pair);
uint64_t tiled_shared_bytes(const GemmShape& shape);

}  // namespace tyto::vulkan
