#include "serve/engine_thread.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.h"
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
  using Loaded = std::function<void(std::optional<Error>)>;

  State(EngineThreadOptions asked, ServeMetrics& counted)
      : options(std::move(asked)),
        most_waiting(options.most_waiting),
        keep_alive(options.keep_alive),
        longest_request(options.longest_request),
        receipts(options.receipts_kept),
        together{options, counted, receipts, [this] { place_free(); }, [this] { end_told(); }},
        turns(options.models.size()) {
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
      std::optional<EmbeddingJob> embedding = {};       // or
      Loaded loaded = {};                               // or
      bool unloads = false;
      Places places = {};  // used by what is loaded; the others have theirs
    };
    std::vector<Asked> requests = {};
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

  // The caller holds the mutex.
  void check_room(uint64_t more) const {
    if (is_draining) throw server_ends();
    const uint64_t most = uint64_t{options.most_running} * options.models.size() + most_waiting;
    if (more > most)
      throw Error(ErrorCode::input, "request",
                  fmt::format("asks for {} answers, and {} may run or wait at a time", more, most),
                  "ask for fewer at once, or give the server a longer --queue");
    if (open + more > most)
      throw Error(ErrorCode::busy, "server",
                  fmt::format("{} requests run or wait, {} more were asked for, and {} may", open,
                              more, most),
                  "try again later");
  }

  // The deadline of a request that begins now.
  std::optional<Clock::time_point> earliest(std::optional<Clock::time_point> deadline) const {
    if (!longest_request) return deadline;
    const auto latest = Clock::now() + *longest_request;
    return deadline ? std::min(*deadline, latest) : latest;
  }

  // The caller holds the mutex.
  void take_places(Places& places, uint64_t count) noexcept {
    open += count;
    untold += count;
    places.take(together, count);
  }
  void place_free() {
    const std::lock_guard lock(mutex);
    --open;
  }
  void end_told() {
    const std::lock_guard lock(mutex);
    if (--untold == 0) changed.notify_all();
  }

  void load_all() noexcept;
  void run() noexcept;
  void turn() noexcept;
  void end_all_requests() noexcept;
  Inbox take_inbox();
  void begin(Inbox::Asked& asked, bool ends);
  void load(ServedModel& model, Inbox::Asked& asked, const std::optional<Error>& refusal);
  void step_next();
  void unload_idle();
  void publish();
  bool is_idle() const {
    return std::all_of(models.begin(), models.end(), [](const auto& m) { return m->is_idle(); });
  }

  const EngineThreadOptions options;
  std::atomic<uint32_t> most_waiting;
  mutable std::mutex mutex;
  std::condition_variable wakes;    // the thread
  std::condition_variable changed;  // those who wait for the thread
  Inbox inbox;
  uint64_t next_ticket = 1;
  uint64_t open = 0;    // choices, embeddings and loads that run or wait
  uint64_t untold = 0;  // those whose end was not told yet: who is told may ask again at once
  bool is_ready = false, is_draining = false, is_ending = false, is_stopping = false;
  std::exception_ptr load_failure;
  std::optional<std::chrono::milliseconds> keep_alive, longest_request;
  std::vector<std::shared_ptr<const ModelText>> texts;  // [models]
  std::vector<SlotStatus> slots;
  std::vector<ModelStatus> statuses;
  Clock::time_point published;

  ReceiptStore receipts;
  ServedTogether together;
  std::vector<std::unique_ptr<ServedModel>> models;  // the thread's own, and
  Turns turns;
  std::thread thread;  // last: it uses all of the above
};

void EngineThread::State::load_all() noexcept {
  std::exception_ptr failure;
  try {
    for (const auto& model : models) model->load();
  } catch (...) {
    failure = std::current_exception();
  }
  publish();
  const std::lock_guard lock(mutex);
  load_failure = failure;
  is_ready = !failure;
  changed.notify_all();
}

void EngineThread::State::run() noexcept {
  load_all();
  for (bool goes_on = true; goes_on;) {
    turn();
    const std::lock_guard lock(mutex);
    goes_on = !is_stopping || !inbox.empty() || !is_idle();
  }
}

// No exception of whatever kind ends the thread: those of a request or a model end that alone, and
// what else may come ends the requests.
void EngineThread::State::turn() noexcept try {
  Inbox asked = take_inbox();
  const bool ends = [&] {
    const std::lock_guard lock(mutex);
    return is_ending;
  }();
  for (Inbox::Asked& each : asked.requests) {
    try {
      begin(each, ends);
    } catch (...) {
      // The others begin all the same. This one is dropped, which tells its client.
    }
  }
  for (const Ticket ticket : asked.cancelled)
    for (const auto& model : models) model->cancel(ticket);
  const auto now = Clock::now();
  for (const auto& model : models) {
    if (ends) model->cancel_all();
    model->expire(now);
  }
  step_next();
  if (now - published >= kStatusAge || is_idle()) publish();
  unload_idle();
} catch (...) {
  end_all_requests();
}

