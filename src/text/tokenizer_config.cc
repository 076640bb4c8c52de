#include "text/tokenizer_config.h"

#include <algorithm>

#include "base/json.h"

namespace tyto {

namespace {

// A token written as its text or as an object that has the text as "content". Absent, null, empty:
// none. A text outside the vocabulary is an error where the token is needed.
Token token_of(const Json& root, std::string_view key, const Vocabulary& vocabulary, bool needed) {
  const auto value = root.find(key);
  if (!value) return -1;
  const std::string_view text =
      value->is(Json::Type::object) ? value->at("content").as_string() : value->as_string();
  if (text.empty()) return -1;
  const auto at = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), text);
  if (at != vocabulary.pieces.end()) return static_cast<Token>(at - vocabulary.pieces.begin());
  if (needed) value->fail("the token is not in the vocabulary");
  return -1;
}

// One template, or several with names.
void read_chat_templates(const Json& value, Vocabulary& vocabulary) {
  if (value.is(Json::Type::string))
    return set_chat_template(vocabulary, "default", std::string(value.as_string()));
  value.for_each_element([&](size_t, const Json& each) {
    set_chat_template(vocabulary, each.at("name").as_string(),
                      std::string(each.at("template").as_string()));
  });
}

}  // namespace

SaysTokens apply_tokenizer_config(const std::string& json, const std::string& name,
                                  Vocabulary& vocabulary) {
  const Json root = Json::parse(json, name);
  vocabulary.add_bos = root.bool_or("add_bos_token", vocabulary.add_bos);
  vocabulary.add_eos = root.bool_or("add_eos_token", vocabulary.add_eos);
  if (const Token bos = token_of(root, "bos_token", vocabulary, vocabulary.add_bos); bos >= 0)
    vocabulary.bos = bos;
  const Token eos = token_of(root, "eos_token", vocabulary, true);
  auto& ends = vocabulary.eos;
  if (eos >= 0 && std::find(ends.begin(), ends.end(), eos) == ends.end()) ends.push_back(eos);
  if (const auto chat = root.find("chat_template")) read_chat_templates(*chat, vocabulary);
  return {root.find("add_bos_token").has_value(), root.find("add_eos_token").has_value()};
}

}  // namespace tyto
