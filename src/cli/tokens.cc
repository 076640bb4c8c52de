// tokenize, detokenize and template: what happens to text before and after the model.
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "text/chat_template.h"
#include "text/tools.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxFileBytes = 64 << 20;

Tokenizer open_tokenizer(const std::string& model_name) {
  const auto path = find_model(model_or_shipped(model_name));
  Model model = open_model(path, Need::vocabulary);
  return Tokenizer(std::move(*model.vocabulary), path.string());
}

// Tokens may be half a code point; JSON text may not.
std::string dump_tokens(const JsonValue& json) {
  return json.dump();
}

struct TokenizeFlags {
  std::string model;
  std::string text, same_text;
  bool from_stdin = false;
  bool no_bos = false;
  bool special = false;
  JsonFlag json;
};

void tokenize(const TokenizeFlags& flags, const std::string& text) {
  const Tokenizer tokenizer = open_tokenizer(flags.model);
  const auto ids =
      tokenizer.encode(text, {.add_bos = !flags.no_bos, .parse_special = flags.special});
  std::vector<std::string> pieces;
  for (Token id : ids) pieces.push_back(tokenizer.token_bytes(id));
  if (flags.json.is_given() &&
      put_json(flags.json, dump_tokens({{"ids", ids}, {"pieces", pieces}}) + "\n"))
    return;
  std::string lines;
  for (size_t i = 0; i < ids.size(); ++i)
    lines += fmt::format("{:>8}  {}\n", ids[i], dump_tokens(pieces[i]));
  print(lines);
}

struct DetokenizeFlags {
  std::string model;
  std::string ids, same_ids;  // as an argument, with --ids
  bool from_stdin = false;
  bool special = false;
};

void detokenize(const DetokenizeFlags& flags) {
  const Tokenizer tokenizer = open_tokenizer(flags.model);
  const auto ids =
      flags.from_stdin ? parse_tokens(read_stdin(), "stdin") : parse_tokens(flags.ids, "--ids");
  for (Token id : ids)
    if (static_cast<size_t>(id) >= tokenizer.size())
      throw Error(ErrorCode::usage, fmt::format("token {}", id),
                  fmt::format("the vocabulary has {} tokens", tokenizer.size()));
  print_data(tokenizer.decode(ids, flags.special) + "\n");
}

struct TemplateFlags {
  std::string model;
  std::string file;
  std::string messages;
  std::string tools;
  bool no_generation_prompt = false;
  ChatOptions options;
};

// Some templates know no tools, and say nothing of it.
void print_rendered(const std::string& prompt, const ChatOptions& options,
                    const std::function<std::string(const ChatOptions&)>& render) {
  print_data(prompt);
  if (!options.tools || options.tools->size() == 0) return;
  ChatOptions without = options;
  without.tools.reset();
  try {
    if (render(without) == prompt)
      note("tyto: the template shows the model no tools: the prompt is the same without them");
  } catch (const Error&) {  // it has something to say of tools
  }
}

void render_template(TemplateFlags flags) {
  flags.options.add_generation_prompt = !flags.no_generation_prompt;
  if (!flags.tools.empty()) {
    flags.options.tools = Json::parse_file(flags.tools, kMaxFileBytes);
    tools_from_json(*flags.options.tools);  // refuses what is no list of tools
  }
  const auto messages = messages_from_json(Json::parse_file(flags.messages, kMaxFileBytes));
  if (!flags.file.empty()) {
    const ChatTemplate chat_template(read_text_file(flags.file, kMaxFileBytes), flags.file);
    const auto render = [&](const ChatOptions& options) {
      return chat_template.render(messages, options);
    };
    return print_rendered(render(flags.options), flags.options, render);
  }
  const Tokenizer tokenizer = open_tokenizer(flags.model);
  const bool has_tools = flags.options.tools && flags.options.tools->size() > 0;
  const ChatTemplate chat_template =
      choose_chat_template(tokenizer.vocabulary(), "", model_or_shipped(flags.model), has_tools);
  const auto render = [&](const ChatOptions& options) {
    return render_chat(tokenizer, chat_template, messages, options).text;
  };
  print_rendered(render(flags.options), flags.options, render);
}

}  // namespace

void define_tokenize(CommandLine& command) {
  TokenizeFlags& flags = command.values<TokenizeFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"text", &flags.text, "TEXT", "the text, in quotes; - reads it from stdin",
       Rules{.may_be_empty = true, .text_kind = "text", .excludes = {"--text", "--stdin"}}},
      {"--text", &flags.same_text, "TEXT", "the text, which may begin with a dash",
       Rules{.may_be_empty = true, .excludes = {"--stdin"}}},
      {"--stdin", &flags.from_stdin, "read the text from stdin"},
      {"--no-bos", &flags.no_bos, "leave out the beginning-of-sequence token"},
      {"--special", &flags.special, "read special tokens that the text spells out"},
  });
  add_json_flag(command, flags.json, "print {\"ids\":[...],\"pieces\":[...]}");
  command.footer =
      "A GGUF file with only a vocabulary is enough.\n\n"
      "Examples:\n  tyto tokenize 'Hello world'\n  tyto tokenize 'Hello world' --json";
  command.run = [&command, &flags] {
    tokenize(flags, flags.from_stdin ? read_stdin() : given_text(command, "--text"));
  };
}

void define_detokenize(CommandLine& command) {
  DetokenizeFlags& flags = command.values<DetokenizeFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"ids", &flags.ids, "IDS", "token ids, separated by commas",
       Rules{.excludes = {"--ids", "--stdin"}}},
      {"--ids", &flags.same_ids, "IDS", "token ids, separated by commas",
       Rules{.excludes = {"--stdin"}}},
      {"--stdin", &flags.from_stdin, "read the ids from stdin"},
      {"--special", &flags.special, "show special tokens, too"},
  });
  command.footer =
      "A file or a pipe gets the exact bytes; a terminal gets control characters spelled out.\n\n"
      "Examples:\n  tyto detokenize 15,16,17\n  tyto detokenize --special 1,15";
  command.run = [&command, &flags] {
    if (command.is_given("--ids")) flags.ids = flags.same_ids;
    if (flags.ids.empty() && !flags.from_stdin)
      throw Error(ErrorCode::usage, "tyto detokenize", "no token ids", "give 1,2,3 or --stdin");
    detokenize(flags);
  };
}

void define_template(CommandLine& command) {
  TemplateFlags& flags = command.values<TemplateFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--chat-template", &flags.file, "FILE", "a Jinja file (default: the model's template)",
       Rules{.alias = "--file"}},
      {"--messages", &flags.messages, "FILE",
       "the conversation as JSON: [{\"role\": ..., \"content\": ...}, ...]",
       Rules{.required = true}},
      {"--tools", &flags.tools, "FILE",
       "tools as JSON: [{\"type\": \"function\", \"function\": {...}}, ...]"},
      {"--no-generation-prompt", &flags.no_generation_prompt, "do not open the assistant's turn"},
      {"--bos-token", &flags.options.bos_token, "TEXT", "text of the BOS token"},
      {"--eos-token", &flags.options.eos_token, "TEXT", "text of the EOS token"},
      {"--date", &flags.options.date, "YYYY-MM-DD", "date that the template gets as today"},
  });
  command.footer =
      "Prints the prompt that the model would get. A file or a pipe gets the exact bytes; a "
      "terminal gets control characters spelled out.\n\n"
      "Example:\n  tyto template --messages messages.json";
  command.run = [&flags] { render_template(flags); };
}

}  // namespace tyto
