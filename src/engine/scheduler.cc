#include "engine/scheduler.h"

#include <algorithm>

#include "trace/trace.h"

namespace tyto {
namespace {

// A step that something else on the machine held up must not decide alone.
double blended(double known, double seen) {
  constexpr double kWeight = 0.25;
  return known == 0 ? seen : known + kWeight * (seen - known);
}

}  // namespace

uint32_t ChunkPolicy::prompt_rows(uint32_t decoding, uint32_t prompts) const {
  if (decoding == 0) return rows_alone();
  if (decoding >= most_) return 1;
  const double tokens_ns = tokens_ns_[decoding];
  if (tokens_ns == 0 || steps_beside_ >= kMostBeside) return 0;
  uint32_t rows = kKernelRows;  // before anything is known
  const double per_token = std::max(1.0, static_cast<double>(prompts) / decoding);
  if (row_ns_ > 0)
    rows = static_cast<uint32_t>(
        std::min(tokens_ns * per_token * per_token / row_ns_, static_cast<double>(most_)));
  return std::clamp(rows, 1u, most_ - decoding);
}

uint32_t ChunkPolicy::rows_alone() const {
  if (cut_ == Cut::none) return most_;
  if (cut_ == Cut::fixed) return std::min(kFixedAlone, most_);
  const uint32_t least = std::min(kLeastAlone, most_);
  if (row_ns_ == 0) return least;
  const auto rows = static_cast<uint32_t>(std::min(kAloneNs / row_ns_, static_cast<double>(most_)));
  return std::max(least, rows < most_ ? rows / kKernelRows * kKernelRows : most_);
}

void ChunkPolicy::observe(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  const auto took = static_cast<double>(ns);
  double& tokens_ns = tokens_ns_[std::min(decoding, most_)];
  if (prompt_rows == 0) {
    if (decoding > 0) tokens_ns = blended(tokens_ns, took);
    steps_beside_ = 0;
    return;
  }
  if (decoding > 0) ++steps_beside_;
  row_ns_ = blended(row_ns_, std::max(took - tokens_ns, took * 0.01) / prompt_rows);
}

Scheduler::Scheduler(const Generator& with, const SchedulerOptions& options)
    : with_(with),
      options_(options),
      chunks_(with.pipeline.most_rows(), !options.cuts_prompts          ? ChunkPolicy::Cut::none
                                         : with.pipeline.passes_agree() ? ChunkPolicy::Cut::by_clock
                                                                        : ChunkPolicy::Cut::fixed) {
  TYTO_ASSERT(options.most_running > 0);
}

// Only an answer needs room behind its prompt.
void Scheduler::check(const Request& request) const {
  const auto tokens = static_cast<uint32_t>(request.prompt.size());
  const bool has_answer = request.wanted == Wanted::answer;
  if (!has_answer) {
    check_tokens(with_.tokenizer, request.prompt);
    with_.pipeline.check_room(0, tokens);
  } else {
    check_prompt(with_.tokenizer, with_.pipeline.context(), request.prompt);
  }
  const KvPool& pool = with_.pipeline.kv_pool();
  const uint32_t needed = pool.pages_for(has_answer ? tokens + 1 : tokens);
  if (needed > pool.capacity())
    throw Error(ErrorCode::input, "prompt",
                fmt::format("{} tokens take {} pages of {} positions, and there are {}", tokens,
                            needed, pool.page_positions(), pool.capacity()),
                "give more --kv-memory");
  if (waiting_.size() >= options_.most_waiting)
    throw Error(ErrorCode::busy, "scheduler",
                fmt::format("{} requests run and {} wait", running_.size(), waiting_.size()),
                "try again later");
}

Scheduler::Id Scheduler::add(Request request, std::unique_ptr<Sampler> own, Sampler* shared,
                             OnToken on_token, OnDone on_done) {
  check(request);
  waiting_.push_back(std::make_unique<Job>(next_id_, with_, std::move(request), std::move(own),
                                           shared, std::move(on_token), std::move(on_done)));
  return next_id_++;
}

Scheduler::Id Scheduler::add(Request request, const SamplerOptions& sampling, OnToken on_token,
                             OnDone on_done) {
  return add(std::move(request), std::make_unique<Sampler>(sampling), nullptr, std::move(on_token),
             std::move(on_done));
}

Scheduler::Id Scheduler::add(Request request, Sampler& sampler, OnToken on_token, OnDone on_done) {
  return add(std::move(request), nullptr, &sampler, std::move(on_token), std::move(on_done));
}

void Scheduler::cancel(Id id) {
  for (auto& job : waiting_)
    if (job->id() == id) job->is_cancelled = true;
  for (auto& job : running_)
    if (job->id() == id) job->is_cancelled = true;
}

std::vector<RequestStatus> Scheduler::requests() const {
  std::vector<RequestStatus> result;
  const auto add = [&](const Job& job) {
    const Sequence* const sequence = job.sequence();
    result.push_back({.id = job.id(),
                      .is_running = sequence != nullptr,
                      .prompt_tokens = static_cast<uint32_t>(job.request().prompt.size()),
                      .cached_tokens = job.receipt().cached_tokens,
                      .done_tokens = sequence != nullptr ? sequence->position() : 0,
                      .generated_tokens = job.receipt().generated_tokens,
                      .has_answer = job.wants_answer()});
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
  } catch (const Error& error) {  // a device that failed cannot be made again
    for (auto& job : running_) job->fail(error);
  }
  end_finished();
  ++steps_;
  return true;
}

void Scheduler::end_cancelled() {
  for (auto& job : running_)
    if (job->is_cancelled) job->cancel();
  end_finished();
  for (size_t i = 0; i < waiting_.size();) {
    if (!waiting_[i]->is_cancelled) {
      ++i;
      continue;
    }
    const std::unique_ptr<Job> job = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    job->cancel();
    job->end();
  }
}

// Where caches are one piece each request has a page to itself.
bool Scheduler::has_place(const Job& job) const {
  if (running_.size() >= with_.pipeline.kv_pool().capacity()) return false;
  const bool answers = job.wants_answer();
  const auto alike = static_cast<uint32_t>(std::ranges::count_if(
      running_, [&](const auto& other) { return other->wants_answer() == answers; }));
  return alike < (answers ? options_.most_running : options_.most_embedding);
}

void Scheduler::admit() {
  for (auto& job : running_) job->waiting_left = SIZE_MAX;
  for (size_t i = 0; i < waiting_.size();) {
    Job& job = *waiting_[i];
    if (!has_place(job) || waits_for_pages(job)) {
      ++i;
      continue;
    }
    job.admit();
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Whether a running request is about to compute whole pages that this prompt begins with, too. Once
// they are written both have them, however long the other's prompt is.
bool Scheduler::waits_for_pages(const Job& job) {
  if (with_.prefixes == nullptr || !job.wants_answer()) return false;
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  bool waits = false;
  for (const auto& other : running_) {
    if (other->is_shared || other->sequence()->phase != Phase::prefill) continue;
    const std::vector<Token>& ours = job.tokens();
    const std::vector<Token>& theirs = other->request().prompt;
    const auto differ = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    const auto common = static_cast<uint32_t>(differ.first - ours.begin());
    const uint32_t whole_pages = common / page * page;
    if (whole_pages <= other->sequence()->position()) {
      share_pages(*other, whole_pages);
      continue;
    }
    waits = true;
    const size_t left = ours.size() - other->sequence()->position();
    other->waiting_left = std::min(other->waiting_left, left);
  }
  return waits;
}

// Whole pages do not change any more. Where their window or the state behind them is gone they are
// of no use to others.
void Scheduler::share_pages(const Job& job, uint32_t length) {
  if (with_.prefixes == nullptr) return;
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  length = job.sequence()->last_cut(length);
  while (length % page != 0) length = job.sequence()->last_cut(length - 1);
  if (length == 0) return;
  with_.prefixes->keep(std::span(job.tokens()).first(length), job.sequence()->share(length));
}

// Room for some more tokens of a job. Where there is none the youngest request gives its pages back
// and waits; a job alone gives back what it would have to copy.
bool Scheduler::make_room(Job& job, uint32_t tokens) {
  while (!with_.pipeline.reserve(*job.sequence(), tokens)) {
    Job& youngest = *running_.back();
    if (&youngest == &job) {
      const uint32_t page = with_.pipeline.kv_pool().page_positions();
      const uint32_t whole_pages = job.sequence()->position() / page * page;
      if (running_.size() > 1 || whole_pages == job.sequence()->position()) return false;
      job.sequence()->rewind(job.sequence()->last_cut(whole_pages));
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
  for (size_t i = 0; i < workers_.size(); ++i)
    if (workers_[i] == &job) {
      work_.erase(work_.begin() + static_cast<std::ptrdiff_t>(i));
      workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  job.put_back();
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
  work_.push_back(job.rows(rows));
  workers_.push_back(&job);
  return rows;
}

uint32_t Scheduler::next_rows(const Job& job) const {
  return with_.pipeline.next_rows(job.sequence()->position(), job.left(), job.side);
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
    const uint32_t rows = add_rows(job, static_cast<uint32_t>(job.left()));
    decoding += rows > 0 ? 1 : 0;
    if (rows > 0 && job.decodes()) reading_ns_ += job.guess(work_.back(), rows_each);
  }
  return decoding;
}

// Jobs without work in this step that have a prompt to run, the oldest first.
std::vector<Job*> Scheduler::prompts() const {
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
    if (job->sequence() != nullptr && add_rows(*job, next_rows(*job)) > 0) return;
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
    if (job->sequence() == nullptr || (has_shorter && job == oldest))
      continue;  // it gave way, or is below
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
  oldest.fail(
      {ErrorCode::input, "KV cache",
       fmt::format("{} tokens do not fit: {} of {} pages of {} positions are in use",
                   oldest.tokens().size(), pool.in_use(), pool.capacity(), pool.page_positions()),
       "give more --kv-memory"});
}

void Scheduler::run_work() {
  uint32_t decoding = 0, prompt_rows = 0;
  for (size_t i = 0; i < work_.size(); ++i)
    (workers_[i]->decodes() ? decoding : prompt_rows) +=
        static_cast<uint32_t>(workers_[i]->decodes() ? 1 : work_[i].tokens.size());
  const auto take = [&](size_t item, uint32_t behind, const Logits& logits) {
    if (workers_[item]->wants_row()) workers_[item]->take(work_[item].end() - behind - 1, logits);
  };
  const auto failures = with_.pipeline.run(work_, take);
  const uint64_t took = now_ns() - step_began_ns_ - reading_ns_;
  for (const Pipeline::Failure& failure : failures) workers_[failure.item]->fail(failure.error);
  if (failures.empty()) learn(decoding, prompt_rows, took);
  for (Job* job : workers_) {
    job->settle();
    if (!job->has_failed()) share_prompt(*job);
  }
}

// Times of steps decide who runs how much with whom, and never what is answered.
void Scheduler::learn(uint32_t decoding, uint32_t prompt_rows, uint64_t ns) {
  uint32_t guesses = 0;
  for (const Job* job : workers_) guesses += job->round() ? job->round()->drafted() : 0;
  if (guesses == 0) chunks_.observe(decoding, prompt_rows, ns);
  if (prompt_rows > 0) return;
  guessed_steps_.observe(decoding, guesses, ns);
  for (const Job* job : workers_) {
    if (!job->request().speculation) continue;
    const uint32_t own = job->round() ? job->round()->drafted() : 0;
    job->request().speculation->length.observe(own, own > 0 ? job->round()->accepted() : 0,
                                               guessed_steps_.charged(decoding, own, guesses, ns));
  }
}

// Requests with the same beginning need not wait for this one's end.
void Scheduler::share_prompt(Job& job) {
  const size_t prompt = job.request().prompt.size();
  const bool is_there = job.sequence()->position() >= prompt;  // no device lost it
  if (job.is_shared || job.sequence()->phase == Phase::prefill || !is_there) return;
  job.is_shared = true;
  const uint32_t page = with_.pipeline.kv_pool().page_positions();
  share_pages(job, static_cast<uint32_t>(prompt) / page * page);
}

void Scheduler::end_finished() {
  for (size_t i = 0; i < running_.size();) {
    if (!running_[i]->is_finished()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Job> job = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    job->end();
  }
}

}  // namespace tyto
