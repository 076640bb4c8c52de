// Neighbouring launches that are products with the same rows, and what is done with their results
// before another launch sees them: one dispatch, or one per type of weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tyto::vulkan {

enum class Ending : uint8_t {
  store,  // each product to its own slot
  add,    // one product: onto the residual stream
  gated,  // two: activation(first) * second
};

struct Products {
  size_t first = 0;                // launch of the program
  size_t count = 0;                // launches; 0: there is no product here
  const Launch* gather = nullptr;  // gathers the rows that are multiplied
  const Launch* norm = nullptr;    // norms them
  std::vector<const Launch*> matmuls = {};
  Ending ending = Ending::store;
  Activation activation = Activation::silu;  // that `gated` goes through
  uint16_t x = 0;                            // slot that is read
  uint16_t result = 0;                       // slot of `add` and `gated`
};

// From launch `first` on. A norm and a gathering are taken in only with `takes_norm`, which kernels
// of few rows have.
Products match_products(const Program& program, size_t first, bool takes_norm);

// Whether what `slot` holds is not read after launch `last`: results that stay inside one dispatch
// need no memory. A slot that crosses devices is read.
bool is_dead_after(const Program& program, uint16_t slot, size_t last);

}  // namespace tyto::vulkan
