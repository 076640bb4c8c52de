// Chat templates: a small, safe Jinja subset that renders the templates models really ship.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/jinja/value.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {

// What is said in a conversation, as OpenAI's "messages" carry it.

// A function that the model wants to have called.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as the model wrote it
};

struct ChatMessage {
  std::string role;                       // "system", "user", "assistant", "tool", ...
  std::string content = {};               // may be empty beside tool calls
  std::string reasoning_content = {};     // an assistant's thoughts before it answered
  std::string name = {};                  // who speaks, or which tool answers
  std::string tool_call_id = {};          // which call a tool answers
  std::vector<ToolCall> tool_calls = {};  // in messages of the assistant
};

// Reads an array of messages as clients of OpenAI and Ollama write them. A field that we know and
// that has a wrong type is an input Error naming it, content other than text an unsupported one;
// other fields are ignored.
std::vector<ChatMessage> messages_from_json(const Json& array);

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token = {};  // texts, as the templates use them
  std::string eos_token = {};
  std::string date = {};           // what strftime_now answers from: "YYYY-MM-DD"; empty: today
  std::optional<Json> tools = {};  // an array as OpenAI's "tools"; none or empty: no tools
  std::vector<std::pair<std::string, bool>> flags = {};  // more variables ("enable_thinking") ...
  std::optional<Json> variables = {};  // ... and an object of them, as a client gave it
};

// Sees each text that messages, tools and variables bring into a rendering, and gives what the
// template gets instead. Templates look for some words by name: roles, and keys of JSON.
enum class TextKind { word, text };
using TextMap = std::function<std::string(std::string_view text, TextKind kind)>;

class ChatTemplate {
 public:
  // Parses the source; a construct outside the subset is an Error naming it and its line
  // ("chat template NAME: line 12: unknown filter 'foo'"), or becomes one when it is reached if a
  // condition guards it. What is in the subset renders as Jinja2 with transformers' settings does.
  ChatTemplate(std::string_view source, const std::string& name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Bounded in steps, memory and output; raise_exception() in a template becomes an Error. Texts
  // may be any bytes. Const and without shared state: safe to call from many threads.
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const TextMap& map = {}) const;

 private:
  struct Program;
  std::unique_ptr<const Program> program_;
};

// Templates Tyto knows by name (--chat-template NAME), written in the same subset.
struct NamedTemplate {
  std::string_view name;  // "chatml", "llama3", ...
  std::string_view source;
};
const std::vector<NamedTemplate>& named_chat_templates();

// Conversations and JSON as values that templates compute with.

class ChatValues {
 public:
  // Both must outlive it. Without a map texts stay as they are.
  ChatValues(jinja::Machine& machine, const TextMap& map) : machine_(machine), map_(map) {}

  // In the form that Hugging Face's templates expect: arguments of calls are objects, and what a
  // message does not have is not there.
  jinja::Value of_messages(const std::vector<ChatMessage>& messages) const;
  jinja::Value of_json(const Json& json) const;

 private:
  jinja::Value of_message(const ChatMessage& message) const;
  jinja::Value of_call(const ToolCall& call) const;
  jinja::Value of_arguments(std::string_view arguments) const;
  jinja::Value of_text(std::string_view text, TextKind kind = TextKind::text) const;

  jinja::Machine& machine_;
  const TextMap& map_;
};

// A conversation as a model sees it: the text that a chat template makes of it, and its tokens.

struct ChatText {
  std::string text;
  std::vector<size_t> plain;  // as EncodeOptions has it: where messages spell special tokens
  bool has_bos = false;       // the template wrote the BOS token itself
};

// The template's own markers are special tokens. What messages, their calls and tools spell stays
// text: "<|eot_id|>" in a content or in a tool's description ends no turn, unless
// `special_in_messages`. BOS and EOS are the vocabulary's where the options have none.
ChatText render_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                     const std::vector<ChatMessage>& messages, const ChatOptions& options = {},
                     bool special_in_messages = false);

std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatText& chat);
std::vector<Token> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                               const std::vector<ChatMessage>& messages,
                               const ChatOptions& options = {}, bool special_in_messages = false);

// A prompt as it is. A BOS token that the text writes itself is not added once more.
std::vector<Token> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                 const EncodeOptions& options);

}  // namespace tyto
