// Float matrices in the order that the CPU's kernels read them (packed_layout.h).
#pragma once

#include <cstdint>

#include "device/cpu/panel_packing.h"

namespace tyto::cpu {

// A PackPanel for f32, f16 and bf16. What the matrix does not have, rows or the odd last value, is
// left as it is: zero.
void pack_float_panel(const PanelRows& in, uint8_t* out);

}  // namespace tyto::cpu
