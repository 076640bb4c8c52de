// Opens arbitrary bytes as a GGUF file.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <span>

#include "base/error.h"
#include "fuzz/touch_weights.h"
#include "model/gguf.h"

namespace tyto {
namespace {

void run(std::span<const std::byte> bytes) {
  for (const Need need : {Need::weights, Need::vocabulary}) {
    try {
      const Gguf gguf = parse_gguf(bytes, "input.gguf");
      Model model;
      fill_model_from_gguf(gguf, need, model);
      touch_weights(model);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
