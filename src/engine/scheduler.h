// Many requests at once on one pipeline: continuous batching. Requests join between tokens, prompts
// run in chunks beside tokens that are being decoded, and no result depends on which requests run
// together, nor on guesses (engine/speculation.h), which are more rows of a request in a step. It
// has no thread of its own: its owner calls step().
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/chunk_policy.h"
#include "engine/guessed_steps.h"
#include "engine/job.h"

namespace tyto {

struct SchedulerOptions {
  uint32_t most_running = 16;   // answers that share steps
  uint32_t most_embedding = 4;  // embeddings and others without an answer, beside them
  uint32_t most_waiting = 64;   // requests beyond those; one more is refused
  // By the clock, so that a request which comes meanwhile does not wait long.
  bool cuts_prompts = true;
};

// A request on its way.
struct RequestStatus {
  uint64_t id = 0;
  bool is_running = false;
  uint32_t prompt_tokens = 0;  // all of them
  uint32_t cached_tokens = 0;
  uint32_t done_tokens = 0;  // in the caches by now
  uint32_t generated_tokens = 0;
  bool has_answer = true;  // else it ends with its prompt
};

class Scheduler {
 public:
  using Id = Job::Id;
  using OnDone = Job::OnDone;

  // All of `with` outlives it.
  Scheduler(const Generator& with, const SchedulerOptions& options);

  // Throws an input Error for a prompt that cannot be answered, and a busy one when too many wait.
  // `on_done` is called once, from step().
  Id add(Request request, const SamplerOptions& sampling, OnToken on_token, OnDone on_done);
  // With a sampler that goes on in the conversation's next request, and outlives this one.
  Id add(Request request, Sampler& sampler, OnToken on_token, OnDone on_done);
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
  using Jobs = std::vector<std::unique_ptr<Job>>;

  void check(const Request& request) const;
  Id add(Request request, std::unique_ptr<Sampler> own, Sampler* shared, OnToken on_token,
         OnDone on_done);
  void admit();
  bool has_place(const Job& job) const;
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
  void run_work();
  void learn(uint32_t decoding, uint32_t prompt_rows, uint64_t ns);
  void share_prompt(Job& job);
  void end_finished();

  const Generator with_;
  const SchedulerOptions options_;
  ChunkPolicy chunks_;
  GuessedSteps guessed_steps_;
  Id next_id_ = 1;
  uint64_t steps_ = 0;
  uint64_t step_began_ns_ = 0;
  uint64_t reading_ns_ = 0;                   // in the step at hand, that drafters spent on prompts
  std::deque<std::unique_ptr<Job>> waiting_;  // the next to run first
  Jobs running_;                              // the oldest first
  std::vector<SequenceRows> work_;            // the rows of this step
  std::vector<Job*> workers_;                 // [work_]
};

}  // namespace tyto
