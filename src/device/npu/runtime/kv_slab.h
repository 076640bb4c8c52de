// The KV caches of all layers of one sequence in one buffer, as the single-dispatch decode has
// them. Included only by files that are compiled once per provider of the XRT names.
#pragma once

#include <cstdint>

#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {

struct KvSlab {
  xrt::bo bo;
  PinnedBytes pinned;
  AirDims dims;
  uint32_t most = 0;    // positions the host's programs lay it out for: the largest window
  uint32_t window = 0;  // positions it is laid out for now
  uint32_t live = 0;    // positions the device has been given or has written

  // Re-lays the live positions for another window: from the device, to the device.
  void lay_out(uint32_t other_window);

 private:
  void sync_live(xclBOSyncDirection direction);
};

std::shared_ptr<KvSlab> make_kv_slab(NpuCore& core);

std::unique_ptr<Executable> make_fused_decode(NpuCore& core, const Program& program,
                                              std::span<const TensorView> weights);

}  // namespace tyto::TYTO_XRT_PROVIDER
