// Writing an instance over the arguments of an MLIR-AIR program, slot by slot and launch by launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/npu/formats/air_abi.h"
#include "device/vnpu/images/image.h"

namespace tyto::vxrt {

class InstanceBuilder {
 public:
  // `first` is the XRT index of the first buffer: 0 of an ELF, 3 of an xclbin.
  InstanceBuilder(const AirProgram& abi, size_t first);

  using SlotIndex = uint16_t;

  // All of an argument as rows x cols values.
  SlotIndex whole(size_t argument, uint64_t rows, uint64_t cols);
  // All of an argument that holds a weight of `rows` outputs the other way round, (in, out).
  SlotIndex turned(size_t argument, uint64_t rows, uint64_t cols);
  // Some of an argument.
  SlotIndex part(const std::string& name, SlotKind kind, size_t argument, uint64_t rows,
                 uint64_t cols, const Pattern& pattern);
  SlotIndex q4nx(const std::string& name, size_t argument, uint64_t rows, uint64_t cols,
                 uint64_t offset, const Q4nxPlace& place);
  SlotIndex scratch(const std::string& name, DType dtype, uint64_t rows, uint64_t cols);

  // Of the launches from here on.
  void set_layer(uint16_t layer) { layer_ = layer; }
  // Kernels that read all their arguments but the last, which they write.
  void launch(Kernel kernel, Role role, std::vector<SlotIndex> slots, const LaunchNeeds& needs,
              const LaunchShape& shape = {});
  void append(SlotIndex k, SlotIndex v, SlotIndex k_cache, SlotIndex v_cache,
              const LaunchNeeds& needs, const LaunchShape& shape);

  // `launches`: as the hardware counts them.
  Instance take(uint32_t tokens, uint32_t launches);

 private:
  SlotIndex add(const Slot& slot, const SlotPlace& place);

  const AirProgram& abi_;
  size_t first_;
  uint16_t layer_ = kNoLayer;
  Instance instance_;
};

}  // namespace tyto::vxrt
