// Embeddings, whichever API asks for them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "serve/api/requests.h"
#include "serve/api/routes.h"

namespace tyto::api {

struct Embeddings {
  std::string model = {};
  std::vector<std::vector<float>> vectors = {};  // each has length one
  uint64_t tokens = 0;                           // all inputs'
  double seconds = 0;
};

// Answers when they are there.
void embed(const Exchange& exchange, const ModelText& model, const EmbeddingsRequest& request,
           std::function<ordered_json(const Embeddings&)> wording);

}  // namespace tyto::api
