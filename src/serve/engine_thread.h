// The one thread that owns the devices: it loads models, runs their schedulers, and unloads what
// nobody has used for a while. Everybody else talks to it through this class, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tyto {

class Constraint;  // text/grammar/constraint.h: what a grammar leaves of the vocabulary
class ServeMetrics;
class TokenTrie;

// A model that is served, whether or not it is loaded at the moment.
struct ModelToServe {
  std::string name;
  EngineOptions engine;
  std::string chat_template;  // a name or a file; empty: the model's own
};

// What workers need of a model, to make requests of texts. Stays the same while anybody holds it,
// also when the model is unloaded.
struct ModelText {
  std::string name;
  std::string path;
  std::string format;        // "GGUF", "safetensors"
  std::string weight_type;   // "q8_0"
  std::string architecture;  // "llama"
  uint64_t weight_bytes = 0;
  uint64_t parameters = 0;
  uint64_t loaded_at = 0;  // seconds since 1970
  uint32_t context = 0;
  uint32_t embedding_size = 0;
  SamplerOptions sampling;  // the model's own defaults, then ours
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // none: the model has none
  std::string chat_template_source;
  std::shared_ptr<const TokenTrie> token_trie;  // for constraints
};

struct LogProbability {
  Token token = 0;
  float value = 0;
};

// A token of an answer, and what can be shown since the last one.
struct TokenEvent {
  uint32_t choice = 0;
  Token token = 0;
  std::string_view text;      // may be empty: a part of a character, or of a stop string
  float log_probability = 0;  // of the token; where asked for
  std::span<const LogProbability> top = {};  // the most probable first; where asked for
  const Receipt& so_far;                     // counts and times
};

struct CompletionRequest {
  Request request;  // of engine/generate.h: prompt, max_tokens, stop, constraint
  SamplerOptions sampling;
  uint32_t choices = 1;  // answers to the same prompt; the sampler's seed counts up
  // Makes each choice its own.
  std::function<std::unique_ptr<Constraint>()> constraint = {};
  bool log_probabilities = false;
  uint32_t top_log_probabilities = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  bool profile = false;  // records what runs meanwhile; one request at a time can be recorded
};

struct CompletionEvents {
  // From the engine's thread: they must not wait. Nothing is called after on_done of a choice.
  std::function<void(const TokenEvent&)> on_token;
  std::function<void(uint32_t choice, const Outcome&)> on_done;  // once for each choice
};

// One running or waiting request, for /slots.
struct SlotStatus {
  uint64_t id = 0;
  std::string model;
  bool is_running = false;
  uint32_t prompt_tokens = 0, cached_tokens = 0, done_tokens = 0, generated_tokens = 0;
  double seconds = 0;  // since it was asked for
};

struct ModelStatus {
  std::string name;
  bool is_loaded = false;
  std::string failure;  // why it could not be loaded
  uint32_t kv_pages = 0, kv_pages_in_use = 0, prefix_pages = 0;
  uint32_t slots = 0;
  PrefixCache::Counts prefixes;
  std::vector<DeviceInfo> devices;
  std::vector<DeviceCounters> counters;  // since it was loaded
  std::vector<std::string> fallbacks;
};

struct EngineThreadOptions {
  std::vector<ModelToServe> models;  // the first is the one that requests without a name mean
  uint32_t most_waiting = 64;
  std::optional<std::chrono::milliseconds> keep_alive =
      {};  // idle models are unloaded; none: never
  size_t receipts_kept = 256;
};

class EngineThread {
 public:
  // Begins to load the models at once, in order.
  EngineThread(EngineThreadOptions options, ServeMetrics& metrics);
  ~EngineThread();  // cancels what runs

  bool is_ready() const;  // every model was loaded once, or failed to
  std::vector<std::string> names() const;
  // Loads the model if it is not; waits for that at most `most`. Throws an input Error for a name
  // that is not served, a busy one when it took longer, and the Error that loading ended in.
  std::shared_ptr<const ModelText> text(const std::string& name, std::chrono::milliseconds most);

  using Ticket = uint64_t;
  // Throws the same Errors as Scheduler::add. Returns at once; the events tell the rest.
  Ticket submit(const std::string& model, CompletionRequest request, CompletionEvents events);
  void cancel(Ticket ticket);  // within a token; its on_done says so

  // Mean of the last hidden states, normalised. [embedding_size] for each input.
  using Embedded = std::function<void(std::vector<std::vector<float>>, std::optional<Error>)>;
  Ticket embed(const std::string& model, std::vector<std::vector<Token>> inputs, Embedded done);

  std::vector<SlotStatus> slots() const;
  std::vector<ModelStatus> models() const;

  // Sealed JSON; empty: unknown, or too long ago.
  std::string receipt(const std::string& id) const;
  std::string profile(const std::string& id, const std::string& form) const;

  // Takes no more requests and lets the others end; false when the time did not do.
  bool drain(std::chrono::milliseconds most);
};

}  // namespace tyto
