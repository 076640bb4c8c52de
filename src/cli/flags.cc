#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "engine/engine.h"
#include "model/stores/stores.h"
#include "power/energy_meter.h"
#include "shell/command_line.h"
#include "shell/terminal.h"
#include "text/grammar/json_schema.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

constexpr size_t kMaxStdinBytes = 64 << 20;
constexpr uint64_t kMaxGrammarBytes = 1 << 20;
constexpr Range kShare{0, 1};
constexpr Range kFromZero{0, std::numeric_limits<float>::max()};

std::pair<Token, float> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  Token id = 0;
  float value = 0;
  const char* end = text.data() + text.size();
  const char* middle = text.data() + std::min(equals, text.size());
  const auto is_whole = [](const std::from_chars_result& result, const char* expected) {
    return result.ec == std::errc() && result.ptr == expected;
  };
  const bool good = equals != std::string::npos && middle + 1 < end &&
                    is_whole(std::from_chars(text.data(), middle, id), middle) &&
                    is_whole(std::from_chars(middle + 1, end, value), end);
  if (!good) throw Error(ErrorCode::usage, "--logit-bias " + text, "expected ID=VALUE");
  return {id, value};
}

std::vector<Flag> placement_flags(EngineFlags& flags) {
  return {
      {"--device", &flags.device, "NAME", "device to run on; auto: the fastest",
       Rules{.shows_default = true}},
      {"--prefill-device", &flags.prefill_device, "NAME",
       "run prompts on this device (default: --device)"},
      {"--decode-device", &flags.decode_device, "NAME",
       "generate tokens on this device (default: --device)"},
      {"--min-n", &flags.min_n, "N",
       "run prompts of fewer tokens on the decode device (default: 2)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--max-n", &flags.max_n, "N",
       "run prompts of more tokens on the decode device (default: no limit)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--among", &flags.among, "NAME,...",
       "devices that --device auto may choose (default: all that are not virtual)"},
      {"--calibration", &flags.calibration, "FILE",
       "measurements by `tyto bench --calibrate` for --device auto (default: the file in the cache "
       "folder)"},
      {"--require", &flags.require, "NAME[:phase]",
       "exit with code 3 unless this real device did the work; NAME:prefill and NAME:decode check "
       "one phase"},
      {"-t,--threads", &flags.threads, "N", "CPU threads (default: one per usable core)",
       Rules{.range = Range{1, 1024}}},
      {"-c,--context", &flags.context, "N", "context length in tokens (default: the model's)",
       Rules{.range = Range{1, 1 << 30}}},
      {"--fusion", &flags.fusion, OneOf{"op", "block", "token"},
       "how much one dispatch computes (default: the device's own, for most block)"},
      {"--kv-type", &flags.kv_type, OneOf{"f16", "q8_0", "f32"},
       "number type of the KV cache (default: f16)"},
      {"--kv-memory", &flags.kv_memory, "SIZE",
       "memory limit of KV caches, such as 512M or 4G (default: one context)"},
  };
}

// One row per setting of the device table, with the devices that have it; of the devices of one
// kind.
std::vector<Flag> setting_flags(EngineFlags& flags, std::string_view kind) {
  std::vector<Flag> rows;
  for (const DeviceEntry& entry : device_table()) {
    if (entry.kind != kind) continue;
    for (const DeviceSetting& setting : entry.settings()) {
      const std::string name = "--" + std::string(setting.name);
      const auto known = std::find_if(rows.begin(), rows.end(),
                                      [&](const Flag& flag) { return flag.name() == name; });
      if (known != rows.end()) {
        known->rules.devices.emplace_back(entry.name);
        continue;
      }
      std::optional<std::string>* target = &flags.settings[std::string(setting.name)];
      const std::string meaning(setting.meaning);
      const Rules rules{.devices = {std::string(entry.name)}};
      if (setting.choices.empty())
        rows.emplace_back(name, target, std::string(setting.value), meaning, rules);
      else
        rows.emplace_back(name, target,
                          OneOf({setting.choices.begin(), setting.choices.end()}, Letters::exact),
                          meaning, rules);
    }
  }
  return rows;
}

