// What lies behind a buffer. No part of the real stack compares an argument's reach with its
// buffer: a DMA goes on into whatever is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/vnpu/machine/device_memory.h"

namespace tyto::vxrt {

// The buffer given for an argument: the device's copy of its bytes.
struct Binding {
  std::byte* data = nullptr;
  DeviceMemory* memory = nullptr;  // of the whole buffer
  uint64_t offset = 0;             // in it
};

// An argument that reaches beyond its buffer: the buffer's bytes for the time of one run, and
// poison behind them. The poison is NaN in every float type, so that what was read there shows.
class GuardMemory {
 public:
  // `bytes` from where the buffer begins are memory, none where nothing was set; `size` of them are
  // the buffer's, more where it is a window into another. `reach` are touched.
  GuardMemory(size_t argument, const Binding& buffer, uint64_t size, uint64_t bytes,
              uint64_t reach);

  Binding binding() { return {memory_.data(), &packed_, 0}; }
  void fill();       // before the run
  void give_back();  // after it
  bool was_reached() const { return was_reached_; }
  std::string report() const;

 private:
  const size_t argument_;
  const Binding buffer_;
  const uint64_t size_, bytes_;
  std::vector<std::byte> memory_;
  DeviceMemory packed_;
  bool was_reached_ = false;
  uint64_t written_ = 0;  // bytes of poison that are none any more
};

}  // namespace tyto::vxrt
