// Flags that several commands share, and what they turn into.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/draft_model.h"
#include "engine/sampler.h"
#include "evidence/seal.h"

namespace tyto {

class EnergyMeter;
class Grammar;
struct AdapterChoice;
struct CommandLine;
struct EngineOptions;
struct Flag;
struct Model;

struct ModelFlags {
  std::string model;
  std::vector<std::string> adapters = {};  // "FILE" or "FILE=SCALE", of commands that take any
};
void add_model_flag(CommandLine& command, ModelFlags& flags);
Flag adapter_flag(ModelFlags& flags);
std::vector<AdapterChoice> adapters_of(const ModelFlags& flags);
std::string model_or_shipped(const ModelFlags& flags);  // -m, or the model that ships with Tyto

struct EngineFlags {
  ModelFlags model;
  std::string device = "cpu";                 // or "auto" until cli/auto_device.h has made it one
  std::string prefill_device, decode_device;  // empty: device
  std::optional<uint32_t> min_n, max_n;       // tokens of prompts that go to the prefill device
  std::string among;          // for --device auto: which devices there are to choose from
  std::string calibration;    // for --device auto: the file; empty: the one in the user's folder
  std::string device_choice;  // why --device auto took the device; empty: it was named
  std::string require;
  unsigned threads = 0;
  uint32_t context = 0;
  std::optional<std::string> fusion;
  std::optional<std::string> kv_type;
  std::optional<std::string> kv_memory;
  // For some devices alone, as device_flags() says; given for another device they are refused.
  std::optional<std::string> on_device_error;
  std::map<std::string, std::optional<std::string>> settings;  // the devices' own, by name

  std::string setting(const std::string& name, const std::string& otherwise) const;
  const std::string& prefill() const { return prefill_device.empty() ? device : prefill_device; }
  const std::string& decode() const { return decode_device.empty() ? device : decode_device; }
  // "cpu", or "vnpu/cpu" where prompts and tokens have different ones.
  std::string devices() const;
};
void add_engine_flags(CommandLine& command, EngineFlags& flags);
EngineOptions engine_options(const EngineFlags& flags);
void check_required_device(const std::string& require);  // --require; an unknown one is bad usage

// Those of the flags that only some devices use. They point into `flags`.
std::vector<Flag> device_flags(EngineFlags& flags);
bool is_heeded(const Flag& flag, const std::string& device);
// Without those that only other devices use than the ones that the flags name.
EngineFlags without_idle_flags(EngineFlags flags, const std::vector<std::string>& devices);
// The flags for one of several devices.
EngineFlags flags_for(const std::string& device, const std::vector<std::string>& devices,
                      EngineFlags flags);

// --energy: the meter to measure with, or nothing when it was not asked for.
void add_energy_flag(CommandLine& command, bool& energy);
std::unique_ptr<EnergyMeter> energy_meter(bool wanted);

inline constexpr uint32_t kNoLimit = UINT32_MAX;  // what -n -1 is

struct SamplingFlags {
  std::optional<float> temperature;  // unset: the model's generation_config.json, then ours
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;
  SamplerOptions others;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  uint32_t max_tokens = kNoLimit;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};
void add_sampling_flags(CommandLine& command, SamplingFlags& flags);
SamplerOptions sampler_options(const SamplingFlags& flags, const Model& model);

// What answers must match; docs/grammar.md. Exactly one of the two, or none.
struct GrammarFlags {
  std::string grammar;
  std::string json_schema;
};
void add_grammar_flags(CommandLine& command, GrammarFlags& flags);
std::shared_ptr<const Grammar> read_grammar(const GrammarFlags& flags);  // null: none

struct ChatFlags {
  std::string system;
  std::string chat_template;
  bool special = false;
};
void add_chat_flags(CommandLine& command, ChatFlags& flags);

// "512M" -> bytes; anything else is a usage Error naming the flag.
uint64_t parse_size(const std::string& text, const std::string& flag);

// "1,2,3" -> {1, 2, 3}, or with white space; anything else is a usage Error naming the flag.
std::vector<Token> parse_tokens(const std::string& text, const std::string& flag);

// Everything on stdin, bounded.
std::string read_stdin();
// What -f names: a file of at most that many bytes, or "-" for stdin.
std::string text_from(const std::string& file, uint64_t most_bytes);

// Whether tokens are guessed, by what, and how many at once.
struct SpeculationFlags {
  std::string speculate = "off";
  std::string draft;  // a model; empty: none
  uint32_t draft_max = 8;
};
void add_speculation_flags(CommandLine& command, SpeculationFlags& flags);

// What the flags ask for, opened: the draft model, and who makes guesses for requests.
class OpenSpeculation {
 public:
  // `engine` outlives it.
  OpenSpeculation(const SpeculationFlags& flags, const Engine& engine,
                  const EngineFlags& engine_flags);

  // For Request::speculation, one for each; null where none is wanted.
  std::shared_ptr<Speculation> begin_request() const {
    return speculator_ ? speculator_->begin_request() : nullptr;
  }

 private:
  std::unique_ptr<Engine> draft_;
  std::unique_ptr<Speculator> speculator_;
};

// --sign and --trust: whose key signs what is written, and whose is believed.
Flag sign_flag(std::string& key_file);
std::unique_ptr<SigningKey> signing_key(const std::string& key_file);  // none without the flag
// Without one of the flags that write something to sign, it would do nothing: a usage Error.
void check_sign_flag(const CommandLine& command, std::initializer_list<const char*> signs);

Flag trust_flag(std::string& key);
std::optional<PublicKey> trusted_key(const std::string& key);

}  // namespace tyto
