#include "text/chat_template.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/value.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace tyto {
namespace {

// Parts are joined by line breaks, as other servers do.
std::string text_of_parts(const Json& parts) {
  std::string text;
  parts.for_each_element([&](size_t index, const Json& part) {
    const Json type = part.at("type");
    if (type.as_string() != "text")
      throw Error(ErrorCode::unsupported, type.path(),
                  fmt::format("{} is not supported", printable_name(type.as_string())),
                  "Tyto reads text alone");
    if (index > 0) text += '\n';
    text += part.at("text").as_string();
  });
  return text;
}

std::string text_of_content(const Json& content) {
  if (content.is(Json::Type::array)) return text_of_parts(content);
  return std::string(content.as_string());
}

// OpenAI writes the arguments as JSON inside a string, Ollama as an object.
std::string text_of_arguments(const Json& arguments) {
  if (arguments.is(Json::Type::object)) return arguments.text();
  if (arguments.is(Json::Type::string)) return std::string(arguments.as_string());
  arguments.fail("expected JSON text or an object");
}

ToolCall tool_call_from_json(const Json& call) {
  if (const auto type = call.find("type"); type && type->as_string() != "function")
    fail_unsupported(type->path(), "a call of type {}; only \"function\" is supported",
                     printable_name(type->as_string()));
  const Json function = call.at("function");
  const auto arguments = function.find("arguments");
  return {call.string_or("id", ""), std::string(function.at("name").as_string()),
          arguments ? text_of_arguments(*arguments) : "{}"};
}

ChatMessage message_from_json(const Json& message) {
  ChatMessage result;
  result.role = message.at("role").as_string();
  result.reasoning_content = message.string_or("reasoning_content", "");
  result.name = message.string_or("name", message.string_or("tool_name", ""));  // Ollama's
  result.tool_call_id = message.string_or("tool_call_id", "");
  if (const auto calls = message.find("tool_calls"))
    calls->for_each_element(
        [&](size_t, const Json& call) { result.tool_calls.push_back(tool_call_from_json(call)); });
  const bool may_be_silent = !result.tool_calls.empty() || !result.reasoning_content.empty();
  if (!may_be_silent || message.find("content"))
    result.content = text_of_content(message.at("content"));
  return result;
}

}  // namespace

std::vector<ChatMessage> messages_from_json(const Json& array) {
  std::vector<ChatMessage> messages;
  array.for_each_element(
      [&](size_t, const Json& message) { messages.push_back(message_from_json(message)); });
  return messages;
}

struct ChatTemplate::Program {
  std::unique_ptr<const jinja::Program> code;
  bool knows_developer = false;  // the role
};

