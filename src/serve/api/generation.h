// From a request that was read to the engine, and its answer back to the client.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json_value.h"
#include "serve/api/answer.h"
#include "serve/api/requests.h"
#include "serve/api/routes.h"
#include "text/reasoning.h"

namespace tyto::api {

struct Generation {
  std::shared_ptr<const ModelText> model;
  GenerationOptions options = {};
  std::vector<std::vector<Token>> prompts = {};  // each gets options.choices answers
  std::string field = {};                        // the request's that the prompts came from
  std::string grammar = {};                      // GBNF, over the options' format
  std::vector<std::string> begin_with = {};      // [prompts] or empty: text in front of the answers
  std::function<TextDivider()> divide = {};
  std::vector<Token> shown_special = {};  // special ones that are part of the text
  bool is_raw = false;                    // no template made the prompts: answers continue them
  std::optional<ThoughtsAhead> thoughts = {};  // that come before what a format or grammar holds
};

using MakeStyle = std::unique_ptr<AnswerStyle> (*)(AnswerHead head);

// Returns when the engine has taken it, or throws what is wrong with it.
void generate_answer(const Exchange& exchange, Generation generation, std::string_view id_prefix,
                     MakeStyle make_style);

// When a request's time is over: the earlier of what it says itself and what a proxy's header does.
std::optional<std::chrono::steady_clock::time_point> deadline_of(
    const Exchange& exchange, std::optional<std::chrono::milliseconds> timeout);

// A conversation as the model's template writes it.
std::string chat_text(const ModelText& model, const Conversation& conversation);
// `field` is what a token outside the vocabulary is blamed on.
std::vector<Token> prompt_tokens(const ModelText& model, const TextOrTokens& prompt,
                                 const std::string& field);

// A chat with what its tools need: how calls are found in the text, and a grammar where there must
// be one.
Generation chat_generation(std::shared_ptr<const ModelText> model, ChatCompletionRequest request);

// Throws "context_length_exceeded" unless an answer has room.
void check_context(const ModelText& model, size_t tokens, const std::string& field);

// Embeddings, whichever API asks for them.

struct Embeddings {
  std::string model = {};
  std::vector<std::vector<float>> vectors = {};  // each has length one
  uint64_t tokens = 0;                           // in all inputs together
  double seconds = 0;
};

// Answers when they are there.
void embed(const Exchange& exchange, const ModelText& model, const EmbeddingsRequest& request,
           std::function<JsonValue(const Embeddings&)> wording);

}  // namespace tyto::api
