// Chat templates: a small, safe Jinja subset that renders the templates models really ship.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/chat_messages.h"

namespace tyto {

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

}  // namespace tyto
