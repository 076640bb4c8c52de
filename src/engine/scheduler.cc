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
        text(with.tokenizer, request.stop, request.shown_special),
        on_token(std::move(chosen_token)),
        on_done(std::move(done)),
        tokens(request.prompt),
        added_ns(now_ns()) {
    for (Token token : request.prompt) sampler.accept(token);
    sampler.constrain(request.constraint);
  }

  size_t left() const { return tokens.size() - sequence->position(); }
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
  bool is_read = false;        // its prompt, by who guesses
  std::unique_ptr<Sequence> sequence;
  Side side = Side::decode;  // of what it has to run before it decodes
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
    : with_(with), options_(options), chunks_(with.pipeline.most_rows()) {
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
  for (size_t i = 0; i < waiting_.size() && running_.size() < most;) {
    Job& job = *waiting_[i];
    if (waits_for_prompt(job)) {
      ++i;
      continue;
    }
    job.sequence = std::make_unique<Sequence>(with_.pipeline);
    job.sequence->candidates = candidates_needed(job.request, job.sampler);
    KvTable known = with_.prefixes->find(job.tokens, static_cast<uint32_t>(job.tokens.size() - 1));
    const uint32_t length = known.length();
    job.sequence->begin_with(std::span(job.tokens).first(length), std::move(known));
    job.side = with_.pipeline.side_for(job.left());
    if (job.answer.tokens.empty()) begin_receipt(job, length);
    if (!job.answer.tokens.empty()) job.sequence->phase = Phase::decode;
    if (job.begun_ns == 0) {
      job.begun_ns = now_ns();
      job.receipt.queue_seconds = seconds_between(job.added_ns, job.begun_ns);
      if (job.request.is_recorded) with_.trace.begin_request();
    }
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Scheduler::begin_receipt(Job& job, uint32_t cached) {
  Receipt& receipt = job.receipt;
  receipt.cached_tokens = cached;
  receipt.prompt_tokens = static_cast<uint32_t>(job.request.prompt.size()) - cached;
  if (!job.request.speculation || receipt.speculation) return;
  receipt.speculation.emplace().source = job.request.speculation->source;
  if (const auto why = why_no_guesses(with_.pipeline, *job.request.speculation))
    receipt.fallbacks.push_back(*why);
}

// Somebody is computing whole pages that this prompt begins with, too: once they are there, both
// have them, unless their windows are gone by the end of the other's prompt.
bool Scheduler::waits_for_prompt(const Job& job) const {
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  const KvWindow& window = with_.pipeline.kv_window();
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    if (other->is_shared || other->sequence->phase != Phase::prefill) return false;
    const std::vector<Token>& theirs = other->request.prompt;
    const auto differ =
        std::mismatch(job.tokens.begin(), job.tokens.end(), theirs.begin(), theirs.end());
    const auto common = static_cast<uint32_t>(differ.first - job.tokens.begin());
    const auto end = static_cast<uint32_t>(theirs.size());
    if (window.pool != nullptr && window.first_needed(common) < window.first_kept(end))
      return false;
    return common / page * page > other->receipt.cached_tokens;
  });
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

// Tokens that somebody waits for first, then prompts as the policy allows: in every other step the
// one that has waited longest, which is so never passed over, and else the one that needs least,
// which is so soon answered.
void Scheduler::choose_work() {
  work_.clear();
  workers_.clear();
  step_began_ns_ = now_ns();
  reading_ns_ = 0;
  const uint32_t most = with_.pipeline.most_rows();
  const auto next_rows = [&](const Job& job) {
    return with_.pipeline.next_rows(job.sequence->position(), job.left(), job.side);
  };
  const auto add = [&](Job& job, uint32_t rows) {
    if (!make_room(job, rows)) return 0u;
    const auto left = static_cast<uint32_t>(job.left());  // more than before where it gave up pages
    rows = std::min(rows, left);
    const std::span<const Token> next =
        std::span<const Token>(job.tokens).subspan(job.sequence->position(), rows);
    work_.push_back({job.sequence.get(), next, rows == left ? 1u : 0u, nullptr,
                     job.decodes() ? Side::decode : job.side});
    workers_.push_back(&job);
    return rows;
  };
  const auto ready = static_cast<uint32_t>(
      std::ranges::count_if(running_, [](const auto& job) { return job->decodes(); }));
  // A prompt's rows make a step long, and people wait for them.
  const uint32_t rows_each = ready == running_.size() ? guessed_steps_.rows_each(ready) : 1;
  uint32_t decoding = 0;
  for (size_t i = 0; i < running_.size() && decoding < most; ++i) {
    Job& job = *running_[i];
    if (!job.decodes()) continue;
    const uint32_t rows = add(job, 1);
    decoding += rows;
    if (rows > 0 && job.decodes()) add_guesses(job, work_.back(), rows_each);
  }
  // A pass of fixed rows costs the same however few it uses: it is not cut further, and is the
  // step's only one.
  const bool is_one_pass = with_.pipeline.has_fixed_rows();
  const auto running = static_cast<uint32_t>(running_.size());  // some may have given way
  const uint32_t prompts = running - std::min(running, decoding);
  uint32_t room = is_one_pass ? most
                              : std::min(chunks_.prompt_rows(decoding, prompts),
                                         most - std::min(decoding, most - 1));
  std::vector<Job*> in_turn;  // making room for one may take others out of running_
  for (const auto& job : running_) in_turn.push_back(job.get());
  if (steps_ % 2 == 1)
    std::stable_sort(in_turn.begin(), in_turn.end(),
                     [](const Job* a, const Job* b) { return a->left() < b->left(); });
  for (Job* job : in_turn) {
    const bool has_work = std::count(workers_.begin(), workers_.end(), job) > 0;
    if (room == 0 || !job->sequence || job->decodes() || has_work) continue;
    const uint32_t rows = add(*job, std::min(room, next_rows(*job)));
    room = is_one_pass && rows > 0 ? 0 : room - std::min(room, rows);
  }
  if (!work_.empty()) return;
  // Nobody found room, and who asked first may have asked while others still held pages: the oldest
  // once more, which takes them all.
  if (add(*running_.front(), next_rows(*running_.front())) > 0) return;
  const KvPool& pool = with_.pipeline.kv_pool();
  Job& oldest = *running_.front();
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
    speculation->drafter(job.tokens, 0);
    job.is_read = true;
    reading_ns_ += now_ns() - start;
    job.receipt.speculation->drafting_seconds += seconds_between(start, now_ns());
  }
  const uint32_t ahead = with_.pipeline.context() - job.sequence->position();
  const uint32_t left =
      job.request.max_tokens - std::min(job.request.max_tokens, job.receipt.generated_tokens);
  Round round(speculation, job.tokens,
              {.rows = std::min({rows, with_.pipeline.most_checked(), ahead}),
               .tokens = left,
               .vocab = with_.pipeline.vocab()});
  job.receipt.speculation->drafting_seconds += round.drafting_seconds();
  const auto wanted = static_cast<uint32_t>(round.tokens().size());
  if (wanted == 1 || !with_.pipeline.reserve(*job.sequence, wanted)) return;
  job.round = std::move(round);
  work.tokens = job.round->tokens();
  work.logits = wanted;
} catch (const Error& error) {  // of who guesses, without whom the request goes on
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

// Requests with the same beginning need not wait for this one's end: its whole pages do not change
// any more.
void Scheduler::share_prompt(Job& job) {
  const bool is_there = job.sequence->position() >= job.request.prompt.size();  // no device lost it
  if (job.is_shared || job.sequence->phase == Phase::prefill || !is_there) return;
  job.is_shared = true;
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  const uint32_t whole_pages = static_cast<uint32_t>(job.request.prompt.size()) / page * page;
  if (whole_pages > 0)
    with_.prefixes->keep(std::span(job.tokens).first(whole_pages),
                         job.sequence->share(whole_pages));
}

// One more token, or one of several in a round. Its text goes out at once; what it means for the
// sequence shows in later steps.
void Scheduler::accept(Job& job, const Logits& logits) {
  const Token token = job.sampler.sample(logits);
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
    const std::string piece = job.text.push(token);
    if (!job.on_token({token, piece, logits, job.receipt})) answer.reason = StopReason::cancelled;
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
