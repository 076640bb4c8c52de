#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>

#include "engine/receipt.h"
#include "trace/span.h"

namespace tyto {
// What is to be run is always the tokens behind the sequence's position, so that a request which
// had to give its pages back goes on where it was, by running them again.
struct Scheduler::Job {
  Job(Id number, const Generator& with, Request asked, const SamplerOptions& sampling,
      OnToken chosen_token, OnDone done)
      : id(number),
        request(std::move(asked)),
        sampler(sampling),
        text(with.tokenizer, request.stop, request.shown_special, request.continues_text),
        on_token(std::move(chosen_token)),
        on_done(std::move(done)),
        tokens(request.prompt),
        added_ns(now_ns()) {}

  size_t left() const { return tokens.size() - sequence->position(); }
  // Tokens until an answer can begin: its own, or that of a request which waits for its pages.
  size_t urgency() const { return std::min(left(), waiting_left); }
  bool decodes() const { return sequence->phase == Phase::decode && left() == 1; }

  Id id;
  Request request;
  Sampler sampler;
  TextStream text;
  OnToken on_token;
  OnDone on_done;
  std::vector<Token> tokens;   // the prompt's and those chosen since
  std::vector<Token> chosen;   // in the step at hand, whose work still refers to `tokens`
  std::optional<Round> round;  // of the step at hand, where it has guesses
  bool is_read = false;        // the drafter has read its prompt
  std::unique_ptr<Sequence> sequence;
  Side side = Side::decode;        // where its prompt runs
  size_t waiting_left = SIZE_MAX;  // tokens that the shortest request waiting for its pages needs
  Receipt receipt;
  Answer answer;
  std::optional<Error> error;
  uint64_t added_ns;
  uint64_t begun_ns = 0;  // 0: it has not run yet
  uint64_t first_ns = 0;  // when the first token was chosen; 0: none was
  bool is_cancelled = false;
  bool is_finished = false;
  bool is_shared = false;  // its prompt, with later requests
};

Scheduler::Scheduler(const Generator& with, const SchedulerOptions& options)
    : with_(with),
      options_(options),
      ops_(with.trace),
      chunks_(with.pipeline.most_rows(), with.pipeline.passes_agree()) {
  TYTO_ASSERT(with.prefixes != nullptr && options.most_running > 0);
}

Scheduler::~Scheduler() = default;

Scheduler::Id Scheduler::add(Request request, const SamplerOptions& sampling, OnToken on_token,
                             OnDone on_done) {
  check_prompt(with_.tokenizer, with_.pipeline.context(), request.prompt);
  const KvPool& pool = with_.pipeline.kv_pool();
  const uint32_t needed = pool.pages_for(static_cast<uint32_t>(request.prompt.size()) + 1);
  if (needed > pool.capacity())
    throw Error(ErrorCode::input, "prompt",
                fmt::format("{} tokens take {} pages of {} positions, and there are {}",
                            request.prompt.size(), needed, pool.page_positions(), pool.capacity()),
                "give more --kv-memory");
  if (waiting_.size() >= options_.most_waiting)
    throw Error(ErrorCode::busy, "scheduler",
                fmt::format("{} requests run and {} wait", running_.size(), waiting_.size()),
                "try again later");
  waiting_.push_back(std::make_unique<Job>(next_id_, with_, std::move(request), sampling,
                                           std::move(on_token), std::move(on_done)));
  return next_id_++;
}

void Scheduler::cancel(Id id) {
  for (auto& job : waiting_)
    if (job->id == id) job->is_cancelled = true;
  for (auto& job : running_)
    if (job->id == id) job->is_cancelled = true;
}

std::vector<RequestStatus> Scheduler::requests() const {
  std::vector<RequestStatus> result;
  const auto add = [&](const Job& job) {
    result.push_back({.id = job.id,
                      .is_running = job.sequence != nullptr,
                      .prompt_tokens = static_cast<uint32_t>(job.request.prompt.size()),
                      .cached_tokens = job.receipt.cached_tokens,
                      .done_tokens = job.sequence ? job.sequence->position() : 0,
                      .generated_tokens = job.receipt.generated_tokens});
  };
  for (const auto& job : running_) add(*job);
  for (const auto& job : waiting_) add(*job);
  return result;
}

bool Scheduler::step() {
  end_cancelled();
  admit();
  if (running_.empty()) return false;
  try {
    choose_work();
    if (!work_.empty()) run_work();
  } catch (const Error& error) {  // a device that failed cannot be made anew
    for (auto& job : running_) fail(*job, error);
  }
  end_finished();
  ++steps_;
  return true;
}

void Scheduler::end_cancelled() {
  for (auto& job : running_)
    if (job->is_cancelled) {
      job->answer.reason = StopReason::cancelled;
      job->is_finished = true;
    }
  end_finished();
  for (size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i]->is_cancelled) {
      ++i;
      continue;
    }
    waiting_[i]->answer.reason = StopReason::cancelled;
    const std::unique_ptr<Job> job = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    end(*job);
  }
}

