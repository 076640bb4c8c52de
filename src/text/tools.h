// Functions that a model may ask to have called: which there are, which it must choose, and how
// models of its family write a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {

struct Tool {
  std::string name;
  std::optional<Json> parameters;  // the JSON schema of its arguments; none: it has no arguments
};

// Read as OpenAI's "tools" and "tool_choice" are written. What is wrong is an Error naming the
// field, a choice that is not among the tools included.
std::vector<Tool> tools_from_json(const Json& array);

struct ToolChoice {
  enum class Kind { none, automatic, required };
  Kind kind = Kind::automatic;
  std::string name = {};  // the one that is required; empty: any of them
};
ToolChoice tool_choice_from_json(const Json& choice, const std::vector<Tool>& tools);

enum class ToolFormat {
  none,    // the template shows no tools, or writes no calls, or none that we can read
  llama3,  // {"name": "f", "parameters": {...}}, perhaps behind <|python_tag|>
  hermes,  // <tool_call> {"name": "f", "arguments": {...}} </tool_call>; Qwen's too
};

// How a format is written.
struct ToolSyntax {
  ToolFormat format = ToolFormat::none;
  std::string_view open;           // before a call ...
  std::string_view close;          // ... and behind it; empty: nothing
  std::string_view arguments_key;  // what the family calls the arguments
  bool opens_answers = false;      // a call may begin an answer without `open`
};
const ToolSyntax& tool_syntax(ToolFormat format);
std::span<const ToolSyntax> tool_syntaxes();  // all formats

// Found by showing the template a tool and a call.
ToolFormat tool_format(const ChatTemplate& chat_template);

// Special tokens that spell `open` or `close`. A Detokenizer must be told to show them.
std::vector<Token> tool_marker_tokens(ToolFormat format, const Tokenizer& tokenizer);

// Gives GBNF rules of which the one called `rule` matches the values of a JSON schema; names of
// the others begin with it.
using SchemaRules = std::function<std::string(const Json& schema, const std::string& rule)>;

// A grammar whose texts are calls of the chosen tools and nothing else: one call, or several where
// `parallel` and the format allow it. The choice must be a required one.
std::string tool_call_gbnf(ToolFormat format, const std::vector<Tool>& tools,
                           const ToolChoice& choice, bool parallel, const SchemaRules& rules);

// Tells the calls in an answer from what it says, while the answer is being written.

struct ToolCallDelta {
  size_t index = 0;
  std::string id = {}, name = {};  // with the first delta of a call
  std::string arguments = {};      // the next piece of their JSON text, as the model writes it
};

// What a piece of an answer's text brought.
struct AnswerDelta {
  std::string content;
  std::vector<ToolCallDelta> calls;
};

// Reads JSON one byte at a time, to know early where a value ends or stops being one.

// Follows one object from its brace on. Strict, as RFC 8259 has it, but bytes of strings are not
// checked to be UTF-8.
class JsonScanner {
 public:
  bool push(char c);  // false: no JSON goes on like this, and the byte was not taken

  size_t depth() const { return open_.size(); }  // open objects and arrays
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

// Follows the text of one call, {"name": "f", "arguments": {...}}, with its fields in any order.
class ToolCallReader {
 public:
  bool push(char c);  // false: no call goes on like this, and the byte was not taken

  const std::string& name() const { return name_; }  // empty: not known yet
  bool has_arguments() const { return has_arguments_; }
  bool is_past_arguments() const { return has_arguments_ && !in_arguments_; }
  bool is_complete() const { return scanner_.is_complete(); }
  // Whether a complete one has a name, and arguments that are an object or are left out.
  bool is_call() const { return !name_.empty() && (has_arguments_ || !names_arguments_); }
  std::string take_arguments();  // what came since the last time

 private:
  void end_string();

  JsonScanner scanner_;
  std::string string_;  // the last one of the outermost object, without quotes
  std::string key_;
  std::string name_;
  std::string arguments_;
  bool names_arguments_ = false;
  bool has_arguments_ = false;
  bool in_arguments_ = false;
};

// Text that looks like a call and is none comes out as content, white space around calls is a part
// of them, and nothing else is lost. Arguments come out as they are written: where they stop being
// JSON the call ends, and the rest is content. The result does not depend on how the text is cut.
class ToolCallStream {
 public:
  // Calls of other functions than these tools are content. The ids of calls follow from the seed.
  // Unless they may be `parallel` nothing comes after the first whole call.
  ToolCallStream(ToolFormat format, const std::vector<Tool>& tools, uint64_t seed,
                 bool parallel = true);

  AnswerDelta push(std::string_view text);
  AnswerDelta finish();                    // what was held back, after the last text
  size_t calls() const { return calls_; }  // that have begun
  bool is_over() const { return !parallel_ && has_whole_call_; }  // the rest is not wanted

 private:
  enum class State {
    content,
    lead,  // before a call's brace: behind a marker, behind another call, or where answers begin
    call,
  };
  bool take(char c, AnswerDelta& delta);
  bool take_content(char c, AnswerDelta& delta);
  bool take_lead(char c);
  bool take_marker(char c);
  bool take_call(char c, AnswerDelta& delta);
  void begin_call(AnswerDelta& delta);
  void add_arguments(std::string_view piece, AnswerDelta& delta);
  void end_call();
  std::string give_up(AnswerDelta& delta);
  bool pending_belongs_to_call() const;
  void say(std::string_view text, AnswerDelta& delta);
  bool knows(const std::string& name) const;

  const ToolSyntax& syntax_;
  std::vector<std::string> names_;
  uint64_t seed_;
  bool parallel_;
  bool has_whole_call_ = false;
  size_t calls_ = 0;
  State state_;
  std::string pending_;         // taken, and neither shown nor a part of a call yet
  size_t certain_ = 0;          // the part that is content if this becomes no call
  std::string marker_;          // the part of one at the end of `pending_`
  bool is_after_call_ = false;  // with nothing but white space and separators since
  bool has_begun_ = false;      // the call in `reader_` was announced
  ToolCallReader reader_;
};

}  // namespace tyto
