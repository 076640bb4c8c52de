// What of an answer is shown, what of it is the answer, and how it gets to stdout.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generate.h"
#include "shell/terminal.h"
#include "text/reasoning.h"

namespace tyto {

// Channels of harmony are shown with <think> and </think> around the thoughts. Other answers are
// shown as they are written, unless `divides`: then thoughts and answer come apart.
class AnswerText {
 public:
  struct Piece {
    std::string shown;
    std::string thought;  // where divided, in lines of its own: it is not among what is shown
    std::string answer;   // what a conversation keeps
  };
  // `chat` is the text of a template, and empty where none made the prompt.
  AnswerText(const Tokenizer& tokenizer, std::string_view chat, bool divides);

  Piece push(std::string_view text);
  Piece finish();

 private:
  Piece piece_of(ReasoningDelta delta);
  std::string end_of_line();

  const bool divides_;
  std::optional<ReasoningStream> thoughts_;  // none: all of it is the answer
  MarkedThoughts marked_;
  bool is_in_line_ = false;  // a line of thoughts has begun
};

// "cut off after 60 tokens (-n)"; empty where the answer came to an end of its own. The flags may
// have other names.
struct CutNames {
  const char* tokens = "-n";
  const char* context = "-c";
};
std::string cut_off_text(StopReason reason, uint64_t tokens, uint32_t context,
                         const CutNames& names = {});

// An answer on stdout as it comes. On a terminal lines are broken at spaces; a file or a pipe gets
// the text byte for byte.
class AnswerPrinter {
 public:
  AnswerPrinter();
  ~AnswerPrinter();  // shows what is held back and ends the line where an error ended the answer
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

  void show(std::string_view text);
  void pause();  // something else is told on the terminal, in lines of its own, and text goes on
  void end();    // with a line break

 private:
  WordWrap wrap_;
  bool is_in_answer_ = false;  // something was shown since the last end
};

}  // namespace tyto
