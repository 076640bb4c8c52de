#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <random>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxStdinBytes = 64 << 20;

// Beside the program in a source tree (build/release/tyto) or an installation (bin/tyto).
std::string shipped_model() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  for (const char* below : {"../../models/owlet", "../share/tyto/models/owlet"}) {
    const auto folder = (program.parent_path() / below).lexically_normal();
    if (std::filesystem::exists(folder / "config.json", ignored)) return folder.string();
  }
  throw Error(ErrorCode::input, "the shipped model", "is not beside the program",
              "name a model with -m");
}

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

void add_npu_flags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option(
          "--weights", flags.weights,
          "form of the weights on the NPU: bf16 (default), int8 (single GEMMs, with --fusion "
          "op), q4nx (a whole token at once, with --fusion token)")
      ->check(CLI::IsMember({"bf16", "int8", "q4nx"}))
      ->group("NPU");
  command
      .add_option("--on-npu-error", flags.on_npu_error,
                  "after a failed dispatch: retry once (default), finish on the cpu, or fail")
      ->check(CLI::IsMember({"retry", "cpu", "fail"}))
      ->group("NPU");
  command
      .add_option("--prompt-rows", flags.prompt_rows,
                  "rows the prefill kernels are compiled for (default: 2048)")
      ->type_name("N")
      ->check(CLI::Range(64u, 65536u))
      ->group("NPU");
  command
      .add_option("--vnpu-machine", flags.vnpu_machine,
                  "whose time the virtual NPU models: strix (default), strix-halo, krackan")
      ->check(CLI::IsMember({"strix", "strix-halo", "krackan"}))
      ->group("NPU");
  command
      .add_option("--vnpu-numerics", flags.vnpu_numerics,
                  "of the virtual NPU's GEMMs: bf16 (default) or bfp16, shared exponents")
      ->check(CLI::IsMember({"bf16", "bfp16"}))
      ->group("NPU");
  command
      .add_option("--vnpu-fault", flags.vnpu_fault,
                  "make the virtual NPU fail: timeout@N, error@N, hang, oom, context-lost, slowxK, "
                  "corrupt@N")
      ->type_name("FAULT")
      ->group("NPU");
}

// A control that would do nothing is an error, not a hope.
void check_npu_flags(const EngineFlags& flags) {
  const bool is_virtual = flags.device == "vnpu";
  const bool is_npu = is_virtual || flags.device == "npu";
  const auto refuse = [&](bool is_given, bool has_effect, const char* flag, const char* who) {
    if (is_given && !has_effect)
      throw Error(ErrorCode::usage, flag,
                  fmt::format("has no effect with --device {}", flags.device),
                  fmt::format("it is for {}", who));
  };
  constexpr const char* kAny = "--device npu and --device vnpu";
  constexpr const char* kVirtual = "--device vnpu";
  refuse(flags.weights.has_value(), is_npu, "--weights", kAny);
  refuse(flags.on_npu_error.has_value(), is_npu, "--on-npu-error", kAny);
  refuse(flags.prompt_rows.has_value(), is_npu, "--prompt-rows", kAny);
  refuse(flags.vnpu_machine.has_value(), is_virtual, "--vnpu-machine", kVirtual);
  refuse(flags.vnpu_numerics.has_value(), is_virtual, "--vnpu-numerics", kVirtual);
  refuse(flags.vnpu_fault.has_value(), is_virtual, "--vnpu-fault", kVirtual);
  const std::string weights = flags.weights.value_or("bf16");
  if (weights == "int8" && flags.fusion != "op")
    throw Error(ErrorCode::usage, "--weights int8", "its kernels are single GEMMs",
                "give --fusion op too");
  if (weights == "q4nx" && flags.fusion != "token")
    throw Error(ErrorCode::usage, "--weights q4nx", "its kernel takes a whole token",
                "give --fusion token too");
}

NpuSettings npu_settings(const EngineFlags& flags) {
  NpuSettings settings;
  const std::string weights = flags.weights.value_or("bf16");
  settings.weights = weights == "int8"   ? NpuWeights::int8
                     : weights == "q4nx" ? NpuWeights::q4nx
                                         : NpuWeights::bf16;
  if (flags.prompt_rows) settings.prompt_rows = *flags.prompt_rows;
  settings.machine = flags.vnpu_machine.value_or(settings.machine);
  settings.fault = flags.vnpu_fault.value_or("");
  settings.block_float = flags.vnpu_numerics == "bfp16";
  return settings;
}

OnDeviceError on_error(const EngineFlags& flags) {
  const std::string name = flags.on_npu_error.value_or("retry");
  if (name == "cpu") return OnDeviceError::cpu;
  return name == "fail" ? OnDeviceError::fail : OnDeviceError::retry;
}

}  // namespace

void add_model_flag(CLI::App& command, ModelFlags& flags) {
  command
      .add_option("-m,--model", flags.model,
                  "GGUF file, checkpoint folder or cached repo id (default: the shipped model)")
      ->type_name("MODEL");
}

