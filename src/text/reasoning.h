// Tells what a model thinks, <think>...</think>, from what it answers, while it is being written.
#pragma once

#include <string>
#include <string_view>

namespace tyto {

struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

// Thoughts stand at the beginning of an answer. White space around them is a part of neither.
class ReasoningStream {
 public:
  // `is_open`: the prompt ends with <think>, as some templates have it.
  explicit ReasoningStream(bool is_open) : state_(is_open ? State::thought : State::begin) {}

  ReasoningDelta push(std::string_view text);
  ReasoningDelta finish();  // what was held back, after the last text

 private:
  enum class State {
    begin,
    thought,
    between,  // behind the thoughts, in white space
    content,
  };
  void take(char c, ReasoningDelta& delta);
  void take_begin(char c, ReasoningDelta& delta);
  void take_thought(char c, ReasoningDelta& delta);
  void think(ReasoningDelta& delta);

  State state_;
  bool has_thought_ = false;  // something other than white space
  std::string pending_;       // white space, and what may become a marker ...
  std::string marker_;        // ... without the white space
};

// Whether the model goes on thinking where the prompt ends.
bool prompt_opens_reasoning(std::string_view prompt);

}  // namespace tyto
