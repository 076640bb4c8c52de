#include "serve/served_model.h"

#include <algorithm>

#include "base/spelling.h"
#include "engine/draft_model.h"
#include "engine/recording.h"
#include "evidence/receipt_json.h"
#include "serve/engine_thread.h"
#include "serve/metrics.h"
#include "trace/trace.h"

namespace tyto {
namespace {

// A recording takes its memory before it begins; longer answers say what was lost.
constexpr uint32_t kMostRecordedTokens = 256;

Error expired(const std::string& instead) {
  return {ErrorCode::deadline, "request", "took longer than its deadline allows",
          "give it more time, or " + instead};
}

std::string receipt_id(const OpenCompletion& completion, uint32_t choice) {
  return choice == 0 ? completion.asked.id : fmt::format("{}.{}", completion.asked.id, choice);
}

// A flag is for all models, and need not suit each of them.
Error of_model(const Error& error, const std::string& name) {
  if (error.code != ErrorCode::usage) return error;
  return {error.code, name, error.what(), error.hint};
}

}  // namespace

Error server_ends() {
  return {ErrorCode::busy, "server", "it is shutting down", "ask another one"};
}

void ServedModel::load() {
  unloads_when_idle_ = false;
  last_used_ = std::chrono::steady_clock::now();
  if (engine_) return;
  try {
    auto engine = std::make_unique<Engine>(what_.engine);
    engine->identity();  // receipts name the model by it; hashes of files are kept
    text_ = text_of(what_.name, *engine, what_.chat_template, what_.sampling);
    const std::vector<DeviceInfo> devices = engine->devices();
    is_virtual_ = std::any_of(devices.begin(), devices.end(),
                              [](const DeviceInfo& device) { return device.is_virtual; });
    open_speculation(*engine);
    scheduler_ = std::make_unique<Scheduler>(
        engine->generator(), SchedulerOptions{.most_running = together_.options.most_running,
                                              .most_waiting = UINT32_MAX});
    engine_ = std::move(engine);
    failure_.clear();
  } catch (...) {
    let_go();
    const Error error = of_model(thrown_error(what_.name), what_.name);
    failure_ = error.what();
    throw error;
  }
  last_used_ = std::chrono::steady_clock::now();
}

// The model could be loaded when the server started, so no request is to blame.
std::optional<Error> ServedModel::load_for_request() try {
  load();
  return std::nullopt;
} catch (const Error& error) {
  const std::string what = fmt::format("cannot be loaded again: {}", error.what());
  if (may_pass(error)) return Error(ErrorCode::busy, what_.name, what, "try again later");
  return Error(ErrorCode::device, what_.name, what, error.hint);
}

void ServedModel::open_speculation(const Engine& engine) {
  if (!what_.draft.empty()) {
    draft_ = open_draft(what_.draft, engine, what_.engine);
    speculator_ = std::make_unique<Speculator>(
        what_.draft, [draft = draft_.get()] { return model_drafter(*draft); }, what_.most_guesses);
  } else if (what_.looks_up) {
    speculator_ = std::make_unique<Speculator>("lookup", lookup_drafter, what_.most_guesses);
  }
}

void ServedModel::let_go() {
  scheduler_.reset();  // its requests' guesses are the draft model's
  speculator_.reset();
  draft_.reset();
  recorded_.reset();
  engine_.reset();
}

void ServedModel::unload() {
  TYTO_ASSERT(is_idle());
  let_go();
}

void ServedModel::begin(const std::shared_ptr<OpenCompletion>& completion,
                        const std::optional<Error>& refusal) {
  std::optional<Error> failure = refusal;
  try {
    if (recorded_) abandon_profile("another request ran at the same time");
    if (!failure) failure = load_for_request();
    if (!failure && completion->asked.profile) start_profile(*completion);
    if (!failure && completion->asked.request.is_recorded) recorded_ = completion;
  } catch (...) {
    failure = thrown_error(what_.name);
  }
  for (uint32_t i = 0; i < completion->asked.choices; ++i) {
    try {
      if (failure) throw *failure;
      // The scheduler calls back from step() alone, when the choice is in the table.
      const auto known = std::make_shared<Scheduler::Id>(0);  // shared by the two callbacks
      SamplerOptions sampling = completion->asked.sampling;
      sampling.seed += i;
      *known = scheduler_->add(
          request_for(completion->asked), sampling,
          [this, known](const ChosenToken& chosen) {
            const auto choice = choices_.find(*known);
            return choice != choices_.end() && on_token(choice->second, chosen);
          },
          [this](Scheduler::Id id, Outcome outcome) {
            auto node = choices_.extract(id);
            if (!node.empty()) end(std::move(node.mapped()), std::move(outcome));
          });
      choices_.emplace(*known, Choice{.of = completion, .index = i});
    } catch (...) {
      end({.of = completion, .index = i}, {.answer = {}, .error = thrown_error(what_.name)});
    }
  }
}

Request ServedModel::request_for(const CompletionRequest& asked) {
  Request request = asked.request;
  if (asked.constraint) request.constraint = asked.constraint();
  request.wants_all_logits = asked.log_probabilities;
  if (speculator_) request.speculation = speculator_->begin_request();
  return request;
}

// An Error ends this choice and no other.
bool ServedModel::on_token(Choice& choice, const ChosenToken& chosen) try {
  const CompletionRequest& asked = choice.of->asked;
  const uint64_t now = now_ns();
  const Receipt& so_far = chosen.so_far;
  if (choice.last_ns == 0) {
    together_.metrics.queued(so_far.queue_seconds, is_virtual_);
    together_.metrics.first_token(so_far.queue_seconds + so_far.prefill_seconds, is_virtual_);
  } else {
    together_.metrics.between_tokens(seconds_between(choice.last_ns, now), is_virtual_);
  }
  choice.last_ns = now;
  std::optional<LogProbabilities> probable;
  if (asked.log_probabilities)
    probable = log_probabilities(chosen.logits, chosen.token, asked.top_log_probabilities);
  if (!engine_->requirement().empty())
    choice.held.push_back({chosen.token, std::string(chosen.text), std::move(probable)});
  else
    choice.has_enough = !choice.of->events.on_token(
        {choice.index, chosen.token, chosen.text, std::move(probable), so_far, is_virtual_});
  return !choice.has_enough;
} catch (...) {
  throw thrown_error(what_.name);
}

// With --require, text is held until the receipt proves where it came from.
void ServedModel::check_requirement(Choice& choice, Outcome& outcome) {
  if (!engine_ || engine_->requirement().empty() || outcome.error) return choice.held.clear();
  try {
    engine_->check_required(outcome.answer.receipt.phases);
  } catch (const Error& error) {
    outcome.error = error;
    outcome.rest.clear();
    choice.held.clear();
  }
}

void ServedModel::end(Choice choice, Outcome outcome) {
  OpenCompletion& completion = *choice.of;
  std::string receipt;
  try {
    if (choice.has_enough && outcome.answer.reason == StopReason::cancelled)
      outcome.answer.reason = StopReason::eos;
    const bool was_cancelled = outcome.answer.reason == StopReason::cancelled;
    if (completion.is_expired && was_cancelled && !outcome.error)
      outcome.error = expired("ask for fewer tokens");
    check_requirement(choice, outcome);
    const Receipt& ran = outcome.answer.receipt;
    if (engine_ && ran.prompt_tokens + ran.cached_tokens > 0) {
      engine_->complete(outcome.answer.receipt);
      receipt = keep_receipt(choice, outcome);
    }
    if (recorded_ == choice.of) abandon_profile("the request ended before it ran");
    together_.metrics.finished(what_.name, outcome);
  } catch (...) {  // whatever happens, the request gets its end
    outcome.error = thrown_error("receipt");
  }
  last_used_ = std::chrono::steady_clock::now();
  completion.places.free_one();
  try {
    completion.events.on_done({choice.index, outcome, receipt, choice.held});
  } catch (...) {
    // Its answer is dropped with its events, which tells the client.
  }
  completion.places.tell_one();
}

std::string ServedModel::keep_receipt(const Choice& choice, const Outcome& outcome) {
  const OpenCompletion& completion = *choice.of;
  const Receipt& receipt = outcome.answer.receipt;
  StoredReceipt stored{.id = receipt_id(completion, choice.index),
                       .time = utc_now(),
                       .model = what_.name,
                       .line = outcome.error ? outcome.error->what() : receipt_line(receipt),
                       .badge = badge_of(receipt, outcome.error.has_value()),
                       .prompt_tokens = receipt.prompt_tokens,
                       .cached_tokens = receipt.cached_tokens,
                       .generated_tokens = receipt.generated_tokens};
  if (completion.asked.profile) take_profile(outcome, stored);
  stored.json = receipt_json(receipt, together_.options.receipt_context(*engine_));
  std::string json = stored.json;
  together_.receipts.add(std::move(stored));
  return json;
}

// Events of requests that share passes cannot be told apart, so a request is recorded only while it
// has the model for itself.
void ServedModel::start_profile(OpenCompletion& completion) {
  const bool is_alone = choices_.empty() && embeddings_.empty() && completion.asked.choices == 1;
  why_no_profile_ = is_alone ? "" : "other requests ran at the same time";
  if (!is_alone) return;
  Request& request = completion.asked.request;
  request.is_recorded = true;
  recorded_sampling_ = completion.asked.sampling;
  start_recording(*engine_, request.prompt.size(),
                  std::min(request.max_tokens, kMostRecordedTokens),
                  speculator_ ? Decoding::speculative : Decoding::plain);
}

void ServedModel::abandon_profile(const std::string& why) {
  engine_->trace().stop();
  recorded_.reset();
  why_no_profile_ = why;
}

void ServedModel::take_profile(const Outcome& outcome, StoredReceipt& into) {
  if (!recorded_) {
    into.why_no_profile = why_no_profile_;
    return;
  }
  engine_->trace().stop();
  recorded_.reset();
  Profile profile = profile_of(*engine_, recorded_sampling_, PeakSource::unknown);
  profile.runs.push_back(collect_run(engine_->trace(), outcome.answer.receipt));
  engine_->complete(profile.runs.front().receipt);
  profile.runs.front().stopped = tyto::name(outcome.answer.reason);
  profile.names = engine_->trace().names();
  profile.facts.origin = together_.options.receipt_context(*engine_);
  into.profile = std::make_shared<const Profile>(std::move(profile));
}

void ServedModel::begin(EmbeddingJob job, const std::optional<Error>& refusal) {
  std::optional<Error> failure = refusal;
  try {
    if (recorded_) abandon_profile("embeddings were made at the same time");
    if (!failure) failure = load_for_request();
  } catch (...) {
    failure = thrown_error(what_.name);
  }
  embeddings_.push_back(std::move(job));
  try {
    if (!failure) add_inputs(embeddings_.back());
  } catch (...) {
    failure = thrown_error(what_.name);
  }
  if (failure) end_embedding(embeddings_.size() - 1, failure);
}

// The scheduler calls back from step() alone, when all of them are in the table.
void ServedModel::add_inputs(EmbeddingJob& job) {
  job.results.resize(job.inputs.size());
  job.left = job.inputs.size();
  for (std::vector<Token>& input : job.inputs) {
    Request request{.prompt = std::move(input), .stop = {}};
    request.wanted = Wanted::embedding;
    job.ids.push_back(scheduler_->add(
        std::move(request), SamplerOptions{}, [](const ChosenToken&) { return true; },
        [this](Scheduler::Id id, Outcome outcome) { end_input(id, std::move(outcome)); }));
  }
}

// An Error of one input ends them all.
void ServedModel::end_input(Scheduler::Id id, Outcome outcome) {
  for (size_t i = 0; i < embeddings_.size(); ++i) {
    EmbeddingJob& job = embeddings_[i];
    const auto found = std::ranges::find(job.ids, id);
    if (found == job.ids.end()) continue;
    std::optional<Error> error = std::move(outcome.error);
    try {
      if (!error) engine_->check_required(outcome.answer.receipt.phases);
    } catch (const Error& thrown) {
      error = thrown;
    }
    job.results[static_cast<size_t>(found - job.ids.begin())] = std::move(outcome.embedding);
    if (error || --job.left == 0) end_embedding(i, error);
    return;
  }
}

// Inputs that have not ended are given up; the scheduler ends them with its next step.
void ServedModel::end_embedding(size_t index, const std::optional<Error>& error) {
  EmbeddingJob job = std::move(embeddings_[index]);
  embeddings_.erase(embeddings_.begin() + static_cast<std::ptrdiff_t>(index));
  for (const Scheduler::Id id : job.ids)
    if (scheduler_ && job.left > 0) scheduler_->cancel(id);
  last_used_ = std::chrono::steady_clock::now();
  job.places.free_one();
  try {
    job.done(error ? std::vector<std::vector<float>>() : std::move(job.results), error);
  } catch (...) {
    // Its answer is dropped, which tells the client.
  }
  job.places.tell_one();
}

// What is thrown here, for want of memory, ends the requests of this model and of no other.

void ServedModel::cancel(EngineThread::Ticket ticket) try {
  for (const auto& [id, choice] : choices_)
    if (choice.of->ticket == ticket) scheduler_->cancel(id);
  for (size_t i = 0; i < embeddings_.size(); ++i)
    if (embeddings_[i].ticket == ticket)
      return end_embedding(i, Error(ErrorCode::busy, "embeddings", "the client has gone"));
} catch (...) {
  end_all(thrown_error(what_.name));
}

void ServedModel::expire(std::chrono::steady_clock::time_point now) try {
  const auto is_over = [&](const auto& deadline) { return deadline && now >= *deadline; };
  for (const auto& [id, choice] : choices_) {
    if (!is_over(choice.of->asked.deadline)) continue;
    choice.of->is_expired = true;
    scheduler_->cancel(id);
  }
  for (size_t i = embeddings_.size(); i-- > 0;)
    if (is_over(embeddings_[i].deadline)) end_embedding(i, expired("embed less at once"));
} catch (...) {
  end_all(thrown_error(what_.name));
}

void ServedModel::cancel_all() try {
  for (const auto& [id, choice] : choices_) scheduler_->cancel(id);
  while (!embeddings_.empty()) end_embedding(0, server_ends());
} catch (...) {
  end_all(thrown_error(what_.name));
}

// An Error ends the requests that it happened to, inside the scheduler. What else comes, such as
// exhausted memory, ends them all, and the model is loaded again for the next.
void ServedModel::step() try {
  if (scheduler_) scheduler_->step();
} catch (...) {
  end_all(thrown_error(what_.name));
}

void ServedModel::end_all(const Error& error) {
  std::map<Scheduler::Id, Choice> ended = std::move(choices_);
  choices_.clear();
  let_go();
  for (auto& [id, choice] : ended) end(std::move(choice), {.answer = {}, .error = error});
  while (!embeddings_.empty()) end_embedding(0, error);
}

ModelStatus ServedModel::status() const {
  ModelStatus status{.name = what_.name, .is_loaded = is_loaded(), .failure = failure_};
  status.slots = together_.options.most_running;
  status.last_used = last_used_;
  if (!engine_) return status;
  const KvPool& pool = engine_->pipeline().kv_pool();
  status.kv_pages = pool.capacity();
  status.kv_pages_in_use = pool.in_use();
  if (const KvPool* const window = engine_->pipeline().kv_window().pool) {
    status.kv_window_pages = window->capacity();
    status.kv_window_pages_in_use = window->in_use();
  }
  if (const KvPool* const states = engine_->pipeline().states()) {
    status.states = states->capacity();
    status.states_in_use = states->in_use();
    status.state_bytes = engine_->pipeline().forward().kv().state.bytes;
  }
  status.prefix_pages = engine_->prefixes().pages();
  status.prefixes = engine_->prefixes().counts();
  status.devices = engine_->devices();
  status.counters = engine_->trace().snapshot();
  status.fallbacks = engine_->trace().fallbacks();
  status.on_host = engine_->trace().on_host();
  status.setup_seconds = engine_->setup_seconds();
  return status;
}

void ServedModel::append_slots(std::vector<SlotStatus>& slots) const {
  if (!scheduler_) return;
  const auto now = std::chrono::steady_clock::now();
  for (const RequestStatus& request : scheduler_->requests()) {
    if (!request.has_answer) continue;
    const Choice& choice = choices_.at(request.id);
    slots.push_back({.id = receipt_id(*choice.of, choice.index),
                     .model = what_.name,
                     .choice = choice.index,
                     .request = request,
                     .seconds = std::chrono::duration<double>(now - choice.of->since).count()});
  }
}

}  // namespace tyto
