// tokenize, detokenize and template: what happens to text before and after the model.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "model/model.h"
#include "model/stores/find_model.h"
#include "text/chat_text.h"
#include "text/tools.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kMaxFileBytes = 64 << 20;

Tokenizer open_tokenizer(const ModelFlags& flags) {
  const auto path = find_model(model_or_shipped(flags));
  Model model = open_model(path, Need::vocabulary);
  return Tokenizer(std::move(*model.vocabulary), path.string());
}

// Tokens may be half a code point; JSON text may not.
std::string dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

struct TokenizeFlags {
  ModelFlags model;
  std::string text, same_text;
  bool from_stdin = false;
  bool no_bos = false;
  bool special = false;
  bool json = false;
};

void tokenize(const TokenizeFlags& flags, const std::string& text) {
  const Tokenizer tokenizer = open_tokenizer(flags.model);
  const auto ids =
      tokenizer.encode(text, {.add_bos = !flags.no_bos, .parse_special = flags.special});
  std::vector<std::string> pieces;
  for (Token id : ids) pieces.push_back(tokenizer.token_bytes(id));
  if (flags.json) return print(dump({{"ids", ids}, {"pieces", pieces}}) + "\n");
  std::string lines;
  for (size_t i = 0; i < ids.size(); ++i)
    lines += fmt::format("{:>8}  {}\n", ids[i], dump(pieces[i]));
  print(lines);
}

struct DetokenizeFlags {
  ModelFlags model;
  std::string ids;
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
  ModelFlags model;
  std::string file;
  std::string messages;
  std::string tools;
  bool no_generation_prompt = false;
  ChatOptions options;
};

void render_template(TemplateFlags flags) {
  flags.options.add_generation_prompt = !flags.no_generation_prompt;
  if (!flags.tools.empty()) {
    flags.options.tools = Json::parse_file(flags.tools, kMaxFileBytes);
    tools_from_json(*flags.options.tools);  // refuses what is no list of tools
  }
  const auto messages = messages_from_json(Json::parse_file(flags.messages, kMaxFileBytes));
  if (!flags.file.empty()) {
    const ChatTemplate chat_template(read_text_file(flags.file, kMaxFileBytes), flags.file);
    return print_data(chat_template.render(messages, flags.options));
  }
  const Tokenizer tokenizer = open_tokenizer(flags.model);
  const ChatTemplate chat_template =
      choose_chat_template(tokenizer.vocabulary(), "", model_or_shipped(flags.model));
  print_data(render_chat(tokenizer, chat_template, messages, flags.options).text);
}

}  // namespace

void define_tokenize(CommandLine& command) {
  TokenizeFlags& flags = command.values<TokenizeFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"text", &flags.text, "TEXT", "the text; - reads stdin",
       Rules{.may_be_empty = true, .excludes = {"--text", "--stdin"}}},
      {"--text", &flags.same_text, "TEXT", "the same, for a text that begins with a dash",
       Rules{.may_be_empty = true, .excludes = {"--stdin"}}},
      {"--stdin", &flags.from_stdin, "read the text from stdin"},
      {"--no-bos", &flags.no_bos, "leave out the beginning-of-sequence token"},
      {"--special", &flags.special, "recognise special tokens written in the text"},
      {"--json", &flags.json, "print {\"ids\":[...],\"pieces\":[...]}"},
  });
  command.footer =
      "A vocabulary-only GGUF is enough.\n\nExample:\n  tyto tokenize 'Hello world' --json";
  command.run = [&command, &flags] {
    tokenize(flags, flags.from_stdin ? read_stdin() : given_text(command, "--text"));
  };
}

void define_detokenize(CommandLine& command) {
  DetokenizeFlags& flags = command.values<DetokenizeFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--ids", &flags.ids, "IDS", "token ids, separated by commas",
       Rules{.excludes = {"--stdin"}}},
      {"--stdin", &flags.from_stdin, "read the ids from stdin"},
      {"--special", &flags.special, "show special tokens too"},
  });
  command.footer =
      "Into a file or a pipe the text goes byte for byte; on a terminal control characters are "
      "written out.\n\nExample:\n  tyto detokenize --ids 15,16,17";
  command.run = [&command, &flags] {
    if (!command.is_given("--ids") && !flags.from_stdin)
      throw Error(ErrorCode::usage, "detokenize", "no ids", "give --ids 1,2,3 or --stdin");
    detokenize(flags);
  };
}

void define_template(CommandLine& command) {
  TemplateFlags& flags = command.values<TemplateFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--file", &flags.file, "FILE", "a Jinja file (default: the model's template)"},
      {"--messages", &flags.messages, "FILE", "JSON: [{\"role\": ..., \"content\": ...}, ...]",
       Rules{.required = true}},
      {"--tools", &flags.tools, "FILE",
       "JSON: [{\"type\": \"function\", \"function\": {...}}, ...]"},
      {"--no-generation-prompt", &flags.no_generation_prompt, "do not open the assistant's turn"},
      {"--bos-token", &flags.options.bos_token, "TEXT", "text of the BOS token"},
      {"--eos-token", &flags.options.eos_token, "TEXT", "text of the EOS token"},
      {"--date", &flags.options.date, "YYYY-MM-DD", "what the template takes for today"},
  });
  command.footer =
      "Prints the prompt the model would see, and nothing else: byte for byte into a file or a "
      "pipe, "
      "with control characters written out on a terminal.";
  command.run = [&flags] { render_template(flags); };
}

}  // namespace tyto
