// Settings of an NPU as a DeviceEnv takes them.
#pragma once

#include <fmt/ranges.h>

#include "device/npu/formats/air_models.h"
#include "device/npu/npu_settings.h"

namespace tyto::testing_support {

inline DeviceSettings settings_of(const NpuSettings& npu) {
  constexpr const char* kForms[] = {"bf16", "int8", "q4nx"};
  DeviceSettings settings = {{"weights", kForms[static_cast<size_t>(npu.weights)]},
                             {"vnpu-machine", npu.machine}};
  settings.emplace("vnpu-hostile", "on");  // no test of the NPU's code is to rely on less
  if (npu.int8_blocks) settings.emplace("int8-blocks", "");
  if (npu.block_float) settings.emplace("vnpu-numerics", "bfp16");
  if (npu.decode != DecodeForm::any)
    settings.emplace("decode-images", npu.decode == DecodeForm::elf ? "elf" : "windows");
  if (npu.check_first) settings.emplace("first-dispatch", "check");
  if (npu.guard) settings.emplace("guard", "on");
  if (npu.images_like > 0)
    settings.emplace("images-like", known_air_models()[npu.images_like - 1].name);
  if (!npu.fault.empty()) settings.emplace("vnpu-fault", npu.fault);
  const auto add_list = [&](const char* name, const auto& numbers) {
    if (!numbers.empty()) settings.emplace(name, fmt::format("{}", fmt::join(numbers, ",")));
  };
  add_list("prompt-rows", npu.prompt_rows);
  add_list("gemm-lengths", npu.gemm_lengths);
  return settings;
}

}  // namespace tyto::testing_support