// The host's first, then in the order of the table.
std::vector<std::string_view> device_kinds() {
  std::vector<std::string_view> kinds;
  for (const DeviceEntry& entry : device_table())
    if (std::find(kinds.begin(), kinds.end(), entry.kind) == kinds.end())
      kinds.insert(entry.is_host ? kinds.begin() : kinds.end(), entry.kind);
  return kinds;
}

// What happens when a device fails that is not the host's.
Flag error_flag(EngineFlags& flags) {
  std::vector<std::string> others;
  for (const DeviceEntry& entry : device_table())
    if (!entry.is_host) others.emplace_back(entry.name);
  return {"--on-device-error", &flags.on_device_error, OneOf{"retry", "cpu", "fail"},
          "after a failed dispatch: retry it once, go on on the cpu, or stop (default: retry)",
          Rules{.alias = "--on-npu-error", .devices = others}};
}

// A control that would do nothing is an error, not a hope.
void check_device_flags(const EngineFlags& flags) {
  EngineFlags looked_at = flags;
  for (const Flag& flag : device_flags(looked_at))
    if (is_set(flag.target) && !is_heeded(flag, flags.prefill()) &&
        !is_heeded(flag, flags.decode()))
      throw Error(
          ErrorCode::usage, flag.name(),
          fmt::format("has no effect with --device {}", flags.devices()),
          fmt::format("it is for --device {}", fmt::join(flag.rules.devices, " and --device ")));
}

void check_prompt_range(const EngineFlags& flags) {
  if (!flags.min_n && !flags.max_n) return;
  if (flags.prefill() == flags.decode())
    throw Error(ErrorCode::usage, flags.min_n ? "--min-n" : "--max-n",
                fmt::format("has no effect while prompts and tokens both go to {}", flags.decode()),
                "choose two with --prefill-device and --decode-device");
  if (flags.min_n && flags.max_n && *flags.min_n > *flags.max_n)
    throw Error(ErrorCode::usage, fmt::format("--min-n {} --max-n {}", *flags.min_n, *flags.max_n),
                "leave no prompt to the prefill device", "give a --max-n that is not less");
}

OnDeviceError on_error(const EngineFlags& flags) {
  const std::string name = flags.on_device_error.value_or("retry");
  if (name == "cpu") return OnDeviceError::cpu;
  return name == "fail" ? OnDeviceError::fail : OnDeviceError::retry;
}

}  // namespace

uint64_t parse_size(const std::string& text, const std::string& flag) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string unit(rest, end);
  const unsigned shift = unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0;
  const bool is_known = unit.empty() || shift > 0;
  if (error != std::errc() || !is_known || value == 0 || value > (UINT64_MAX >> 1 >> shift))
    throw Error(ErrorCode::usage, flag + " " + text, "expected a size like 512M or 4G");
  return value << shift;
}

void add_model_flag(CommandLine& command, ModelFlags& flags) {
  command.add({{"-m,--model", &flags.model, "MODEL",
                "GGUF file, folder or name from `tyto models` (default: the shipped model)"}});
}

Flag adapter_flag(ModelFlags& flags) {
  return {"--lora", &flags.adapters, "FILE[=SCALE]",
          "LoRA adapter, a GGUF file or PEFT folder; repeatable"};
}

std::vector<AdapterChoice> adapters_of(const ModelFlags& flags) {
  std::vector<AdapterChoice> choices;
  for (const std::string& each : flags.adapters) choices.push_back(parse_adapter(each));
  return choices;
}

std::string model_or_shipped(const ModelFlags& flags) {
  return model_or_shipped(flags.model);
}

