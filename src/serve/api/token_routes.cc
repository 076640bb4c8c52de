// llama-server's /tokenize, /detokenize and /apply-template.
#include "base/utf8.h"
#include "serve/api/errors.h"
#include "serve/api/fields.h"
#include "serve/api/generation.h"
#include "serve/api/routes.h"

namespace tyto::api {
namespace {

struct TokenizeRequest {
  std::string content = {};
  EncodeOptions options = {.add_bos = false, .add_eos = false, .parse_special = true};
  bool with_pieces = false;
};
constexpr Field<TokenizeRequest> kTokenizeFields[] = {
    {"content", [](const Json& value, TokenizeRequest& into) { into.content = text_of(value); }},
    {"add_special",
     [](const Json& value, TokenizeRequest& into) {
       into.options.add_bos = into.options.add_eos = value.as_bool();
     }},
    {"parse_special", [](const Json& value,
                         TokenizeRequest& into) { into.options.parse_special = value.as_bool(); }},
    {"with_pieces",
     [](const Json& value, TokenizeRequest& into) { into.with_pieces = value.as_bool(); }},
};

// Text, or the bytes of what is only a part of a character.
ordered_json piece_json(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  ordered_json list = ordered_json::array();
  for (const char byte : bytes) list.push_back(static_cast<uint8_t>(byte));
  return list;
}

}  // namespace

void answer_tokenize(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  required_field(body, "content");
  TokenizeRequest request;
  read_fields(body, kTokenizeFields, request);
  const auto model = find_model(exchange.api, parse_model(body));
  ordered_json tokens = ordered_json::array();
  for (const Token token : model->tokenizer->encode(request.content, request.options)) {
    if (request.with_pieces)
      tokens.push_back(
          {{"id", token}, {"piece", piece_json(model->tokenizer->token_bytes(token))}});
    else
      tokens.push_back(token);
  }
  exchange.send({{"tokens", std::move(tokens)}});
}

void answer_detokenize(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  TextOrTokens tokens{.is_tokens = true};
  const Json value = required_field(body, "tokens");
  in_field(value, [&] { tokens.tokens = tokens_of(value); });
  const auto model = find_model(exchange.api, parse_model(body));
  exchange.send(
      {{"content", model->tokenizer->decode(prompt_tokens(*model, tokens, "tokens"), true)}});
}

void answer_apply_template(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const Conversation conversation = parse_conversation(body);
  exchange.send(
      {{"prompt", chat_text(*find_model(exchange.api, parse_model(body)), conversation)}});
}

}  // namespace tyto::api
