// An answer on its way to a client, in words that no API has yet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "serve/api/errors.h"
#include "serve/api/json_text.h"
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
  std::string version = {};  // of Tyto
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
  virtual std::string piece(uint32_t index, const Said& since,
                            const ordered_json& timings) const = 0;
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

}  // namespace tyto::api
