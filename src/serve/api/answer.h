// An answer on its way to a client, in words that no API has yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json_value.h"
#include "engine/scheduler.h"
#include "serve/api/errors.h"
#include "serve/engine_thread.h"
#include "serve/http/http_reply.h"
#include "trace/receipt.h"

namespace tyto::api {

// Bytes of a token, which need not be whole characters, and how probable it was.
struct ScoredText {
  std::string bytes;
  float log_probability = 0;
};
struct ScoredToken {
  ScoredText chosen;
  std::vector<ScoredText> most_probable = {};
  uint64_t offset = 0;  // characters of the tokens before it
};

// A call of a tool: all of it, or what came since the last piece.
struct CallPart {
  uint32_t index = 0;
  std::string id = {};  // and name: with the first part of a call
  std::string name = {};
  std::string arguments = {};  // JSON
};

// What a choice says, as a whole or since the last piece.
struct Said {
  std::string thought = {};  // before it answered
  std::string text = {};
  std::vector<CallPart> calls = {};
  std::vector<ScoredToken> tokens = {};  // where log probabilities were asked for
};

struct Choice {
  Said said = {};
  uint64_t characters = 0;  // that its tokens have, where log probabilities are wanted
  bool has_begun = false;
  bool is_done = false;
  StopReason reason = StopReason::max_tokens;
  Receipt receipt = {};
  std::string receipt_text = {};  // sealed JSON, where asked for
};

bool is_cut(const Choice& choice);  // by a limit, in the middle of what it says

// Those whose arguments are a whole JSON object; another one was cut off, or broke off.
std::vector<CallPart> whole_calls(const std::vector<CallPart>& calls);
// The others as text, so that no name and no argument that the model wrote is lost.
std::string text_of_broken_calls(const std::vector<CallPart>& calls);

// What every piece of an answer says about it.
struct AnswerHead {
  std::string id = {};  // also the receipt's
  std::string model = {};
  std::string version = {};  // which Tyto answers
  int64_t created = 0;       // seconds since 1970
  bool include_usage = false;
  bool log_probabilities = false;
  uint32_t choices_per_prompt = 1;
};

// Adds the token behind those that the choice has.
void place_token(ScoredToken& token, Choice& choice);

// How one API words an answer. Stateless; every function returns what goes over the wire.
class AnswerStyle {
 public:
  virtual ~AnswerStyle() = default;

  virtual std::string stream_type() const = 0;  // content type of pieces
  virtual std::string begin(uint32_t index) const = 0;
  // `timings` so far; null: none.
  virtual std::string piece(uint32_t index, const Said& since, const JsonValue& timings) const = 0;
  virtual std::string end(uint32_t index, const Choice& choice) const = 0;
  virtual std::string last(std::span<const Choice> choices) const = 0;
  virtual std::string failure(const Refusal& refusal) const = 0;  // among pieces

  virtual std::string whole(std::span<const Choice> choices) const = 0;
  virtual ErrorText error_text() const = 0;  // instead of an answer
};

std::unique_ptr<AnswerStyle> openai_chat_style(AnswerHead head);
std::unique_ptr<AnswerStyle> openai_text_style(AnswerHead head);
std::unique_ptr<AnswerStyle> ollama_chat_style(AnswerHead head);
std::unique_ptr<AnswerStyle> ollama_text_style(AnswerHead head);

std::string random_id(std::string_view prefix);  // "chatcmpl-", and 24 hexadecimal digits

// Counts and times of an answer, as clients know them.

// OpenAI's: a prompt is counted once, however many choices answer it.
JsonValue usage_json(std::span<const Choice> choices, uint32_t choices_per_prompt);

// llama-server's. Where a virtual device took part the time is a simulation's: it says so, and
// there are no rates; nor are there where the receipt's cannot be true.
JsonValue timings_json(const Receipt& receipt);
// For a receipt that does not have its devices yet.
JsonValue timings_json(const Receipt& receipt, bool is_simulated);

// Ollama's: nanoseconds. Its clients divide them; a simulation's say what they are.
void add_ollama_durations(JsonValue& json, const Receipt& receipt);

// One HTTP request's answer while the engine writes it: takes the engine's events and sends pieces
// as they come, or the whole at the end.

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

  // Called once if it ends before its choices do, or at once where it has: they are not wanted any
  // more.
  void on_broken_off(std::function<void()> cancel);

 private:
  bool on_token(uint32_t index, const TokenEvent& event);
  void on_done(uint32_t index, const ChoiceEnd& end);
  static void end_held(const std::shared_ptr<RunningAnswer>& answer, uint32_t index,
                       const ChoiceEnd& end);
  void replay(uint32_t index, Outcome& outcome, const std::string& receipt,
              std::span<HeldToken> held);
  ScoredToken scored(const TokenEvent& event) const;
  bool add_text(uint32_t index, std::string_view text, bool is_last, Said& since);
  void say(uint32_t index, const Said& since, const Receipt& so_far);
  JsonValue timings(const Receipt& so_far) const;
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

// A text that takes long to make, for any number of requests: made on a thread of its own, once at
// a time, and kept for a while, so that no worker waits for it, and no request for one that hangs.

class SlowView {
 public:
  using Make = std::function<std::string()>;  // may throw, and may outlive the view
  using Done = std::function<void(const std::string& text, const std::optional<Error>& error)>;

  // What is not made in the `longest` time is an Error for those who have asked by then. Who asks
  // later waits for the same text, as long again.
  SlowView(Make make, std::chrono::milliseconds kept, std::chrono::milliseconds longest)
      : make_(std::move(make)), kept_(kept), longest_(longest) {}
  ~SlowView();  // waits for what is being made, and no longer than that
  SlowView(const SlowView&) = delete;
  SlowView& operator=(const SlowView&) = delete;

  // Calls `done` once: at once where the text is kept, else from the thread that makes it.
  void ask(Done done);

 private:
  struct Making;

  std::string wait_for_text();
  void make_and_tell();

  const Make make_;
  const std::chrono::milliseconds kept_, longest_;
  std::mutex mutex_;
  std::vector<Done> asked_;  // not empty: it is being made
  std::optional<std::string> text_;
  std::chrono::steady_clock::time_point made_;
  std::thread thread_;  // that waits and tells
  // For that thread alone, and for the destructor after it.
  std::shared_ptr<Making> making_;  // shared with `maker_`; null: nothing is being made
  std::thread maker_;
};

}  // namespace tyto::api
