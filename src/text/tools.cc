#include "text/tools.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

constexpr ToolSyntax kSyntaxes[] = {
    {ToolFormat::none, "", "", "", false},
    {ToolFormat::llama3, "<|python_tag|>", "", "parameters", true},
    {ToolFormat::hermes, "<tool_call>", "</tool_call>", "arguments", false},
};

// Some templates go through the tools without looking whether there are any.
constexpr std::string_view kProbeTools = R"([{"type": "function", "function": {
  "name": "probe", "description": "", "parameters": {"type": "object",
  "properties": {"x": {"type": "integer", "description": ""}}, "required": ["x"]}}}])";

std::string without_white_space(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) result += c;
  return result;
}

void require_function(const Json& object) {
  const auto type = object.find("type");
  if (!type || type->as_string() == "function") return;
  fail_unsupported(type->path(), "{} is not supported, only \"function\" is",
                   printable_name(type->as_string()));
}

// Calls are recognised by the text between the quotes, so a name must need no escapes in JSON.
std::string name_of(const Json& function) {
  const Json name = function.at("name");
  const std::string text(name.as_string());
  if (text.empty()) name.fail("is empty");
  const auto needs_escape = [](char c) { return c == '"' || c == '\\' || (c >= 0 && c < ' '); };
  if (std::any_of(text.begin(), text.end(), needs_escape))
    name.fail("quotes, backslashes and control characters have no place in a name");
  return text;
}

// `shown` is what the template makes with the tools of the options. Some templates know no tools,
// and say nothing of it.
bool shows_tools(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
                 ChatOptions options, std::string_view shown) {
  options.tools.reset();
  try {
    return chat_template.render(messages, options) != shown;
  } catch (const Error&) {
    return true;  // it uses them without looking whether there are any
  }
}

}  // namespace

std::vector<Tool> tools_from_json(const Json& array) {
  std::vector<Tool> tools;
  array.for_each_element([&](size_t, const Json& tool) {
    require_function(tool);
    const Json function = tool.at("function");
    const auto parameters = function.find("parameters");
    if (parameters && !parameters->is(Json::Type::object))
      parameters->fail("expected a JSON schema, which is an object");
    tools.push_back({name_of(function), parameters});
  });
  return tools;
}

ToolChoice tool_choice_from_json(const Json& choice, const std::vector<Tool>& tools) {
  using Kind = ToolChoice::Kind;
  if (choice.is(Json::Type::object)) {
    require_function(choice);
    const Json name = choice.at("function").at("name");
    const auto is_it = [&](const Tool& tool) { return tool.name == name.as_string(); };
    if (std::none_of(tools.begin(), tools.end(), is_it))
      name.fail(fmt::format("{} is not one of the tools", printable_name(name.as_string())));
    return {Kind::required, std::string(name.as_string())};
  }
  const std::string_view word = choice.as_string();
  if (word == "none") return {Kind::none};
  if (word == "auto") return {Kind::automatic};
  if (word != "required")
    choice.fail(fmt::format("{} is not one of none, auto, required or an object naming a function",
                            printable_name(word)));
  if (tools.empty()) choice.fail("a call is required, but there are no tools");
  return {Kind::required};
}

const ToolSyntax& tool_syntax(ToolFormat format) {
  return kSyntaxes[static_cast<size_t>(format)];
}

std::span<const ToolSyntax> tool_syntaxes() {
  return kSyntaxes;
}

ToolFormat tool_format(const ChatTemplate& chat_template) {
  ChatOptions options;
  options.add_generation_prompt = false;
  options.tools = Json::parse(kProbeTools, "tools");
  const ChatMessage call{.role = "assistant", .tool_calls = {{"call00001", "probe", R"({"x":1})"}}};
  const std::vector<ChatMessage> messages = {{"user", "x"}, call};
  std::string shown;
  try {
    shown = chat_template.render(messages, options);
  } catch (const Error&) {
    return ToolFormat::none;  // it refuses calls
  }
  if (!shows_tools(chat_template, messages, options, shown)) return ToolFormat::none;
  shown = without_white_space(shown);
  for (const ToolSyntax& syntax : kSyntaxes) {
    if (syntax.format == ToolFormat::none) continue;
    const std::string written =
        fmt::format(R"({}{{"name":"probe","{}":{{"x":1}}}}{})",
                    syntax.opens_answers ? "" : syntax.open, syntax.arguments_key, syntax.close);
    if (shown.find(written) != std::string::npos) return syntax.format;
  }
  return ToolFormat::none;
}