std::string model_or_shipped(const ModelFlags& flags) {
  return flags.model.empty() ? shipped_model() : flags.model;
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  add_model_flag(command, flags.model);
  command.add_option("--device", flags.device, "where the work goes first (see `tyto devices`)")
      ->type_name("NAME")
      ->capture_default_str()
      ->group("Device");
  command
      .add_option("--require", flags.require,
                  "fail, with exit code 3, unless this real device did the work; with :prefill or "
                  ":decode, of that phase")
      ->type_name("NAME[:PHASE]")
      ->group("Device");
  command.add_option("-t,--threads", flags.threads, "CPU threads (default: one per usable core)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1024u))
      ->group("Device");
  command
      .add_option("--isa", flags.isa,
                  "instruction set of the CPU's kernels (default: the best this processor has)")
      ->type_name("NAME")
      ->group("Device");
  command
      .add_option("-c,--context", flags.context,
                  "positions to make room for (default: the model's)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 30))
      ->group("Device");
  command.add_option("--fusion", flags.fusion, "how far launches are stitched into one dispatch")
      ->check(CLI::IsMember({"op", "block", "token"}))
      ->capture_default_str()
      ->group("Device");
  command
      .add_option("--kv-type", flags.kv_type, "type of the KV cache: f16 (default), q8_0 or f32")
      ->check(CLI::IsMember({"f16", "q8_0", "f32"}))
      ->group("Device");
  add_npu_flags(command, flags);
}

EngineOptions engine_options(const EngineFlags& flags) {
  check_npu_flags(flags);
  EngineOptions options;
  options.model = model_or_shipped(flags.model);
  options.device = flags.device;
  options.require = flags.require;
  options.threads = flags.threads;
  options.isa = flags.isa;
  options.pipeline.context = flags.context;
  options.pipeline.fusion = *fusion_from_name(flags.fusion);
  if (flags.kv_type) options.pipeline.kv_type = *dtype_from_name(*flags.kv_type);
  options.pipeline.on_error = on_error(flags);
  options.npu = npu_settings(flags);
  return options;
}

void add_energy_flag(CLI::App& command, bool& energy) {
  command
      .add_flag("--energy", energy,
                "joules per token of each power rail, or why there are none; idle power included")
      ->group("Device");
}

std::unique_ptr<EnergyMeter> energy_meter(bool wanted) {
  return wanted ? std::make_unique<EnergyMeter>(power_rails()) : nullptr;
}

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  SamplerOptions& others = flags.others;
  command.add_option("-n,--tokens", flags.max_tokens, "most tokens to generate")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 30))
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--temp", flags.temperature,
                  "temperature; 0 is greedy (default: the model's, else 0.8)")
      ->type_name("X")
      ->group("Sampling");
  command
      .add_option("--top-k", flags.top_k,
                  "keep the K best tokens; 0 keeps all (default: the model's, else 40)")
      ->type_name("K")
      ->group("Sampling");
  command
      .add_option("--top-p", flags.top_p,
                  "keep the best tokens up to this probability (default: the model's, else 0.95)")
      ->type_name("P")
      ->group("Sampling");
  command
      .add_option("--min-p", others.min_p,
                  "drop tokens below this share of the best one's probability")
      ->type_name("P")
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--repeat-penalty", others.repeat_penalty,
                  "divide the logits of recent tokens; 1 is off")
      ->type_name("X")
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--frequency-penalty", others.frequency_penalty,
                  "subtract this per recent occurrence")
      ->type_name("X")
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--presence-penalty", others.presence_penalty,
                  "subtract this from recent tokens once")
      ->type_name("X")
      ->capture_default_str()
      ->group("Sampling");
  command
      .add_option("--penalty-window", others.penalty_window,
                  "how many recent tokens the penalties see")
      ->type_name("N")
      ->capture_default_str()
      ->group("Sampling");
  command.add_option("--logit-bias", flags.logit_bias, "add VALUE to a token's logit; repeatable")
      ->type_name("ID=VALUE")
      ->group("Sampling");
  command.add_option("--seed", flags.seed, "same seed, same text (default: a new one, shown)")
      ->type_name("N")
      ->group("Sampling");
  command.add_option("--stop", flags.stop, "stop before this text; repeatable")
      ->type_name("TEXT")
      ->group("Sampling");
  command.add_flag("--ignore-eos", flags.ignore_eos, "go on after the model ends its turn")
      ->group("Sampling");
}

SamplerOptions sampler_options(const SamplingFlags& flags, const Model& model) {
  SamplerOptions options = flags.others;
  const GenerationDefaults& defaults = model.defaults;
  options.temperature =
      flags.temperature.value_or(defaults.temperature.value_or(options.temperature));
  options.top_k = flags.top_k.value_or(defaults.top_k.value_or(options.top_k));
  options.top_p = flags.top_p.value_or(defaults.top_p.value_or(options.top_p));
  options.seed = flags.seed ? *flags.seed : std::random_device()();
  for (const std::string& bias : flags.logit_bias) options.logit_bias.push_back(parse_bias(bias));
  check(options, model.config.vocab);
  return options;
}

void add_chat_flags(CLI::App& command, ChatFlags& flags) {
  command.add_option("--system", flags.system, "system message")->type_name("TEXT");
  command
      .add_option("--chat-template", flags.chat_template,
                  "named template or a Jinja file (default: the model's own)")
      ->type_name("NAME|FILE");
}

std::vector<Token> parse_tokens(const std::string& text, const std::string& flag) {
  std::vector<Token> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    Token token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    if (error != std::errc() || token < 0 ||
        (next < end && *next != ',' && *next != ' ' && *next != '\n'))
      throw Error(ErrorCode::usage, flag,
                  "expected token ids separated by commas, found \"" +
                      std::string(at, std::min(end, at + 12)) + "\"");
    tokens.push_back(token);
    at = next;
    while (at < end && (*at == ',' || *at == ' ' || *at == '\n')) ++at;
  }
  return tokens;
}

std::string read_stdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.size() > kMaxStdinBytes) fail_input("stdin", "more than {} bytes", kMaxStdinBytes);
  return text;
}

}  // namespace tyto
