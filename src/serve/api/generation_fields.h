// What every request for text may say about it, whichever API it came through.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/sampler.h"

namespace tyto::api {

// What an answer must look like.
struct OutputFormat {
  enum class Kind : uint8_t { text, json, json_schema, gbnf };
  Kind kind = Kind::text;
  std::optional<Json> schema = {};  // of json_schema
  std::string grammar = {};         // of gbnf
  std::string field = {};           // of the request that said so
};

struct GenerationOptions {
  SamplerOptions sampling = {};
  std::optional<uint32_t> max_tokens = {};  // none: as many as the context has room for
  std::vector<std::string> stop = {};
  bool ignore_eos = false;
  uint32_t choices = 1;
  bool log_probabilities = false;
  uint32_t top_log_probabilities = 0;
  OutputFormat format = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  bool stream = false;
  bool include_usage = false;  // in a piece of its own, before the last
  bool timings_per_token = false;
  bool receipt = false;  // in the answer
  bool profile = false;  // recorded
};

// `into` has the defaults. The same names are Ollama's options.
void read_sampling(const Json& object, SamplerOptions& into);

// The fields that /v1/chat/completions and /v1/completions share, sampling included.
void read_generation(const Json& object, GenerationOptions& into);

std::vector<std::string> stops_of(const Json& value);
uint32_t top_count_of(const Json& value);  // of log probabilities to show for each token

// Ollama's "format": "json" or a schema.
OutputFormat ollama_format(const Json& value);

// A seed nobody chose.
uint64_t random_seed();

}  // namespace tyto::api
