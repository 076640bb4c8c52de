// Ollama's requests. Where its words differ from OpenAI's: streaming is the default, options are an
// object of their own, and a system prompt may stand beside the prompt.
#include <fmt/format.h>

#include <charconv>

#include "serve/api/errors.h"
#include "serve/api/requests.h"

namespace tyto::api {
namespace {

constexpr size_t kMostTexts = 2048;

void refuse_images(const Json& value) {
  if (value.size() > 0) fail_unsupported(value.path(), "the models served here read text alone");
}

// Others are hints to a runtime that is not ours (num_ctx, num_thread, ...) and are ignored.
constexpr Field<GenerationOptions> kOptions[] = {
    {"num_predict",
     [](const Json& value, GenerationOptions& into) {
       const int64_t count = integer_in(value, -2, INT32_MAX);
       into.max_tokens.reset();
       if (count >= 0) into.max_tokens = static_cast<uint32_t>(std::max<int64_t>(count, 1));
     }},
    {"stop", [](const Json& value, GenerationOptions& into) { into.stop = stops_of(value); }},
};

constexpr Field<GenerationOptions> kOllamaFields[] = {
    {"stream", [](const Json& value, GenerationOptions& into) { into.stream = value.as_bool(); }},
    {"format",
     [](const Json& value, GenerationOptions& into) { into.format = ollama_format(value); }},
    {"logprobs",
     [](const Json& value, GenerationOptions& into) { into.log_probabilities = value.as_bool(); }},
    {"top_logprobs",
     [](const Json& value, GenerationOptions& into) {
       into.top_log_probabilities = top_count_of(value);
     }},
    {"options",
     [](const Json& value, GenerationOptions& into) {
       if (!value.is(Json::Type::object)) value.fail("expected an object");
       read_sampling(value, into.sampling);
       read_fields(value, kOptions, into);
     }},
};

GenerationOptions read_options(const Json& body, const SamplerOptions& defaults) {
  GenerationOptions options{.sampling = defaults, .stream = true};
  options.sampling.seed = random_seed();
  read_fields(body, kOllamaFields, options);
  return options;
}

// "think" is a switch, or a word for how much.
std::optional<bool> read_think(const Json& body) {
  const auto value = body.find("think");
  if (!value) return std::nullopt;
  std::optional<bool> thinks = true;
  in_field(*value, [&] {
    if (!value->is(Json::Type::string)) thinks = value->as_bool();
  });
  return thinks;
}

constexpr Field<GenerateRequest> kGenerateFields[] = {
    {"system",
     [](const Json& value, GenerateRequest& into) {
       if (std::string text = text_of(value); !text.empty())
         into.conversation.messages.push_back({.role = "system", .content = std::move(text)});
     }},
    {"prompt",
     [](const Json& value, GenerateRequest& into) {
       into.conversation.messages.push_back({.role = "user", .content = text_of(value)});
     }},
    {"raw",
     [](const Json& value, GenerateRequest& into) {
       if (value.as_bool()) into.raw = into.conversation.messages.back().content;
     }},
    {"images", [](const Json& value, GenerateRequest&) { refuse_images(value); }},
    {"context",  // an answer here has none to give back
     [](const Json& value, GenerateRequest&) {
       if (!value.is(Json::Type::array)) value.fail("expected a list of tokens");
       if (value.size() > 0)
         fail_unsupported(value.path(),
                          "tokens of earlier answers are not taken; send the conversation as "
                          "\"messages\" to /api/chat");
     }},
    {"suffix",
     [](const Json& value, GenerateRequest&) {
       if (!text_of(value).empty())
         fail_unsupported(value.path(), "text is only written behind a prompt");
     }},
    {"template",
     [](const Json& value, GenerateRequest&) {
       if (!text_of(value).empty())
         fail_unsupported(value.path(), "templates are the model's; use \"raw\"");
     }},
};

constexpr Field<EmbeddingsRequest> kEmbedFields[] = {
    {"truncate",
     [](const Json& value, EmbeddingsRequest& into) { into.truncate = value.as_bool(); }},
    {"dimensions",
     [](const Json& value, EmbeddingsRequest& into) {
       into.dimensions = static_cast<uint32_t>(integer_in(value, 1, INT32_MAX));
     }},
};

}  // namespace

ChatCompletionRequest parse_ollama_chat(const Json& body, const SamplerOptions& defaults) {
  ChatCompletionRequest request{.options = read_options(body, defaults),
                                .conversation = parse_conversation(body)};
  request.conversation.thinking = read_think(body);
  body.at("messages").for_each_element([](size_t, const Json& message) {
    if (const auto images = message.find("images"))
      in_field(*images, [&] { refuse_images(*images); });
  });
  read_tools(body, request);
  return request;
}

GenerateRequest parse_ollama_generate(const Json& body, const SamplerOptions& defaults) {
  GenerateRequest request{.options = read_options(body, defaults)};
  required_field(body, "prompt");
  read_fields(body, kGenerateFields, request);
  request.conversation.thinking = read_think(body);
  return request;
}

std::optional<LoadRequest> parse_ollama_load(const Json& body, std::string_view field) {
  const auto said = body.find(field);
  const bool is_list = field == "messages";
  const bool is_known = said && said->is(is_list ? Json::Type::array : Json::Type::string);
  const bool is_empty = is_known && (is_list ? said->size() == 0 : said->as_string().empty());
  if (said && !is_empty) return std::nullopt;
  return LoadRequest{.unloads = keeps_for_no_time(body)};
}

bool keeps_for_no_time(const Json& body) {
  const auto value = body.find("keep_alive");
  if (!value) return false;
  if (value->is(Json::Type::string)) {  // "0", "0s", "0m"
    const std::string text = text_of(*value);
    double time = 1;
    std::from_chars(text.data(), text.data() + text.size(), time);
    return time == 0;
  }
  const bool is_number = value->is(Json::Type::integer) || value->is(Json::Type::number);
  return is_number && value->as_double() == 0;
}

EmbeddingsRequest parse_ollama_embed(const Json& body) {
  EmbeddingsRequest request;
  request.truncate = !body.find("prompt");  // which is of the older form
  read_fields(body, kEmbedFields, request);
  const Json value = body.find("prompt") ? body.at("prompt") : required_field(body, "input");
  in_field(value, [&] { request.inputs = texts_or_tokens_of(value, kMostTexts); });
  return request;
}

}  // namespace tyto::api
