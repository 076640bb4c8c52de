// An image with what executes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/cpu/interpreter.h"
#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/device_memory.h"

namespace tyto::vxrt {

// Only the device's thread touches `interpreter` and `scratch`.
struct LoadedInstance {
  explicit LoadedInstance(const Instance& loaded);

  const Instance& instance;
  std::vector<uint64_t> reach;    // [arguments] bytes its launches touch; 0: none
  std::vector<uint16_t> written;  // slots in arguments that some launch writes
  std::vector<bool> repacked;     // [slots] weights that are not taken where they are
  cpu::Interpreter interpreter;
  std::vector<std::vector<std::byte>> scratch;  // [slots] that are in no argument; on first use
};

struct LoadedImage {
  explicit LoadedImage(Image loaded);

  LoadedInstance* find(const std::string& name) const;  // none: no such instance

  const Image image;
  std::vector<std::unique_ptr<LoadedInstance>> instances;  // [image.instances]
};

}  // namespace tyto::vxrt