// Called in a catch clause. What is thrown here, for want of memory, ends nothing but this.
void EngineThread::State::end_all_requests() noexcept try {
  const Error error = thrown_error("server");
  for (const auto& model : models) {
    try {
      model->end_all(error);
    } catch (...) {
      // Its requests are dropped, which tells their clients. The other models' are told more.
    }
  }
} catch (...) {
  // There is no memory for the words. The next turn goes on with what is left.
}

// Sleeps while there is nothing to do.
EngineThread::State::Inbox EngineThread::State::take_inbox() {
  std::unique_lock lock(mutex);
  if (is_idle()) wakes.wait_for(lock, kLongestSleep, [&] { return !inbox.empty() || is_stopping; });
  return std::exchange(inbox, {});
}

// What comes when the server ends is not worth loading a model for.
void EngineThread::State::begin(Inbox::Asked& asked, bool ends) {
  ServedModel& model = *models[asked.model];
  if (asked.unloads) return model.unload_when_idle();
  std::optional<Error> refusal;
  if (ends) refusal = server_ends();
  if (asked.loaded)
    load(model, asked, refusal);
  else if (asked.embedding)
    model.begin(std::move(*asked.embedding), refusal);
  else
    model.begin(asked.completion, refusal);
}

// What others see of the model is told before its end, so that who is answered finds it so.
void EngineThread::State::load(ServedModel& model, Inbox::Asked& asked,
                               const std::optional<Error>& refusal) {
  std::optional<Error> failure = refusal;
  if (!failure) failure = model.load_for_request();
  publish();
  asked.places.free_one();
  asked.loaded(failure);
  asked.places.tell_one();
}

void EngineThread::State::step_next() {
  std::vector<bool> has_work;
  for (const auto& model : models) has_work.push_back(!model->is_idle());
  const auto next = turns.next(has_work);
  if (!next) return;
  const uint64_t start = options.clock_ns();
  models[*next]->step();
  turns.used(*next, options.clock_ns() - start);
}

void EngineThread::State::unload_idle() {
  std::optional<std::chrono::milliseconds> longest;
  {
    const std::lock_guard lock(mutex);
    longest = keep_alive;
  }
  const auto now = Clock::now();
  for (const auto& model : models) {
    const bool is_old = longest && now - model->last_used() >= *longest;
    if (!model->is_loaded() || !model->is_idle() || !(is_old || model->unloads_when_idle()))
      continue;
    model->unload();
    publish();
  }
}

// Where that fails, what is shown stays as it was.
void EngineThread::State::publish() try {
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
} catch (...) {
}

EngineThread::EngineThread(EngineThreadOptions options, ServeMetrics& metrics)
    : state_(std::make_unique<State>(std::move(options), metrics)) {
  state_->thread = std::thread([this] { state_->run(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_draining = true;
    state_->is_ending = true;
    state_->is_stopping = true;
    state_->wakes.notify_all();
  }
  state_->thread.join();
}

bool EngineThread::is_ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_ready;
}

bool EngineThread::is_draining() const {
  const std::lock_guard lock(state_->mutex);
  return state_->is_draining;
}

bool EngineThread::wait_ready(std::chrono::milliseconds most) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, most, [&] { return state_->is_ready || state_->load_failure; });
  try {
    if (state_->load_failure) std::rethrow_exception(state_->load_failure);
  } catch (...) {
    throw thrown_error("server");
  }
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
  std::vector<Submission> one;
  one.push_back({std::move(request), std::move(events)});
  return submit_all(model, std::move(one)).front();
}

std::vector<EngineThread::Ticket> EngineThread::submit_all(const std::string& model,
                                                           std::vector<Submission> all) {
  const auto of = text(model);
  const size_t index = state_->index_of(model);
  uint64_t choices = 0;
  State::Inbox asked;
  for (Submission& each : all) {
    check_prompt(*of->tokenizer, of->context, each.request.request.prompt);
    const auto completion = std::make_shared<OpenCompletion>();  // shared by its choices
    choices += each.request.choices;
    completion->asked = std::move(each.request);
    completion->events = std::move(each.events);
    asked.requests.push_back({.model = index, .completion = completion});
  }
  std::vector<Ticket> tickets;
  const std::lock_guard lock(state_->mutex);
  state_->check_room(choices);
  for (State::Inbox::Asked& each : asked.requests) {
    OpenCompletion& completion = *each.completion;
    completion.asked.deadline = state_->earliest(completion.asked.deadline);
    completion.ticket = state_->next_ticket++;
    tickets.push_back(completion.ticket);
  }
  const auto first = state_->inbox.requests.insert(state_->inbox.requests.end(),
                                                   std::make_move_iterator(asked.requests.begin()),
                                                   std::make_move_iterator(asked.requests.end()));
  for (auto each = first; each != state_->inbox.requests.end(); ++each)
    state_->take_places(each->completion->places, each->completion->asked.choices);
  state_->wakes.notify_all();
  return tickets;
}

