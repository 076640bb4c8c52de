#include "cli/combination.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/spelling.h"
#include "cli/flags.h"
#include "device/cpu/inner_loops.h"
#include "engine/engine.h"
#include "model/stores/stores.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr double kNoticeableSeconds = 0.5;

// What has no driver is part of the program, and differs by instruction set.
std::string driver_of(const DeviceInfo& device, const EngineFlags& flags) {
  if (!device.driver.empty()) return device.driver;
  return fmt::format("tyto's {} kernels", cpu::chosen_inner_loops(flags.setting("isa", "")).name);
}

// Each once, in the order of the device table: several devices may have the same one.
std::vector<std::string_view> settings_that_change_results() {
  std::vector<std::string_view> names;
  for (const DeviceEntry& entry : device_table())
    for (const DeviceSetting& setting : entry.settings())
      if (setting.changes_results && std::ranges::find(names, setting.name) == names.end())
        names.push_back(setting.name);
  return names;
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
  for (const std::string_view name : settings_that_change_results())
    add(fmt::format("--{}", name), flags.setting(std::string(name), ""));
  return text;
}

// What every test of this program runs.
bool is_shipped_on_host(const Engine& engine, const EngineFlags& flags) {
  const auto shipped = shipped_model();
  std::error_code ignored;
  const bool is_on_host = flags.prefill() == flags.decode() && device_entry(flags.decode()).is_host;
  return is_on_host && flags.model.adapters.empty() && shipped &&
         std::filesystem::equivalent(engine.model().path, *shipped, ignored);
}

// Which prompts go where is part of what decides the result.
std::string devices_text(const EngineFlags& flags) {
  std::string text = flags.devices();
  if (flags.min_n) text += fmt::format(" from {} tokens", *flags.min_n);
  if (flags.max_n) text += fmt::format(" up to {} tokens", *flags.max_n);
  return text;
}

}  // namespace

void add_devices(Combination& of, std::span<const DeviceInfo> devices, const EngineFlags& flags) {
  std::vector<std::string> drivers, hardware, numerics, weight_forms;
  const auto add = [](std::vector<std::string>& to, const std::string& text) {
    if (std::ranges::find(to, text) == to.end()) to.push_back(text);
  };
  const auto add_all = [&](const DeviceInfo& device) {
    add(drivers, driver_of(device, flags));
    add(numerics, device.numerics);
    add(weight_forms, device.weight_form);
  };
  bool has_own_cache = false;
  for (const DeviceInfo& device : devices) {
    if (device.shares_host_memory) continue;
    add_all(device);
    add(hardware, device.description);
    has_own_cache |= fixed_shapes(device).kv.has_value();
  }
  if (hardware.empty()) add_all(devices.front());
  of.driver = joined(drivers, "; ");
  of.hardware = joined(hardware, "; ");
  of.numerics = joined(numerics, "; ");
  of.weight_form = joined(weight_forms, "; ");
  of.kv_type = flags.kv_type.value_or(has_own_cache ? "the device's" : "f16");
}

Combination combination_of(Engine& engine, const EngineFlags& flags) {
  Combination result{.tyto = TYTO_VERSION,
                     .weights = engine.identity(progress_bar()).hash,
                     .driver = {},
                     .hardware = {},
                     .device = devices_text(flags),
                     .fusion = std::string(name(engine.fusion())),
                     .weight_form = {},
                     .kv_type = {},
                     .numerics = {},
                     .images = {}};
  add_devices(result, engine.devices(), flags);
  for (const LoadedCode& code : engine.loaded_code()) result.images.push_back(code.hash);
  std::sort(result.images.begin(), result.images.end());
  result.images.erase(std::unique(result.images.begin(), result.images.end()), result.images.end());
  return result;
}

std::string identity_clause(const ModelIdentity& identity) {
  if (identity.seconds < kNoticeableSeconds) return "";
  return fmt::format(" · model hashed in {:.1f} s", identity.seconds);
}

std::string verified_sentence(const Verification& verification, const Combination& combination,
                              const Engine& engine, const EngineFlags& flags) {
  if (verification.state == Verified::yes) return "";
  const std::string same = flags_of_combination(flags);
  if (verification.state == Verified::failed)
    return fmt::format("This device FAILED its check against the reference of {}: tyto diagnose{}",
                       verification.time, same);
  if (is_shipped_on_host(engine, flags) || !is_first_mention(combination)) return "";
  return fmt::format("This device has not been checked against the reference yet: tyto verify{}",
                     same);
}

std::string verified_clause(const Verification& verification, const EngineFlags& flags) {
  if (verification.state == Verified::yes) return "";
  const std::string same = flags_of_combination(flags);
  if (verification.state == Verified::no)
    return fmt::format(" · never verified: tyto verify{}", same);
  return fmt::format(" · FAILED its verification of {}: tyto diagnose{}", verification.time, same);
}

}  // namespace tyto
