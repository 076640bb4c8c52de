// Pages of the process that a buffer is made of.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tyto::vxrt {

// Why the driver cannot pin them: it pins for writing, unless the range lies in one mapping that is
// not writable and cannot be made so. A private mapping of a file always can.
std::optional<std::string> why_not_pinned(const void* pages, size_t bytes);

}  // namespace tyto::vxrt
