#include "device/npu/runtime/turned_heads.h"

namespace tyto::TYTO_XRT_PROVIDER {

void TurnedHeads::add(const AirArgument& argument, std::shared_ptr<NpuBuffer> rows,
                      xrt::bo turned) {
  const HeadsFirst form = {argument.rows, argument.cols, argument.run};
  TYTO_ASSERT(argument.dtype == DType::bf16 && turned.size() >= argument.bytes());
  (argument.role == AirRole::output ? outputs_ : inputs_)
      .push_back({form, std::move(rows), std::move(turned)});
}

uint64_t TurnedHeads::give(uint32_t rows) {
  uint64_t moved = 0;
  for (Part& part : inputs_) {
    part.rows->sync(Sync::from_device, 0, rows * row_bytes(part));
    to_heads_first(part.form, reinterpret_cast<const uint16_t*>(part.rows->host), rows,
                   part.turned.map<uint16_t*>(), pool_);
    const uint64_t turned = part.form.seq * row_bytes(part);  // its memory may be larger
    part.turned.sync(XCL_BO_SYNC_BO_TO_DEVICE, turned, 0);
    moved += rows * row_bytes(part) + turned;
  }
  return moved;
}

uint64_t TurnedHeads::take(uint32_t rows) {
  uint64_t moved = 0;
  for (Part& part : outputs_) {
    const uint64_t turned = part.form.seq * row_bytes(part);
    part.turned.sync(XCL_BO_SYNC_BO_FROM_DEVICE, turned, 0);
    from_heads_first(part.form, part.turned.map<const uint16_t*>(), rows,
                     reinterpret_cast<uint16_t*>(part.rows->host), pool_);
    part.rows->sync(Sync::to_device, 0, rows * row_bytes(part));
    moved += turned + rows * row_bytes(part);
  }
  return moved;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
