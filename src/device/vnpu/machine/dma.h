// What the shim's DMAs can address.
#pragma once

#include <optional>
#include <string>

#include "program/pattern.h"
#include "tensor/dtype.h"

namespace tyto::vxrt {

// Why no list of buffer descriptors can walk this pattern; nothing when one can.
std::optional<std::string> dma_problem(const Pattern& pattern, DType dtype);

}  // namespace tyto::vxrt
