// Weights on the device, made once from the memory that ggml loads them into. That memory stays:
// other backends compute from it what this one does not take.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace tyto::plugin {

struct Weight {
  std::shared_ptr<void> form;  // the device's, shared with the programs that use it
  uint64_t macs_per_token = 0;
  uint64_t tokens = 0;  // multiplied on the device
  uint64_t alone = 0;   // of those, in a dispatch of one token
};

class Weights {
 public:
  explicit Weights(Device& device) : device_(device) {}

  // The weight that a tensor is, made on first sight. Throws an Error where it cannot be: a value
  // that is not finite, no memory.
  Weight& at(const ggml_tensor* tensor);
  // What lies in [begin, end) is about to change or to go. True if something was there.
  bool forget(const void* begin, const void* end);

  struct Totals {
    uint64_t matrices = 0, bytes = 0, macs_per_token = 0, most_tokens = 0;
    uint64_t most_alone = 0;  // Weight::alone of the one with most tokens
    double seconds = 0;       // of making them
  };
  const Totals& totals() const { return totals_; }
  void count_tokens(Weight& weight, uint64_t tokens);

 private:
  Device& device_;
  std::map<const void*, Weight> made_;  // by address
  Totals totals_;
};

}  // namespace tyto::plugin
