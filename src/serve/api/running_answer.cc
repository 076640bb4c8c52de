#include "serve/api/running_answer.h"

#include <algorithm>

#include "serve/api/answer_numbers.h"
#include "serve/thrown_error.h"

namespace tyto::api {
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
                  answer->on_done(first + e.choice, e);
                  return true;
                });
              }};
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
ordered_json RunningAnswer::timings(const Receipt& so_far) const {
  return plan_.with_timings ? timings_json(so_far, is_simulated_) : ordered_json(nullptr);
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

}  // namespace tyto::api
