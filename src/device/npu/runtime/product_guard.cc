#include "device/npu/runtime/product_guard.h"

#include "tensor/quant.h"

namespace tyto::TYTO_XRT_PROVIDER {

std::span<const float> ProductGuard::row_of(GuardedRows& rows, uint64_t row,
                                            std::vector<float>& memory) {
  memory.resize(rows.cols);
  const auto* data =
      rows.bo.map<std::byte*>() + rows.offset + row_bytes(rows.dtype, row * rows.stride);
  dequantize(rows.dtype, {data, row_bytes(rows.dtype, rows.cols)}, memory);
  return memory;
}

uint64_t ProductGuard::check(uint32_t rows, const Dispatcher& dispatcher) {
  for (Product& product : products_) {
    guarded(dispatcher.where(), [&] {
      for (GuardedRows* side : {&product.x, &product.y})
        side->bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, row_bytes(side->dtype, rows * side->stride),
                      side->offset);
    });
    for (uint32_t row = 0; row < rows; ++row) {
      const RowSum sum =
          row_sum(product.weight_sum, row_of(product.x, row, x_), row_of(product.y, row, y_));
      if (sum.holds()) continue;
      dispatcher.fail();
      throw Error(ErrorCode::device, dispatcher.where(),
                  fmt::format("row {} of {} adds up to {:.6g} instead of {:.6g}, which rounding "
                              "does not explain (at most {:.3g})",
                              row, product.name, sum.found, sum.expected, sum.tolerance),
                  "see --on-npu-error");
    }
  }
  return products_.size() * rows;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
