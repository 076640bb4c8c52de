// The one thread that owns the devices: it loads models, runs their schedulers, and unloads what
// has not been used for a while. All others talk to it through this class, from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "serve/model_text.h"
#include "trace/profile.h"
#include "trace/trace.h"

namespace tyto {

// The receipts and recordings of the last requests, for later questions. Used by any thread.

struct StoredReceipt {
  std::string id;
  std::string time;  // UTC, ISO 8601
  std::string model;
  std::string line;   // in one line, as `tyto run` prints it
  std::string badge;  // "real", "virtual", "fell back", "refused", "failed"
  uint32_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string json = {};                        // sealed
  std::shared_ptr<const Profile> profile = {};  // shared with what renders it; null: not recorded
  std::string why_no_profile = {};              // where one was asked for
};

// Which of these words stands for an execution.
std::string badge_of(const Receipt& receipt, bool has_failed);

class ReceiptStore {
 public:
  explicit ReceiptStore(size_t most) : most_(most) {}

  void add(StoredReceipt receipt);          // the oldest gives way
  std::vector<StoredReceipt> list() const;  // the newest first, without JSON and profiles
  // An empty id where there is none.
  StoredReceipt find(const std::string& id) const;

 private:
  // Each has many events, so fewer are kept.
  static constexpr size_t kMostProfiles = 8;

  const size_t most_;
  mutable std::mutex mutex_;
  std::deque<StoredReceipt> receipts_;  // the newest last
};

class Constraint;
class ServeMetrics;

// A model that is served, whether or not it is loaded at the moment.
struct ModelToServe {
  std::string name;
  EngineOptions engine;
  std::string chat_template = {};  // a name or a file; empty: the model's own
  SamplerOptions sampling = {};    // where neither the request nor the model says anything
  bool looks_up = false;           // guesses what its texts had after the same words before
  std::string draft = {};          // the model that guesses; empty: none
  uint32_t most_guesses = 8;       // per request and step
};

// A token of an answer, and what can be shown since the last one.
struct TokenEvent {
  uint32_t choice = 0;
  Token token = 0;
  std::string_view text;  // may be empty: a part of a character, or of a stop string
  std::optional<LogProbabilities> log_probabilities = {};  // where asked for
  const Receipt& so_far;                                   // tokens and seconds
  bool is_simulated = false;                               // by a virtual device, its wall time
};

// A token that nothing was told of before the receipt proved where it came from.
struct HeldToken {
  Token token = 0;
  std::string text;
  std::optional<LogProbabilities> log_probabilities;
};

// How one choice ended.
struct ChoiceEnd {
  uint32_t choice = 0;
  const Outcome& outcome;
  const std::string& receipt;      // sealed JSON; empty where nothing ran
  std::span<HeldToken> held = {};  // with --require: all of its tokens, which may be moved away
};

struct CompletionRequest {
  std::string id;   // names the receipt; further choices append ".1", ".2", ...
  Request request;  // see engine/generate.h
  SamplerOptions sampling;
  uint32_t choices = 1;  // answers to the same prompt; the sampler's seed counts up
  std::function<std::shared_ptr<Constraint>()> constraint = {};  // makes each choice its own
  bool log_probabilities = false;
  uint32_t top_log_probabilities = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  bool profile = false;  // records the request, if it runs alone
};

// From the engine's thread: they must not wait, and they may submit and cancel.
struct CompletionEvents {
  std::function<bool(const TokenEvent&)> on_token;  // false: the choice has said enough and ends
  std::function<void(const ChoiceEnd&)> on_done;    // once for each choice, and nothing after it
};

// One running or waiting request, for /slots.
struct SlotStatus {
  std::string id;
  std::string model;
  uint32_t choice = 0;
  RequestStatus request = {};
  double seconds = 0;  // since it was asked for
};

struct ModelStatus {
  std::string name;
  bool is_loaded = false;
  std::string failure = {};  // why it could not be loaded
  uint32_t slots = 0;
  uint32_t kv_pages = 0, kv_pages_in_use = 0, prefix_pages = 0;
  // For layers with a window, where those have pages of their own.
  uint32_t kv_window_pages = 0, kv_window_pages_in_use = 0;
  uint32_t states = 0, states_in_use = 0;  // the recurrent layers'
  uint64_t state_bytes = 0;                // one state's
  PrefixCache::Counts prefixes = {};
  std::vector<DeviceInfo> devices = {};
  std::vector<DeviceCounters> counters = {};  // since it was loaded
  std::vector<std::string> fallbacks = {};
  std::vector<std::string> on_host = {};  // what devices leave to the host by design
  double setup_seconds = 0;
  std::chrono::steady_clock::time_point last_used = {};
};

struct EngineThreadOptions {
  std::vector<ModelToServe> models;  // the first is the one that requests without a name mean
  uint32_t most_running = 8;         // per model
  uint32_t most_waiting = 64;        // for all models together
  std::optional<std::chrono::milliseconds> keep_alive =
      {};  // idle models are unloaded; none: never
  std::optional<std::chrono::milliseconds> longest_request = {};  // none: as long as it takes
  size_t receipts_kept = 256;
  // Where receipts come from; called by the engine's thread for each.
  std::function<ReceiptContext(Engine&)> receipt_context;
  std::function<uint64_t()> clock_ns = now_ns;  // says how long a model's turn took
};

class EngineThread {
 public:
  // Begins to load the models at once, in order. `metrics` outlives it.
  EngineThread(EngineThreadOptions options, ServeMetrics& metrics);
  ~EngineThread();  // cancels what runs
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  bool is_ready() const;     // every model was loaded once
  bool is_draining() const;  // it takes no more requests
  // Waits until then; throws the Error that loading ended in. False: it took longer.
  bool wait_ready(std::chrono::milliseconds most);
  std::vector<std::string> names() const;
  // Throws an input Error for a name that is not served (an empty one means the first), and a busy
  // one while the model is loaded for the first time.
  std::shared_ptr<const ModelText> text(const std::string& name) const;

