#include "cli/combination.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "device/cpu/inner_loops.h"
#include "engine/engine.h"

namespace tyto {
namespace {

constexpr double kNoticeableSeconds = 0.5;

// What has no driver is part of the program, and differs by instruction set.
std::string driver_of(const DeviceInfo& device, const EngineFlags& flags) {
  if (!device.driver.empty()) return device.driver;
  return fmt::format("tyto's {} kernels", cpu::chosen_inner_loops(flags.setting("isa", "")).name);
}

// As another command takes them, to run the same combination.
std::string flags_of_combination(const EngineFlags& flags) {
  std::string text;
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) text += " " + flag + " " + shell_word(value);
  };
  add("-m", flags.model.model);
  for (const std::string& adapter : flags.model.adapters) add("--lora", adapter);
  if (flags.prefill() == flags.decode()) {
    add("--device", flags.decode());
  } else {
    add("--prefill-device", flags.prefill());
    add("--decode-device", flags.decode());
  }
  if (flags.min_n) add("--min-n", std::to_string(*flags.min_n));
  if (flags.max_n) add("--max-n", std::to_string(*flags.max_n));
  add("--fusion", flags.fusion.value_or(""));
  add("--kv-type", flags.kv_type.value_or(""));
  if (flags.context > 0) add("-c", std::to_string(flags.context));
  for (const char* name : {"weights", "isa", "prompt-rows", "vnpu-numerics", "images-like"})
    add(fmt::format("--{}", name), flags.setting(name, ""));
  return text;
}

// Which prompts go where is part of what decides the result.
std::string devices_text(const EngineFlags& flags) {
  std::string text = flags.devices();
  if (flags.min_n) text += fmt::format(" from {} tokens", *flags.min_n);
  if (flags.max_n) text += fmt::format(" up to {} tokens", *flags.max_n);
  return text;
}

}  // namespace

Combination combination_of(Engine& engine, const EngineFlags& flags) {
  const std::vector<DeviceInfo> devices = engine.devices();
  const auto other = std::ranges::find(devices, false, &DeviceInfo::shares_host_memory);
  const DeviceInfo& device = other == devices.end() ? devices.front() : *other;
  const bool is_npu = other != devices.end();
  Combination result{.tyto = TYTO_VERSION,
                     .weights = engine.identity(progress_bar()).hash,
                     .driver = driver_of(device, flags),
                     .device = devices_text(flags),
                     .fusion = std::string(name(engine.fusion())),
                     .weight_form = flags.setting("weights", is_npu ? "bf16" : "as in the file"),
                     .kv_type = flags.kv_type.value_or(is_npu ? "the device's" : "f16"),
                     .numerics = flags.setting("vnpu-numerics", is_npu ? "bf16" : "f32"),
                     .images = {}};
  for (const LoadedCode& code : engine.loaded_code()) result.images.push_back(code.hash);
  std::sort(result.images.begin(), result.images.end());
  result.images.erase(std::unique(result.images.begin(), result.images.end()), result.images.end());
  return result;
}

std::string identity_clause(const ModelIdentity& identity) {
  if (identity.seconds < kNoticeableSeconds) return "";
  return fmt::format(" · model hashed in {:.1f} s", identity.seconds);
}

std::string verified_clause(const Verification& verification, const EngineFlags& flags) {
  if (verification.state == Verified::yes) return "";
  const std::string same = flags_of_combination(flags);
  if (verification.state == Verified::no)
    return fmt::format(" · never verified: tyto verify{}", same);
  return fmt::format(" · FAILED its verification of {}: tyto diagnose{}", verification.time, same);
}

}  // namespace tyto
