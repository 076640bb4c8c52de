#include "serve/api/answer.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json_value.h"
#include "serve/engine_thread.h"

namespace tyto::api {

bool is_cut(const Choice& choice) {
  return choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full;
}

std::vector<CallPart> whole_calls(const std::vector<CallPart>& calls) {
  const auto is_whole = [](const CallPart& call) {
    try {
      return Json::parse(call.arguments, call.name).is(Json::Type::object);
    } catch (const Error&) {
      return false;
    }
  };
  std::vector<CallPart> whole;
  std::ranges::copy_if(calls, std::back_inserter(whole), is_whole);
  return whole;
}

std::string text_of_broken_calls(const std::vector<CallPart>& calls) {
  std::string text;
  for (const CallPart& call : calls)
    if (whole_calls({call}).empty())
      text += fmt::format(R"({{"name": "{}", "arguments": {})", call.name, call.arguments);
  return text;
}

namespace {

constexpr const char* kSimulationClock = "simulation wall time";

uint32_t whole_prompt(const Receipt& receipt) {
  return receipt.prompt_tokens + receipt.cached_tokens;
}

int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

// null where nothing was counted.
JsonValue ratio(double of, double per) {
  return per > 0 ? JsonValue(of / per) : JsonValue(nullptr);
}

}  // namespace

JsonValue usage_json(std::span<const Choice> choices, uint32_t choices_per_prompt) {
  uint64_t prompt = 0, cached = 0, completion = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Receipt& receipt = choices[i].receipt;
    completion += receipt.generated_tokens;
    if (i % choices_per_prompt != 0) continue;
    prompt += whole_prompt(receipt);
    cached += receipt.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

JsonValue timings_json(const Receipt& receipt) {
  return timings_json(receipt, has_virtual_device(receipt));
}

JsonValue timings_json(const Receipt& receipt, bool is_simulated) {
  const double prompt_ms = receipt.prefill_seconds * 1e3;
  const double predicted_ms = receipt.decode_seconds * 1e3;
  if (is_simulated)
    return {{"cache_n", receipt.cached_tokens},
            {"prompt_n", receipt.prompt_tokens},
            {"predicted_n", receipt.generated_tokens},
            {"clock", kSimulationClock},
            {"modelled", false},
            {"simulation_prompt_ms", prompt_ms},
            {"simulation_predicted_ms", predicted_ms}};
  JsonValue json = {{"cache_n", receipt.cached_tokens},
                    {"prompt_n", receipt.prompt_tokens},
                    {"prompt_ms", prompt_ms},
                    {"predicted_n", receipt.generated_tokens},
                    {"predicted_ms", predicted_ms}};
  if (receipt.plausibility.verdict == Verdict::refused) return json;
  const double decoded = decoded_tokens(receipt);
  json["prompt_per_token_ms"] = ratio(prompt_ms, receipt.prompt_tokens);
  json["prompt_per_second"] = ratio(receipt.prompt_tokens, receipt.prefill_seconds);
  json["predicted_per_token_ms"] = ratio(predicted_ms, decoded);
  json["predicted_per_second"] = ratio(decoded, receipt.decode_seconds);
  return json;
}

void add_ollama_durations(JsonValue& json, const Receipt& receipt) {
  const int64_t prompt = nanoseconds(receipt.prefill_seconds);
  const int64_t eval = nanoseconds(receipt.decode_seconds);
  json["total_duration"] = prompt + eval;
  json["load_duration"] = 0;  // models are loaded before requests are taken
  json["prompt_eval_count"] = whole_prompt(receipt);
  json["prompt_eval_duration"] = prompt;
  json["eval_count"] = receipt.generated_tokens;
  json["eval_duration"] = eval;
  if (has_virtual_device(receipt)) json["clock"] = kSimulationClock;
}

namespace {

// Parts of a call join the call that they continue.
void append(const Said& since, Said& whole) {
  whole.thought += since.thought;
  whole.text += since.text;
  whole.tokens.insert(whole.tokens.end(), since.tokens.begin(), since.tokens.end());
  for (const CallPart& part : since.calls) {
    const auto call =
        std::find_if(whole.calls.begin(), whole.calls.end(),
                     [&](const CallPart& known) { return known.index == part.index; });
    if (call == whole.calls.end())
      whole.calls.push_back(part);
    else
      call->arguments += part.arguments;
  }
}

bool is_empty(const Said& said) {
  return said.thought.empty() && said.text.empty() && said.calls.empty() && said.tokens.empty();
}

}  // namespace

RunningAnswer::RunningAnswer(std::shared_ptr<http::Reply> reply, std::unique_ptr<AnswerStyle> style,
                             AnswerPlan plan)
    : reply_(std::move(reply)),
      style_(std::move(style)),
      plan_(std::move(plan)),
      choices_(plan_.choices) {
  for (uint32_t i = 0; plan_.divide && i < plan_.choices; ++i) dividers_.push_back(plan_.divide());
}

// What is thrown while an answer is written ends that answer.
CompletionEvents RunningAnswer::events(std::shared_ptr<RunningAnswer> answer, uint32_t first) {
  const auto guarded = [answer](const auto& action) {
    try {
      return action();
    } catch (...) {
      answer->refuse(thrown_error("answer"));  // which cancels the request
      return true;
    }
  };
  return {.on_token =
              [=](const TokenEvent& e) {
                return guarded([&] { return answer->on_token(first + e.choice, e); });
              },
          .on_done =
              [=](const ChoiceEnd& e) {
                guarded([&] {
                  if (e.held.empty())
                    answer->on_done(first + e.choice, e);
                  else
                    end_held(answer, first + e.choice, e);
                  return true;
                });
              }};
}

// What was held is written by a worker: the engine has others to serve.
void RunningAnswer::end_held(const std::shared_ptr<RunningAnswer>& answer, uint32_t index,
                             const ChoiceEnd& end) {
  struct Held {
    Outcome outcome;
    std::string receipt;
    std::vector<HeldToken> tokens;
  };
  const auto held = std::make_shared<Held>(Held{end.outcome, end.receipt, {}});  // the task's own
  held->tokens.assign(std::make_move_iterator(end.held.begin()),
                      std::make_move_iterator(end.held.end()));
  answer->reply_->on_worker([answer, index, held] {
    try {
      answer->replay(index, held->outcome, held->receipt, held->tokens);
    } catch (...) {
      answer->refuse(thrown_error("answer"));
    }
  });
}

void RunningAnswer::replay(uint32_t index, Outcome& outcome, const std::string& receipt,
                           std::span<HeldToken> held) {
  const Receipt& ran = outcome.answer.receipt;
  for (HeldToken& each : held) {
    const bool goes_on = on_token(index, {.token = each.token,
                                          .text = each.text,
                                          .log_probabilities = std::move(each.log_probabilities),
                                          .so_far = ran,
                                          .is_simulated = has_virtual_device(ran)});
    if (goes_on) continue;
    outcome.answer.reason = StopReason::eos;  // as where text is not held
    outcome.rest.clear();
    break;
  }
  on_done(index, {.outcome = outcome, .receipt = receipt});
}

void RunningAnswer::refuse(const Error& error) {
  const std::lock_guard lock(mutex_);
  stop(error);
}

void RunningAnswer::on_broken_off(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  if (is_broken_off_) return cancel();
  cancel_ = std::move(cancel);
}

bool RunningAnswer::on_token(uint32_t index, const TokenEvent& event) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return true;
  is_simulated_ = event.is_simulated;
  Said since;
  if (event.log_probabilities) {
    since.tokens.push_back(scored(event));
    place_token(since.tokens.back(), choices_[index]);
  }
  const bool goes_on = add_text(index, event.text, false, since);
  say(index, since, event.so_far);
  return goes_on;
}

void RunningAnswer::on_done(uint32_t index, const ChoiceEnd& end) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  const Outcome& outcome = end.outcome;
  if (outcome.error) return stop(*outcome.error);
  Choice& choice = choices_[index];
  choice.reason = outcome.answer.reason;
  if (choice.reason == StopReason::cancelled)
    return stop(RequestError(503, "cancelled", "", "the server ended the request"));
  Said since;
  add_text(index, outcome.rest, true, since);
  say(index, since, outcome.answer.receipt);
  choice.is_done = true;
  choice.receipt = outcome.answer.receipt;
  if (plan_.with_receipt) choice.receipt_text = end.receipt;
  if (plan_.streams) {
    begin(index);
    reply_->write(style_->end(index, choice));
  }
  const bool all_done = std::all_of(choices_.begin(), choices_.end(),
                                    [](const Choice& each) { return each.is_done; });
  if (all_done) finish();
}