namespace {

std::tm today() {
  std::time_t now = std::time(nullptr);
  std::tm result = {};
  localtime_r(&now, &result);
  return result;
}

// Digits at [from, from + count) of "YYYY-MM-DD", or -1.
int date_field(const std::string& date, size_t from, size_t count) {
  int value = 0;
  for (size_t i = from; i < from + count; ++i) {
    if (date[i] < '0' || date[i] > '9') return -1;
    value = value * 10 + (date[i] - '0');
  }
  return value;
}

std::tm midnight_of(const std::string& date) {
  namespace chrono = std::chrono;
  bool shaped = date.size() == 10 && date[4] == '-' && date[7] == '-';
  int year = shaped ? date_field(date, 0, 4) : -1;
  int month = shaped ? date_field(date, 5, 2) : -1;
  int day = shaped ? date_field(date, 8, 2) : -1;
  chrono::year_month_day parsed{chrono::year(year), chrono::month(static_cast<unsigned>(month)),
                                chrono::day(static_cast<unsigned>(day))};
  if (year < 0 || month < 0 || day < 0 || !parsed.ok()) {
    throw Error(ErrorCode::usage, "date",
                fmt::format("'{}' is not a date like 2025-01-31", printable_line(date, 40)));
  }
  chrono::sys_days days = parsed;
  chrono::sys_days new_year = parsed.year() / chrono::January / 1;
  std::tm result = {};
  result.tm_year = year - 1900;
  result.tm_mon = month - 1;
  result.tm_mday = day;
  result.tm_wday = static_cast<int>(chrono::weekday(days).c_encoding());
  result.tm_yday = static_cast<int>((days - new_year).count());
  result.tm_isdst = 0;
  return result;
}

bool mentions_developer(std::string_view source) {
  return source.find("'developer'") != source.npos || source.find("\"developer\"") != source.npos;
}

// A developer is what OpenAI calls a system message today.
std::vector<ChatMessage> without_developers(std::vector<ChatMessage> messages) {
  for (ChatMessage& message : messages)
    if (message.role == "developer") message.role = "system";
  return messages;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, const std::string& name)
    : program_(new Program{jinja::parse(source, name), mentions_developer(source)}) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                 const ChatOptions& options, const TextMap& map) const {
  std::string output;
  jinja::Machine machine;
  machine.name = program_->code->name;
  machine.output = &output;
  machine.now = options.date.empty() ? today() : midnight_of(options.date);
  machine.scope = jinja::make_scope(machine, nullptr);

  auto set = [&](std::string_view name, const jinja::Value& value) {
    jinja::set_variable(machine, *machine.scope, name, value);
  };
  const ChatValues values(machine, map);
  if (options.variables)
    options.variables->for_each_member(
        [&](std::string_view name, const Json& value) { set(name, values.of_json(value)); });
  for (const auto& [flag, value] : options.flags) set(flag, value);
  set("messages",
      values.of_messages(program_->knows_developer ? messages : without_developers(messages)));
  set("add_generation_prompt", options.add_generation_prompt);
  set("bos_token", std::string_view(options.bos_token));
  set("eos_token", std::string_view(options.eos_token));
  // transformers always passes these two.
  const bool has_tools = options.tools && options.tools->size() > 0;
  set("tools", has_tools ? values.of_json(*options.tools) : jinja::None{});
  set("documents", jinja::None{});

  jinja::execute(machine, *program_->code);
  return output;
}

using jinja::Value;

Value ChatValues::of_text(std::string_view text, TextKind kind) const {
  return jinja::keep(machine_, map_ ? map_(text, kind) : std::string(text));
}

Value ChatValues::of_json(const Json& json) const {
  constexpr double kTooLarge = 9.2e18;  // for an int64_t
  switch (json.type()) {
    case Json::Type::object: {
      jinja::Dict* dict = jinja::make_dict(machine_);
      json.for_each_member([&](std::string_view key, const Json& value) {
        jinja::assign(machine_, *dict, of_text(key, TextKind::word), of_json(value));
      });
      return dict;
    }
    case Json::Type::array: {
      jinja::List* list = jinja::make_list(machine_);
      json.for_each_element(
          [&](size_t, const Json& value) { jinja::push(machine_, *list, of_json(value)); });
      return list;
    }
    case Json::Type::string:
      return of_text(json.as_string());
    case Json::Type::integer:
      if (std::abs(json.as_double()) < kTooLarge) return json.as_int();
      return json.as_double();
    case Json::Type::number:
      return json.as_double();
    case Json::Type::boolean:
      return json.as_bool();
    case Json::Type::null:
      break;
  }
  return jinja::None{};
}

// Arguments of an earlier answer may have been cut off; the template then gets what there is.
Value ChatValues::of_arguments(std::string_view arguments) const {
  try {
    const Json json = Json::parse(arguments, "arguments");
    if (json.is(Json::Type::object)) return of_json(json);
  } catch (const Error&) {
  }
  return of_text(arguments);
}

