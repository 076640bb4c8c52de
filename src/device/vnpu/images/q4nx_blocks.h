// The device's own reading of the q4nx weight stream. It shares nothing with the packer in
// device/npu, on purpose: a mistake there must not cancel out here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "device/vnpu/images/image.h"

namespace tyto::vxrt {

// Rows of `cols` values as the cores decode them: code * scale + minimum, rounded to bf16. `phase`
// is where the phase's first block begins.
void decode_q4nx(const std::byte* phase, const Q4nxPlace& place, uint64_t rows, uint64_t cols,
                 uint16_t* out, ThreadPool& pool);

}  // namespace tyto::vxrt