  using Ticket = uint64_t;
  struct Submission {
    CompletionRequest request;
    CompletionEvents events;
  };
  // All of them or none. Throws an input Error for a prompt that cannot be answered and for more
  // choices than may ever run and wait, a busy one when too many do or the server ends. Returns at
  // once; the events tell the rest.
  std::vector<Ticket> submit_all(const std::string& model, std::vector<Submission> all);
  Ticket submit(const std::string& model, CompletionRequest request, CompletionEvents events);
  void cancel(Ticket ticket);  // within a token; its on_done says so

  // Mean of the last hidden states, normalised: [inputs][embedding_size], or why not. `done` is
  // called once, from the engine's thread.
  using Embedded = std::function<void(std::vector<std::vector<float>>, std::optional<Error>)>;
  Ticket embed(const std::string& model, std::vector<std::vector<Token>> inputs, Embedded done,
               std::optional<std::chrono::steady_clock::time_point> deadline = {});

  // Loads the model unless it is loaded. `done` is called once, from the engine's thread, with what
  // went wrong. Throws for a name that is not served, and when too many wait or the server ends.
  void load(const std::string& model, std::function<void(std::optional<Error>)> done);
  // Unloads the model as soon as it is idle, whatever the keep-alive is; the next request loads it
  // again. Throws for a name that is not served.
  void unload(const std::string& model);

  std::vector<SlotStatus> slots() const;
  std::vector<ModelStatus> models() const;
  const ReceiptStore& receipts() const;

  std::optional<std::chrono::milliseconds> keep_alive() const;
  void set_keep_alive(std::optional<std::chrono::milliseconds> time);
  void set_most_waiting(uint32_t most);
  void set_longest_request(std::optional<std::chrono::milliseconds> time);
  // Takes no more requests and lets the others end; false when the time did not do.
  bool drain(std::chrono::milliseconds most);
  // Takes no more requests and ends the others, each with what it is told then; false when the time
  // did not do.
  bool end_all(std::chrono::milliseconds most);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whose turn it is among models that share the devices. Each gets the same time while it has work,
// however long its steps are.

class Turns {
 public:
  explicit Turns(size_t count) : used_ns_(count), had_work_(count) {}

  // The one that has used least, among those that have work: [count]. Who had none before begins
  // where the others are, so that idle time is not saved up. None: no model has work.
  std::optional<size_t> next(const std::vector<bool>& has_work);
  // What its turn has taken. No turn counts for more than kLongestWaitNs, so that a model whose
  // step was very long is not kept waiting as long.
  void used(size_t who, uint64_t ns);

  static constexpr uint64_t kLongestWaitNs = 1'000'000'000;

 private:
  std::vector<uint64_t> used_ns_;  // [count]
  std::vector<bool> had_work_;     // [count], when it was last asked
  uint64_t time_ns_ = 0;           // what the last one had used when its turn came
};

// Exceptions of every kind as the one error type: on threads that many requests share, none may end
// more than the request that it came from.

// What is being thrown; to be called from a catch. What is no Error becomes a device's.
Error thrown_error(const std::string& where);

// Whether it may not happen again in a moment: the machine lacked something that others give back.
bool may_pass(const Error& error);

}  // namespace tyto