EngineThread::Ticket EngineThread::embed(const std::string& model,
                                         std::vector<std::vector<Token>> inputs, Embedded done,
                                         std::optional<Clock::time_point> deadline) {
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
  EmbeddingJob job{.ticket = state_->next_ticket++,
                   .inputs = std::move(inputs),
                   .done = std::move(done),
                   .deadline = state_->earliest(deadline)};
  const Ticket ticket = job.ticket;
  state_->inbox.requests.push_back({.model = index, .embedding = std::move(job)});
  state_->take_places(state_->inbox.requests.back().embedding->places, 1);
  state_->wakes.notify_all();
  return ticket;
}

void EngineThread::load(const std::string& model, std::function<void(std::optional<Error>)> done) {
  const size_t index = state_->index_of(model);
  const std::lock_guard lock(state_->mutex);
  state_->check_room(1);
  state_->inbox.requests.push_back({.model = index, .loaded = std::move(done)});
  state_->take_places(state_->inbox.requests.back().places, 1);
  state_->wakes.notify_all();
}

void EngineThread::unload(const std::string& model) {
  const size_t index = state_->index_of(model);
  const std::lock_guard lock(state_->mutex);
  state_->inbox.requests.push_back({.model = index, .unloads = true});
  state_->wakes.notify_all();
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

std::optional<std::chrono::milliseconds> EngineThread::keep_alive() const {
  const std::lock_guard lock(state_->mutex);
  return state_->keep_alive;
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
  return state_->changed.wait_for(lock, most, [&] { return state_->untold == 0; });
}

bool EngineThread::end_all(std::chrono::milliseconds most) {
  std::unique_lock lock(state_->mutex);
  state_->is_draining = true;
  state_->is_ending = true;
  state_->wakes.notify_all();
  return state_->changed.wait_for(lock, most, [&] { return state_->untold == 0; });
}

std::optional<size_t> Turns::next(const std::vector<bool>& has_work) {
  TYTO_ASSERT(has_work.size() == used_ns_.size());
  std::optional<size_t> least;
  for (size_t i = 0; i < has_work.size(); ++i) {
    if (has_work[i] && !had_work_[i]) used_ns_[i] = std::max(used_ns_[i], time_ns_);
    if (has_work[i] && (!least || used_ns_[i] < used_ns_[*least])) least = i;
  }
  had_work_ = has_work;
  if (least) time_ns_ = used_ns_[*least];
  return least;
}

void Turns::used(size_t who, uint64_t ns) {
  used_ns_[who] += std::min(ns, kLongestWaitNs);
}

std::string badge_of(const Receipt& receipt, bool has_failed) {
  if (has_failed) return "failed";
  if (receipt.plausibility.verdict == Verdict::refused) return "refused";
  // The badge is for work that went elsewhere than it was sent. A fallback beside a device that did
  // its work stands in the receipt.
  const bool only_host = std::all_of(
      receipt.devices.begin(), receipt.devices.end(),
      [](const DeviceCounters& device) { return device.is_host || !device.has_executed(); });
  if (receipt.recoveries > 0 || failed_dispatches(receipt) > 0 ||
      (!receipt.fallbacks.empty() && only_host))
    return "fell back";
  return has_virtual_device(receipt) ? "virtual" : "real";
}

void ReceiptStore::add(StoredReceipt receipt) {
  const std::lock_guard lock(mutex_);
  receipts_.push_back(std::move(receipt));
  if (receipts_.size() > most_) receipts_.pop_front();
  size_t profiles = 0;
  for (auto at = receipts_.rbegin(); at != receipts_.rend(); ++at) {
    if (at->profile == nullptr || ++profiles <= kMostProfiles) continue;
    at->profile.reset();
    at->why_no_profile = "it was too long ago: only the last recordings are kept";
  }
}

std::vector<StoredReceipt> ReceiptStore::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<StoredReceipt> result(receipts_.rbegin(), receipts_.rend());
  for (StoredReceipt& receipt : result) receipt.json.clear();
  return result;
}

StoredReceipt ReceiptStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(receipts_.rbegin(), receipts_.rend(),
                                  [&](const StoredReceipt& receipt) { return receipt.id == id; });
  return found == receipts_.rend() ? StoredReceipt{} : *found;
}

namespace {

constexpr const char* kNoMemory = "there is not enough memory";

}  // namespace

Error thrown_error(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorCode::device, where, kNoMemory};
  } catch (const std::system_error& error) {  // its what() may have a path behind the reason
    return {ErrorCode::device, fmt::format("{}: {}", where, error.what()), error.code().message()};
  } catch (const std::exception& error) {
    return {ErrorCode::device, where, error.what()};
  } catch (...) {
    return {ErrorCode::device, where, "an exception of an unknown kind was thrown"};
  }
}

// An Error has the system's words at its end, and not its number.
bool may_pass(const Error& error) {
  const std::string_view what = error.what();
  const auto is_of = [&](int code) {
    return what.ends_with(std::generic_category().message(code));
  };
  return what.ends_with(kNoMemory) ||
         std::ranges::any_of(std::initializer_list<int>{ENOMEM, EMFILE, ENFILE, EAGAIN}, is_of);
}

}  // namespace tyto