std::vector<Token> tool_marker_tokens(ToolFormat format, const Tokenizer& tokenizer) {
  const ToolSyntax& syntax = tool_syntax(format);
  std::vector<Token> tokens;
  for (const AddedToken& token : tokenizer.vocabulary().added)
    if (token.special && !token.text.empty() &&
        (token.text == syntax.open || token.text == syntax.close))
      tokens.push_back(token.id);
  return tokens;
}

std::string tool_call_gbnf(ToolFormat format, const std::vector<Tool>& tools,
                           const ToolChoice& choice, bool parallel, const SchemaRules& rules) {
  TYTO_ASSERT(choice.kind == ToolChoice::Kind::required);
  if (format == ToolFormat::none)
    throw Error(ErrorCode::unsupported, "tool_choice",
                "the model's chat template has no format for calls that Tyto knows",
                "leave tool_choice out, or choose another template");
  const ToolSyntax& syntax = tool_syntax(format);
  std::string functions, definitions;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Tool& tool = tools[i];
    if (!choice.name.empty() && tool.name != choice.name) continue;
    const std::string rule = fmt::format("tool-{}", i);
    const std::string arguments = rule + "-arguments";
    functions += (functions.empty() ? "" : " | ") + rule;
    definitions += fmt::format("{} ::= \"{{\\\"name\\\": \\\"{}\\\", \\\"{}\\\": \" {} \"}}\"\n",
                               rule, tool.name, syntax.arguments_key, arguments);
    definitions +=
        tool.parameters ? rules(*tool.parameters, arguments) : arguments + " ::= \"{}\"\n";
    if (!definitions.ends_with('\n')) definitions += '\n';
  }
  // Llama 3's own templates refuse an answer with more than one call.
  const bool may_repeat = parallel && !syntax.opens_answers;
  const std::string call =
      syntax.opens_answers ? "function"
                           : fmt::format("\"{}\\n\" function \"\\n{}\"", syntax.open, syntax.close);
  return fmt::format("root ::= call{}\ncall ::= {}\nfunction ::= {}\n{}",
                     may_repeat ? " (\"\\n\" call)*" : "", call, functions, definitions);
}

namespace {

constexpr std::string_view kSpacesAround = " \t\r\n";
constexpr std::string_view kBeforeCall = " \t\r\n[";       // calls may stand in an array,
constexpr std::string_view kBetweenCalls = " \t\r\n[,;]";  // or behind each other
constexpr size_t kMaxHeadBytes = 64 << 10;  // a call's whose arguments have not begun

bool is_in(std::string_view set, char c) {
  return set.find(c) != set.npos;
}

// Models confuse the two.
bool is_arguments(std::string_view key) {
  return key == "arguments" || key == "parameters";
}

// "call_" and 24 letters or digits, as clients know them from OpenAI; SplitMix64 makes them.
std::string call_id(uint64_t seed, uint64_t index) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  std::string id = "call_";
  uint64_t state = seed + (index + 1) * kStep * 24;
  for (int i = 0; i < 24; ++i) {
    uint64_t bits = state += kStep;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    id += kLetters[(bits ^ (bits >> 31)) % kLetters.size()];
  }
  return id;
}

}  // namespace

bool ToolCallReader::push(char c) {
  const bool is_outermost = scanner_.depth() == 1;
  const bool was_in_string = scanner_.in_string();
  if (!scanner_.push(c)) return false;
  if (is_outermost && was_in_string && !scanner_.in_string()) end_string();
  if (is_outermost && was_in_string && scanner_.in_string()) string_ += c;
  const bool opens_object = is_outermost && scanner_.depth() == 2 && c == '{';
  if (opens_object && is_arguments(key_) && !has_arguments_) has_arguments_ = in_arguments_ = true;
  if (in_arguments_) arguments_ += c;
  if (scanner_.depth() == 1) in_arguments_ = false;
  return true;
}

void ToolCallReader::end_string() {
  if (scanner_.in_key()) {
    key_ = string_;
    names_arguments_ = names_arguments_ || is_arguments(key_);
  } else if (key_ == "name" && name_.empty()) {
    name_ = string_;
  }
  string_.clear();
}

std::string ToolCallReader::take_arguments() {
  return std::exchange(arguments_, {});
}

ToolCallStream::ToolCallStream(ToolFormat format, const std::vector<Tool>& tools, uint64_t seed,
                               bool parallel)
    : syntax_(tool_syntax(format)),
      seed_(seed),
      parallel_(parallel),
      state_(syntax_.opens_answers ? State::lead : State::content) {
  for (const Tool& tool : tools) names_.push_back(tool.name);
}

AnswerDelta ToolCallStream::push(std::string_view text) {
  AnswerDelta delta;
  if (syntax_.format == ToolFormat::none) return {std::string(text), {}};
  std::string rest(text);
  for (size_t at = 0; at < rest.size() && !is_over();) {
    if (take(rest[at], delta)) {
      ++at;
    } else {
      rest = give_up(delta) + rest.substr(at);
      at = 0;
    }
  }
  return delta;
}