ScoredToken RunningAnswer::scored(const TokenEvent& event) const {
  const auto text = [&](Token token, float log_probability) -> ScoredText {
    return {plan_.model->tokenizer->token_bytes(token), log_probability};
  };
  ScoredToken token{.chosen = text(event.token, event.log_probabilities->chosen)};
  for (const LogProbability& other : event.log_probabilities->top)
    token.most_probable.push_back(text(other.token, other.value));
  return token;
}

bool RunningAnswer::add_text(uint32_t index, std::string_view text, bool is_last, Said& since) {
  if (!dividers_.empty()) return dividers_[index](text, is_last, since);
  since.text += text;
  return true;
}

void RunningAnswer::say(uint32_t index, const Said& since, const Receipt& so_far) {
  if (is_empty(since)) return;
  Said& said = choices_[index].said;
  if (!plan_.streams) return append(since, said);
  append({.calls = since.calls}, said);  // what was sent is not kept but for its end's sake
  begin(index);
  reply_->write(style_->piece(index, since, timings(so_far)));
}

// A receipt has its devices only in the end.
JsonValue RunningAnswer::timings(const Receipt& so_far) const {
  return plan_.with_timings ? timings_json(so_far, is_simulated_) : JsonValue(nullptr);
}

// Headers wait for the first token: what goes wrong before it still gets a status of its own.
void RunningAnswer::begin(uint32_t index) {
  if (!has_begun_)
    reply_->begin(200, style_->stream_type(),
                  {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  has_begun_ = true;
  Choice& choice = choices_[index];
  if (choice.has_begun) return;
  choice.has_begun = true;
  reply_->write(style_->begin(index));
  if (!plan_.begin_with.empty())
    reply_->write(style_->piece(index, {.text = plan_.begin_with[index]}, nullptr));
}

void RunningAnswer::finish() {
  is_over_ = true;
  if (plan_.streams) {
    reply_->write(style_->last(choices_));
    return reply_->finish();
  }
  send_whole();
}

// Written by a worker: the engine has others to serve.
void RunningAnswer::send_whole() {
  for (size_t i = 0; i < plan_.begin_with.size(); ++i)
    choices_[i].said.text.insert(0, plan_.begin_with[i]);
  const auto choices = std::make_shared<const std::vector<Choice>>(std::move(choices_));
  reply_->on_worker([reply = reply_, style = style_, choices] {
    try {
      reply->send({.body = style->whole(*choices)});
    } catch (...) {
      const Refusal refusal = refusal_of_end(thrown_error("answer"));
      reply->send(error_response(refusal, style->error_text()));
    }
  });
}

void RunningAnswer::stop(const Error& error) {
  if (is_over_) return;
  is_over_ = is_broken_off_ = true;
  const Refusal refusal = refusal_of_end(error);
  if (has_begun_) {
    reply_->write(style_->failure(refusal));
    reply_->finish();
  } else {
    reply_->send(error_response(refusal, style_->error_text()));
  }
  if (cancel_) cancel_();
}

struct SlowView::Making {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::string text;
  std::optional<Error> error;

  void run(const Make& make) {
    std::string made;
    std::optional<Error> thrown;
    try {
      made = make();
    } catch (...) {
      thrown = thrown_error("server");
    }
    const std::lock_guard lock(mutex);
    text = std::move(made);
    error = std::move(thrown);
    is_over = true;
    ended.notify_all();
  }
};

SlowView::~SlowView() {
  if (thread_.joinable()) thread_.join();
  if (maker_.joinable()) maker_.detach();  // it hangs, and has nothing of the view
}

void SlowView::ask(Done done) {
  std::unique_lock lock(mutex_);
  if (text_ && std::chrono::steady_clock::now() - made_ < kept_) {
    const std::string text = *text_;
    lock.unlock();
    return done(text, std::nullopt);
  }
  asked_.push_back(std::move(done));
  if (asked_.size() > 1) return;
  try {
    if (thread_.joinable()) thread_.join();  // it has nothing left to make
    thread_ = std::thread([this] { make_and_tell(); });
  } catch (const std::system_error& error) {
    asked_.clear();
    throw Error(ErrorCode::device, "server", fmt::format("it has no thread: {}", error.what()));
  }
}

std::string SlowView::wait_for_text() {
  if (!making_) {
    auto making = std::make_shared<Making>();
    maker_ = std::thread([making, make = make_] { making->run(make); });
    making_ = std::move(making);
  }
  {
    std::unique_lock lock(making_->mutex);
    if (!making_->ended.wait_for(lock, longest_, [&] { return making_->is_over; }))
      throw Error(ErrorCode::device, "server",
                  fmt::format("this has taken more than {} ms", longest_.count()), "ask later");
  }
  maker_.join();
  const auto made = std::exchange(making_, nullptr);
  if (made->error) throw *made->error;
  return made->text;
}

void SlowView::make_and_tell() {
  std::string text;
  std::optional<Error> error;
  try {
    text = wait_for_text();
  } catch (...) {
    error = thrown_error("server");
  }
  std::vector<Done> asked;
  {
    const std::lock_guard lock(mutex_);
    asked = std::exchange(asked_, {});
    made_ = std::chrono::steady_clock::now();
    text_.reset();
    if (!error) text_ = text;
  }
  for (const Done& done : asked) {
    try {
      done(text, error);
    } catch (...) {
      // Its answer is dropped, which tells the client.
    }
  }
}

}  // namespace tyto::api