// As many as there are pages: where caches are one piece each request has one to itself.
void Scheduler::admit() {
  const KvPool& pool = with_.pipeline.kv_pool();
  const size_t most = std::min<size_t>(options_.most_running, pool.capacity());
  for (auto& job : running_) job->waiting_left = SIZE_MAX;
  for (size_t i = 0; i < waiting_.size() && running_.size() < most;) {
    Job& job = *waiting_[i];
    if (waits_for_pages(job)) {
      ++i;
      continue;
    }
    job.sequence = std::make_unique<Sequence>(with_.pipeline);
    job.sequence->candidates = candidates_needed(job.request, job.sampler);
    KvTable known = with_.prefixes->find(job.tokens, static_cast<uint32_t>(job.tokens.size() - 1));
    const uint32_t length = known.length();
    job.sequence->begin_with(std::span(job.tokens).first(length), std::move(known));
    job.side = with_.pipeline.side_for(job.left());
    job.waiting_left = SIZE_MAX;
    if (!job.answer.tokens.empty()) job.sequence->phase = Phase::decode;
    if (job.begun_ns == 0) begin(job, length);
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// The first time that a request runs: what it finds now others have computed, and what it finds
// after giving its pages back may be its own work.
void Scheduler::begin(Job& job, uint32_t cached) {
  Receipt& receipt = job.receipt;
  job.begun_ns = now_ns();
  receipt.queue_seconds = seconds_between(job.added_ns, job.begun_ns);
  receipt.cached_tokens = cached;
  receipt.prompt_tokens = static_cast<uint32_t>(job.request.prompt.size()) - cached;
  if (job.request.is_recorded) with_.trace.begin_request();
  ops_.timed(ops_.sample, [&] {
    for (Token token : job.request.prompt) job.sampler.accept(token);
    job.sampler.constrain(job.request.constraint);
  });
  if (!job.request.speculation) return;
  receipt.speculation.emplace().source = job.request.speculation->source;
  if (const auto why = why_no_guesses(with_.pipeline, *job.request.speculation))
    receipt.fallbacks.push_back(*why);
}

// Whether a running request is about to compute whole pages that this prompt begins with, too. Once
// they are written both have them, however long the other's prompt is.
bool Scheduler::waits_for_pages(const Job& job) {
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  bool waits = false;
  for (const auto& other : running_) {
    if (other->is_shared || other->sequence->phase != Phase::prefill) continue;
    const std::vector<Token>& theirs = other->request.prompt;
    const auto differ =
        std::mismatch(job.tokens.begin(), job.tokens.end(), theirs.begin(), theirs.end());
    const auto common = static_cast<uint32_t>(differ.first - job.tokens.begin());
    const uint32_t whole_pages = common / page * page;
    if (whole_pages <= other->sequence->position()) {
      share_pages(*other, whole_pages);
      continue;
    }
    waits = true;
    const size_t left = job.tokens.size() - other->sequence->position();
    other->waiting_left = std::min(other->waiting_left, left);
  }
  return waits;
}

// Whole pages do not change any more. Where their window is gone they are of no use to others.
void Scheduler::share_pages(const Job& job, uint32_t length) {
  if (length == 0 || !job.sequence->can_rewind(length)) return;
  with_.prefixes->keep(std::span(job.tokens).first(length), job.sequence->share(length));
}

// Room for some more tokens of a job. Where there is none the youngest request gives its pages back
// and waits; a job alone gives back what it would have to copy.
bool Scheduler::make_room(Job& job, uint32_t tokens) {
  while (!with_.pipeline.reserve(*job.sequence, tokens)) {
    Job& youngest = *running_.back();
    if (&youngest == &job) {
      const uint32_t page = with_.pipeline.kv_pool().page_positions();
      const uint32_t whole_pages = job.sequence->position() / page * page;
      if (running_.size() > 1 || whole_pages == job.sequence->position()) return false;
      job.sequence->rewind(whole_pages);
      job.side = with_.pipeline.side_for(job.left());
      tokens = std::min<uint32_t>(static_cast<uint32_t>(job.left()), with_.pipeline.most_rows());
      continue;
    }
    put_back(youngest);
  }
  return true;
}

// The youngest running request becomes the first that waits. What its pages hold may still be there
// when its turn comes.
void Scheduler::put_back(Job& job) {
  TYTO_ASSERT(running_.back().get() == &job);
  job.round.reset();
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i] == &job) {
      work_.erase(work_.begin() + static_cast<std::ptrdiff_t>(i));
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  const std::vector<Token> held = job.sequence->tokens();
  with_.prefixes->keep(held, job.sequence->take_cache());
  add_execution(job.receipt, *job.sequence, with_.pipeline, with_.trace);
  job.sequence.reset();
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

// Tokens of answers first, then prompts.
void Scheduler::choose_work() {
  work_.clear();
  workers_.clear();
  step_began_ns_ = now_ns();
  reading_ns_ = 0;
  const uint32_t decoding = add_tokens();
  if (with_.pipeline.has_fixed_rows())
    add_one_prompt();
  else
    add_prompts(decoding);
  if (work_.empty()) add_oldest();
}

// Adds up to `rows` of a job's next tokens, where there is room. Returns how many it added.
uint32_t Scheduler::add_rows(Job& job, uint32_t rows) {
  if (rows == 0 || !make_room(job, rows)) return 0;
  const auto left = static_cast<uint32_t>(job.left());  // more than before where it gave up pages
  rows = std::min(rows, left);
  const std::span<const Token> next =
      std::span<const Token>(job.tokens).subspan(job.sequence->position(), rows);
  work_.push_back({job.sequence.get(), next, rows == left ? 1u : 0u, nullptr,
                   job.decodes() ? Side::decode : job.side});
  workers_.push_back(&job);
  return rows;
}

uint32_t Scheduler::next_rows(const Job& job) const {
  return with_.pipeline.next_rows(job.sequence->position(), job.left(), job.side);
}

// One token of each answer, and guesses where no prompt waits: its rows make a step long. Returns
// how many decode.
uint32_t Scheduler::add_tokens() {
  const uint32_t most = with_.pipeline.most_rows();
  const auto ready = static_cast<uint32_t>(
      std::ranges::count_if(running_, [](const auto& job) { return job->decodes(); }));
  const uint32_t rows_each = ready == running_.size() ? guessed_steps_.rows_each(ready) : 1;
  uint32_t decoding = 0;
  for (size_t i = 0; i < running_.size() && decoding < most; ++i) {
    Job& job = *running_[i];
    if (!job.decodes()) continue;
    const uint32_t rows = add_rows(job, 1);
    decoding += rows;
    if (rows > 0 && job.decodes()) add_guesses(job, work_.back(), rows_each);
  }
  return decoding;
}

// Jobs without work in this step that have a prompt to run, the oldest first.
std::vector<Scheduler::Job*> Scheduler::prompts() const {
  std::vector<Job*> result;
  for (const auto& job : running_)
    if (!job->decodes() && std::ranges::count(workers_, job.get()) == 0)
      result.push_back(job.get());
  return result;
}

bool Scheduler::is_more_urgent(const Job* a, const Job* b) {
  return a->urgency() < b->urgency();
}

// A pass of fixed rows costs the same however few it uses: it is not cut further, and is the step's
// only one. In every other step it is that of the prompt which has waited longest, and else of the
// one that needs least.
void Scheduler::add_one_prompt() {
  std::vector<Job*> in_turn = prompts();
  if (steps_ % 2 == 1) std::ranges::stable_sort(in_turn, is_more_urgent);
  for (Job* job : in_turn)  // making room for one may take others out of running_
    if (job->sequence && add_rows(*job, next_rows(*job)) > 0) return;
}

// Short prompts come first, in one step where its rows are nearly enough for them. Beside them the
// prompt that has waited longest gets a quarter of the step: it is never passed over, and no short
// one waits for a whole chunk of it.
void Scheduler::add_prompts(uint32_t decoding) {
  std::vector<Job*> in_turn = prompts();
  if (in_turn.empty()) return;
  const uint32_t most = with_.pipeline.most_rows();
  const auto running = static_cast<uint32_t>(running_.size());  // some may have given way
  const uint32_t all =
      std::min(chunks_.prompt_rows(decoding, running - std::min(running, decoding)),
               most - std::min(decoding, most - 1));
  Job* const oldest = in_turn.front();
  std::ranges::stable_sort(in_turn, is_more_urgent);
  const bool has_shorter = in_turn.front() != oldest;
  const uint32_t quarter = (all + static_cast<uint32_t>(steps_ % 4)) / 4;
  const uint32_t reserved = has_shorter ? quarter : 0;
  uint32_t room = all - reserved;
  for (Job* job : in_turn) {
    if (!job->sequence || (has_shorter && job == oldest)) continue;  // it gave way, or is below
    const uint32_t wanted = next_rows(*job);
    const bool ends = decoding == 0 && wanted == job->left() && wanted <= 2 * room;
    room -= std::min(room, add_rows(*job, ends ? wanted : std::min(room, wanted)));
  }
  if (!has_shorter) return;
  const uint32_t left = room == all - reserved ? all : reserved;  // where no other found room
  add_rows(*oldest, std::min(left, next_rows(*oldest)));
}

// Where nothing found room, the request that asked first may have asked while others still held
// pages: the oldest once more, which takes them all.
void Scheduler::add_oldest() {
  Job& oldest = *running_.front();
  if (add_rows(oldest, next_rows(oldest)) > 0) return;
  const KvPool& pool = with_.pipeline.kv_pool();
  oldest.error.emplace(
      ErrorCode::input, "KV cache",
      fmt::format("{} tokens do not fit: {} of {} pages of {} positions are in use",
                  oldest.tokens.size(), pool.in_use(), pool.capacity(), pool.page_positions()),
      "give more --kv-memory");
  oldest.is_finished = true;
}

// Guesses never take room from others: where there is none left there are no guesses.
void Scheduler::add_guesses(Job& job, Pipeline::Work& work, uint32_t rows) try {
  Speculation* const speculation = job.request.speculation.get();
  if (speculation == nullptr || rows < 2 || with_.pipeline.most_checked() == 1) return;
  if (!job.is_read) {
    const uint64_t start = now_ns();
    ops_.timed(ops_.guess, [&] { return speculation->drafter(job.tokens, 0); });
    job.is_read = true;
    reading_ns_ += now_ns() - start;
    job.receipt.speculation->drafting_seconds += seconds_between(start, now_ns());
  }
  const uint32_t ahead = with_.pipeline.context() - job.sequence->position();
  const uint32_t left =
      job.request.max_tokens - std::min(job.request.max_tokens, job.receipt.generated_tokens);
  const GuessRoom room{.rows = std::min({rows, with_.pipeline.most_checked(), ahead}),
                       .tokens = left,
                       .vocab = with_.pipeline.vocab()};
  Round round = ops_.timed(ops_.guess, [&] { return Round(speculation, job.tokens, room); });
  job.receipt.speculation->drafting_seconds += round.drafting_seconds();
  const auto wanted = static_cast<uint32_t>(round.tokens().size());
  if (wanted == 1 || !with_.pipeline.reserve(*job.sequence, wanted)) return;
  job.round = std::move(round);
  work.tokens = job.round->tokens();
  work.logits = wanted;
} catch (const Error& error) {  // the drafter's: the request goes on without it
  job.receipt.fallbacks.push_back(
      fmt::format("{} guesses no more: {}", job.request.speculation->source, error.what()));
  job.request.speculation.reset();
}

void Scheduler::run_work() {
  uint32_t decoding = 0, prompt_rows = 0;
  for (size_t i = 0; i < work_.size(); ++i)
    (workers_[i]->decodes() ? decoding : prompt_rows) +=
        static_cast<uint32_t>(workers_[i]->round ? 1 : work_[i].tokens.size());
  const auto failures = with_.pipeline.run(work_, [&](size_t item, uint32_t, const Logits& logits) {
    Job& job = *workers_[item];
    if (job.is_finished || (job.round && !job.round->is_open())) return;
    try {
      accept(job, logits);
    } catch (const Error& error) {  // its grammar's, say: nobody else's
      fail(job, error);
    }
  });
  const uint64_t took = now_ns() - step_began_ns_ - reading_ns_;
  for (const Pipeline::Failure& failure : failures) fail(*workers_[failure.item], failure.error);
  if (failures.empty()) learn(decoding, prompt_rows, took);
  for (Job* job : workers_) {
    end_round(*job);
    if (job->error) continue;
    job->tokens.insert(job->tokens.end(), job->chosen.begin(), job->chosen.end());
    job->chosen.clear();
    share_prompt(*job);
  }
}

// Times of steps decide who runs how much with whom, and never what is answered.
void Scheduler::learn(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  uint32_t guesses = 0;
  for (const Job* job : workers_) guesses += job->round ? job->round->drafted() : 0;
  if (guesses == 0) chunks_.observe(decoding, prompt_rows, ns);
  if (prompt_rows > 0) return;
  guessed_steps_.observe(decoding, guesses, ns);
  for (Job* job : workers_) {
    if (!job->request.speculation) continue;
    const uint32_t own = job->round ? job->round->drafted() : 0;
    job->request.speculation->length.observe(own, job->round ? job->round->accepted() : 0,
                                             guessed_steps_.charged(decoding, own, guesses, ns));
  }
}

// The cache keeps the rows that tokens were chosen from. Of a request that failed it may be empty.
void Scheduler::end_round(Job& job) {
  if (!job.round) return;
  SpeculationCounters& counters = *job.receipt.speculation;
  counters.drafted += job.round->drafted();
  counters.accepted += job.round->accepted();
  const auto kept = static_cast<uint32_t>(job.tokens.size()) - 1 + job.round->settled();
  if (job.sequence->position() > kept) job.sequence->rewind(kept);
  job.round.reset();
}

void Scheduler::fail(Job& job, const Error& error) {
  job.error = error;
  job.is_finished = true;
}

// Requests with the same beginning need not wait for this one's end.
void Scheduler::share_prompt(Job& job) {
  const bool is_there = job.sequence->position() >= job.request.prompt.size();  // no device lost it
  if (job.is_shared || job.sequence->phase == Phase::prefill || !is_there) return;
  job.is_shared = true;
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  share_pages(job, static_cast<uint32_t>(job.request.prompt.size()) / page * page);
}

// One more token, or one of several in a round. Its text goes out at once; what it means for the
// sequence shows in later steps.
void Scheduler::accept(Job& job, const Logits& logits) {
  const Token token = ops_.timed(ops_.sample, [&] { return job.sampler.sample(logits); });
  const bool is_new_call = job.sequence->phase == Phase::decode && job.chosen.empty();
  if (job.receipt.speculation && is_new_call) ++job.receipt.speculation->calls;
  const uint64_t now = job.request.is_recorded ? with_.trace.token_chosen() : now_ns();
  if (job.first_ns == 0) {
    job.first_ns = now;
    job.receipt.prefill_seconds = seconds_between(job.begun_ns, now);
  }
  job.receipt.decode_seconds = seconds_between(job.first_ns, now);
  job.sequence->phase = Phase::decode;
  ++job.receipt.generated_tokens;
  Answer& answer = job.answer;
  const bool ends = with_.tokenizer.is_eos(token) && !job.request.ignore_eos;
  if (ends) {
    answer.reason = StopReason::eos;
  } else {
    job.sampler.accept(token);
    answer.tokens.push_back(token);
    const std::string piece = ops_.timed(ops_.detokenize, [&] { return job.text.push(token); });
    const bool goes_on =
        ops_.timed(ops_.output, [&] { return job.on_token({token, piece, logits, job.receipt}); });
    if (!goes_on) answer.reason = StopReason::cancelled;
    if (job.text.stopped()) answer.reason = StopReason::stop_string;
    const size_t held = job.tokens.size() + job.chosen.size();  // with the row it was chosen from
    if (answer.reason == StopReason::max_tokens && held == with_.pipeline.context())
      answer.reason = StopReason::context_full;
    job.chosen.push_back(token);
  }
  job.is_finished = answer.reason != StopReason::max_tokens ||
                    job.receipt.generated_tokens >= job.request.max_tokens;
  if (job.round) job.round->choose(job.is_finished ? std::nullopt : std::optional(token));
}

void Scheduler::end_finished() {
  for (size_t i = 0; i < running_.size();) {
    if (!running_[i]->is_finished) {
      ++i;
      continue;
    }
    const std::unique_ptr<Job> job = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    end(*job);
  }
}

void Scheduler::end(Job& job) {
  Receipt& receipt = job.receipt;
  if (job.sequence) {
    const std::vector<Token> held = job.sequence->tokens();
    add_execution(receipt, *job.sequence, with_.pipeline, with_.trace);
    with_.prefixes->keep(held, job.sequence->take_cache());
    job.sequence.reset();
  }
  if (job.begun_ns == 0) receipt.queue_seconds = seconds_between(job.added_ns, now_ns());
  Outcome outcome{.answer = std::move(job.answer), .error = std::move(job.error)};
  outcome.answer.receipt = std::move(receipt);
  if (!outcome.error && outcome.answer.reason != StopReason::cancelled)
    outcome.rest = job.text.finish();
  job.on_done(job.id, std::move(outcome));
}

}  // namespace tyto
