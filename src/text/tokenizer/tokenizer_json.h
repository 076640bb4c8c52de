#pragma once

#include <cstddef>
#include <string>

#include "text/tokenizer/vocabulary.h"

namespace tyto {

// Reads JSON one byte at a time, to know early where a value ends or stops being one.

// Follows one object from its brace on. Strict, as RFC 8259 has it, but bytes of strings are not
// checked to be UTF-8.
class JsonScanner {
 public:
  bool push(char c);  // false: no JSON goes on like this, and the byte was not taken

  size_t depth() const { return open_.size(); }  // of objects and arrays that are open
  bool is_complete() const { return state_ == State::complete; }
  bool in_string() const { return state_ >= State::string; }
  bool in_key() const { return in_key_; }  // whether the string, or the last one, is a key

 private:
  enum class State {
    begin,
    value,
    value_or_end,  // behind "["
    key,
    key_or_end,  // behind "{"
    colon,
    after_value,
    word,  // true, false, null, a number
    complete,
    string,
    escape,
    hex,  // the four digits behind \u
  };
  bool begin_value(char c);
  bool begin_string(bool is_key);
  bool go_on_in_string(char c);
  bool go_on_in_word(char c);
  bool after_value(char c);
  bool open(char bracket, State next);
  bool close();

  State state_ = State::begin;
  bool in_key_ = false;
  int digits_left_ = 0;
  std::string open_;  // the brackets
  std::string word_;
};

// tokenizer_config.json: which tokens begin and end a text, and the chat template.

// Whether the config itself says if a token is added in front of a text and behind it.
struct SaysTokens {
  bool bos = false;
  bool eos = false;
};

// Overrides what tokenizer.json said where the config says something. `name` is for errors.
SaysTokens apply_tokenizer_config(const std::string& json, const std::string& name,
                                  Vocabulary& vocabulary);

}  // namespace tyto
