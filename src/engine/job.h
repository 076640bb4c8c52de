// One request on its way from a prompt to an answer and its receipt. Everything that happens to a
// request between two passes of the model is here; a Scheduler decides when it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "engine/prefix_cache.h"
#include "engine/sampler.h"
#include "engine/speculation.h"
#include "llama/pipeline.h"
#include "text/tokenizer/tokenizer.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

// Finds stop strings in streamed text. What could still become a stop string is held back, so no
// part of one is ever shown.

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  // Adds text and returns what is safe to show. After a stop string was found, stopped() is true
  // and nothing more comes out.
  std::string push(std::string_view text);
  std::string finish();  // what was held back and is no stop string
  bool stopped() const { return stopped_; }

 private:
  size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

// An answer's tokens as text, up to its stop strings.

class TextStream {
 public:
  // `shown`: special tokens that come out as text. `continues_text`: the first token is not the
  // beginning of a text, so that a space before it is one.
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stop,
             std::vector<Token> shown, bool continues_text)
      : detokenizer_(tokenizer, !continues_text, std::move(shown)), stops_(stop) {}

  // What can be shown now; the rest of a character, or what may become a stop string, waits.
  std::string push(Token token) { return stops_.push(detokenizer_.push(token)); }
  bool stopped() const { return stops_.stopped(); }
  // What was waiting, after the last token.
  std::string finish() {
    return stopped() ? "" : stops_.push(detokenizer_.finish()) + stops_.finish();
  }

 private:
  Detokenizer detokenizer_;
  StopStrings stops_;
};

// What a recording calls the steps between the runs of the pipeline, whichever loop takes them.

struct HostOps {
  explicit HostOps(Trace& recorder)
      : trace(recorder),
        sample(recorder.name({.label = "sample"})),
        detokenize(recorder.name({.label = "detokenize"})),
        output(recorder.name({.label = "output"})),
        guess(recorder.name({.label = "draft"})) {}

  template <typename Function>
  auto timed(uint16_t name, const Function& function) const {
    Span span(trace, EventKind::host, name);
    return function();
  }

  Trace& trace;
  uint16_t sample;
  uint16_t detokenize;
  uint16_t output;
  uint16_t guess;
};

// What a request is run for. All but an answer end with their prompt.
enum class Wanted : uint8_t {
  answer,
  embedding,   // the vector of its prompt
  all_logits,  // those of every position of its prompt, for Request::on_logits
};

struct Request {
  std::vector<Token> prompt;  // not empty
  uint32_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::vector<Token> shown_special = {};  // that become text, such as a tool's marker
  bool continues_text = false;  // the prompt's; a chat template's prompt has ended its own
  std::shared_ptr<Constraint> constraint = {};    // shared with the sampler of this answer
  std::shared_ptr<Speculation> speculation = {};  // null: no drafts are wanted
  EnergyMeter* energy = nullptr;  // when given, measures prefill and decode into the receipt
  Progress progress = {};         // when given, shows how much of the prompt has been read
  bool wants_all_logits = false;  // on_token reads all logits, not only the sampler's candidates
  bool is_recorded = false;       // its tokens go into the trace's recording
  Wanted wanted = Wanted::answer;
  OnPosition on_logits = {};  // gets each position once, in order; what it throws ends the request
};

// Throws an input Error unless there are tokens, all of the vocabulary.
void check_tokens(const Tokenizer& tokenizer, std::span<const Token> tokens);
// The same, and unless the prompt leaves room for an answer.
void check_prompt(const Tokenizer& tokenizer, uint32_t context, std::span<const Token> prompt);

// Whether a prompt that no template made has a text for the answer to continue: not only BOS.
bool has_text(const Tokenizer& tokenizer, std::span<const Token> prompt);

// How many of the best logits of each row a request needs (Sequence::candidates).
uint32_t candidates_needed(const Request& request, const Sampler& sampler);

// Why guesses cannot be checked together on the pipeline's devices; nothing where they can.
std::optional<std::string> why_no_guesses(const Pipeline& pipeline, const Speculation& speculation);

enum class StopReason : uint8_t { eos, stop_string, max_tokens, context_full, cancelled };
std::string_view name(StopReason reason);

struct Answer {
  std::vector<Token> tokens = {};  // without the one that ended it
  StopReason reason = StopReason::max_tokens;
  Receipt receipt = {};
};

// A token of an answer, at the moment it was chosen.
struct ChosenToken {
  Token token;
  std::string_view text;  // what can be shown now; may be empty
  Logits logits;          // that it was chosen from; all only for a request that wants them
  const Receipt& so_far;  // tokens and seconds of the request
};
using OnToken = std::function<bool(const ChosenToken&)>;  // returns false to stop

// How a request ended: an answer, or why there is none. What was generated before an error is in
// the answer.
struct Outcome {
  Answer answer = {};
  std::optional<Error> error = {};
  std::string rest = {};              // text that had to wait for the end to be shown
  std::vector<float> embedding = {};  // [the model's width], of length 1; of Wanted::embedding
};

