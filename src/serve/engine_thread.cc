#include "serve/engine_thread.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "serve/served_model.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

// How old what /slots and /metrics show may be while requests run.
constexpr std::chrono::milliseconds kStatusAge{20};
// The longest that the thread sleeps without looking at what is idle.
constexpr std::chrono::milliseconds kLongestSleep{1000};

}  // namespace

struct EngineThread::State {
  State(EngineThreadOptions asked, ServeMetrics& counted)
      : options(std::move(asked)),
        most_waiting(options.most_waiting),
        keep_alive(options.keep_alive),
        longest_request(options.longest_request),
        receipts(options.receipts_kept),
        together{options, counted, receipts, [this] { choice_ended(); }} {
    TYTO_ASSERT(!options.models.empty());
    for (const ModelToServe& model : options.models)
      models.push_back(std::make_unique<ServedModel>(model, together));
    texts.resize(models.size());
  }

  // What others have asked for since the thread last looked.
  struct Inbox {
    struct Asked {
      size_t model = 0;
      std::shared_ptr<OpenCompletion> completion = {};  // or
      std::optional<EmbeddingJob> embedding = {};
    };
    std::deque<Asked> requests = {};
    std::vector<Ticket> cancelled = {};
    bool empty() const { return requests.empty() && cancelled.empty(); }
  };

  size_t index_of(const std::string& name) const {
    if (name.empty()) return 0;
    for (size_t i = 0; i < options.models.size(); ++i)
      if (options.models[i].name == name) return i;
    std::string names;
    for (const ModelToServe& model : options.models)
      names += (names.empty() ? "" : ", ") + model.name;
    throw Error(ErrorCode::input, "model", fmt::format("\"{}\" is not served", name),
                "there is " + names);
  }

  // Of the mutex's holder.
  void check_room(uint32_t more) const {
    if (is_draining)
      throw Error(ErrorCode::busy, "server", "it is shutting down", "ask another one");
    const uint64_t most = uint64_t{options.most_running} * options.models.size() + most_waiting;
    if (open + more > most)
      throw Error(ErrorCode::busy, "server",
                  fmt::format("{} requests run or wait, and {} may", open, most),
                  "try again later");
  }

  void choice_ended() {
    const std::lock_guard lock(mutex);
    --open;
    if (open == 0) changed.notify_all();
  }

  void load_all();
  void run();
  Inbox take_inbox();
  void begin(Inbox inbox);
  bool step_all();
  void unload_idle();
  void publish();
  bool is_idle() const {
    return std::all_of(models.begin(), models.end(), [](const auto& m) { return m->is_idle(); });
  }

  const EngineThreadOptions options;
  std::atomic<uint32_t> most_waiting;
  mutable std::mutex mutex;
  std::condition_variable wakes;    // the thread
  std::condition_variable changed;  // whoever waits for it
  Inbox inbox;
  uint64_t next_ticket = 1;
  uint64_t open = 0;  // choices and embeddings that have not ended
  bool is_ready = false, is_draining = false, is_stopping = false;
  std::optional<Error> load_error;
  std::optional<std::chrono::milliseconds> keep_alive, longest_request;
  std::vector<std::shared_ptr<const ModelText>> texts;  // [models]
  std::vector<SlotStatus> slots;
  std::vector<ModelStatus> statuses;
  Clock::time_point published;

  ReceiptStore receipts;
  ServedTogether together;
  std::vector<std::unique_ptr<ServedModel>> models;  // the thread's own
  std::thread thread;                                // last: it uses all of the above
};

void EngineThread::State::load_all() {
  std::optional<Error> failure;
  for (const auto& model : models) {
    try {
      model->load();
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure.emplace(ErrorCode::input, model->name(), error.what());
    }
    if (failure) break;
  }
  publish();
  const std::lock_guard lock(mutex);
  load_error = failure;
  is_ready = !failure;
  changed.notify_all();
}

void EngineThread::State::run() {
  load_all();
  while (true) {
    Inbox asked = take_inbox();
    {
      const std::lock_guard lock(mutex);
      if (is_stopping) break;
    }
    begin(std::move(asked));
    const auto now = Clock::now();
    for (const auto& model : models) model->expire(now);
    step_all();
    if (now - published >= kStatusAge || is_idle()) publish();
    unload_idle();
  }
  begin(take_inbox());
  for (const auto& model : models) model->cancel_all();
  while (step_all()) {
  }
}

// Sleeps while there is nothing to do.
EngineThread::State::Inbox EngineThread::State::take_inbox() {
  std::unique_lock lock(mutex);
  if (is_idle()) wakes.wait_for(lock, kLongestSleep, [&] { return !inbox.empty() || is_stopping; });
  return std::exchange(inbox, {});
}

void EngineThread::State::begin(Inbox asked) {
  for (Inbox::Asked& each : asked.requests) {
    ServedModel& model = *models[each.model];
    if (each.embedding)
      model.begin(std::move(*each.embedding));
    else
      model.begin(each.completion);
  }
  for (const Ticket ticket : asked.cancelled)
    for (const auto& model : models) model->cancel(ticket);
}

// The models take turns, a pass each.
bool EngineThread::State::step_all() {
  bool has_worked = false;
  for (const auto& model : models) {
    if (model->is_idle()) continue;
    model->step();
    has_worked = true;
  }
  return has_worked;
}

