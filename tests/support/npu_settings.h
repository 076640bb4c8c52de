// Settings of an NPU as a DeviceEnv takes them.
#pragma once

#include "device/npu/npu_settings.h"

namespace tyto::testing_support {

inline DeviceSettings settings_of(const NpuSettings& npu) {
  constexpr const char* kForms[] = {"bf16", "int8", "q4nx"};
  DeviceSettings settings = {{"weights", kForms[static_cast<size_t>(npu.weights)]},
                             {"prompt-rows", std::to_string(npu.prompt_rows)},
                             {"vnpu-machine", npu.machine}};
  settings.emplace("vnpu-hostile", "on");  // no test of the NPU's code is to rely on less
  if (npu.int8_blocks) settings.emplace("int8-blocks", "");
  if (npu.block_float) settings.emplace("vnpu-numerics", "bfp16");
  if (npu.guard) settings.emplace("guard", "on");
  if (!npu.fault.empty()) settings.emplace("vnpu-fault", npu.fault);
  std::string lengths;
  for (uint64_t k : npu.gemm_lengths) lengths += (lengths.empty() ? "" : ",") + std::to_string(k);
  if (!lengths.empty()) settings.emplace("gemm-lengths", lengths);
  return settings;
}

}  // namespace tyto::testing_support
