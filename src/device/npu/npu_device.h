// The NPU through XRT's public C++ API. What stands in namespace TYTO_XRT_PROVIDER is compiled once
// per provider of the XRT names: against the system's XRT, and against the virtual NPU's headers
// (device/vnpu/xrt).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "device/npu/driver_stack.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/decode_parameters.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/npu_settings.h"
#include "device/npu/store/image_facts.h"

namespace tyto {

// A compiled program as XRT takes it.
struct NpuImage {
  ImageKind form = ImageKind::elf;
  std::vector<std::byte> bytes;
  std::string kernel;  // what XRT is asked for: "main:o_ffn", "MLIR_AIE"
  Hash128 hash = {};
  uint64_t run_bytes = 0;  // what one run takes of the device's heap; 0: unknown
  // A single-dispatch decode's instruction words at two context lengths.
  std::vector<uint32_t> words, reference_words;
  uint32_t length = 0, reference_length = 0;
  std::optional<DecodeParameters> parameters = {};  // a full-ELF decode's
};

// What differs between the real NPU and the virtual one.
struct NpuKernels {
  DeviceInfo info;
  AirDims dims;                       // `seq` is the largest of the prompt rows
  std::vector<uint32_t> prompt_rows;  // the prefill images', ascending
  std::vector<uint32_t> windows;      // the single-dispatch decode's, ascending; empty: no images
  // Positions that its ELF is built for, which does without windows; 0: there is none. Where it is
  // what runs, it is the only window.
  uint32_t decode_elf = 0;
  bool runs_decode_elf() const { return decode_elf > 0 && windows == std::vector{decode_elf}; }
  uint64_t weight_buffer_bytes = kQ4nxBufferBytes;  // what the decode's DMAs reach of one buffer
  std::vector<GemmSlot> gemm_slots;                 // int8 GEMMs, at most kMaxGemmSlots
  // Why there is no image of one of MLIR-AIR's programs, of the fused decode at one of the windows,
  // or of the int8 GEMM whose place in gemm_slots the window is. A prefill program's window is its
  // rows, that of any other of MLIR-AIR's is 0.
  std::function<std::optional<std::string>(std::string_view program, uint32_t window)> why_no_image;
  std::function<NpuImage(std::string_view program, uint32_t window)> image;
  std::function<bool(std::string_view program, uint32_t window)> is_recorded;  // good or damaged
  // One ELF for programs that MLIR-AIR has no counterpart of, instance i being "main:program_<i>";
  // arguments are the slots in order and three scalars for the Call. Empty: the device compiles
  // nothing.
  std::function<std::vector<std::byte>(std::span<const Program> programs)> compile;
  std::function<uint64_t()> modelled_ns;  // the virtual device's clock; empty: time is measured
  std::filesystem::path lock;             // one process at a time; empty: no need
  std::string address;                    // "0000:c5:00.1"; empty: the first device that XRT counts
  // For one dispatch: the driver itself gives up after 2 s.
  std::chrono::milliseconds longest_wait = std::chrono::seconds(10);
  uint64_t pinned_limit = UINT64_MAX;
  uint64_t heap_limit = kHeapBytes;  // what the device has
  // Asked when XRT refuses an image; empty: not a machine whose versions matter.
  std::function<std::vector<VersionFault>()> version_faults;
};

// `knows_scratchpads`: whether the XRT that this program was built with gives out the scratchpad of
// a run, which a full-ELF decode takes the length from.
namespace on_vxrt {
bool knows_scratchpads();
std::unique_ptr<Device> open_npu(const DeviceEnv& env, NpuKernels kernels);
}  // namespace on_vxrt
namespace on_xrt {
bool knows_scratchpads();
std::unique_ptr<Device> open_npu(const DeviceEnv& env, NpuKernels kernels);
}  // namespace on_xrt

}  // namespace tyto
