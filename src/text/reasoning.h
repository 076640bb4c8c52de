// Tells what a model thinks from what it answers, while it is being written: thoughts stand between
// <think> and </think>, or in the channels of harmony, gpt-oss's format.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tyto {

struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

// Thoughts stand at the beginning of an answer. White space around them is a part of neither.
class ThinkStream {
 public:
  // The end of the prompt says whether a thought is open already.
  explicit ThinkStream(std::string_view prompt);

  void push(char c, ReasoningDelta& delta);
  void finish(ReasoningDelta& delta);

  bool answers() const { return state_ == State::between || state_ == State::content; }
  bool may_answer() const { return state_ == State::begin; }
  std::span<const std::string_view> next_markers() const;
  std::string key() const;

 private:
  enum class State {
    begin,
    thought,
    between,  // behind the thoughts, in white space
    content,
  };
  void take_begin(char c, ReasoningDelta& delta);
  void take_thought(char c, ReasoningDelta& delta);
  void think(ReasoningDelta& delta);

  State state_;
  bool has_thought_ = false;  // something other than white space
  std::string pending_;       // white space, and what may become a marker ...
  std::string marker_;        // ... without the white space
};

// An answer is messages: a header (<|start|>, a role, <|channel|> and its name, perhaps who it is
// for), <|message|>, the text, and <|end|>, <|return|> or <|call|>. The channel "analysis" is
// thought, the others are said. A message to a function comes with "to=NAME " before it. Messages
// of the same kind have an empty line between them.
class HarmonyStream {
 public:
  // The prompt may end inside a message. `only_final`: what other channels say is thought, too.
  HarmonyStream(std::string_view prompt, bool only_final);

  void push(char c, ReasoningDelta& delta);
  void finish(ReasoningDelta& delta);

  bool answers() const { return state_ == State::message && is_final_; }
  bool may_answer() const { return false; }
  std::span<const std::string_view> next_markers() const;
  std::string key() const;

 private:
  enum class State {
    outside,  // between messages; `header_` has white space, or what may become "to="
    header,
    message,
  };
  void take_text(char c, ReasoningDelta& delta);
  void take_marker(ReasoningDelta& delta);
  void take_outside(char c, ReasoningDelta& delta);
  void begin_message(ReasoningDelta& delta);
  void begin_message_without_header(ReasoningDelta& delta);
  void say(std::string_view text, ReasoningDelta& delta);

  bool only_final_;
  State state_ = State::outside;
  std::string header_;                           // what came of it, with its markers
  std::string marker_;                           // what may become one
  bool is_final_ = false, is_thought_ = false;   // the message at hand
  bool is_new_ = false;                          // nothing of it came yet
  bool has_thought_ = false, has_said_ = false;  // earlier messages
};

// How a vocabulary marks thoughts.
enum class ThoughtFormat { think, harmony };
ThoughtFormat thought_format(const Tokenizer& tokenizer);

class ReasoningStream {
 public:
  ReasoningStream(ThoughtFormat format, std::string_view prompt, bool only_final = false);

  ReasoningDelta push(std::string_view text);
  ReasoningDelta finish();  // what was held back, after the last text

  // For those who follow the thoughts to do something when they end:
  bool answers() const;      // the next byte is the answer's, or white space before it
  bool may_answer() const;   // ... unless a thought begins with it
  bool skips_space() const;  // white space before the answer is no part of it
  // Where not empty: what begins a thought here, which nothing but the answer can precede.
  std::span<const std::string_view> next_markers() const;
  std::string key() const;  // two streams of the same key go on alike

 private:
  std::variant<ThinkStream, HarmonyStream> stream_;
};

// In harmony <|end|> ends a message, and <|return|> and <|call|> end the turn: a vocabulary that
// has both as special tokens ends its answers with them, and not with <|end|>.
void settle_harmony_ends(Vocabulary& vocabulary);

// Tokens that are a marker. A Detokenizer must be told to show those that are special, but for ends
// of the text, behind which nothing comes, or the same text where they are ignored.
struct ThoughtMarker {
  Token token = 0;
  std::string text;
};
std::vector<ThoughtMarker> thought_markers(const Tokenizer& tokenizer);
std::vector<Token> special_thought_markers(const Tokenizer& tokenizer);

// What a constraint has to wait for: thoughts that are open, or that the model may begin.
struct ThoughtsAhead {
  ReasoningStream stream;
  std::vector<ThoughtMarker> markers;
};
std::optional<ThoughtsAhead> thoughts_ahead(const Tokenizer& tokenizer, std::string_view prompt);

// What was divided as one text again, with <think> and </think>, whatever the model's markers are.
class MarkedThoughts {
 public:
  std::string push(const ReasoningDelta& delta);
  std::string finish();

 private:
  bool is_open_ = false;
};

}  // namespace tyto
