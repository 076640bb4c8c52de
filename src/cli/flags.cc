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
#include "bench/bench_tests.h"
#include "power/energy_meter.h"
#include "program/stitch.h"
#include "shell/progress.h"
#include "shell/terminal.h"
#include "text/grammar/json_schema.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

constexpr size_t kMaxStdinBytes = 64 << 20;
constexpr uint64_t kMaxGrammarBytes = 1 << 20;
constexpr Range kShare{0, 1};
constexpr Range kFromZero{0, std::numeric_limits<float>::max()};

using Bias = std::pair<Token, float>;

Bias parse_bias(const std::string& text, const std::string& flag) {
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
  if (!good) throw Error(ErrorCode::usage, flag + " " + text, "expected ID=VALUE");
  return {id, value};
}

std::string_view name(OnDeviceError what) {
  switch (what) {
    case OnDeviceError::retry:
      return "retry";
    case OnDeviceError::cpu:
      return "cpu";
    case OnDeviceError::fail:
      return "fail";
  }
  return "";
}

std::string_view name(DType type) {
  return info(type).name;
}

// One of `values`, whose names are all that OneOf lets through.
template <class T>
Typed named(T& value, std::initializer_list<typename ValueIn<T>::Type> values) {
  using Value = typename ValueIn<T>::Type;
  const auto read = [all = std::vector(values)](const std::string& word, const std::string&) {
    return *std::ranges::find(all, word, [](Value each) { return std::string(name(each)); });
  };
  return typed(value, read, [](Value each) { return std::string(name(each)); });
}

std::string bias_text(const Bias& bias) {
  return fmt::format("{}={}", bias.first, bias.second);
}

std::vector<Flag> placement_flags(EngineChoice& choice) {
  EngineOptions& options = choice.options;
  PipelineOptions& pipeline = options.pipeline;
  return {
      {"--device", &options.device, "NAME", "device to run on; auto: the fastest",
       Rules{.shows_default = true}},
      {"--prefill-device", &options.prefill_device, "NAME",
       "run prompts on this device (default: --device)"},
      {"--decode-device", &choice.decode_device, "NAME",
       "generate tokens on this device (default: --device)"},
      {"--min-n", &pipeline.min_prompt, "N",
       "run prompts of fewer tokens on the decode device (default: 2)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--max-n", &pipeline.max_prompt, "N",
       "run prompts of more tokens on the decode device (default: no limit)",
       Rules{.range = Range{2, 1 << 30}}},
      {"--among", &choice.automatic.among, "NAME,...",
       "devices that --device auto may choose (default: all that are not virtual)",
       Rules{.separator = ','}},
      {"--calibration", &choice.automatic.calibration, "FILE",
       "measurements by `tyto bench --calibrate` for --device auto (default: the file in the cache "
       "folder)"},
      {"--require", &options.require, "NAME[:phase]",
       "exit with code 3 unless this real device did the work; NAME:prefill and NAME:decode check "
       "one phase"},
      {"-t,--threads", &options.threads, "N", "CPU threads (default: one per usable core)",
       Rules{.range = Range{1, 1024}}},
      {"-c,--context", &pipeline.forward.context, "N",
       "context length in tokens (default: the model's)", Rules{.range = Range{1, 1 << 30}}},
      {"--fusion", fusion_target(pipeline.forward.fusion), OneOf{"op", "block", "token"},
       "how much one dispatch computes (default: the device's own, for most block)"},
      {"--kv-type", named(pipeline.forward.kv_type, {DType::f16, DType::q8_0, DType::f32}),
       OneOf{"f16", "q8_0", "f32"}, "number type of the KV cache (default: f16)"},
      {"--kv-memory", size_target(pipeline.forward.kv_memory), "SIZE",
       "memory limit of KV caches, such as 512M or 4G (default: one context)"},
  };
}

// A device's setting, which is there only while it has a value.
Typed setting_target(DeviceSettings& settings, std::string_view setting) {
  const std::string key(setting);
  const auto read = [&settings, key](const std::vector<std::string>& words, const std::string&) {
    settings.erase(key);
    if (!words.empty()) settings[key] = words.front();
  };
  const auto words = [&settings, key]() -> std::vector<std::string> {
    const auto found = settings.find(key);
    if (found == settings.end()) return {};
    return {found->second};
  };
  return {nullptr, false, read, words};
}

