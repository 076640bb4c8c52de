// --guard on: the products of a dispatch, checked on the host by the sums of their rows.
#pragma once

#include <optional>

#include "device/npu/formats/int8_gemm.h"
#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {

// Rows of activations in a buffer of the device.
struct GuardedRows {
  xrt::bo bo;
  uint64_t offset = 0;  // the first row's, in bytes
  DType dtype = DType::bf16;
  uint64_t stride = 0;  // values from row to row
  uint64_t cols = 0;    // those that belong to the product
};

class ProductGuard {
 public:
  explicit ProductGuard(ThreadPool& pool) : pool_(pool) {}

  // The sum stays the core's.
  void add(std::string name, std::span<const float> weight_sum, GuardedRows x, GuardedRows y) {
    products_.push_back({std::move(name), weight_sum, std::move(x), std::move(y)});
  }

  // After a dispatch that completed. Returns how many sums were compared; one that is off is a
  // device Error.
  uint64_t check(uint32_t rows, const Dispatcher& dispatcher);

 private:
  struct Product {
    std::string name;
    std::span<const float> weight_sum;
    GuardedRows x, y;
  };
  struct Mismatch {
    size_t row;
    RowSum sum;
  };
  std::optional<Mismatch> find_mismatch(Product& product, uint32_t rows);

  ThreadPool& pool_;
  std::vector<Product> products_;
};

}  // namespace tyto::TYTO_XRT_PROVIDER
