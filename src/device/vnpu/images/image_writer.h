// What the images of air_images.h are written with: the operations of a layer as launches, with the
// tiles their kernels work on.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "device/npu/formats/air_models.h"
#include "device/vnpu/images/instance_builder.h"
#include "device/vnpu/images/tile_needs.h"

namespace tyto::vxrt {

using SlotIndex = InstanceBuilder::SlotIndex;

struct ImageWriter {
  InstanceBuilder& to;
  const AirProgram& abi;
  const AirDims& dims;
  float eps;
  uint32_t launches = 0;  // as the hardware counts them

  uint64_t rows() const { return abi.phase == AirPhase::prompt ? dims.seq : 1; }
  uint64_t cols(size_t argument) const { return abi.arguments[argument].cols; }
  // The first `used` columns of an argument that has more.
  SlotIndex columns(size_t argument, uint64_t used);
  // One row for all rows of a call.
  SlotIndex repeated(size_t argument, uint64_t width);

  void rmsnorm(Role role, SlotIndex x, SlotIndex weight, SlotIndex y, uint64_t width,
               bool bf16_sums = false);
  void rope(Role role, uint32_t heads, SlotIndex x, SlotIndex table, SlotIndex y);
  void add(Role role, SlotIndex x, SlotIndex y, SlotIndex z);
  void swiglu(SlotIndex gate, SlotIndex up, SlotIndex y);

  // A GEMM of a prompt from `x` into argument `result` over the weight in argument `weight`, (in,
  // out). Where the program has an argument of this name, f32 goes there, and a launch rounds it.
  SlotIndex gemm(Role role, SlotIndex x, uint64_t k, size_t weight, size_t result,
                 std::string_view wide);
  // A GEMV over a weight as it is stored; `k` of a row are in a core at once.
  void gemv(Role role, uint64_t k, SlotIndex x, SlotIndex weight, SlotIndex y);
};

// One of MLIR-AIR's bf16 programs.
struct NamedWriter {
  std::string_view program;
  void (*write)(ImageWriter& to);
};
std::span<const NamedWriter> attention_images();  // in front of it, and itself
std::span<const NamedWriter> prompt_images();     // behind it
std::span<const NamedWriter> token_images();      // behind it, and the head

}  // namespace tyto::vxrt