void EngineThread::State::unload_idle() {
  std::optional<std::chrono::milliseconds> longest;
  {
    const std::lock_guard lock(mutex);
    longest = keep_alive;
  }
  if (!longest) return;
  const auto now = Clock::now();
  for (const auto& model : models) {
    if (!model->is_loaded() || !model->is_idle() || now - model->last_used() < *longest) continue;
    model->unload();
    publish();
  }
}

void EngineThread::State::publish() {
  std::vector<SlotStatus> slots_now;
  std::vector<ModelStatus> statuses_now;
  std::vector<std::shared_ptr<const ModelText>> texts_now;
  for (const auto& model : models) {
    model->append_slots(slots_now);
    statuses_now.push_back(model->status());
    texts_now.push_back(model->text());
  }
  published = Clock::now();
  const std::lock_guard lock(mutex);
  slots = std::move(slots_now);
  statuses = std::move(statuses_now);
  texts = std::move(texts_now);
}

EngineThread::EngineThread(EngineThreadOptions options, ServeMetrics& metrics)
    : state_(std::make_unique<State>(std::move(options), metrics)) {
  state_->thread = std::thread([this] { state_->run(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_draining = true;
    state_->is_stopping = true;
    state_->wakes.notify_all();
  }
  state_->thread.join();
}

bool EngineThread::is_ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_ready;
}

bool EngineThread::wait_ready(std::chrono::milliseconds most) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, most, [&] { return state_->is_ready || state_->load_error; });
  if (state_->load_error) throw *state_->load_error;
  return state_->is_ready;
}

std::vector<std::string> EngineThread::names() const {
  std::vector<std::string> result;
  for (const ModelToServe& model : state_->options.models) result.push_back(model.name);
  return result;
}

std::shared_ptr<const ModelText> EngineThread::text(const std::string& name) const {
  const size_t index = state_->index_of(name);
  const std::lock_guard lock(state_->mutex);
  if (!state_->texts[index])
    throw Error(ErrorCode::busy, state_->options.models[index].name, "is being loaded",
                "try again in a moment");
  return state_->texts[index];
}

EngineThread::Ticket EngineThread::submit(const std::string& model, CompletionRequest request,
                                          CompletionEvents events) {
  const auto of = text(model);
  check_prompt(*of->tokenizer, of->context, request.request.prompt);
  const size_t index = state_->index_of(model);
  const auto completion = std::make_shared<OpenCompletion>();  // shared by its choices
  completion->asked = std::move(request);
  completion->events = std::move(events);
  const std::lock_guard lock(state_->mutex);
  if (state_->longest_request) {
    auto& deadline = completion->asked.deadline;
    const auto latest = completion->since + *state_->longest_request;
    deadline = deadline ? std::min(*deadline, latest) : latest;
  }
  state_->check_room(completion->asked.choices);
  completion->ticket = state_->next_ticket++;
  state_->open += completion->asked.choices;
  state_->inbox.requests.push_back({.model = index, .completion = completion});
  state_->wakes.notify_all();
  return completion->ticket;
}

EngineThread::Ticket EngineThread::embed(const std::string& model,
                                         std::vector<std::vector<Token>> inputs, Embedded done) {
  const auto of = text(model);
  for (const std::vector<Token>& input : inputs) {
    check_tokens(*of->tokenizer, input);
    if (input.size() > of->context)
      fail_input("input", "{} tokens do not fit in a context of {}", input.size(), of->context);
  }
  TYTO_ASSERT(!inputs.empty());
  const size_t index = state_->index_of(model);
  const std::lock_guard lock(state_->mutex);
  state_->check_room(1);
  EmbeddingJob job{
      .ticket = state_->next_ticket++, .inputs = std::move(inputs), .done = std::move(done)};
  const Ticket ticket = job.ticket;
  ++state_->open;
  state_->inbox.requests.push_back({.model = index, .embedding = std::move(job)});
  state_->wakes.notify_all();
  return ticket;
}

void EngineThread::cancel(Ticket ticket) {
  const std::lock_guard lock(state_->mutex);
  state_->inbox.cancelled.push_back(ticket);
  state_->wakes.notify_all();
}

std::vector<SlotStatus> EngineThread::slots() const {
  const std::lock_guard lock(state_->mutex);
  return state_->slots;
}

std::vector<ModelStatus> EngineThread::models() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statuses;
}

const ReceiptStore& EngineThread::receipts() const {
  return state_->receipts;
}

void EngineThread::set_keep_alive(std::optional<std::chrono::milliseconds> time) {
  const std::lock_guard lock(state_->mutex);
  state_->keep_alive = time;
}

void EngineThread::set_longest_request(std::optional<std::chrono::milliseconds> time) {
  const std::lock_guard lock(state_->mutex);
  state_->longest_request = time;
}

void EngineThread::set_most_waiting(uint32_t most) {
  state_->most_waiting = most;
}

bool EngineThread::drain(std::chrono::milliseconds most) {
  std::unique_lock lock(state_->mutex);
  state_->is_draining = true;
  return state_->changed.wait_for(lock, most, [&] { return state_->open == 0; });
}

}  // namespace tyto