// A row per setting that the devices of one kind have, with the devices that have it.
std::vector<Flag> setting_flags(DeviceSettings& settings, std::string_view kind) {
  std::vector<Flag> rows;
  for (const DeviceEntry& entry : device_table()) {
    if (entry.kind != kind) continue;
    for (const DeviceSetting& setting : entry.settings()) {
      const std::string flag = "--" + std::string(setting.name);
      const auto known = std::ranges::find(rows, flag, &Flag::names);
      if (known != rows.end()) {
        known->rules.devices.emplace_back(entry.name);
        continue;
      }
      const Typed target = setting_target(settings, setting.name);
      const std::string meaning(setting.meaning);
      const Rules rules{.devices = {std::string(entry.name)}};
      if (setting.choices.empty())
        rows.emplace_back(flag, target, std::string(setting.value), meaning, rules);
      else
        rows.emplace_back(flag, target,
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
Flag error_flag(OnDeviceError& on_error) {
  std::vector<std::string> others;
  for (const DeviceEntry& entry : device_table())
    if (!entry.is_host) others.emplace_back(entry.name);
  return {"--on-device-error",
          named(on_error, {OnDeviceError::retry, OnDeviceError::cpu, OnDeviceError::fail}),
          OneOf{"retry", "cpu", "fail"},
          fmt::format("after a failed dispatch: retry it once, go on on the cpu, or stop (default: "
                      "{})",
                      name(on_error)),
          Rules{.alias = "--on-npu-error", .devices = others}};
}

// The host takes part whatever the device is.
bool applies_to(const Flag& flag, const std::string& device) {
  return std::ranges::any_of(flag.rules.devices, [&](const std::string& each) {
    return each == device || device_entry(each).is_host;
  });
}

// A control that would do nothing is an error, not a hope.
void refuse_idle_device_flags(const CommandLine& command, const std::vector<std::string>& devices,
                              bool is_auto) {
  for (const Flag& flag : command.flags) {
    const auto applies = [&](const std::string& device) { return applies_to(flag, device); };
    if (!flag.given || flag.rules.devices.empty() || std::ranges::any_of(devices, applies))
      continue;
    if (is_auto)
      throw Error(ErrorCode::usage, flag.name(),
                  fmt::format("has no effect on {}, which --device auto chooses from",
                              joined(devices, " and ")),
                  fmt::format("it is for {}; see --among", joined(flag.rules.devices, " and ")));
    throw Error(ErrorCode::usage, flag.name(),
                fmt::format("has no effect with --device {}", joined(devices, "/")),
                fmt::format("it is for --device {}", joined(flag.rules.devices, " and --device ")));
  }
}

void check_prompt_range(const CommandLine& command, const EngineOptions& options) {
  const bool has_least = command.is_given("--min-n"), has_most = command.is_given("--max-n");
  if (!has_least && !has_most) return;
  if (options.prefill() == options.device)
    throw Error(ErrorCode::usage, has_least ? "--min-n" : "--max-n",
                fmt::format("has no effect while prompts and tokens both go to {}", options.device),
                "choose two with --prefill-device and --decode-device");
  const uint32_t least = options.pipeline.min_prompt, most = options.pipeline.max_prompt;
  if (has_least && has_most && least > most)
    throw Error(ErrorCode::usage, fmt::format("--min-n {} --max-n {}", least, most),
                "leave no prompt to the prefill device", "give a --max-n that is not less");
}

// --device auto chooses both sides, and from which length on a prompt is worth another device.
void refuse_named_sides(const CommandLine& command) {
  for (const char* flag : {"--prefill-device", "--decode-device", "--min-n", "--max-n"})
    if (command.is_given(flag))
      throw Error(ErrorCode::usage, flag, "is chosen by --device auto", "leave one of the two out");
}

void choose_device(const CommandLine& command, EngineChoice& choice, const Workload& expected) {
  refuse_named_sides(command);
  refuse_doubles(choice.automatic.among, "--among");
  const std::vector<std::string> names = devices_to_choose_from(choice.automatic.among);
  refuse_idle_device_flags(command, names, true);
  for (const std::string& reason : choose_device(choice.options, choice.automatic, names, expected,
                                                 [](const std::string& what) { announce(what); }))
    note("auto · " + reason);
}

void name_sides(EngineOptions& options, const std::string& decode_device) {
  options.prefill_device = options.prefill();
  if (!decode_device.empty()) options.device = decode_device;
}

}  // namespace

void add_model_flag(CommandLine& command, std::string& model) {
  command.add({{"-m,--model", &model, "MODEL",
                "GGUF file, folder or name from `tyto models` (default: the shipped model)"}});
}

Typed fusion_target(std::optional<Fusion>& fusion) {
  return named(fusion, {Fusion::op, Fusion::block, Fusion::token});
}

Flag adapter_flag(std::vector<AdapterChoice>& adapters) {
  const auto read = [](const std::string& word, const std::string&) { return parse_adapter(word); };
  return {"--lora", typed(adapters, read, adapter_text), "FILE[=SCALE]",
          "LoRA adapter, a GGUF file or PEFT folder; repeatable"};
}

void add_engine_flags(CommandLine& command, EngineChoice& choice) {
  EngineOptions& options = choice.options;
  add_model_flag(command, options.model);
  command.add({adapter_flag(options.adapters)});
  std::vector<Flag> rows = placement_flags(choice);
  const auto threads = std::ranges::find(rows, "-t,--threads", &Flag::names);
  const std::vector<std::string_view> kinds = device_kinds();
  std::vector<Flag> hosts = setting_flags(options.settings, kinds.front());
  rows.insert(threads + 1, hosts.begin(), hosts.end());
  rows.push_back(error_flag(options.pipeline.on_error));
  command.add("Device", rows);
  for (const std::string_view kind : std::span(kinds).subspan(1))
    command.add(std::string(kind), setting_flags(options.settings, kind));
}

void check_engine_flags(const CommandLine& command, std::span<const EngineOptions> all) {
  std::vector<std::string> devices;
  for (const EngineOptions& options : all)
    for (const std::string& device : {options.prefill(), options.device}) {
      device_entry(device);
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    }
  check_required_device(all.front().require);
  refuse_idle_device_flags(command, devices, false);
  for (const EngineOptions& options : all) check_prompt_range(command, options);
}

EngineOptions options_on(const std::string& device, const std::vector<std::string>& devices,
                         const EngineChoice& choice) {
  EngineOptions options = choice.options;
  options.device = device;
  name_sides(options, choice.decode_device);
  drop_idle_settings(options, devices);
  return options;
}

void settle_engine(const CommandLine& command, EngineChoice& choice, Workload expected) {
  EngineOptions& options = choice.options;
  if (options.device == kAutoDevice) return choose_device(command, choice, expected);
  for (const char* flag : {"--among", "--calibration"})
    if (command.is_given(flag))
      throw Error(ErrorCode::usage, flag, "has no effect with --device " + options.device,
                  "it is for --device auto");
  name_sides(options, choice.decode_device);
  check_engine_flags(command, {&options, 1});
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
      {"--temp", &flags.given.temperature, "X",
       "temperature; 0: always the likeliest token (default: the model's, else 0.8)",
       Rules{.range = kFromZero}},
      {"--top-k", &flags.given.top_k, "K",
       "sample from the K likeliest tokens; 0: from all (default: the model's, else 40)"},
      {"--top-p", &flags.given.top_p, "P",
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
      {"--logit-bias", typed(others.logit_bias, parse_bias, bias_text), "ID=VALUE",
       "add VALUE to a token's logit; repeatable"},
      {"--seed", &flags.seed, "N", "same seed, same answer (default: random; -v shows it)"},
      {"--stop", &flags.stop, "TEXT", "stop when the answer contains TEXT; repeatable"},
      {"--ignore-eos", &flags.ignore_eos, "do not stop when the model ends its answer"},
  };
  command.add("Sampling", rows);
}

SamplerOptions sampler_options(const SamplingFlags& flags, const Model& model) {
  SamplerOptions options = sampling_for(model, flags.others);
  options.temperature = flags.given.temperature.value_or(options.temperature);
  options.top_k = flags.given.top_k.value_or(options.top_k);
  options.top_p = flags.given.top_p.value_or(options.top_p);
  options.seed = flags.seed ? *flags.seed : std::random_device()();
  check(options, model.config.vocab);
  return options;
}

void add_grammar_flags(CommandLine& command, std::shared_ptr<const Grammar>& grammar) {
  using Words = std::vector<std::string>;
  const auto target = [&](Grammar (*read)(const std::string& file)) -> Typed {
    return {&grammar, false,
            [&grammar, read](const Words& words, const std::string&) {
              grammar = words.empty() ? nullptr : std::make_shared<const Grammar>(read(words[0]));
            },
            [] { return Words(); }};
  };
  const Typed gbnf = target(
      [](const std::string& file) { return Grammar(read_text_file(file, kMaxGrammarBytes)); });
  const Typed schema = target([](const std::string& file) {
    return Grammar(grammar_from_json_schema(Json::parse_file(file, kMaxGrammarBytes)));
  });
  command.add(
      "Sampling",
      {{"--grammar", gbnf, "FILE", "force the answer to match this GBNF grammar",
        Rules{.excludes = {"--json-schema", "--ignore-eos"}}},
       {"--json-schema", schema, "FILE", "force the answer to be JSON that matches this schema",
        Rules{.excludes = {"--ignore-eos"}}}});
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
  const Typed lookup = typed(
      flags.looks_up, [](const std::string& word, const std::string&) { return word == "lookup"; },
      [](bool looks_up) { return std::string(looks_up ? "lookup" : "off"); });
  command.add(
      "Speculation",
      {{"--speculate", lookup, OneOf{"lookup", "off"},
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
                                 const EngineOptions& options) {
  if (!flags.draft.empty()) {
    draft_ = open_draft(flags.draft, engine, options, progress_bar());
    speculator_ = std::make_unique<Speculator>(
        flags.draft, [draft = draft_.get()] { return model_drafter(*draft); }, flags.draft_max);
  } else if (flags.looks_up) {
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
