// One HTTP request's answer while the engine writes it: takes the engine's events and sends pieces
// as they come, or the whole at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/answer.h"
#include "serve/engine_thread.h"
#include "serve/http/exchange.h"

namespace tyto::api {

// Divides the text of a choice into what is thought, said and called. `is_last`: no more text
// comes. Keeps what it is not sure of for the next time. False: the answer has all that is wanted.
using TextDivider = std::function<bool(std::string_view text, bool is_last, Said& since)>;

struct AnswerPlan {
  std::shared_ptr<const ModelText> model = {};
  uint32_t choices = 1;
  bool streams = false;
  std::vector<std::string> begin_with = {};  // [choices] or empty: text in front of each
  std::function<TextDivider()> divide = {};  // makes each choice its own; none: all is said
  bool with_receipt = false;
  bool with_timings = false;  // in every piece
};

class RunningAnswer {
 public:
  RunningAnswer(std::shared_ptr<http::Reply> reply, std::unique_ptr<AnswerStyle> style,
                AnswerPlan plan);

  // For a request of the engine whose choices are ours from `first` on; they keep `answer` alive.
  static CompletionEvents events(std::shared_ptr<RunningAnswer> answer, uint32_t first = 0);

  // Ends it, unless it has ended: an error response, or the last piece of what was begun.
  void refuse(const Error& error);

  // Called once if it ends before its choices do, or at once where it has: nobody wants them any
  // more.
  void on_broken_off(std::function<void()> cancel);

 private:
  bool on_token(uint32_t index, const TokenEvent& event);
  void on_done(uint32_t index, const ChoiceEnd& end);
  ScoredToken scored(const TokenEvent& event) const;
  bool add_text(uint32_t index, std::string_view text, bool is_last, Said& since);
  void say(uint32_t index, const Said& since, const Receipt& so_far);
  ordered_json timings(const Receipt& so_far) const;
  void begin(uint32_t index);
  void finish();
  void send_whole();
  void stop(const Error& error);

  std::mutex mutex_;  // events come from the engine's thread, on_broken_off() from a worker
  const std::shared_ptr<http::Reply> reply_;
  const std::shared_ptr<const AnswerStyle> style_;  // shared with the worker that writes the whole
  const AnswerPlan plan_;
  std::vector<Choice> choices_;
  std::vector<TextDivider> dividers_;  // [choices], or empty
  bool has_begun_ = false;             // pieces were sent
  bool is_over_ = false;
  bool is_broken_off_ = false;
  std::function<void()> cancel_;
  bool is_simulated_ = false;  // what came so far
};

}  // namespace tyto::api
