// One model of the engine's thread: loaded or not, its scheduler, and what its requests are told.
// Used by that thread alone.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/engine_thread.h"

namespace tyto {

// A request with its choices, from submission to the end of the last.
struct OpenCompletion {
  EngineThread::Ticket ticket = 0;
  CompletionRequest asked;
  CompletionEvents events;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  uint32_t open = 0;  // choices that have not ended
  bool is_expired = false;
};

struct EmbeddingJob {
  EngineThread::Ticket ticket = 0;
  std::vector<std::vector<Token>> inputs;
  EngineThread::Embedded done;
  std::vector<std::vector<float>> results = {};
};

// What all models share; outlives them.
struct ServedTogether {
  const EngineThreadOptions& options;
  ServeMetrics& metrics;
  ReceiptStore& receipts;
  std::function<void()> choice_ended;
};

class ServedModel {
 public:
  ServedModel(const ModelToServe& what, const ServedTogether& together)
      : what_(what), together_(together) {}

  const std::string& name() const { return what_.name; }
  bool is_loaded() const { return engine_ != nullptr; }
  bool is_idle() const { return choices_.empty() && embeddings_.empty(); }
  std::chrono::steady_clock::time_point last_used() const { return last_used_; }
  std::shared_ptr<const ModelText> text() const { return text_; }

  void load();  // throws what loading ends in
  void unload();

  // Never throws: what goes wrong is the request's end. Loads the model if it is not.
  void begin(const std::shared_ptr<OpenCompletion>& completion);
  void begin(EmbeddingJob job);
  void cancel(EngineThread::Ticket ticket);
  void expire(std::chrono::steady_clock::time_point now);
  void cancel_all();
  void step();  // one pass for everybody, or one input of an embedding

  ModelStatus status() const;
  void append_slots(std::vector<SlotStatus>& slots) const;

 private:
  // A token that may not be shown before the receipt proves where it came from.
  struct HeldToken {
    Token token;
    std::string text;
    std::optional<LogProbabilities> log_probabilities;
  };
  struct Choice {
    std::shared_ptr<OpenCompletion> of;  // shared by its choices
    uint32_t index = 0;
    uint64_t last_ns = 0;  // when the last token was chosen
    std::vector<HeldToken> held = {};
  };

  void open_speculation(const Engine& engine);
  void let_go();  // of the model, which is loaded anew for the next request
  void add_choice(const std::shared_ptr<OpenCompletion>& completion, uint32_t index);
  bool on_token(Choice& choice, const ChosenToken& chosen);
  void end(Choice choice, Outcome outcome);
  void check_requirement(const Choice& choice, Outcome& outcome);
  std::string keep_receipt(const Choice& choice, const Outcome& outcome);
  void start_profile(OpenCompletion& completion);
  void abandon_profile(const std::string& why);
  void take_profile(const Outcome& outcome, StoredReceipt& into);
  void embed_next();
  void end_all(const Error& error);

  const ModelToServe& what_;
  const ServedTogether& together_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Engine> draft_;           // guesses for it
  std::unique_ptr<Speculator> speculator_;  // null: nobody guesses
  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const ModelText> text_;  // shared with the workers
  std::string failure_;
  bool is_virtual_ = false;  // a virtual device takes part
  std::map<Scheduler::Id, Choice> choices_;
  std::vector<EmbeddingJob> embeddings_;  // the oldest first
  std::chrono::steady_clock::time_point last_used_ = std::chrono::steady_clock::now();

  std::shared_ptr<OpenCompletion> recorded_;  // the request that is being recorded
  SamplerOptions recorded_sampling_;
  std::string why_no_profile_;
};

}  // namespace tyto
