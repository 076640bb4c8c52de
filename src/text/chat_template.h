// Chat templates: a small, safe Jinja subset that renders the templates models really ship.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token;  // texts, as the templates use them
  std::string eos_token;
  std::string date;  // what strftime_now answers from: "YYYY-MM-DD"; empty: today
  std::vector<std::pair<std::string, bool>> flags;  // extra boolean variables ("enable_thinking")
};

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
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options) const;

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
