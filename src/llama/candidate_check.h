// Whether what a device says of logits that never left it can be believed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "program/top_k.h"

namespace tyto {

// What is wrong with a row that top_k has left of `vocab` logits; nothing: it is one it may leave.
std::optional<std::string> problem_of(const TopKRow& row, size_t vocab);

}  // namespace tyto
