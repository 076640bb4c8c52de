// One model of the engine's thread: loaded or not, its scheduler, and what its requests are told.
// Used by that thread alone.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "serve/engine_thread.h"

namespace tyto {

// What all models share; outlives them.
struct ServedTogether {
  const EngineThreadOptions& options;
  ServeMetrics& metrics;
  ReceiptStore& receipts;
  std::function<void()> place_free;  // a choice or an embedding has ended, and
  std::function<void()> end_told;    // that was told
};

// The places of one request in the queue. Whatever becomes of it, they are free in the end.
class Places {
 public:
  Places() = default;
  Places(Places&& other) noexcept { *this = std::move(other); }
  Places& operator=(Places&& other) noexcept {
    std::swap(together_, other.together_);
    std::swap(taken_, other.taken_);
    std::swap(untold_, other.untold_);
    return *this;
  }
  ~Places() {
    while (taken_ > 0) free_one();
    while (untold_ > 0) tell_one();
  }

  // The server has counted them.
  void take(const ServedTogether& together, uint64_t count) noexcept {
    together_ = &together;
    taken_ = untold_ = count;
  }
  void free_one() {
    --taken_;
    together_->place_free();
  }
  void tell_one() {
    --untold_;
    together_->end_told();
  }

 private:
  const ServedTogether* together_ = nullptr;
  uint64_t taken_ = 0, untold_ = 0;
};

// A request with its choices, from submission to the end of the last.
struct OpenCompletion {
  EngineThread::Ticket ticket = 0;
  Places places = {};
  CompletionRequest asked;
  CompletionEvents events;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  bool is_expired = false;
};

struct EmbeddingJob {
  EngineThread::Ticket ticket = 0;
  Places places = {};
  std::vector<std::vector<Token>> inputs;
  EngineThread::Embedded done;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
  std::vector<std::vector<float>> results = {};  // [inputs]; empty where one has not ended
  std::vector<Scheduler::Id> ids = {};           // [inputs]
  size_t left = 0;                               // inputs that have not ended
};

// What requests are told that have not ended when the server does.
Error server_ends();

class ServedModel {
 public:
  ServedModel(const ModelToServe& what, const ServedTogether& together)
      : what_(what), together_(together) {}

  const std::string& name() const { return what_.name; }
  bool is_loaded() const { return engine_ != nullptr; }
  bool is_idle() const {
    const bool steps = scheduler_ && scheduler_->running() + scheduler_->waiting() > 0;
    return choices_.empty() && embeddings_.empty() && !steps;
  }
  std::chrono::steady_clock::time_point last_used() const { return last_used_; }
  std::shared_ptr<const ModelText> text() const { return text_; }

  // Throws the Error that loading ends in; unload_when_idle() before it is forgotten.
  void load();
  // The same for a request: what it is told where that fails.
  std::optional<Error> load_for_request();
  void unload();
  void unload_when_idle() { unloads_when_idle_ = true; }
  bool unloads_when_idle() const { return unloads_when_idle_; }

  // What goes wrong is the request's end, whatever is thrown; where there is no memory for that, it
  // is dropped. Loads the model if it is not, unless the request is refused.
  void begin(const std::shared_ptr<OpenCompletion>& completion,
             const std::optional<Error>& refusal = {});
  void begin(EmbeddingJob job, const std::optional<Error>& refusal = {});
  void cancel(EngineThread::Ticket ticket);
  void expire(std::chrono::steady_clock::time_point now);
  void cancel_all();  // the server ends
  // One pass for all answers and embeddings.
  void step();
  void end_all(const Error& error);  // and lets the model go

  ModelStatus status() const;
  void append_slots(std::vector<SlotStatus>& slots) const;

 private:
  struct Choice {
    std::shared_ptr<OpenCompletion> of;  // shared by its choices
    uint32_t index = 0;
    uint64_t last_ns = 0;  // when the last token was chosen
    std::vector<HeldToken> held = {};
    bool has_enough = false;  // who gets the tokens wants no more
  };

  void open_speculation(const Engine& engine);
  void let_go();  // frees the model; the next request loads it again
  Request request_for(const CompletionRequest& asked);
  bool on_token(Choice& choice, const ChosenToken& chosen);
  void end(Choice choice, Outcome outcome);
  void check_requirement(Choice& choice, Outcome& outcome);
  std::string keep_receipt(const Choice& choice, const Outcome& outcome);
  void start_profile(OpenCompletion& completion);
  void abandon_profile(const std::string& why);
  void take_profile(const Outcome& outcome, StoredReceipt& into);
  void add_inputs(EmbeddingJob& job);
  void end_input(Scheduler::Id id, Outcome outcome);
  void end_embedding(size_t index, const std::optional<Error>& error);

  const ModelToServe& what_;
  const ServedTogether& together_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> draft_;           // guesses for it
  std::unique_ptr<Speculator> speculator_;  // null: no speculation
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const ModelText> text_;  // shared with the workers
  std::string failure_;
  bool unloads_when_idle_ = false;
  bool is_virtual_ = false;  // a virtual device takes part
  std::map<Scheduler::Id, Choice> choices_;
  std::vector<EmbeddingJob> embeddings_;  // the oldest first
  std::chrono::steady_clock::time_point last_used_ = std::chrono::steady_clock::now();

  std::shared_ptr<OpenCompletion> recorded_;  // the request that is being recorded
  SamplerOptions recorded_sampling_;
  std::string why_no_profile_;
};

}  // namespace tyto
