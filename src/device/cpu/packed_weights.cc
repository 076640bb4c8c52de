#include "device/cpu/packed_weights.h"

#include <algorithm>

#include "base/error.h"
#include "device/cpu/grid_panels.h"
#include "device/cpu/huge_pages.h"
#include "device/cpu/packed_floats.h"
#include "device/cpu/panel_packing.h"

namespace tyto::cpu {
namespace {

PackPanel panel_packer(DType type) {
  if (is_float(type)) return pack_float_panel;
  return is_on_grid(type) ? pack_grid_panel : avx2::panel_packer(type);
}

}  // namespace

bool can_pack(DType type) {
  return panel_packer(type) != nullptr;
}

PackedWeights pack_weights(const TensorView& view, ThreadPool& pool) {
  TYTO_ASSERT(can_pack(view.dtype) && view.rows > 0 && view.cols > 0);
  PackedWeights result;
  result.matrix = {view.dtype, view.rows, view.cols, nullptr};
  const PackedLayout layout = packed_layout(view.dtype);
  const size_t panel_size = layout.panel_size(view.cols), panel_rows = layout.panel_rows;
  result.bytes = result.matrix.panel_count() * panel_size;
  result.memory = zeroed_huge_pages(result.bytes);
  uint8_t* panels = static_cast<uint8_t*>(result.memory.get());
  result.matrix.panels = panels;
  const PackPanel pack = panel_packer(view.dtype);
  pool.parallel_for(result.matrix.panel_count(), 4, [&](size_t begin, size_t end) {
    for (size_t p = begin; p < end; ++p)
      pack({.type = view.dtype,
            .first = view.bytes.data() + p * panel_rows * view.row_stride(),
            .row_stride = view.row_stride(),
            .rows = std::min<size_t>(panel_rows, view.rows - p * panel_rows),
            .k = view.cols},
           panels + p * panel_size);
  });
  return result;
}

}  // namespace tyto::cpu
