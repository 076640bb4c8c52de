#include "device/vulkan/weight_store.h"

#include <algorithm>
#include <vector>

#include "tensor/quant.h"

namespace tyto::vulkan {

std::shared_ptr<Memory> WeightStore::matrix(const TensorView& weight, WeightForm form) {
  std::shared_ptr<Memory>& stored = stored_[{weight.bytes.data(), form, false}];
  if (stored) return stored;
  const WeightLayout layout = weight_layout(form, weight.rows, weight.cols);
  auto memory = std::make_shared<Memory>(context_, layout.bytes, MemoryKind::gpu);
  for (size_t plane = 0; plane < layout.planes.size(); ++plane) {
    const auto [offset, row_bytes] = layout.planes[plane];
    const uint64_t at_once = std::max<uint64_t>(1, Transfers::piece_bytes() / row_bytes);
    for (uint64_t row = 0; row < weight.rows; row += at_once) {
      const uint64_t rows = std::min(at_once, weight.rows - row);
      transfers_.upload(
          *memory, offset + row * row_bytes, rows * row_bytes,
          [&](std::span<std::byte> to) { write_plane(weight, form, plane, row, to); });
    }
  }
  return stored = std::move(memory);
}

std::shared_ptr<Memory> WeightStore::vector(const TensorView& weight) {
  std::shared_ptr<Memory>& stored = stored_[{weight.bytes.data(), WeightForm::f32, true}];
  if (stored) return stored;
  std::vector<float> values(weight.values());
  dequantize(weight.dtype, weight.bytes, values);
  auto memory = std::make_shared<Memory>(context_, values.size() * sizeof(float), MemoryKind::gpu);
  transfers_.upload(*memory, 0, std::as_bytes(std::span(values)));
  return stored = std::move(memory);
}

}  // namespace tyto::vulkan
