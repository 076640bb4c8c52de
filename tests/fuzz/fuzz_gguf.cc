#include "fuzz/model_inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run_gguf_input(std::as_bytes(std::span(data, size)));
  return 0;
}
