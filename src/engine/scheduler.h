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

#include "engine/job.h"
#include "engine/speculation.h"

namespace tyto {

// How many rows of prompts may run in a step.

// Learns from steps how long tokens take and what a row of a prompt adds, and keeps a step with
// both under twice the time of one without prompts. Where more requests wait for their prompts than
// for tokens, prompts get the square of that more: a prompt that is done shortens the wait of all
// the others, and tokens are the cheaper the more of them are decoded together. A step of prompts
// alone takes a tenth of a second, for a request that comes meanwhile waits until it has ended. The
// results do not depend on it, only who waits how long.
class ChunkPolicy {
 public:
  static constexpr uint32_t kLeastAlone = 32;   // rows; fewer would read the weights too often
  static constexpr uint32_t kFixedAlone = 256;  // rows; enough for a GPU's largest tiles

  // How a prompt without tokens beside it is cut, so that a request which comes meanwhile does not
  // wait for all of it. Where the bits of a prompt depend on its passes the clock must not choose
  // them.
  enum class Cut : uint8_t { none, fixed, by_clock };

  // `most`: rows of one step.
  ChunkPolicy(uint32_t most, Cut cut) : most_(most), cut_(cut), tokens_ns_(most + 1) {}

  // Rows of all `prompts` for a step that also decodes `decoding` tokens. None where a
  // step without prompts has to show what `decoding` tokens take: rows that are blamed for the
  // tokens' time would become ever fewer.
  uint32_t prompt_rows(uint32_t decoding, uint32_t prompts) const;
  void observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns);

 private:
  uint32_t rows_alone() const;

  static constexpr uint32_t kKernelRows = 16;  // that kernels take at once
  static constexpr double kAloneNs = 100'000'000;
  static constexpr uint32_t kMostBeside = 16;  // steps of tokens and prompts in a row

  uint32_t most_;
  Cut cut_;
  std::vector<double> tokens_ns_;  // [tokens decoded together], without prompts; 0: not known
  uint32_t steps_beside_ = 0;      // with tokens and prompts, since one with tokens alone
  double row_ns_ = 0;              // that a prompt's row adds; 0: not known
};

struct SchedulerOptions {
  uint32_t most_running = 16;   // answers that share steps
  uint32_t most_embedding = 4;  // embeddings and others without an answer, beside them
  uint32_t most_waiting = 64;   // requests beyond those; one more is refused
  // So that a request which comes meanwhile does not wait long.
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