void add_engine_flags(CommandLine& command, EngineFlags& flags) {
  add_model_flag(command, flags.model);
  command.add({adapter_flag(flags.model)});
  std::vector<Flag> rows = placement_flags(flags);
  const auto threads = std::find_if(rows.begin(), rows.end(),
                                    [](const Flag& flag) { return flag.name() == "--threads"; });
  const std::vector<std::string_view> kinds = device_kinds();
  std::vector<Flag> hosts = setting_flags(flags, kinds.front());
  rows.insert(threads + 1, hosts.begin(), hosts.end());
  rows.push_back(error_flag(flags));
  command.add("Device", rows);
  for (const std::string_view kind : std::span(kinds).subspan(1))
    command.add(std::string(kind), setting_flags(flags, kind));
}

std::string EngineFlags::setting(const std::string& name, const std::string& otherwise) const {
  const auto found = settings.find(name);
  return found == settings.end() ? otherwise : found->second.value_or(otherwise);
}

std::string EngineFlags::devices() const {
  return prefill() == decode() ? decode() : prefill() + "/" + decode();
}

std::vector<Flag> device_flags(EngineFlags& flags) {
  std::vector<Flag> rows = {error_flag(flags)};
  for (const std::string_view kind : device_kinds())
    for (Flag& flag : setting_flags(flags, kind)) rows.push_back(std::move(flag));
  return rows;
}

// The host takes part whatever the device is.
bool is_heeded(const Flag& flag, const std::string& device) {
  const std::vector<std::string>& devices = flag.rules.devices;
  return std::any_of(devices.begin(), devices.end(), [&](const std::string& heeding) {
    return heeding == device || device_entry(heeding).is_host;
  });
}

EngineFlags without_idle_flags(EngineFlags flags, const std::vector<std::string>& devices) {
  for (const Flag& flag : device_flags(flags)) {
    const auto heeds = [&](const std::string& each) { return is_heeded(flag, each); };
    if (!heeds(flags.prefill()) && !heeds(flags.decode()) &&
        std::any_of(devices.begin(), devices.end(), heeds))
      unset(flag.target);
  }
  return flags;
}

EngineFlags flags_for(const std::string& device, const std::vector<std::string>& devices,
                      EngineFlags flags) {
  flags.device = device;
  return without_idle_flags(std::move(flags), devices);
}

// An unknown device is bad usage; one that this run does not use is --require's own failure.
void check_required_device(const std::string& require) {
  if (require.empty()) return;
  const std::string name = parse_requirement(require).device;
  const auto& devices = device_table();
  if (std::any_of(devices.begin(), devices.end(),
                  [&](const DeviceEntry& entry) { return entry.name == name; }))
    return;
  throw Error(ErrorCode::usage, "--require " + require, "no such device",
              "devices in this build: " + joined(devices, ", ", [](const DeviceEntry& entry) {
                return std::string(entry.name);
              }));
}

EngineOptions engine_options(const EngineFlags& flags) {
  for (const std::string& name : {flags.prefill(), flags.decode()}) device_entry(name);
  check_required_device(flags.require);
  check_device_flags(flags);
  check_prompt_range(flags);
  EngineOptions options;
  options.model = model_or_shipped(flags.model);
  options.adapters = adapters_of(flags.model);
  options.device = flags.decode();
  options.prefill_device = flags.prefill();
  options.device_choice = flags.device_choice;
  options.require = flags.require;
  options.threads = flags.threads;
  options.pipeline.forward.context = flags.context;
  if (flags.fusion) options.pipeline.forward.fusion = fusion_from_name(*flags.fusion);
  if (flags.kv_type) options.pipeline.forward.kv_type = *dtype_from_name(*flags.kv_type);
  options.pipeline.on_error = on_error(flags);
  options.pipeline.min_prompt = flags.min_n.value_or(options.pipeline.min_prompt);
  options.pipeline.max_prompt = flags.max_n.value_or(options.pipeline.max_prompt);
  if (flags.kv_memory)
    options.pipeline.forward.kv_memory = parse_size(*flags.kv_memory, "--kv-memory");
  for (const auto& [name, value] : flags.settings)
    if (value) options.settings.emplace(name, *value);
  return options;
}

