#include "cli/auto_device.h"

#include <algorithm>

#include "base/error.h"
#include "base/spelling.h"
#include "bench/bench_tests.h"
#include "cli/calibration.h"
#include "cli/flags.h"
#include "device/cpu/measured_peak.h"
#include "engine/engine.h"
#include "llama/placement.h"
#include "model/adapters.h"
#include "model/stores/stores.h"
#include "plan/air_images.h"
#include "plan/rates.h"
#include "shell/command_line.h"
#include "shell/progress.h"
#include "shell/terminal.h"

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

std::vector<std::string> names_to_choose_from(const EngineFlags& flags) {
  std::vector<std::string> names;
  if (!flags.among.empty()) {
    names = parse_names({flags.among}, "--among");
    refuse_doubles(names, "--among");
    for (const std::string& name : names) device_entry(name);
    return names;
  }
  for (const DeviceEntry& entry : device_table())
    if (!entry.is_virtual) names.emplace_back(entry.name);
  return names;
}

void check_flags(const EngineFlags& flags, const std::vector<std::string>& names) {
  EngineFlags looked_at = flags;
  for (const Flag& flag : device_flags(looked_at)) {
    const auto heeds = [&](const std::string& name) { return is_heeded(flag, name); };
    if (is_set(flag.target) && std::ranges::none_of(names, heeds))
      throw Error(ErrorCode::usage, flag.name(),
                  fmt::format("has no effect on {}, which --device auto chooses from",
                              joined(names, " and ")),
                  fmt::format("it is for {}; see --among", joined(flag.rules.devices, " and ")));
  }
}

// Both sides are what it chooses, and from which length on a prompt is worth another device.
void refuse_named_sides(const EngineFlags& flags) {
  for (const auto& [is_given, flag] : {std::pair(!flags.prefill_device.empty(), "--prefill-device"),
                                       std::pair(!flags.decode_device.empty(), "--decode-device"),
                                       std::pair(flags.min_n.has_value(), "--min-n"),
                                       std::pair(flags.max_n.has_value(), "--max-n")})
    if (is_given)
      throw Error(ErrorCode::usage, flag, "is chosen by --device auto", "leave one of the two out");
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
Usable usable_devices(const EngineFlags& flags, const std::vector<std::string>& names,
                      const Requirement& require, ThreadPool& pool) {
  Trace trace;
  Model model = open_model(find_model(model_or_shipped(flags.model)));
  add_adapters(adapters_of(flags.model), model);
  Usable usable;
  for (const std::string& name : names) {
    if (!is_in_question(name, require)) continue;
    const EngineFlags own = flags_for(name, names, flags);
    const EngineOptions options = engine_options(own);
    announce("opening " + name);
    try {
      const auto device =
          open_device(name, {pool, trace, options.pipeline.forward.fusion.value_or(Fusion::block),
                             model_dims(model.config, flags.context), options.settings});
      if (!device_entry(name).is_host) check_takes(*device, model, flags.context);
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
DeviceLimits measured_peak(const EngineFlags& flags, const std::string& type, ThreadPool& pool) {
  announce("measuring the cpu");
  const cpu::InnerLoops& loops = cpu::chosen_inner_loops(flags.setting("isa", ""));
  const cpu::MeasuredPeak peak = cpu::measure_peak(loops, pool);
  const DType weights = dtype_from_name(type).value_or(DType::bf16);
  return {.gb_s = peak.read_gb_per_s,
          .gflops = cpu::arithmetic_peak(peak, loops, weights).gflop_per_s};
}

struct Figures {
  std::vector<DeviceRates> rates;
  std::vector<std::string> sources;  // where they are from, in words
};

Figures figures_for(const EngineFlags& flags, const std::vector<std::string>& names,
                    const std::vector<DeviceInfo>& devices, const ModelDescription& model,
                    const Workload& work, ThreadPool& pool) {
  const CalibrationHere here = calibration_here(flags.calibration);
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
            ? calibrated_rates(*with, device, settings_text(flags_for(device.name, names, flags)),
                               model)
            : KnownRates{};
    if (!known.why_none.empty()) figures.sources.push_back(known.why_none);
    is_all &= known.rates.has_value();
    figures.rates.push_back(
        known.rates ? *known.rates
        : device_entry(device.name).is_host
            ? estimated_rates(device.name, measured_peak(flags, model.main_type, pool), model, work)
            : modelled_rates(device, model, work,
                             *fusion_from_name(flags.fusion.value_or("block"))));
  }
  if (!is_all) figures.sources.emplace_back(kCalibrate);
  return figures;
}

DeviceChoice choice_among(const EngineFlags& flags, const std::vector<std::string>& names,
                          Workload work, std::string& source) {
  check_required_device(flags.require);
  const Requirement require = parse_requirement(flags.require);
  check_requirement(require, names);
  ThreadPool pool(flags.threads);
  const Usable usable = usable_devices(flags, names, require, pool);
  if (usable.devices.size() == 1) {
    source = joined(usable.refusals, "; ");
    return choose_devices(std::vector{DeviceRates{.name = usable.devices.front().name}}, work,
                          require);
  }
  const ModelDescription model = describe_model(find_model(model_or_shipped(flags.model)));
  work.kv_bytes_per_token = kv_bytes(model.config, 1);
  work.generated_tokens = std::min(work.generated_tokens, kMostExpected);
  const Figures figures = figures_for(flags, names, usable.devices, model, work, pool);
  source = joined(figures.sources, "; ");
  return choose_devices(figures.rates, work, require);
}

}  // namespace

void settle_device(EngineFlags& flags, Workload expected) {
  if (flags.device != kAutoDevice) {
    for (const auto& [value, flag] :
         {std::pair(&flags.among, "--among"), std::pair(&flags.calibration, "--calibration")})
      if (!value->empty())
        throw Error(ErrorCode::usage, flag, "has no effect with --device " + flags.device,
                    "it is for --device auto");
    return;
  }
  refuse_named_sides(flags);
  const std::vector<std::string> names = names_to_choose_from(flags);
  check_flags(flags, names);
  std::string source;
  const DeviceChoice choice = choice_among(flags, names, expected, source);
  flags.device = choice.decode;
  if (choice.prefill != choice.decode) {
    flags.prefill_device = choice.prefill;
    flags.min_n = std::max(kLeastMinN, choice.min_n);
  }
  flags = without_idle_flags(std::move(flags), names);
  flags.device_choice = choice.reason + (source.empty() ? "" : " · " + source);
  note("auto · " + choice.reason);
  if (!source.empty()) note("auto · " + source);
}

uint32_t about_tokens(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes / kBytesPerToken + 1, UINT32_MAX));
}

}  // namespace tyto
