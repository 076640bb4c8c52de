#include "engine/engine.h"

#include <algorithm>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "device/cpu/measured_peak.h"
#include "model/stores/stores.h"
#include "trace/trace.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxTemplateBytes = 1 << 20;

// Fails closed before anything runs: a device that is not there, or only virtual, or not asked for
// the phase, cannot have done the work.
void check_can_require(const Requirement& require, const EngineOptions& options,
                       const std::vector<DeviceInfo>& devices) {
  if (require.empty()) return;
  const std::string flag = "--require " + to_text(require);
  const auto device = std::ranges::find(devices, require.device, &DeviceInfo::name);
  if (device == devices.end()) {
    const std::string& first = options.prefill();
    throw Error(
        ErrorCode::require, flag,
        fmt::format("this run would use {}; add --{}device {}",
                    first == options.device ? first : first + " and " + options.device,
                    require.phase ? fmt::format("{}-", name(*require.phase)) : "", require.device));
  }
  if (device->is_virtual)
    throw Error(ErrorCode::require, flag, "the device is virtual, its time modelled");
  if (device->is_software)
    throw Error(ErrorCode::require, flag, "the device is software: " + device->description,
                "choose a real one with --gpu; `tyto devices` lists what this machine has");
  if (!require.phase || device->shares_host_memory) return;
  const bool is_prefill = *require.phase == Phase::prefill;
  const std::string& asked = is_prefill ? options.prefill() : options.device;
  if (asked != require.device)
    throw Error(ErrorCode::require, flag, fmt::format("{} goes to {}", name(*require.phase), asked),
                fmt::format("choose it with --{}-device", name(*require.phase)));
}

// Without a home for caches every identity is computed again.
std::filesystem::path kept_hashes() try {
  return cache_folder() / "file-hashes.jsonl";
} catch (const Error&) {
  return {};
}

template <typename Function>
auto timed(Trace& trace, const std::string& phase, const Function& function) {
  SetupTimer timer(trace, phase);
  return function();
}

Model opened_model(const EngineOptions& options, const Progress& progress) {
  if (progress) progress("opening the model", 0, 0);
  Model model = open_model(find_model(model_or_shipped(options.model)), Need::weights, progress);
  choose_divisors(model.config, options.pipeline.forward.context);
  add_adapters(options.adapters, model);
  return model;
}

}  // namespace

Engine::Engine(const EngineOptions& options, const Progress& progress)
    : require_(parse_requirement(options.require)),
      device_choice_(options.device_choice),
      model_(timed(trace_, "model file", [&] { return opened_model(options, progress); })),
      pool_(options.pool ? options.pool : std::make_shared<ThreadPool>(options.threads)),
      settings_(options.settings) {
  if (options.require.size() > 0 && options.pipeline.on_error == OnDeviceError::cpu)
    throw Error(ErrorCode::usage, "--on-device-error cpu",
                "cannot be combined with --require: the cpu would take over");
  if (model_.vocabulary) {
    SetupTimer timer(trace_, "tokenizer");
    tokenizer_ = std::make_shared<const Tokenizer>(*model_.vocabulary, model_.path.string());
  }
  open_devices(options, progress);
  check_can_require(require_, options, devices());
  pipeline_ =
      std::make_unique<Pipeline>(model_, sides(options), options.pipeline, trace_, progress);
  prefixes_ = std::make_unique<PrefixCache>(pipeline_->kv_pool(), pipeline_->kv_window(),
                                            pipeline_->states());
  pipeline_->reclaim = [this](KvKind lacking) { return prefixes_->evict(lacking); };
  pipeline_->on_caches_lost = [this] { prefixes_->clear(); };
  setup_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - opened_).count();
}

// Each once: the one for tokens, the one for prompts, the host's.
void Engine::open_devices(const EngineOptions& options, const Progress& progress) {
  const DeviceEnv env{*pool_,
                      trace_,
                      options.pipeline.forward.fusion.value_or(Fusion::block),
                      model_dims(model_.config, options.pipeline.forward.context),
                      options.settings,
                      options.pipeline.forward.sequences,
                      model_.files};
  std::vector<std::string> wanted = {options.device, options.prefill()};
  for (const DeviceEntry& entry : device_table())
    if (entry.is_host) wanted.emplace_back(entry.name);
  for (auto name = wanted.begin(); name != wanted.end(); ++name) {
    if (std::find(wanted.begin(), name, *name) != name) continue;
    SetupTimer timer(trace_, "device " + *name);
    if (progress) progress("opening " + *name, 0, 0);
    try {
      devices_.push_back(open_device(*name, env));
    } catch (const Error& error) {
      if (require_.device != *name || error.code == ErrorCode::usage) throw;
      throw Error(ErrorCode::require, "--require " + options.require, error.what(), error.hint);
    }
  }
}

