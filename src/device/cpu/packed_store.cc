#include "device/cpu/packed_store.h"

#include <utility>

namespace tyto::cpu {

std::shared_ptr<const PackedWeights> PackedStore::pack(const TensorView& view, ThreadPool& pool) {
  std::weak_ptr<const PackedWeights>& entry = by_address_[view.bytes.data()];
  std::shared_ptr<const PackedWeights> packed = entry.lock();
  if (packed != nullptr && packed->matrix.type == view.dtype && packed->matrix.rows == view.rows &&
      packed->matrix.k == view.cols)
    return packed;
  if (auto kept = kept_.find(view, pool)) {
    packed = std::make_shared<PackedWeights>(*std::move(kept));
  } else {
    packed = std::make_shared<PackedWeights>(pack_weights(view, pool));
    release_mapped_pages(view.bytes);  // the copy takes their place in memory
  }
  entry = packed;
  return packed;
}

}  // namespace tyto::cpu
