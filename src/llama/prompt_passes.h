// How a prompt is cut into passes where a device's kernels are compiled for fixed numbers of rows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "program/stitch.h"

namespace tyto {

// Kernels for so many rows, which they compute whole however few a pass uses. Times are the cost
// model's on every device: they choose among kernels, and are shown to nobody.
struct PromptKernels {
  uint32_t rows = 0;
  double first_ms = 0;  // a pass from position 0
  double later_ms = 0;  // one behind others, without attention, which is the host's then
};

struct PassCosts {
  std::vector<PromptKernels> kernels = {};  // ascending; none where a pass takes what it needs
  double attention_ms = 0;                  // the host's, for one row and one position before it
};

// Of a pass: the dispatches of devices that compute all the rows their kernels are made for.
using IsHosts = std::function<bool(const Piece& piece)>;
double modelled_ms(std::span<const Piece> pieces, uint32_t rows, const IsHosts& is_hosts);
// What else the host does is the same however a prompt is cut.
double host_attention_ms(std::span<const Piece> pieces, const IsHosts& is_hosts);

// The rows of the next pass of a prompt that has `rows` more from `position` on: the first of the
// passes that take least time together.
uint32_t next_pass(const PassCosts& costs, uint32_t position, uint32_t rows);

}  // namespace tyto
