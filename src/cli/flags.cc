#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "engine/engine.h"
#include "model/stores/stores.h"
#include "text/grammar/json_schema.h"
#include "trace/energy_meter.h"

namespace tyto {
namespace {

constexpr size_t kMaxStdinBytes = 64 << 20;
constexpr uint64_t kMaxGrammarBytes = 1 << 20;

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
      {"--device", &flags.device, "NAME",
       "where the work goes first (see `tyto devices`); auto: the fastest here",
       Rules{.shows_default = true}},
      {"--prefill-device", &flags.prefill_device, "NAME",
       "where prompts go first (default: --device)"},
      {"--decode-device", &flags.decode_device, "NAME",
       "where tokens go first once the prompt is done (default: --device)"},
      {"--min-n", &flags.min_n, "N",
       "prompts of fewer tokens stay on the decode device (default: 2)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--max-n", &flags.max_n, "N",
       "prompts of more tokens stay on the decode device (default: none do)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--among", &flags.among, "NAME,...",
       "what --device auto chooses from (default: every device that is not virtual)"},
      {"--calibration", &flags.calibration, "FILE",
       "what `tyto bench --calibrate` has measured for --device auto (default: kept in the cache)"},
      {"--require", &flags.require, "NAME[:phase]",
       "fail, with exit code 3, unless this real device did the work; NAME:prefill and NAME:decode "
       "ask it of one phase"},
      {"-t,--threads", &flags.threads, "N", "CPU threads (default: one per usable core)",
       Rules{.range = Range{1, 1024}}},
      {"-c,--context", &flags.context, "N", "positions to make room for (default: the model's)",
       Rules{.range = Range{1, 1 << 30}}},
      {"--fusion", &flags.fusion, OneOf{"op", "block", "token"},
       "how far launches are stitched into one dispatch (default: token on vulkan, else block)"},
      {"--kv-type", &flags.kv_type, OneOf{"f16", "q8_0", "f32"},
       "type of the KV cache: f16 (default), q8_0 or f32"},
      {"--kv-memory", &flags.kv_memory, "SIZE",
       "most that KV caches may take, like 512M or 4G (default: room for one context)"},
  };
}

// One row per setting of the device table, with the devices that have it.
std::vector<Flag> setting_flags(EngineFlags& flags, bool of_hosts) {
  std::vector<Flag> rows;
  for (const DeviceEntry& entry : device_table()) {
    if (entry.is_host != of_hosts) continue;
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

// What happens when a device fails that is not the host's.
Flag error_flag(EngineFlags& flags) {
  std::vector<std::string> others;
  for (const DeviceEntry& entry : device_table())
    if (!entry.is_host) others.emplace_back(entry.name);
  return {"--on-npu-error", &flags.on_npu_error, OneOf{"retry", "cpu", "fail"},
          "after a failed dispatch: retry once (default), finish on the cpu, or fail",
          Rules{.devices = others}};
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
  const std::string name = flags.on_npu_error.value_or("retry");
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
                "GGUF file, checkpoint folder or a name that `tyto models` lists (default: the "
                "shipped model)"}});
}

Flag adapter_flag(ModelFlags& flags) {
  return {"--lora", &flags.adapters, "FILE[=SCALE]",
          "LoRA adapter to add to the model, a GGUF or PEFT's folder; may be given several times"};
}

std::vector<AdapterChoice> adapters_of(const ModelFlags& flags) {
  std::vector<AdapterChoice> choices;
  for (const std::string& each : flags.adapters) choices.push_back(parse_adapter(each));
  return choices;
}

std::string model_or_shipped(const ModelFlags& flags) {
  if (!flags.model.empty()) return flags.model;
  if (const auto folder = shipped_model()) return folder->string();
  throw Error(ErrorCode::input, "the shipped model", "is not beside the program",
              "name a model with -m");
}

void add_engine_flags(CommandLine& command, EngineFlags& flags) {
  add_model_flag(command, flags.model);
  command.add({adapter_flag(flags.model)});
  std::vector<Flag> rows = placement_flags(flags);
  const auto threads = std::find_if(rows.begin(), rows.end(),
                                    [](const Flag& flag) { return flag.name() == "--threads"; });
  std::vector<Flag> hosts = setting_flags(flags, true);
  rows.insert(threads + 1, hosts.begin(), hosts.end());
  command.add("Device", rows);
  std::vector<Flag> others = setting_flags(flags, false);
  others.insert(others.begin() + 1, error_flag(flags));
  command.add("NPU", others);
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
  for (const bool of_hosts : {true, false})
    for (Flag& flag : setting_flags(flags, of_hosts)) rows.push_back(std::move(flag));
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

EngineOptions engine_options(const EngineFlags& flags) {
  for (const std::string& name : {flags.prefill(), flags.decode()}) device_entry(name);
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

void refuse_idle_flags(const CommandLine& command, const std::string& mode,
                       const std::function<bool(const Flag&)>& has_effect) {
  for (const Flag& flag : command.flags)
    if (flag.given && flag.name() != mode && !has_effect(flag))
      throw Error(ErrorCode::usage, flag.name(), "has no effect together with " + mode);
}

Flag force_flag(bool& force, const std::vector<std::string>& outputs) {
  return {"--force", &force, "replace what is there; never a file that this command reads",
          Rules{.needs_one_of = outputs}};
}

void add_energy_flag(CommandLine& command, bool& energy) {
  const char* meaning =
      "joules per token of each power rail, or why there are none; idle power included";
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
       "most tokens to generate; -1: until the model ends its turn or the context is full",
       Rules{.range = Range{1, 1 << 30}, .is_unlimited_at_minus_1 = true, .shows_default = true}},
      {"--temp", &flags.temperature, "X",
       "temperature; 0 is greedy (default: the model's, else 0.8)"},
      {"--top-k", &flags.top_k, "K",
       "keep the K best tokens; 0 keeps all (default: the model's, else 40)"},
      {"--top-p", &flags.top_p, "P",
       "keep the best tokens up to this probability (default: the model's, else 0.95)"},
      {"--min-p", &others.min_p, "P", "drop tokens below this share of the best one's probability",
       shown},
      {"--repeat-penalty", &others.repeat_penalty, "X",
       "divide the logits of recent tokens; 1 is off", shown},
      {"--frequency-penalty", &others.frequency_penalty, "X", "subtract this per recent occurrence",
       shown},
      {"--presence-penalty", &others.presence_penalty, "X", "subtract this from recent tokens once",
       shown},
      {"--penalty-window", &others.penalty_window, "N", "how many recent tokens the penalties see",
       shown},
      {"--logit-bias", &flags.logit_bias, "ID=VALUE", "add VALUE to a token's logit; repeatable"},
      {"--seed", &flags.seed, "N", "same seed, same text (default: a new one, shown)"},
      {"--stop", &flags.stop, "TEXT", "stop before this text; repeatable"},
      {"--ignore-eos", &flags.ignore_eos, "go on after the model ends its turn"},
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
  command.add("Sampling", {{"--grammar", &flags.grammar, "FILE",
                            "let the answer match this GBNF grammar (docs/grammar.md)",
                            Rules{.excludes = {"--json-schema", "--ignore-eos"}}},
                           {"--json-schema", &flags.json_schema, "FILE",
                            "let the answer be JSON that this schema describes",
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
       "named template or a Jinja file (default: the model's own)"},
      {"--special", &flags.special, "recognise special tokens written in the prompt"},
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

}  // namespace tyto
