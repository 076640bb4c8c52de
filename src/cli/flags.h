// Flags that several commands share, and what they turn into.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/draft_model.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "evidence/seal.h"
#include "plan/auto_device.h"
#include "shell/command_line.h"

namespace tyto {

class EnergyMeter;
class Grammar;

// -m; empty: the model that ships with Tyto.
void add_model_flag(CommandLine& command, std::string& model);
Typed fusion_target(std::optional<Fusion>& fusion);
Flag adapter_flag(std::vector<AdapterChoice>& adapters);

// The engine that flags ask for. settle_engine() makes the options ready.
struct EngineChoice {
  EngineOptions options;
  std::string decode_device = {};  // empty: options.device
  AutoDevice automatic = {};       // for --device auto
};
void add_engine_flags(CommandLine& command, EngineChoice& choice);

// Checks the flags of the engine against each other; with --device auto chooses the device and says
// why on stderr. To be called once, after parse().
void settle_engine(const CommandLine& command, EngineChoice& choice, Workload expected = {});
// For a command that runs on several devices, one after the other.
EngineOptions options_on(const std::string& device, const std::vector<std::string>& devices,
                         const EngineChoice& choice);
// `all` are the options of each device.
void check_engine_flags(const CommandLine& command, std::span<const EngineOptions> all);

// --energy: the meter to measure with, or nothing when it was not asked for.
void add_energy_flag(CommandLine& command, bool& energy);
std::unique_ptr<EnergyMeter> energy_meter(bool wanted);

inline constexpr uint32_t kNoLimit = UINT32_MAX;  // what -n -1 is

struct SamplingFlags {
  GenerationDefaults given;  // unset: the model's, then ours
  std::optional<uint64_t> seed;
  SamplerOptions others;
  uint32_t max_tokens = kNoLimit;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};
void add_sampling_flags(CommandLine& command, SamplingFlags& flags);
SamplerOptions sampler_options(const SamplingFlags& flags, const Model& model);

// What answers must match; docs/grammar.md. The file is read with the command line.
void add_grammar_flags(CommandLine& command, std::shared_ptr<const Grammar>& grammar);

struct ChatFlags {
  std::string system;
  std::string chat_template;
  bool special = false;
};
void add_chat_flags(CommandLine& command, ChatFlags& flags);

// "1,2,3" -> {1, 2, 3}, or with white space; anything else is a usage Error naming the flag.
std::vector<Token> parse_tokens(const std::string& text, const std::string& flag);

// Everything on stdin, bounded.
std::string read_stdin();
// What -f names: a file of at most that many bytes, or "-" for stdin.
std::string text_from(const std::string& file, uint64_t most_bytes);

// What drafts tokens, and how many at once.
struct SpeculationFlags {
  bool looks_up = false;
  std::string draft;  // a model; empty: none
  uint32_t draft_max = 8;
};
void add_speculation_flags(CommandLine& command, SpeculationFlags& flags);

// What the flags ask for, opened: the draft model, and what drafts tokens for requests.
class OpenSpeculation {
 public:
  // `engine` outlives it.
  OpenSpeculation(const SpeculationFlags& flags, const Engine& engine,
                  const EngineOptions& options);

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
