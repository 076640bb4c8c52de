// Reads arbitrary bytes as an importance matrix, in either form.
// Anything but an Error that leaves it, and a number that is not from 0 to 1, is a finding.
#include <cstdint>
#include <span>

#include "base/error.h"
#include "model/convert.h"

namespace tyto {
namespace {

void run(std::span<const std::byte> bytes) try {
  const ImportanceMatrix matrix = parse_importance(bytes, "input.imatrix");
  for (const auto& [name, columns] : matrix.columns)
    for (const float column : columns) TYTO_ASSERT(column >= 0 && column <= 1);
} catch (const Error&) {
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
