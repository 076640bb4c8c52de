// Does with one tokenizer all that compare_tokenizers.mjs asks for: opening a real one under
// sanitizers takes longer than hundreds of texts.
//
// Usage: read_tokenizer MODEL JOB_FILE DATE
//   JOB_FILE   {"texts": [TEXT ...], "ids": [[ID ...] ...],
//               "conversations": [{"messages": [...], "tools": [...] or null, "generation": true}]}
// Prints {"encoded": [[ID ...] ...], "whole": [ID ...], "decoded": [[TEXT, TEXT] ...],
// "rendered": [{"text": ...} or {"error": ...} ...]}: ids of the texts without and of the first
// with what stands before and behind; texts of those ids and of the given ones, without and with
// special tokens; prompts by the model's own templates, and none where it has none.
#include <iostream>

#include "base/error.h"
#include "base/json_value.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxFileBytes = 64 << 20;

std::vector<Token> tokens_of(const Json& list) {
  std::vector<Token> tokens;
  list.for_each_element(
      [&](size_t, const Json& id) { tokens.push_back(static_cast<Token>(id.as_uint(INT32_MAX))); });
  return tokens;
}

JsonValue decoded(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  return {tokenizer.decode(tokens, false), tokenizer.decode(tokens, true)};
}

std::string text_of(const Tokenizer& tokenizer, Token token) {
  return token < 0 ? "" : tokenizer.token_bytes(token);
}

JsonValue rendered(const Tokenizer& tokenizer, const Json& conversation, const std::string& date) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  ChatOptions options;
  options.add_generation_prompt = conversation.at("generation").as_bool();
  options.date = date;
  options.bos_token = text_of(tokenizer, vocabulary.bos);
  options.eos_token = text_of(tokenizer, vocabulary.eos.empty() ? -1 : vocabulary.eos.front());
  options.tools = conversation.find("tools");
  if (options.tools) tools_from_json(*options.tools);
  try {
    const ChatTemplate chosen(chat_template_for(vocabulary, options.tools.has_value()), "template");
    return {{"text", chosen.render(messages_from_json(conversation.at("messages")), options)}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

int read_tokenizer(const std::string& path, const std::string& job_file, const std::string& date) {
  Model model = open_model(path, Need::vocabulary);
  const Tokenizer tokenizer(std::move(*model.vocabulary), path);
  const Json job = Json::parse_file(job_file, kMaxFileBytes);
  JsonValue result = {{"encoded", JsonValue::array()},
                      {"decoded", JsonValue::array()},
                      {"rendered", JsonValue::array()}};
  job.at("texts").for_each_element([&](size_t index, const Json& text) {
    if (index == 0) result["whole"] = tokenizer.encode(text.as_string(), {.parse_special = true});
    const std::vector<Token> tokens = tokenizer.encode(
        text.as_string(), {.add_bos = false, .add_eos = false, .parse_special = true});
    result["encoded"].push_back(tokens);
    result["decoded"].push_back(decoded(tokenizer, tokens));
  });
  job.at("ids").for_each_element([&](size_t, const Json& ids) {
    result["decoded"].push_back(decoded(tokenizer, tokens_of(ids)));
  });
  if (!tokenizer.vocabulary().chat_template.empty())
    job.at("conversations").for_each_element([&](size_t, const Json& conversation) {
      result["rendered"].push_back(rendered(tokenizer, conversation, date));
    });
  std::cout << result.dump();
  return 0;
}

}  // namespace
}  // namespace tyto

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: read_tokenizer MODEL JOB_FILE DATE\n";
    return 2;
  }
  try {
    return tyto::read_tokenizer(argv[1], argv[2], argv[3]);
  } catch (const tyto::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