Value ChatValues::of_call(const ToolCall& call) const {
  jinja::Dict* function = jinja::make_dict(machine_);
  jinja::assign(machine_, *function, "name", of_text(call.name));
  jinja::assign(machine_, *function, "arguments", of_arguments(call.arguments));
  jinja::Dict* dict = jinja::make_dict(machine_);
  if (!call.id.empty()) jinja::assign(machine_, *dict, "id", of_text(call.id));
  jinja::assign(machine_, *dict, "type", "function");
  jinja::assign(machine_, *dict, "function", function);
  return dict;
}

Value ChatValues::of_message(const ChatMessage& message) const {
  jinja::Dict* dict = jinja::make_dict(machine_);
  const auto set = [&](std::string_view key, const Value& value) {
    jinja::assign(machine_, *dict, key, value);
  };
  set("role", of_text(message.role, TextKind::word));
  set("content", of_text(message.content));
  for (const auto& [key, text] :
       {std::pair("reasoning_content", &message.reasoning_content),
        std::pair("name", &message.name), std::pair("tool_call_id", &message.tool_call_id)})
    if (!text->empty()) set(key, of_text(*text));
  if (message.tool_calls.empty()) return dict;
  jinja::List* calls = jinja::make_list(machine_);
  for (const ToolCall& call : message.tool_calls) jinja::push(machine_, *calls, of_call(call));
  set("tool_calls", calls);
  return dict;
}

Value ChatValues::of_messages(const std::vector<ChatMessage>& messages) const {
  jinja::List* list = jinja::make_list(machine_);
  for (const ChatMessage& message : messages) jinja::push(machine_, *list, of_message(message));
  return list;
}

// Rendered text does not say which of it a message brought along. So before rendering, a mark goes
// behind the first character of every special token that a message or a tool spells, and the
// template takes it along, whether it trims, cuts or repeats the text. Afterwards the marks are
// taken out again, and no special token may cover a character that had one.

