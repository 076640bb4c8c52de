// Requests for text, read from JSON: pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/sampler.h"
#include "text/chat_template.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tools.h"

namespace tyto::api {

// Fields of a request, read by tables: an unknown one is ignored, as clients expect; a known one
// that cannot be used is a RequestError that names it. null is as good as absent.

inline constexpr const char* kRequestName = "request";  // how errors call a request's JSON

template <typename Into>
struct Field {
  std::string_view name;
  void (*read)(const Json& value, Into& into);
};

std::string param_of(const Json& value);  // "messages[2].role"

// Errors that leave `read` name the value's field.
void in_field(const Json& value, const std::function<void()>& read);

template <typename Into, size_t kCount>
void read_fields(const Json& object, const Field<Into> (&fields)[kCount], Into& into) {
  for (const Field<Into>& field : fields)
    if (const auto value = object.find(field.name))
      in_field(*value, [&] { field.read(*value, into); });
}

// Numbers within bounds, which are part of the message.
double number_in(const Json& value, double low, double high);
int64_t integer_in(const Json& value, int64_t low, int64_t high);

std::string text_of(const Json& value);
std::vector<std::string> texts_of(const Json& value, size_t most);  // one text, or an array of them

// Texts or tokens, one or several of them: "a", ["a", "b"], [1, 2], [[1, 2], [3]].
struct TextOrTokens {
  std::string text = {};
  std::vector<Token> tokens = {};  // instead, where is_tokens
  bool is_tokens = false;
};
std::vector<TextOrTokens> texts_or_tokens_of(const Json& value, size_t most);
std::vector<Token> tokens_of(const Json& value);

// Throws "missing_required_parameter" where there is none.
Json required_field(const Json& object, std::string_view name);

// A request's body: an object, or a RequestError.
Json parse_body(std::string_view body);

// What every request for text may say about it, whichever API it came through.

// What an answer must look like.
struct OutputFormat {
  enum class Kind : uint8_t { text, json, json_schema, gbnf };
  Kind kind = Kind::text;
  std::optional<Json> schema = {};  // given by json_schema
  std::string grammar = {};         // given by gbnf
  std::string field = {};           // the request's that said so
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
uint32_t top_count_of(const Json& value);  // log probabilities to show for each token

// Ollama's "format": "json" or a schema.
OutputFormat ollama_format(const Json& value);

// A seed for requests without one.
uint64_t random_seed();

// What a chat template gets.
struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::optional<Json> tools = {};      // an array; none: no tools
  std::optional<Json> variables = {};  // an object: "chat_template_kwargs"
  std::optional<bool> thinking = {};   // "enable_thinking"
  bool add_generation_prompt = true;
  bool special_in_messages = false;  // messages may spell special tokens
};

struct ChatCompletionRequest {
  GenerationOptions options = {};
  Conversation conversation = {};
  std::vector<Tool> tools = {};
  ToolChoice tool_choice = {};
  bool parallel_calls = true;
};

struct TextCompletionRequest {
  GenerationOptions options = {};
  std::vector<TextOrTokens> prompts = {};
  bool echo = false;
};

// Ollama's /api/generate: a prompt for the template, or one that is used as it is.
struct GenerateRequest {
  GenerationOptions options = {};
  Conversation conversation = {};
  std::optional<std::string> raw = {};
};

struct EmbeddingsRequest {
  std::vector<TextOrTokens> inputs = {};
  bool base64 = false;
  bool truncate = false;                    // inputs that are too long, instead of refusing them
  std::optional<uint32_t> dimensions = {};  // none: those of the model
};

// The model's name; empty: the first.
std::string parse_model(const Json& body);

// `defaults` are the model's. Each throws a RequestError.
ChatCompletionRequest parse_chat_completion(const Json& body, const SamplerOptions& defaults);
TextCompletionRequest parse_completion(const Json& body, const SamplerOptions& defaults);
EmbeddingsRequest parse_embeddings(const Json& body);
Conversation parse_conversation(const Json& body);  // for /apply-template
// Tools and the choice among them, which both APIs write alike.
void read_tools(const Json& body, ChatCompletionRequest& request);

ChatCompletionRequest parse_ollama_chat(const Json& body, const SamplerOptions& defaults);
GenerateRequest parse_ollama_generate(const Json& body, const SamplerOptions& defaults);
EmbeddingsRequest parse_ollama_embed(const Json& body);

// A request without a text only loads the model, or unloads it.
struct LoadRequest {
  bool unloads = false;
};
// `field` is "prompt" or "messages", which would hold the text; none: the request has one.
std::optional<LoadRequest> parse_ollama_load(const Json& body, std::string_view field);
bool keeps_for_no_time(const Json& body);  // the model is to go when it has answered

}  // namespace tyto::api

namespace tyto {

// Formats of answers as what the sampler is held to.

class Grammar;
}  // namespace tyto

namespace tyto::api {

// None where everything may be written; shared by the choices. `grammar` (GBNF) comes before the
// format.
std::shared_ptr<const Grammar> grammar_for(const OutputFormat& format, const std::string& grammar);

}  // namespace tyto::api
