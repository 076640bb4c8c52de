// The settings of an NPU, real or virtual, and of the virtual one alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"

namespace tyto {

enum class NpuWeights : uint8_t { bf16, int8, q4nx };
enum class DecodeForm : uint8_t { any, elf, windows };  // the single-dispatch decode's images

struct NpuSettings {
  NpuWeights weights = NpuWeights::bf16;
  bool int8_blocks = false;  // int8 weights inside whole blocks, as the llama.cpp plug-in has them
  // What prefill kernels are compiled for, ascending; none: all that there are.
  std::vector<uint32_t> prompt_rows = {};
  DecodeForm decode = DecodeForm::any;
  bool check_first = false;       // a decode context's first dispatch is repeated and compared
  std::string device = {};        // which NPU: an address or a name; empty: the first
  std::string machine = "strix";  // whose time a virtual NPU models
  bool guard = false;             // products are checked by the sums of their rows
  bool hostile = false;           // a virtual NPU treats mistakes as a real one would
  std::string fault;              // that a virtual NPU is to have; empty: none
  bool block_float = false;       // a virtual NPU's GEMMs round their operands to bfp16
  uint32_t images_like = 0;       // AirDims::like of a virtual NPU's bf16 images
  // A virtual NPU's int8 GEMMs: K, and the tokens of a dispatch (0: the usual number). None: the
  // lengths that the model has.
  std::vector<std::pair<uint64_t, uint64_t>> gemm_lengths = {};
};

// Rows for the device table.
std::span<const DeviceSetting> npu_setting_rows();
std::span<const DeviceSetting> vnpu_setting_rows();

// What was given, and the defaults of the rest. A usage Error for a value that there is not, and
// for weights whose kernels another --fusion has. "int8-blocks" and "gemm-lengths" are for programs
// that drive a device themselves; no flag is made of them.
NpuSettings npu_settings(const DeviceEnv& env);

}  // namespace tyto