void add_energy_flag(CommandLine& command, bool& energy) {
  const char* meaning = "measure joules per token on each power rail, idle power included";
  command.add("Device", {{"--energy", &energy, meaning}});
}

std::unique_ptr<EnergyMeter> energy_meter(bool wanted) {
  return wanted ? std::make_unique<EnergyMeter>(power_rails()) : nullptr;
}

void add_sampling_flags(CommandLine& command, SamplingFlags& flags) {
  SamplerOptions& others = flags.others;
  const Rules shown{.shows_default = true};
  const std::vector<Flag> rows = {
      {"-n,--tokens", &flags.max_tokens, "N",
       "stop after N tokens; -1: when the answer ends or the context is full",
       Rules{.range = Range{1, 1 << 30}, .is_unlimited_at_minus_1 = true, .shows_default = true}},
      {"--temp", &flags.temperature, "X",
       "temperature; 0: always the likeliest token (default: the model's, else 0.8)",
       Rules{.range = kFromZero}},
      {"--top-k", &flags.top_k, "K",
       "sample from the K likeliest tokens; 0: from all (default: the model's, else 40)"},
      {"--top-p", &flags.top_p, "P",
       "sample from the likeliest tokens whose probabilities add up to P (default: the model's, "
       "else 0.95)",
       Rules{.range = kShare}},
      {"--min-p", &others.min_p, "P", "drop tokens less likely than P times the likeliest",
       Rules{.range = kShare, .shows_default = true}},
      {"--repeat-penalty", &others.repeat_penalty, "X",
       "divide the logits of recent tokens by X; 1: off", shown},
      {"--frequency-penalty", &others.frequency_penalty, "X",
       "subtract X from a token's logit for each recent use", shown},
      {"--presence-penalty", &others.presence_penalty, "X",
       "subtract X once from the logits of recent tokens", shown},
      {"--penalty-window", &others.penalty_window, "N",
       "number of recent tokens that penalties apply to", shown},
      {"--logit-bias", &flags.logit_bias, "ID=VALUE", "add VALUE to a token's logit; repeatable"},
      {"--seed", &flags.seed, "N", "same seed, same answer (default: random; -v shows it)"},
      {"--stop", &flags.stop, "TEXT", "stop when the answer contains TEXT; repeatable"},
      {"--ignore-eos", &flags.ignore_eos, "do not stop when the model ends its answer"},
  };
  command.add("Sampling", rows);
}

SamplerOptions sampler_options(const SamplingFlags& flags, const Model& model) {
  SamplerOptions options = sampling_for(model, flags.others);
  options.temperature = flags.temperature.value_or(options.temperature);
  options.top_k = flags.top_k.value_or(options.top_k);
  options.top_p = flags.top_p.value_or(options.top_p);
  options.seed = flags.seed ? *flags.seed : std::random_device()();
  for (const std::string& bias : flags.logit_bias) options.logit_bias.push_back(parse_bias(bias));
  check(options, model.config.vocab);
  return options;
}

void add_grammar_flags(CommandLine& command, GrammarFlags& flags) {
  command.add("Sampling",
              {{"--grammar", &flags.grammar, "FILE", "force the answer to match this GBNF grammar",
                Rules{.excludes = {"--json-schema", "--ignore-eos"}}},
               {"--json-schema", &flags.json_schema, "FILE",
                "force the answer to be JSON that matches this schema",
                Rules{.excludes = {"--ignore-eos"}}}});
}

std::shared_ptr<const Grammar> read_grammar(const GrammarFlags& flags) {
  if (!flags.grammar.empty())
    return std::make_shared<const Grammar>(read_text_file(flags.grammar, kMaxGrammarBytes));
  if (flags.json_schema.empty()) return nullptr;
  return std::make_shared<const Grammar>(
      grammar_from_json_schema(Json::parse_file(flags.json_schema, kMaxGrammarBytes)));
}

