#include "serve/api/embeddings.h"

#include <chrono>

#include "serve/api/errors.h"
#include "serve/api/generation.h"

namespace tyto::api {

using std::chrono::steady_clock;

void embed(const Exchange& exchange, const ModelText& model,
           const std::vector<TextOrTokens>& inputs,
           std::function<ordered_json(const Embeddings&)> wording) {
  Embeddings embeddings{.model = model.name};
  std::vector<std::vector<Token>> tokens;
  for (const TextOrTokens& input : inputs) {
    tokens.push_back(prompt_tokens(model, input, "input"));
    check_context(model, tokens.back().size(), "input");
    embeddings.tokens += tokens.back().size();
  }
  EngineThread& engine = exchange.api.engine;
  const EngineThread::Ticket ticket = engine.embed(
      model.name, std::move(tokens),
      [reply = exchange.reply, error_text = error_text_for(exchange.request.path), embeddings,
       wording = std::move(wording), start = steady_clock::now()](
          std::vector<std::vector<float>> vectors, const std::optional<Error>& error) mutable {
        if (error) return reply->send(error_response(refusal_of(*error), error_text));
        embeddings.vectors = std::move(vectors);
        embeddings.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
        reply->send({.body = json_text(wording(embeddings))});
      });
  exchange.reply->on_gone([&engine, ticket] { engine.cancel(ticket); });
}

}  // namespace tyto::api
