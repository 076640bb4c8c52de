#include <sodium.h>

#include "serve/api/embeddings.h"
#include "serve/api/fields.h"
#include "serve/api/generation.h"
#include "serve/api/routes.h"

namespace tyto::api {
namespace {

// Little-endian floats, as OpenAI's clients expect them.
std::string base64_of(const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  std::string text(sodium_base64_ENCODED_LEN(bytes, sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), reinterpret_cast<const uint8_t*>(values.data()),
                    bytes, sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the terminating zero
  return text;
}

ordered_json embeddings_json(const Embeddings& embeddings, bool base64) {
  ordered_json data = ordered_json::array();
  for (const std::vector<float>& values : embeddings.vectors)
    data.push_back(
        {{"object", "embedding"},
         {"index", data.size()},
         {"embedding", base64 ? ordered_json(base64_of(values)) : ordered_json(values)}});
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", embeddings.model},
          {"usage", {{"prompt_tokens", embeddings.tokens}, {"total_tokens", embeddings.tokens}}}};
}

}  // namespace

void answer_chat_completion(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  generate_answer(exchange, chat_generation(model, parse_chat_completion(body, model->sampling)),
                  "chatcmpl-", openai_chat_style);
}

void answer_completion(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  const TextCompletionRequest request = parse_completion(body, model->sampling);
  Generation generation{
      .model = model, .options = request.options, .field = "prompt", .is_raw = true};
  for (const TextOrTokens& prompt : request.prompts) {
    generation.prompts.push_back(prompt_tokens(*model, prompt, generation.field));
    if (request.echo)
      generation.begin_with.push_back(prompt.is_tokens ? model->tokenizer->decode(prompt.tokens)
                                                       : prompt.text);
  }
  generate_answer(exchange, std::move(generation), "cmpl-", openai_text_style);
}

void answer_embeddings(const Exchange& exchange) {
  const Json body = parse_body(exchange.request.body);
  const auto model = find_model(exchange.api, parse_model(body));
  const EmbeddingsRequest request = parse_embeddings(body);
  embed(exchange, *model, request, [base64 = request.base64](const Embeddings& embeddings) {
    return embeddings_json(embeddings, base64);
  });
}

}  // namespace tyto::api