void add_chat_flags(CommandLine& command, ChatFlags& flags) {
  command.add({
      {"--system", &flags.system, "TEXT", "system message", Rules{.may_be_empty = true}},
      {"--chat-template", &flags.chat_template, "NAME|FILE",
       "built-in chat template or a Jinja file (default: the model's own)"},
      {"--special", &flags.special, "read special tokens that the prompt spells out"},
  });
}

std::vector<Token> parse_tokens(const std::string& text, const std::string& flag) {
  std::vector<Token> tokens;
  std::string_view rest = text;
  const auto skip_space = [&] {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
  };
  skip_space();
  for (bool comma = false; comma || !rest.empty();) {
    Token token = 0;
    const char* const end = rest.data() + rest.size();
    const auto [next, error] = std::from_chars(rest.data(), end, token);
    const bool ends_well =
        next == end || std::string_view(", \t\r\n").find(*next) != std::string_view::npos;
    if (error != std::errc() || token < 0 || !ends_well)
      throw Error(
          ErrorCode::usage, flag,
          fmt::format("expected token ids separated by commas, found \"{}\"", rest.substr(0, 12)));
    tokens.push_back(token);
    rest.remove_prefix(static_cast<size_t>(next - rest.data()));
    skip_space();
    comma = rest.starts_with(',');
    if (comma) rest.remove_prefix(1);
    skip_space();
  }
  return tokens;
}

std::string read_stdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.size() > kMaxStdinBytes) fail_input("stdin", "more than {} bytes", kMaxStdinBytes);
  return text;
}

std::string text_from(const std::string& file, uint64_t most_bytes) {
  return file == "-" ? read_stdin() : read_text_file(file, most_bytes);
}

void add_speculation_flags(CommandLine& command, SpeculationFlags& flags) {
  command.add(
      "Speculation",
      {{"--speculate", &flags.speculate, OneOf{"lookup", "off"},
        "draft tokens by looking up earlier occurrences of the last words; answers stay "
        "the same",
        Rules{.shows_default = true, .excludes = {"--draft"}}},
       {"--draft", &flags.draft, "MODEL", "small model that drafts tokens (same vocabulary)"},
       {"--draft-max", &flags.draft_max, "N", "draft at most N tokens at once",
        Rules{.range = Range{1, kMostGuesses},
              .shows_default = true,
              .needs_one_of = {"--speculate", "--draft"}}}});
}

OpenSpeculation::OpenSpeculation(const SpeculationFlags& flags, const Engine& engine,
                                 const EngineFlags& engine_flags) {
  if (!flags.draft.empty()) {
    draft_ = open_draft(flags.draft, engine, engine_options(engine_flags), progress_bar());
    speculator_ = std::make_unique<Speculator>(
        flags.draft, [draft = draft_.get()] { return model_drafter(*draft); }, flags.draft_max);
  } else if (flags.speculate == "lookup") {
    speculator_ = std::make_unique<Speculator>("lookup", lookup_drafter, flags.draft_max);
  }
}

Flag sign_flag(std::string& key_file) {
  return {"--sign", &key_file, "KEYFILE",
          "sign what is written with this key (`tyto receipt keygen` makes one)"};
}

std::unique_ptr<SigningKey> signing_key(const std::string& key_file) {
  return key_file.empty() ? nullptr : std::make_unique<SigningKey>(key_file);
}

void check_sign_flag(const CommandLine& command, std::initializer_list<const char*> signs) {
  const bool has_something = std::any_of(signs.begin(), signs.end(),
                                         [&](const char* flag) { return command.is_given(flag); });
  if (command.is_given("--sign") && !has_something)
    throw Error(ErrorCode::usage, "--sign", "has nothing to sign", "add " + joined(signs, " or "));
}

Flag trust_flag(std::string& key) {
  return {"--trust", &key, "PUBKEY",
          "accept only what this key signed: a file KEYFILE.pub, or the text in it"};
}

std::optional<PublicKey> trusted_key(const std::string& key) {
  return key.empty() ? std::nullopt : std::optional(public_key_from(key));
}

}  // namespace tyto
