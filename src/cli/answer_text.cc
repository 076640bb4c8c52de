#include "cli/answer_text.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "shell/terminal.h"

namespace tyto {

AnswerText::AnswerText(const Tokenizer& tokenizer, std::string_view chat, bool divides)
    : divides_(divides) {
  const ThoughtFormat format = thought_format(tokenizer);
  if (chat.empty() || (format == ThoughtFormat::think && !divides)) return;
  thoughts_.emplace(format, chat, divides);
}

AnswerText::Piece AnswerText::push(std::string_view text) {
  if (thoughts_) return piece_of(thoughts_->push(text));
  return {.shown = std::string(text), .thought = {}, .answer = std::string(text)};
}

AnswerText::Piece AnswerText::finish() {
  if (!thoughts_) return {};
  Piece last = piece_of(thoughts_->finish());
  if (divides_)
    last.thought += end_of_line();
  else
    last.shown += marked_.finish();
  return last;
}

AnswerText::Piece AnswerText::piece_of(ReasoningDelta delta) {
  if (divides_) {
    is_in_line_ = is_in_line_ || !delta.reasoning.empty();
    if (!delta.content.empty()) delta.reasoning += end_of_line();
    return {delta.content, std::move(delta.reasoning), delta.content};
  }
  std::string shown = marked_.push(delta);
  return {std::move(shown), {}, std::move(delta.content)};
}

std::string AnswerText::end_of_line() {
  return std::exchange(is_in_line_, false) ? "\n" : "";
}

std::string cut_off_text(StopReason reason, uint64_t tokens, uint32_t context,
                         const CutNames& names) {
  if (reason == StopReason::max_tokens)
    return fmt::format("cut off after {} token{} ({})", tokens, tokens == 1 ? "" : "s",
                       names.tokens);
  if (reason == StopReason::context_full)
    return fmt::format("cut off: the context of {} tokens is full ({})", context, names.context);
  return "";
}

AnswerPrinter::AnswerPrinter() : wrap_(stdout_style().width) {}

AnswerPrinter::~AnswerPrinter() {
  try {
    if (is_in_answer_) print(wrap_.finish() + (is_stdout_terminal() ? "\n" : ""));
  } catch (const Error&) {  // the error that ended the answer is told already
  }
}

void AnswerPrinter::show(std::string_view text) {
  if (text.empty()) return;
  is_in_answer_ = true;
  print(wrap_.push(only_text(text)));
}

void AnswerPrinter::pause() {
  print(wrap_.finish());
  wrap_.begin_line();
}

void AnswerPrinter::end() {
  print(wrap_.finish() + "\n");
  wrap_.begin_line();
  is_in_answer_ = false;
}

}  // namespace tyto