namespace {

// Noncharacters, which Unicode keeps for use inside a program: no template looks for them.
constexpr char32_t kFirstMark = 0xFDD0;
constexpr char32_t kLastMark = 0xFDEF;
constexpr std::string_view kMarksBegin = "\xEF\xB7";  // their first two bytes of three

// Templates trim contents: the ends are the first and the last character that are not white space.
struct Ends {
  size_t first = 0, last = 0;  // where these characters begin
  std::string_view text;       // from one to the other
};
Ends ends_of(std::string_view content) {
  Ends ends{content.size(), content.size(), {}};
  for (size_t at = 0; at < content.size();) {
    const Utf8Head head = utf8_head(content.substr(at));
    if (head.kind != Utf8Head::Kind::valid || !is_white_space(head.code_point)) {
      ends.first = std::min(ends.first, at);
      ends.last = at;
      ends.text = content.substr(ends.first, at + head.bytes - ends.first);
    }
    at += head.bytes;
  }
  return ends;
}

// Where a text's marks belong: at special tokens, and where it could be a part of one, which the
// template's words beside it complete. A role may be a part: templates write "<|" + role + "|>".
std::vector<size_t> places_in(const Tokenizer& tokenizer, SpecialEdges& edges,
                              std::string_view text, TextKind kind) {
  std::vector<size_t> places = tokenizer.special_places(text);
  if (kind == TextKind::word) return places;
  const Ends ends = ends_of(text);
  if (ends.text.empty()) return places;
  if (edges.begins_inside(ends.text)) places.push_back(ends.first);
  if (edges.ends_inside(ends.text)) places.push_back(ends.last);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

std::string with_marks(std::string_view text, const std::vector<size_t>& places,
                       std::string_view mark) {
  std::string marked;
  size_t done = 0;
  for (const size_t place : places) {
    const size_t end = place + utf8_head(text.substr(place)).bytes;
    marked.append(text.substr(done, end - done)).append(mark);
    done = end;
  }
  return marked.append(text.substr(done));
}

ChatText without_marks(std::string_view marked, std::string_view mark) {
  ChatText chat;
  while (true) {
    const size_t at = marked.find(mark);
    chat.text.append(marked.substr(0, at));
    if (at == std::string_view::npos) return chat;
    marked.remove_prefix(at + mark.size());
    const bool is_new = chat.plain.empty() || chat.plain.back() + 1 < chat.text.size();
    if (!chat.text.empty() && is_new) chat.plain.push_back(chat.text.size() - 1);
  }
}

// What a rendering's texts say about marks.
class MarkSearch {
 public:
  explicit MarkSearch(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), edges_(tokenizer.vocabulary().added) {}

  std::vector<size_t> places(std::string_view text, TextKind kind) {
    return places_in(tokenizer_, edges_, text, kind);
  }

  void look_at(std::string_view text, TextKind kind) {
    needs_mark_ = needs_mark_ || !places(text, kind).empty();
    for (size_t at = text.find(kMarksBegin); at != text.npos; at = text.find(kMarksBegin, at + 1))
      used_.emplace(text.substr(at, kMarksBegin.size() + 1));
  }
  bool needs_mark() const { return needs_mark_; }
  std::string unused_mark() const {
    for (char32_t c = kFirstMark; c <= kLastMark; ++c) {
      std::string mark;
      append_utf8(c, mark);
      if (!used_.contains(mark)) return mark;
    }
    throw Error(ErrorCode::input, "messages",
                "hold each of the noncharacters U+FDD0 to U+FDEF, and special tokens as text",
                "leave one of them out");
  }

 private:
  const Tokenizer& tokenizer_;
  SpecialEdges edges_;
  bool needs_mark_ = false;
  std::set<std::string> used_;  // what begins as marks do
};

// Renders twice only where something is to be marked.
ChatText render_marked(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                       const std::vector<ChatMessage>& messages, const ChatOptions& options) {
  MarkSearch search(tokenizer);
  std::string plain =
      chat_template.render(messages, options, [&](std::string_view text, TextKind kind) {
        search.look_at(text, kind);
        return std::string(text);
      });
  if (!search.needs_mark()) return {std::move(plain), {}, false};
  const std::string mark = search.unused_mark();
  const auto marked = [&](std::string_view text, TextKind kind) {
    return with_marks(text, search.places(text, kind), mark);
  };
  return without_marks(chat_template.render(messages, options, marked), mark);
}

}  // namespace

ChatText render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                     const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     bool special_in_messages) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  ChatOptions with_tokens = options;
  std::string& bos = with_tokens.bos_token;
  std::string& eos = with_tokens.eos_token;
  if (bos.empty() && vocabulary.bos >= 0) bos = tokenizer.token_bytes(vocabulary.bos);
  if (eos.empty() && !vocabulary.eos.empty()) eos = tokenizer.token_bytes(vocabulary.eos.front());
  ChatText chat = special_in_messages
                      ? ChatText{chat_template.render(messages, with_tokens), {}, false}
                      : render_marked(tokenizer, chat_template, messages, with_tokens);
  chat.has_bos = !bos.empty() && chat.text.starts_with(bos) &&
                 (chat.plain.empty() || chat.plain.front() >= bos.size());
  return chat;
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatText& chat) {
  // Most templates write the BOS themselves; it must not be there twice.
  return tokenizer.encode(chat.text,
                          {.add_bos = !chat.has_bos, .parse_special = true, .plain = chat.plain});
}

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages, const ChatOptions& options,
                               bool special_in_messages) {
  return encode_chat(tokenizer,
                     render_chat(tokenizer, chat_template, messages, options, special_in_messages));
}

std::vector<Token> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                 const EncodeOptions& options) {
  std::vector<Token> tokens = tokenizer.encode(text, options);
  const Token bos = tokenizer.vocabulary().bos;
  const bool adds_bos = options.add_bos && tokenizer.vocabulary().add_bos && bos >= 0;
  if (adds_bos && tokens.size() > 1 && tokens[1] == bos) tokens.erase(tokens.begin());
  return tokens;
}