AnswerDelta ToolCallStream::finish() {
  AnswerDelta delta;
  if (!is_over() && !pending_belongs_to_call()) say(pending_, delta);
  pending_.clear();
  return delta;
}

// At the end of an answer: behind a call there may be white space, and while it is not closed
// also separators and a part of `close`.
bool ToolCallStream::pending_belongs_to_call() const {
  if (state_ == State::call) return has_begun_;
  if (!is_after_call_ || certain_ > 0) return false;
  if (state_ == State::lead) return syntax_.close.starts_with(marker_);
  return pending_.find_first_not_of(kSpacesAround) == pending_.npos;
}

bool ToolCallStream::take(char c, AnswerDelta& delta) {
  if (state_ == State::content) return take_content(c, delta);
  if (state_ == State::lead) return take_lead(c);
  return take_call(c, delta);
}

// Holds white space back, and what may become a marker behind it. A marker's first character is
// nowhere else in it, so that another one can only begin where this one ends.
bool ToolCallStream::take_content(char c, AnswerDelta& delta) {
  const bool is_space = is_in(kSpacesAround, c);
  const bool is_held = c == syntax_.open[marker_.size()] || (is_space && marker_.empty());
  if (!is_held) {
    say(pending_, delta);
    pending_.clear();
    marker_.clear();
    if (c != syntax_.open.front() && !is_space) {
      say({&c, 1}, delta);
      return true;
    }
  }
  pending_ += c;
  if (!is_space) marker_ += c;
  if (marker_ == syntax_.open) {
    marker_.clear();
    certain_ = pending_.size();
    state_ = State::lead;
  }
  return true;
}

bool ToolCallStream::take_lead(char c) {
  if (!marker_.empty() || c == syntax_.open.front()) return take_marker(c);
  if (c == '{') {
    pending_ += c;
    if (certain_ == 0) certain_ = pending_.size();
    reader_ = {};
    has_begun_ = false;
    state_ = State::call;
    return reader_.push(c);
  }
  if (!is_in(is_after_call_ ? kBetweenCalls : kBeforeCall, c)) return false;
  pending_ += c;
  return true;
}

bool ToolCallStream::take_marker(char c) {
  const std::string marker = marker_ + c;
  const bool may_close = is_after_call_ && certain_ == 0;
  const bool closes = may_close && syntax_.close.starts_with(marker);
  if (!closes && !syntax_.open.starts_with(marker)) return false;
  marker_ = marker;
  pending_ += c;
  if (closes && marker == syntax_.close) {
    pending_.clear();
    marker_.clear();
    state_ = State::content;
  } else if (marker == syntax_.open) {
    certain_ = pending_.size();
    marker_.clear();
  }
  return true;
}

bool ToolCallStream::take_call(char c, AnswerDelta& delta) {
  if (!has_begun_ && pending_.size() >= kMaxHeadBytes) return false;
  const bool is_syntax = !has_begun_ || reader_.is_past_arguments();
  if (!reader_.push(c)) return false;
  const bool is_known = !reader_.name().empty();
  if (is_known && !knows(reader_.name())) return false;
  if (reader_.is_complete() && !reader_.is_call()) return false;
  if (is_syntax) pending_ += c;
  if (!has_begun_ && is_known && (reader_.has_arguments() || reader_.is_complete()))
    begin_call(delta);
  if (has_begun_) add_arguments(reader_.take_arguments(), delta);
  if (reader_.is_complete()) {
    has_whole_call_ = true;
    end_call();
  }
  return true;
}

void ToolCallStream::begin_call(AnswerDelta& delta) {
  delta.calls.push_back({.index = calls_, .id = call_id(seed_, calls_), .name = reader_.name()});
  if (!reader_.has_arguments()) delta.calls.back().arguments = "{}";
  ++calls_;
  has_begun_ = is_after_call_ = true;
  pending_.clear();
  certain_ = 0;
}

void ToolCallStream::add_arguments(std::string_view piece, AnswerDelta& delta) {
  if (piece.empty()) return;
  const size_t index = calls_ - 1;
  if (delta.calls.empty() || delta.calls.back().index != index)
    delta.calls.push_back({.index = index});
  delta.calls.back().arguments += piece;
}

void ToolCallStream::end_call() {
  pending_.clear();
  certain_ = 0;
  marker_.clear();
  state_ = State::lead;
}

