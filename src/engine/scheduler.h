// Many requests at once on one pipeline: continuous batching. Requests join between tokens, prompts
// run in chunks beside tokens that are being decoded, and no result depends on which requests run
// together, nor on guesses (engine/speculation.h), which are more rows of a request in a step. It
// has no thread of its own: its owner calls step().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/chunk_policy.h"
#include "engine/generate.h"
#include "engine/guessed_steps.h"
#include "engine/host_ops.h"
#include "engine/text_stream.h"

namespace tyto {

struct SchedulerOptions {
  uint32_t most_running = 16;  // requests that share steps
  uint32_t most_waiting = 64;  // requests beyond those; one more is refused
};

// A token of an answer, at the moment it was chosen.
struct ChosenToken {
  Token token;
  std::string_view text;  // what can be shown now; may be empty
  Logits logits;          // that it was chosen from; all only for a request that wants them
  const Receipt& so_far;  // tokens and seconds of the request
};
using OnToken = std::function<bool(const ChosenToken&)>;  // returns false to stop

// How a request ended: an answer, or why there is none. What was generated before an error is in
// the answer.
struct Outcome {
  Answer answer;
  std::optional<Error> error = {};
  std::string rest = {};  // text that had to wait for the end to be shown
};

// A request on its way.
struct RequestStatus {
  uint64_t id = 0;
  bool is_running = false;
  uint32_t prompt_tokens = 0;  // all of them
  uint32_t cached_tokens = 0;
  uint32_t done_tokens = 0;  // in the caches by now
  uint32_t generated_tokens = 0;
};

class Scheduler {
 public:
  using Id = uint64_t;
  using OnDone = std::function<void(Id, Outcome)>;

  // `with` has a PrefixCache; all of it outlives this.
  Scheduler(const Generator& with, const SchedulerOptions& options);
  ~Scheduler();

  // Throws an input Error for a prompt that cannot be answered, and a busy one when too many wait.
  // `on_done` is called once, from step().
  Id add(Request request, const SamplerOptions& sampling, OnToken on_token, OnDone on_done);
  // Ends a request with the next step; one that has ended already is left alone.
  void cancel(Id id);

  // Ends what was cancelled, without a pass; step() does so as well.
  void end_cancelled();
  // One pass of the model for all that can go on. False when there was nothing to do.
  bool step();

  size_t running() const { return running_.size(); }
  size_t waiting() const { return waiting_.size(); }
  std::vector<RequestStatus> requests() const;  // those that run first

 private:
  struct Job;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void admit();
  void begin(Job& job, uint32_t cached);
  bool waits_for_pages(const Job& job);
  void share_pages(const Job& job, uint32_t length);
  bool make_room(Job& job, uint32_t tokens);
  void put_back(Job& job);
  void choose_work();
  uint32_t add_rows(Job& job, uint32_t rows);
  uint32_t next_rows(const Job& job) const;
  uint32_t add_tokens();
  std::vector<Job*> prompts() const;
  static bool is_more_urgent(const Job* a, const Job* b);
  void add_one_prompt();
  void add_prompts(uint32_t decoding);
  void add_oldest();
  void add_guesses(Job& job, Pipeline::Work& work, uint32_t rows);
  void run_work();
  void end_round(Job& job);
  void learn(uint32_t decoding, uint32_t prompt_rows, uint64_t ns);
  static void fail(Job& job, const Error& error);
  void share_prompt(Job& job);
  void accept(Job& job, const Logits& logits);
  void end(Job& job);
  void end_finished();

  const Generator with_;
  const SchedulerOptions options_;
  const HostOps ops_;
  ChunkPolicy chunks_;
  GuessedSteps guessed_steps_;
  Id next_id_ = 1;
  uint64_t steps_ = 0;
  uint64_t step_began_ns_ = 0;
  uint64_t reading_ns_ = 0;                   // of the step at hand: prompts, by those who guess
  std::deque<std::unique_ptr<Job>> waiting_;  // the next to run first
  Jobs running_;                              // the oldest first
  std::vector<Pipeline::Work> work_;          // of the step at hand
  std::vector<Job*> workers_;                 // [work_]
};

}  // namespace tyto
