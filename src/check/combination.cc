#include "check/combination.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/spelling.h"
#include "device/cpu/inner_loops.h"
#include "engine/engine.h"
#include "model/description.h"
#include "model/stores/stores.h"
#include "plan/auto_device.h"
#include "program/stitch.h"
#include "tensor/dtype.h"

namespace tyto {
namespace {

constexpr double kNoticeableSeconds = 0.5;

const PipelineOptions kUsual;

std::string setting(const EngineOptions& options, std::string_view name) {
  const auto found = options.settings.find(std::string(name));
  return found == options.settings.end() ? "" : found->second;
}

// What has no driver is part of the program, and differs by instruction set.
std::string driver_of(const DeviceInfo& device, const EngineOptions& options) {
  if (!device.driver.empty()) return device.driver;
  return fmt::format("tyto's {} kernels", cpu::chosen_inner_loops(setting(options, "isa")).name);
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

bool has_least(const PipelineOptions& options) {
  return options.min_prompt != kUsual.min_prompt;
}

bool has_most(const PipelineOptions& options) {
  return options.max_prompt != kUsual.max_prompt;
}

// As another command takes them, to run the same combination.
std::string flags_of_combination(const EngineOptions& options) {
  std::string text;
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) text += " " + flag + " " + shell_word(value);
  };
  const PipelineOptions& pipeline = options.pipeline;
  const ForwardOptions& forward = pipeline.forward;
  add("-m", options.model);
  for (const AdapterChoice& adapter : options.adapters) add("--lora", adapter_text(adapter));
  if (options.prefill() == options.device) {
    add("--device", options.device);
  } else {
    add("--prefill-device", options.prefill());
    add("--decode-device", options.device);
  }
  if (has_least(pipeline)) add("--min-n", std::to_string(pipeline.min_prompt));
  if (has_most(pipeline)) add("--max-n", std::to_string(pipeline.max_prompt));
  if (forward.fusion) add("--fusion", std::string(name(*forward.fusion)));
  if (forward.kv_type) add("--kv-type", std::string(info(*forward.kv_type).name));
  if (forward.context > 0) add("-c", std::to_string(forward.context));
  for (const std::string_view name : settings_that_change_results())
    add(fmt::format("--{}", name), setting(options, name));
  return text;
}

// What every test of this program runs.
bool is_shipped_on_host(const Engine& engine, const EngineOptions& options) {
  const auto shipped = shipped_model();
  std::error_code ignored;
  const bool is_on_host =
      options.prefill() == options.device && device_entry(options.device).is_host;
  return is_on_host && options.adapters.empty() && shipped &&
         std::filesystem::equivalent(engine.model().path, *shipped, ignored);
}

// Which prompts go where is part of what decides the result.
std::string devices_text(const EngineOptions& options) {
  const PipelineOptions& pipeline = options.pipeline;
  std::string text = device_names(options);
  if (has_least(pipeline)) text += fmt::format(" from {} tokens", pipeline.min_prompt);
  if (has_most(pipeline)) text += fmt::format(" up to {} tokens", pipeline.max_prompt);
  return text;
}

}  // namespace

void add_devices(Combination& of, std::span<const DeviceInfo> devices,
                 const EngineOptions& options) {
  std::vector<std::string> drivers, hardware, numerics, weight_forms;
  const auto add = [](std::vector<std::string>& to, const std::string& text) {
    if (std::ranges::find(to, text) == to.end()) to.push_back(text);
  };
  const auto add_all = [&](const DeviceInfo& device) {
    add(drivers, driver_of(device, options));
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
  of.kv_type = options.pipeline.forward.kv_type
                   ? std::string(info(*options.pipeline.forward.kv_type).name)
               : has_own_cache ? "the device's"
                               : "f16";
}

Combination combination_of(Engine& engine, const EngineOptions& options, const Progress& progress) {
  Combination result{.tyto = TYTO_VERSION,
                     .weights = engine.identity(progress).hash,
                     .driver = {},
                     .hardware = {},
                     .device = devices_text(options),
                     .fusion = std::string(name(engine.fusion())),
                     .weight_form = {},
                     .kv_type = {},
                     .numerics = {},
                     .images = {}};
  add_devices(result, engine.devices(), options);
  for (const LoadedCode& code : engine.loaded_code()) result.images.push_back(code.hash);
  std::sort(result.images.begin(), result.images.end());
  result.images.erase(std::unique(result.images.begin(), result.images.end()), result.images.end());
  return result;
}

ReceiptContext receipt_context(Engine& engine, const std::string& command,
                               const Progress& progress) {
  const Model& model = engine.model();
  const ModelDescription described = describe(model);
  const ModelIdentity& identity = engine.identity(progress);
  std::vector<AdapterFacts> adapters;
  for (size_t i = 0; i < model.adapters.size(); ++i)
    adapters.push_back(
        {model.adapters[i].file.path().string(), identity.adapters[i], model.adapters[i].scale});
  return {.version = TYTO_VERSION,
          .time = utc_now(),
          .command = command,
          .model = model.path.string(),
          .model_format = model.format,
          .model_size = described.size,
          .model_type = described.type,
          .adapters = std::move(adapters),
          .weight_bytes = model.weight_bytes(),
          .weights_hash = identity.hash,
          .weights_hash_form = identity.form,
          .identity_seconds = identity.seconds,
          .identity_cached = identity.is_cached,
          .fusion = std::string(name(engine.fusion())),
          .device_choice = engine.device_choice(),
          .limits = engine.limits()};
}

std::string identity_clause(const ModelIdentity& identity) {
  if (identity.seconds < kNoticeableSeconds) return "";
  return fmt::format(" · model hashed in {:.1f} s", identity.seconds);
}

std::string verified_sentence(const Verification& verification, const Combination& combination,
                              const Engine& engine, const EngineOptions& options) {
  if (verification.state == Verified::yes) return "";
  const std::string same = flags_of_combination(options);
  if (verification.state == Verified::failed)
    return fmt::format("This device FAILED its check against the reference of {}: tyto diagnose{}",
                       verification.time, same);
  if (is_shipped_on_host(engine, options) || !is_first_mention(combination)) return "";
  return fmt::format("This device has not been checked against the reference yet: tyto verify{}",
                     same);
}

std::string verified_clause(const Verification& verification, const EngineOptions& options) {
  if (verification.state == Verified::yes) return "";
  const std::string same = flags_of_combination(options);
  if (verification.state == Verified::no)
    return fmt::format(" · never verified: tyto verify{}", same);
  return fmt::format(" · FAILED its verification of {}: tyto diagnose{}", verification.time, same);
}

}  // namespace tyto
