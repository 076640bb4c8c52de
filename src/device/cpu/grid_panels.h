// Panels of the types whose values lie on a grid (iq1, iq2, iq3). A grid's place is looked up once,
// when the matrix is packed: the values of a type have at most sixteen levels, signs included, so
// that four bits are enough for each of them, and the kernels of four-bit codes multiply by them.
// Memory grows to 4.6 bits a value.
#pragma once

#include "device/cpu/panel_packing.h"

namespace tyto::cpu {

constexpr bool is_on_grid(DType type) {
  return type == DType::iq3_xxs || type == DType::iq3_s || type == DType::iq2_xxs ||
         type == DType::iq2_xs || type == DType::iq2_s || type == DType::iq1_s ||
         type == DType::iq1_m;
}

// What a type's four-bit codes stand for: sixteen numbers.
const int8_t* grid_levels(DType type);

// A PackPanel for them.
void pack_grid_panel(const PanelRows& in, uint8_t* out);

}  // namespace tyto::cpu
