// An answer's tokens as text, up to its stop strings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/stop_strings.h"
#include "text/tokenizer.h"

namespace tyto {

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

}  // namespace tyto
