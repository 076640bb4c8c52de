#include "serve/api/embeddings.h"

#include <chrono>

#include "serve/api/errors.h"
#include "serve/api/generation.h"

namespace tyto::api {

using std::chrono::steady_clock;

namespace {

// A part of a vector is no smaller embedding unless a model was trained for it.
void check_dimensions(const ModelText& model, const EmbeddingsRequest& request) {
  if (request.dimensions && *request.dimensions != model.embedding_size)
    throw RequestError(400, "unsupported", "dimensions",
                       fmt::format("this model's embeddings have {}", model.embedding_size));
}

}  // namespace

void embed(const Exchange& exchange, const ModelText& model, const EmbeddingsRequest& request,
           std::function<ordered_json(const Embeddings&)> wording) {
  check_dimensions(model, request);
  Embeddings embeddings{.model = model.name};
  std::vector<std::vector<Token>> tokens;
  for (const TextOrTokens& input : request.inputs) {
    tokens.push_back(prompt_tokens(model, input, "input"));
    if (request.truncate && tokens.back().size() >= model.context)
      tokens.back().resize(model.context - 1);
    check_context(model, tokens.back().size(), "input");
    embeddings.tokens += tokens.back().size();
  }
  EngineThread& engine = exchange.api.engine;
  const auto answer = [reply = exchange.reply, error_text = error_text_for(exchange.request.path),
                       embeddings, wording = std::move(wording),
                       start = steady_clock::now()](std::vector<std::vector<float>> vectors,
                                                    const std::optional<Error>& error) mutable {
    if (error) return reply->send(error_response(refusal_of_end(*error), error_text));
    embeddings.vectors = std::move(vectors);
    embeddings.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    // Written by a worker: the engine has others to serve.
    reply->on_worker([reply, wording = std::move(wording), embeddings = std::move(embeddings)] {
      reply->send({.body = json_text(wording(embeddings))});
    });
  };
  const EngineThread::Ticket ticket =
      engine.embed(model.name, std::move(tokens), answer, deadline_of(exchange, {}));
  exchange.reply->on_gone([&engine, ticket] { engine.cancel(ticket); });
}

}  // namespace tyto::api