// No call comes of what was taken: gives back what is to be looked at again.
std::string ToolCallStream::give_up(AnswerDelta& delta) {
  std::string again = pending_.substr(certain_);
  const bool has_all_but_the_end =
      state_ == State::call && has_begun_ && reader_.is_past_arguments();
  has_whole_call_ = has_whole_call_ || has_all_but_the_end;
  say(std::string_view(pending_).substr(0, certain_), delta);
  end_call();
  if (!has_all_but_the_end) state_ = State::content;
  return again;
}

void ToolCallStream::say(std::string_view text, AnswerDelta& delta) {
  if (text.empty()) return;
  delta.content += text;
  is_after_call_ = false;
}

bool ToolCallStream::knows(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

namespace {

constexpr size_t kMaxJsonDepth = 64;  // what base/json.h reads
constexpr size_t kMaxWordBytes = 64;  // longer numbers have no use

bool is_json_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_json_digit(char c) {
  return c >= '0' && c <= '9';
}

size_t digits_at(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_json_digit(text[count])) ++count;
  return count;
}

// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t whole = digits_at(text);
  if (whole == 0 || (whole > 1 && text[0] == '0')) return false;
  text.remove_prefix(whole);
  if (text.starts_with('.')) {
    const size_t fraction = digits_at(text.substr(1));
    if (fraction == 0) return false;
    text.remove_prefix(1 + fraction);
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    const size_t exponent = digits_at(text);
    if (exponent == 0) return false;
    text.remove_prefix(exponent);
  }
  return text.empty();
}

// Whether a word is the beginning of one of JSON's.
bool may_be_word(const std::string& text) {
  for (const std::string_view word : {"true", "false", "null"})
    if (word.starts_with(text)) return true;
  return text.size() <= kMaxWordBytes && (is_number(text) || is_number(text + '0'));
}

bool is_word(std::string_view text) {
  return text == "true" || text == "false" || text == "null" || is_number(text);
}

}  // namespace

bool JsonScanner::push(char c) {
  if (in_string()) return go_on_in_string(c);
  if (state_ == State::word) {
    const bool ends = is_json_space(c) || c == ',' || c == '}' || c == ']';
    if (!ends) return go_on_in_word(c);
    if (!is_word(word_)) return false;
    state_ = State::after_value;
  }
  if (is_json_space(c) && state_ != State::begin && state_ != State::complete) return true;
  switch (state_) {
    case State::begin:
      return c == '{' && open(c, State::key_or_end);
    case State::value_or_end:
      return c == ']' ? close() : begin_value(c);
    case State::value:
      return begin_value(c);
    case State::key_or_end:
      return c == '}' ? close() : c == '"' && begin_string(true);
    case State::key:
      return c == '"' && begin_string(true);
    case State::colon:
      if (c == ':') state_ = State::value;
      return c == ':';
    case State::after_value:
      return after_value(c);
    case State::word:
    case State::complete:
    case State::string:
    case State::escape:
    case State::hex:
      break;
  }
  return false;
}

bool JsonScanner::begin_value(char c) {
  if (c == '{') return open(c, State::key_or_end);
  if (c == '[') return open(c, State::value_or_end);
  if (c == '"') return begin_string(false);
  if (c != '-' && !is_json_digit(c) && c != 't' && c != 'f' && c != 'n') return false;
  word_ = c;
  state_ = State::word;
  return true;
}

bool JsonScanner::begin_string(bool is_key) {
  in_key_ = is_key;
  state_ = State::string;
  return true;
}

bool JsonScanner::go_on_in_string(char c) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
  if (state_ == State::escape) {
    if (c != 'u' && kEscapes.find(c) == kEscapes.npos) return false;
    state_ = c == 'u' ? State::hex : State::string;
    digits_left_ = 4;
    return true;
  }
  if (state_ == State::hex) {
    if (kHexDigits.find(c) == kHexDigits.npos) return false;
    if (--digits_left_ == 0) state_ = State::string;
    return true;
  }
  if (static_cast<unsigned char>(c) < ' ') return false;
  if (c == '\\') state_ = State::escape;
  if (c == '"') state_ = in_key_ ? State::colon : State::after_value;
  return true;
}

bool JsonScanner::go_on_in_word(char c) {
  if (!may_be_word(word_ + c)) return false;
  word_ += c;
  return true;
}

bool JsonScanner::after_value(char c) {
  const bool in_object = open_.back() == '{';
  if (c == ',') state_ = in_object ? State::key : State::value;
  return c == ',' || (c == (in_object ? '}' : ']') && close());
}

bool JsonScanner::open(char bracket, State next) {
  if (open_.size() == kMaxJsonDepth) return false;
  open_ += bracket;
  state_ = next;
  return true;
}

bool JsonScanner::close() {
  open_.pop_back();
  state_ = open_.empty() ? State::complete : State::after_value;
  return true;
}

}  // namespace tyto
