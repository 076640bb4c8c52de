// Where tensors may lie in the data section of a model file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"

namespace tyto {

// Throws unless the tensors, whose views lie in `data`, fill it: none overlaps another, and between
// them and after the last there is nothing but padding to `alignment`, which may be absent at the
// end. Offsets that are wrong but stay inside the file show here, and nowhere else.
void check_layout(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data,
                  uint64_t alignment, const std::string& file);

}  // namespace tyto
