// The plain definition of Kernel::top_k.
#pragma once

#include <cstdint>
#include <span>

namespace tyto::cpu {

// `row` is laid out as TopKRow says; it has no more pairs than there are logits.
void pick_best(std::span<const float> logits, std::span<int32_t> row);

}  // namespace tyto::cpu