namespace {

// {% generation %} marks and default texts are left out: these are the prompt formats alone, for
// files that carry no template. Calls and tools are in those whose families were trained on them,
// in the words of that training.

// Tools as Hermes and Qwen have them.
constexpr std::string_view kChatml =
    R"({%- set has_system = messages and messages[0].role == 'system' -%}
{%- set system = messages[0].content if has_system else default_system | default('') -%}
{%- if system or tools or has_system -%}
  {{ '<|im_start|>system\n' + system }}
  {%- if tools -%}
    {{ ('\n\n' if system else '') + '# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>' }}
    {%- for tool in tools -%}
      {{ '\n' + (tool | tojson) }}
    {%- endfor -%}
    {{ '\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
  {%- endif -%}
  {{ '<|im_end|>\n' }}
{%- endif -%}
{%- for message in (messages[1:] if has_system else messages) -%}
  {%- if message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}
      {{ '<|im_start|>user' }}
    {%- endif -%}
    {{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}
      {{ '<|im_end|>\n' }}
    {%- endif -%}
  {%- else -%}
    {{ '<|im_start|>' + message.role }}
    {%- if message.content or not message.tool_calls -%}
      {{ '\n' + message.content }}
    {%- endif -%}
    {%- for call in message.tool_calls or [] -%}
      {{ '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}
    {%- endfor -%}
    {{ '<|im_end|>\n' }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
)";

constexpr std::string_view kQwenDefault =
    "{%- set default_system = 'You are a helpful assistant.' -%}";

// The system text goes inside of the first instruction.
constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{ bos_token + '[INST] ' + (ns.system + message.content).strip() + ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' + message.content.strip() + ' ' + eos_token }}
  {%- else -%}
    {{ raise_exception('llama2 has no role ' + message.role) }}
  {%- endif -%}
{%- endfor -%}
)";

// Tools stand in the first message of the user, results come from "ipython", as in Llama 3.1 and
// later ones.
constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- set ns = namespace(tools=tools) -%}
{%- if tools and (not messages or messages[0].role != 'system') -%}
  {{ '<|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython<|eot_id|>' }}
{%- endif -%}
{%- for message in messages -%}
  {%- set role = 'ipython' if message.role == 'tool' else message.role -%}
  {{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}
  {%- if role == 'system' and ns.tools -%}
    {{ 'Environment: ipython\n\n' }}
  {%- elif role == 'user' and ns.tools -%}
    {{ 'Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\n\n' }}
    {%- for tool in ns.tools -%}
      {{ (tool | tojson(indent=4)) + '\n\n' }}
    {%- endfor -%}
    {%- set ns.tools = none -%}
  {%- endif -%}
  {%- if message.tool_calls -%}
    {%- for call in message.tool_calls -%}
      {{ ('' if loop.first else '; ') + '{"name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + '}' }}
    {%- endfor -%}
  {%- elif role == 'ipython' -%}
    {{ message.content | tojson }}
  {%- else -%}
    {{ message.content | trim }}
  {%- endif -%}
  {{ '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%}
)";

constexpr std::string_view kZephyr = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content + '\n\n' -%}
  {%- elif message.role == 'user' -%}
    {{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
    {%- set ns.system = '' -%}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' + message.content.strip() + eos_token }}
  {%- else -%}
    {{ raise_exception('mistral has no role ' + message.role) }}
  {%- endif -%}
{%- endfor -%}
)";

constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
{{ '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|assistant|>\n' }}
{%- endif -%}
)";

}  // namespace

const std::vector<NamedTemplate>& named_chat_templates() {
  static const std::string kQwen = std::string(kQwenDefault).append(kChatml);
  static const std::vector<NamedTemplate> kTemplates = {
      {"chatml", kChatml}, {"llama2", kLlama2}, {"llama3", kLlama3}, {"mistral", kMistral},
      {"phi3", kPhi3},     {"qwen", kQwen},     {"zephyr", kZephyr},
  };
  return kTemplates;
}

}  // namespace tyto