SideDevices Engine::sides(const EngineOptions& options) const {
  const auto in_order = [&](const std::string& first) {
    std::vector<Device*> order;
    for (const bool is_first : {true, false})
      for (const auto& device : devices_) {
        const DeviceInfo info = device->info();
        if (is_first ? info.name == first : info.shares_host_memory && info.name != first)
          order.push_back(device.get());
      }
    return order;
  };
  return {.decode = in_order(options.device), .prefill = in_order(options.prefill())};
}

const Tokenizer& Engine::tokenizer() const {
  if (!tokenizer_)
    throw Error(ErrorCode::input, model_.path.string(), "has no tokenizer",
                "put tokenizer.json beside the weights, or use --tokens where a command takes it");
  return *tokenizer_;
}

const ModelIdentity& Engine::identity(const Progress& progress) {
  if (!identity_) identity_ = identity_of(model_, kept_hashes(), progress);
  return *identity_;
}

std::vector<DeviceInfo> Engine::devices() const {
  std::vector<DeviceInfo> result;
  for (const auto& device : devices_) result.push_back(device->info());
  return result;
}

std::vector<NamedLimits> Engine::limits() const {
  std::vector<NamedLimits> result;
  for (const DeviceInfo& device : devices()) result.push_back({device.name, device.limits});
  return result;
}

DeviceLimits Engine::measure_cpu_peak() {
  const cpu::InnerLoops& loops =
      cpu::chosen_inner_loops(settings_.contains("isa") ? settings_.at("isa") : "");
  const cpu::MeasuredPeak peak = cpu::measure_peak(loops, *pool_);
  const cpu::ArithmeticPeak arithmetic =
      cpu::arithmetic_peak(peak, loops, main_weight_type(model_));
  return {.gb_s = peak.read_gb_per_s,
          .gflops = arithmetic.gflop_per_s,
          .source = fmt::format("measured now with {}: reads of memory, {} arithmetic ({})",
                                counted(pool_->threads(), "thread"), arithmetic.name, loops.name)};
}

void Engine::check_required(const PhaseCounters& executed) const {
  check_requirement(require_, executed);
}

void Engine::complete(Receipt& receipt) const {
  receipt.loaded_code = trace_.loaded_code();
  receipt.plausibility = judge(receipt, limits());
}

SamplerOptions sampling_for(const Model& model, SamplerOptions ours) {
  const GenerationDefaults& defaults = model.defaults;
  ours.temperature = defaults.temperature.value_or(ours.temperature);
  ours.top_k = defaults.top_k.value_or(ours.top_k);
  ours.top_p = defaults.top_p.value_or(ours.top_p);
  return ours;
}

std::string without_default_template(const Vocabulary& vocabulary) {
  const std::vector<ChatSource>& more = vocabulary.more_templates;
  if (!vocabulary.chat_template.empty() || more.empty()) return "";
  return fmt::format("has the chat template{} {}, and none that is called default",
                     more.size() == 1 ? "" : "s", joined(more, ", ", &ChatSource::name));
}

ChatTemplate choose_chat_template(const Vocabulary& vocabulary, const std::string& choice,
                                  const std::string& model_name, bool with_tools) {
  const std::vector<ChatSource>& more = vocabulary.more_templates;
  if (choice.empty()) {
    const std::string& source = chat_template_for(vocabulary, with_tools);
    if (source.empty() && !more.empty())
      throw Error(ErrorCode::input, model_name, without_default_template(vocabulary),
                  "choose one: --chat-template " + shell_word(more.front().name));
    if (source.empty())
      throw Error(ErrorCode::input, model_name, "has no chat template",
                  "name one with --chat-template, or give the prompt as it is with --raw");
    return ChatTemplate(source, model_name + ": chat_template");
  }
  for (const ChatSource& each : more)
    if (each.name == choice) return ChatTemplate(each.source, model_name + ": " + choice);
  for (const NamedTemplate& named : named_chat_templates())
    if (named.name == choice) return ChatTemplate(named.source, choice);
  if (!std::filesystem::exists(choice))
    throw Error(ErrorCode::usage, "--chat-template " + choice, "neither a known name nor a file",
                "known names: " + joined(named_chat_templates(), ", ", &NamedTemplate::name));
  return ChatTemplate(read_text_file(choice, kMaxTemplateBytes), choice);
}

}  // namespace tyto