// What requests run on; all of it outlives them.
struct Generator {
  const Tokenizer& tokenizer;
  Pipeline& pipeline;
  Trace& trace;
  PrefixCache* prefixes = nullptr;  // when given, what it knows of a prompt is not run again
};

// The rows that a job runs are always the tokens behind its sequence's position, so that a job
// which had to give its pages back goes on where it was, by running them again.
class Job {
 public:
  using Id = uint64_t;
  using OnDone = std::function<void(Id, Outcome)>;

  // `own`: a sampler of this job alone; null: `shared` is used, which outlives the job.
  Job(Id number, const Generator& with, Request asked, std::unique_ptr<Sampler> own,
      Sampler* shared, OnToken on_token, OnDone on_done);

  Id id() const { return id_; }
  const Request& request() const { return request_; }
  const Receipt& receipt() const { return receipt_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  Sequence* sequence() const { return sequence_.get(); }
  bool has_begun() const { return begun_ns_ > 0; }
  bool is_finished() const { return is_finished_; }
  bool has_failed() const { return error_.has_value(); }

  bool wants_answer() const { return request_.wanted == Wanted::answer; }
  size_t left() const { return tokens_.size() - sequence_->position(); }
  // Its next token, and those in front of it that a round has left to run again.
  bool decodes() const {
    return sequence_->phase == Phase::decode && left() >= 1 && left() <= 1 + again_;
  }
  // Tokens until an answer can begin: its own, or that of a request which waits for its pages.
  size_t urgency() const { return std::min(left(), waiting_left); }

  // Gets a sequence, which begins with what is known of the tokens.
  void admit();
  // Gives the sequence up. Where its pages are kept, they may still be there at the next admit().
  enum class Pages : uint8_t { kept, dropped };
  void put_back(Pages pages = Pages::kept);
  // Its next `rows` tokens as work for the pipeline.
  SequenceRows rows(uint32_t rows);
  // Makes `work`, which has a token to decode, a round with guesses, of at most `most` rows. It
  // takes no pages from others: where none are left there are no guesses. Returns the nanoseconds
  // in which the drafter read the prompt.
  uint64_t guess(SequenceRows& work, uint32_t most);
  const std::optional<Round>& round() const { return round_; }
  // The logits of the next row; called until wants_row() is false. Its text goes out at once; what
  // the token means for the sequence shows in later steps.
  void take(uint32_t position, const Logits& logits);
  bool wants_row() const { return !is_finished_ && (!round_ || round_->is_open()); }
  // The step is over: the cache keeps the rows that tokens were chosen from.
  void settle();
  void cancel();
  void fail(const Error& error);
  // Calls on_done, once.
  void end();

  Side side = Side::decode;        // where its prompt runs
  size_t waiting_left = SIZE_MAX;  // tokens that the shortest request waiting for its pages needs
  bool is_cancelled = false;       // it ends with the next step
  bool is_shared = false;          // its prompt's pages are in the prefix cache

 private:
  void begin(uint32_t cached);
  void begin_answer(uint64_t now);
  void choose(const Logits& logits);
  bool is_new(uint32_t position);
  void take_hidden(uint32_t position, std::span<const float> hidden);
  void write(Token token, const Logits& logits);
  void record_tokens();
  void show_progress() const;
  uint32_t tokens_left() const {  // that the answer may still get
    return request_.max_tokens - std::min(request_.max_tokens, receipt_.generated_tokens);
  }

  const Id id_;
  const Generator with_;
  const HostOps ops_;
  Request request_;
  const std::unique_ptr<Sampler> own_sampler_;
  Sampler& sampler_;
  TextStream text_;
  const OnToken on_token_;
  const OnDone on_done_;
  const OnHidden on_hidden_;
  std::vector<Token> tokens_;   // the prompt's and those chosen since
  std::vector<Token> chosen_;   // in the step at hand, whose work still refers to tokens_
  std::optional<Round> round_;  // drafts of the step at hand
  uint32_t again_ = 0;          // tokens whose rows were taken back with drafts (KvTable::last_cut)
  std::vector<Token> rows_;     // the step's: those, the next token and drafts
  bool drafter_has_read_ = false;
  std::unique_ptr<Sequence> sequence_;
  std::vector<double> hidden_sums_;  // over the positions that were run
  uint32_t seen_ = 0;                // positions whose hidden state or logits were taken
  Receipt receipt_;
  Answer answer_;
  std::optional<Error> error_;
  const uint64_t added_ns_;
  uint64_t begun_ns_ = 0;    // 0: it has not run yet
  uint32_t unrecorded_ = 0;  // tokens of the step at hand that a recording does not have yet
  uint64_t first_ns_ = 0;    // when the first token was chosen; 0: none was
  bool is_finished_ = false;
};

}  // namespace tyto
