#include "plan/auto_device.h"

#include <algorithm>

#include "base/error.h"
#include "base/machine.h"
#include "base/spelling.h"
#include "device/cpu/measured_peak.h"
#include "engine/engine.h"
#include "llama/placement.h"
#include "model/adapters.h"
#include "model/stores/stores.h"
#include "plan/air_images.h"
#include "plan/rates.h"

namespace tyto {
namespace {

constexpr size_t kBytesPerToken = 4;     // in English, by most tokenizers
constexpr uint32_t kMostExpected = 512;  // tokens of an answer that may be longer
constexpr uint32_t kLeastMinN = 2;       // a prompt of one token is a token
constexpr const char* kCalibrate = "`tyto bench --calibrate` measures them";

struct Usable {
  std::vector<DeviceInfo> devices;
  std::vector<std::string> refusals;  // one line for each of the others
};

using Announce = std::function<void(const std::string&)>;

bool has_setting(const DeviceEntry& entry, std::string_view name) {
  return std::ranges::find(entry.settings(), name, &DeviceSetting::name) != entry.settings().end();
}

// The host takes part whatever the device is.
bool applies_to(std::string_view setting, const std::string& device) {
  return std::ranges::any_of(device_table(), [&](const DeviceEntry& entry) {
    return (entry.is_host || entry.name == device) && has_setting(entry, setting);
  });
}

Model model_of(const EngineOptions& options) {
  Model model = open_model(find_model(model_or_shipped(options.model)));
  add_adapters(options.adapters, model);
  return model;
}

[[noreturn]] void fail_require(const Requirement& require, const std::string& why,
                               const std::string& hint = "") {
  throw Error(ErrorCode::require, "--require " + to_text(require), why, hint);
}

// A device that leaves the work to the host is no choice.
void check_takes(const Device& device, const Model& model, uint32_t context) {
  const std::vector<float> frequencies = rope_frequencies(model.config);
  const ForwardProgram token =
      forward_program(model, frequencies, Part::whole,
                      {.rows = 1,
                       .context = context > 0 ? context : model.config.context,
                       .activations = device.info().activations});
  if (const auto reason = why_mostly_not(token.program, device))
    throw Error(ErrorCode::device, device.info().name, *reason);
}

// What is required of both phases leaves nothing to choose.
bool is_in_question(const std::string& name, const Requirement& require) {
  return require.empty() || require.phase || name == require.device;
}

// Opens each, as nothing else says whether it can be used, and closes it again.
Usable usable_devices(const EngineOptions& asked, const std::vector<std::string>& names,
                      const Requirement& require, ThreadPool& pool, const Announce& announce) {
  Trace trace;
  const Model model = model_of(asked);
  const uint32_t context = asked.pipeline.forward.context;
  Usable usable;
  for (const std::string& name : names) {
    if (!is_in_question(name, require)) continue;
    const EngineOptions options = options_for(name, names, asked);
    announce("opening " + name);
    try {
      const auto device =
          open_device(name, {pool, trace, options.pipeline.forward.fusion.value_or(Fusion::block),
                             model_dims(model.config, context), options.settings});
      if (!device_entry(name).is_host) check_takes(*device, model, context);
      usable.devices.push_back(device->info());
      if (name == require.device && device->info().is_software)
        throw Error(ErrorCode::device, name, "it is software: " + device->info().description);
    } catch (const Error& error) {
      if (error.code == ErrorCode::usage) throw;
      if (name == require.device) fail_require(require, error.what(), error.hint);
      usable.refusals.emplace_back(error.what());
    }
  }
  if (usable.devices.empty())
    throw Error(ErrorCode::device, "--device auto", joined(usable.refusals, "; "),
                "`tyto devices` lists what this machine has");
  return usable;
}

void check_requirement(const Requirement& require, const std::vector<std::string>& names) {
  if (require.empty()) return;
  if (std::ranges::find(names, require.device) == names.end())
    fail_require(require, "--device auto chooses from " + joined(names, " and "), "see --among");
  if (device_entry(require.device).is_virtual)
    fail_require(require, "the device is virtual, its time modelled");
}

// Takes under a second, once.
DeviceLimits measured_peak(const EngineOptions& options, const std::string& type,
                           ThreadPool& pool) {
  const auto isa = options.settings.find("isa");
  const cpu::InnerLoops& loops =
      cpu::chosen_inner_loops(isa == options.settings.end() ? "" : isa->second);
  const cpu::MeasuredPeak peak = cpu::measure_peak(loops, pool);
  const DType weights = dtype_from_name(type).value_or(DType::bf16);
  return {.gb_s = peak.read_gb_per_s,
          .gflops = cpu::arithmetic_peak(peak, loops, weights).gflop_per_s};
}

struct Figures {
  std::vector<DeviceRates> rates;
  std::vector<std::string> sources;  // where they are from, in words
};

Figures figures_for(const EngineOptions& options, const CalibrationHere& here,
                    const std::vector<std::string>& names, const std::vector<DeviceInfo>& devices,
                    const ModelDescription& model, const Workload& work, ThreadPool& pool,
                    const Announce& announce) {
  const CalibratedModel* with =
      here.calibration ? nearest_model(*here.calibration, model) : nullptr;
  Figures figures;
  if (!here.why_ignored.empty()) figures.sources.push_back(here.why_ignored + ": ignored");
  if (here.calibration && with == nullptr)
    figures.sources.push_back(
        fmt::format("{} has no {} model of this size", here.path.string(), model.main_type));
  if (with != nullptr)
    figures.sources.push_back(
        fmt::format("calibrated with {} on {}", with->name, with->time.substr(0, 10)));
  bool is_all = with != nullptr;
  for (const DeviceInfo& device : devices) {
    const KnownRates known =
        with != nullptr
            ? calibrated_rates(*with, device,
                               settings_text(options_for(device.name, names, options)), model)
            : KnownRates{};
    if (!known.why_none.empty()) figures.sources.push_back(known.why_none);
    is_all &= known.rates.has_value();
    if (known.rates) {
      figures.rates.push_back(*known.rates);
    } else if (device_entry(device.name).is_host) {
      announce("measuring the cpu");
      figures.rates.push_back(
          estimated_rates(device.name, measured_peak(options, model.main_type, pool), model, work));
    } else {
      figures.rates.push_back(modelled_rates(
          device, model, work, options.pipeline.forward.fusion.value_or(Fusion::block)));
    }
  }
  if (!is_all) figures.sources.emplace_back(kCalibrate);
  return figures;
}

DeviceChoice choice_among(const EngineOptions& options, const std::string& calibration,
                          const std::vector<std::string>& names, Workload work,
                          const Announce& announce, std::string& source) {
  check_required_device(options.require);
  const Requirement require = parse_requirement(options.require);
  check_requirement(require, names);
  ThreadPool pool(options.threads);
  const Usable usable = usable_devices(options, names, require, pool, announce);
  if (usable.devices.size() == 1) {
    source = joined(usable.refusals, "; ");
    return choose_devices(std::vector{DeviceRates{.name = usable.devices.front().name}}, work,
                          require);
  }
  const ModelDescription model = describe_model(find_model(model_or_shipped(options.model)));
  work.kv_bytes_per_token = kv_bytes(model.config, 1);
  work.generated_tokens = std::min(work.generated_tokens, kMostExpected);
  const Figures figures = figures_for(options, calibration_here(calibration), names, usable.devices,
                                      model, work, pool, announce);
  source = joined(figures.sources, "; ");
  return choose_devices(figures.rates, work, require);
}

std::string text_of(const CalibratedModel& model) {
  const auto device_text = [](const CalibratedDevice& device) {
    return device.name + (device.is_modelled ? " (modelled)" : "");
  };
  return fmt::format("{} on {}: {}", model.name, model.time.substr(0, model.time.find('T')),
                     joined(model.devices, ", ", device_text));
}

}  // namespace

std::vector<std::string> devices_to_choose_from(const std::vector<std::string>& among) {
  for (const std::string& name : among) device_entry(name);
  if (!among.empty()) return among;
  std::vector<std::string> names;
  for (const DeviceEntry& entry : device_table())
    if (!entry.is_virtual) names.emplace_back(entry.name);
  return names;
}

std::vector<std::string> choose_device(EngineOptions& options, const AutoDevice& automatic,
                                       const std::vector<std::string>& names, Workload work,
                                       const Announce& announce) {
  std::string source;
  const DeviceChoice choice =
      choice_among(options, automatic.calibration, names, work, announce, source);
  options.device = choice.decode;
  options.prefill_device = choice.prefill;
  if (choice.prefill != choice.decode)
    options.pipeline.min_prompt = std::max(kLeastMinN, choice.min_n);
  drop_idle_settings(options, names);
  std::vector<std::string> reasons = {choice.reason};
  if (!source.empty()) reasons.push_back(source);
  options.device_choice = joined(reasons, " · ");
  return reasons;
}

void drop_idle_settings(EngineOptions& options, const std::vector<std::string>& devices) {
  std::erase_if(options.settings, [&](const auto& setting) {
    const auto applies = [&](const std::string& device) {
      return applies_to(setting.first, device);
    };
    return !applies(options.prefill()) && !applies(options.device) &&
           std::ranges::any_of(devices, applies);
  });
  if (device_entry(options.prefill()).is_host && device_entry(options.device).is_host)
    options.pipeline.on_error = OnDeviceError::retry;
}

EngineOptions options_for(const std::string& device, const std::vector<std::string>& devices,
                          EngineOptions options) {
  options.device = device;
  drop_idle_settings(options, devices);
  return options;
}

// An unknown device is bad usage; one that this run does not use is --require's own failure.
void check_required_device(const std::string& require) {
  if (require.empty()) return;
  const std::string device = parse_requirement(require).device;
  if (std::ranges::find(device_table(), device, &DeviceEntry::name) != device_table().end()) return;
  throw Error(ErrorCode::usage, "--require " + require, "no such device",
              "devices in this build: " + joined(device_table(), ", ", &DeviceEntry::name));
}

std::string device_names(const EngineOptions& options) {
  return options.prefill() == options.device ? options.device
                                             : options.prefill() + "/" + options.device;
}

CalibratedMachine this_machine() {
  const MachineFacts facts = machine_facts();
  return {.cpu = facts.cpu, .cpu_threads = facts.cpu_threads, .tyto = TYTO_VERSION};
}

std::string settings_text(const EngineOptions& options) {
  std::vector<std::string> given;
  if (const auto fusion = options.pipeline.forward.fusion)
    given.push_back(fmt::format("--fusion {}", name(*fusion)));
  for (const auto& [setting, value] : options.settings)
    given.push_back(fmt::format("--{} {}", setting, value));
  return joined(given, " ");
}

CalibrationHere calibration_here(const std::string& named) {
  CalibrationHere here;
  try {
    here.path = named.empty() ? default_calibration() : std::filesystem::path(named);
  } catch (const Error& error) {  // the environment does not say where the cache is
    here.why_ignored = error.what();
    return here;
  }
  std::error_code ignored;
  if (named.empty() && !std::filesystem::exists(here.path, ignored)) return here;
  try {
    here.calibration = calibration_from(here.path);
  } catch (const Error& error) {
    if (!named.empty()) throw;
    here.why_ignored = error.what();
    return here;
  }
  if (const auto reason = why_not_here(*here.calibration, this_machine())) {
    here.calibration.reset();
    here.why_ignored = fmt::format("{} {}", here.path.string(), *reason);
  }
  return here;
}

std::string summary(const Calibration& calibration) {
  return joined(calibration.models, "; ", text_of);
}

std::string calibration_text() {
  constexpr const char* kMeasure =
      "`tyto bench --calibrate` measures this machine for --device auto";
  const CalibrationHere here = calibration_here();
  if (here.calibration) return "--device auto goes by " + summary(*here.calibration) + ".";
  if (here.why_ignored.empty()) return fmt::format("Nothing was measured yet: {}.", kMeasure);
  return fmt::format("{}: ignored; {}.", here.why_ignored, kMeasure);
}

uint32_t about_tokens(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes / kBytesPerToken + 1, UINT32_MAX));
}

}  // namespace tyto
