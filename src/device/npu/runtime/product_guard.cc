#include "device/npu/runtime/product_guard.h"

#include <mutex>

#include "tensor/quant.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

constexpr size_t kRowsAtOnce = 4;  // enough to be worth a thread's while

std::vector<float> row_of(const GuardedRows& rows, const std::byte* memory, uint64_t row) {
  std::vector<float> values(rows.cols);
  const std::byte* data = memory + rows.offset + row_bytes(rows.dtype, row * rows.stride);
  dequantize(rows.dtype, {data, row_bytes(rows.dtype, rows.cols)}, values);
  return values;
}

}  // namespace

// Nothing where all rows hold, else the first that does not and what its sums are.
std::optional<ProductGuard::Mismatch> ProductGuard::find_mismatch(Product& product, uint32_t rows) {
  const std::byte* x = product.x.bo.map<std::byte*>();
  const std::byte* y = product.y.bo.map<std::byte*>();
  std::optional<Mismatch> first;
  std::mutex mutex;
  pool_.parallel_for(rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const RowSum sum =
          row_sum(product.weight_sum, row_of(product.x, x, row), row_of(product.y, y, row));
      if (sum.holds()) continue;
      const std::lock_guard lock(mutex);
      if (!first || row < first->row) first = Mismatch{row, sum};
    }
  });
  return first;
}

uint64_t ProductGuard::check(uint32_t rows, const Dispatcher& dispatcher) {
  for (Product& product : products_) {
    guarded(dispatcher.where(), [&] {
      for (GuardedRows* side : {&product.x, &product.y})
        side->bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, row_bytes(side->dtype, rows * side->stride),
                      side->offset);
    });
    const std::optional<Mismatch> found = find_mismatch(product, rows);
    if (!found) continue;
    dispatcher.fail();
    throw Error(ErrorCode::device, dispatcher.where(),
                fmt::format("row {} of {} adds up to {:.6g} instead of {:.6g}, which rounding does "
                            "not explain (at most {:.3g})",
                            found->row, product.name, found->sum.found, found->sum.expected,
                            found->sum.tolerance),
                "see --on-device-error");
  }
  return products_.size() * rows;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
