#include "serve/api/requests.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <sodium.h>

#include "serve/api/errors.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_schema.h"

namespace tyto::api {
namespace {

constexpr size_t kMostStops = 16;
constexpr int64_t kMostChoices = 16;
constexpr int64_t kMostTopProbabilities = 20;
constexpr double kMostTimeoutSeconds = 86400;
constexpr int64_t kAnySeed = -1;  // llama-server's and Ollama's word for a random one

struct NumberField {
  std::string_view name;
  float SamplerOptions::* value;
  double low, high;
};
constexpr double kLeastPenalty = 1e-6;  // it divides
constexpr NumberField kNumbers[] = {
    {"temperature", &SamplerOptions::temperature, 0, 1000},
    {"top_p", &SamplerOptions::top_p, 0, 1},
    {"min_p", &SamplerOptions::min_p, 0, 1},
    {"repetition_penalty", &SamplerOptions::repeat_penalty, kLeastPenalty, 1000},
    {"repeat_penalty", &SamplerOptions::repeat_penalty, kLeastPenalty, 1000},
    {"frequency_penalty", &SamplerOptions::frequency_penalty, -1000, 1000},
    {"presence_penalty", &SamplerOptions::presence_penalty, -1000, 1000},
};

Token token_named(std::string_view id, const Json& value) {
  Token token = -1;
  const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), token);
  if (failure != std::errc() || end != id.data() + id.size() || token < 0)
    value.fail("is not named by a token's number");
  return token;
}

void read_logit_bias(const Json& value, SamplerOptions& into) {
  auto& all = into.logit_bias;
  all.clear();
  value.for_each_member([&](std::string_view id, const Json& bias) {
    all.emplace_back(token_named(id, bias), static_cast<float>(number_in(bias, -100, 100)));
  });
  // The last of several biases for one token counts, as with any member that stands twice.
  const auto same_token = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  all.erase(all.begin(), std::unique(all.rbegin(), all.rend(), same_token).base());
  all.shrink_to_fit();
}

// -1 means off, all of them, or any: what these options have instead of a limit.
constexpr Field<SamplerOptions> kOtherSampling[] = {
    {"top_k",
     [](const Json& value, SamplerOptions& into) {
       const int64_t count = integer_in(value, -1, INT32_MAX);
       into.top_k = count < 0 ? 0 : static_cast<uint32_t>(count);
     }},
    {"repeat_last_n",
     [](const Json& value, SamplerOptions& into) {
       const int64_t count = integer_in(value, -1, INT32_MAX);
       into.penalty_window = count < 0 ? UINT32_MAX : static_cast<uint32_t>(count);
     }},
    {"seed",
     [](const Json& value, SamplerOptions& into) {
       const int64_t seed = value.as_int();
       into.seed = seed == kAnySeed ? random_seed() : static_cast<uint64_t>(seed);
     }},
    {"logit_bias", read_logit_bias},
};

void set_format(const Json& value, OutputFormat format, OutputFormat& into) {
  if (into.kind != OutputFormat::Kind::text) value.fail("another field already says what to write");
  into = std::move(format);
  into.field = param_of(value);
}

OutputFormat response_format(const Json& value) {
  const std::string type = text_of(value.at("type"));
  if (type == "text") return {};
  if (type == "json_object") {
    // llama-server's way to give a schema along.
    if (auto schema = value.find("schema"))
      return {.kind = OutputFormat::Kind::json_schema, .schema = std::move(schema)};
    return {.kind = OutputFormat::Kind::json};
  }
  if (type != "json_schema")
    value.at("type").fail(fmt::format("'{}' is not one of text, json_object, json_schema", type));
  return {.kind = OutputFormat::Kind::json_schema, .schema = value.at("json_schema").at("schema")};
}

void read_max_tokens(const Json& value, GenerationOptions& into) {
  const int64_t count = integer_in(value, -1, INT32_MAX);
  if (count == 0) value.fail("an answer has at least one token");
  into.max_tokens.reset();
  if (count > 0) into.max_tokens = static_cast<uint32_t>(count);
}

void set_timeout(double seconds, GenerationOptions& into) {
  into.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

template <bool GenerationOptions::* kSwitch>
void read_switch(const Json& value, GenerationOptions& into) {
  into.*kSwitch = value.as_bool();
}

// The last of fields that mean the same counts, so that the newest name does.
constexpr Field<GenerationOptions> kGenerationFields[] = {
    {"n_predict", read_max_tokens},
    {"max_tokens", read_max_tokens},
    {"max_completion_tokens", read_max_tokens},
    {"stop", [](const Json& value, GenerationOptions& into) { into.stop = stops_of(value); }},
    {"ignore_eos", read_switch<&GenerationOptions::ignore_eos>},
    {"n",
     [](const Json& value, GenerationOptions& into) {
       into.choices = static_cast<uint32_t>(integer_in(value, 1, kMostChoices));
     }},
    {"response_format",
     [](const Json& value, GenerationOptions& into) {
       set_format(value, response_format(value), into.format);
     }},
    {"json_schema",
     [](const Json& value, GenerationOptions& into) {
       set_format(value, {.kind = OutputFormat::Kind::json_schema, .schema = value}, into.format);
     }},
    {"grammar",
     [](const Json& value, GenerationOptions& into) {
       if (std::string text = text_of(value); !text.empty())
         set_format(value, {.kind = OutputFormat::Kind::gbnf, .grammar = std::move(text)},
                    into.format);
     }},
    {"timeout_ms",
     [](const Json& value, GenerationOptions& into) {
       set_timeout(number_in(value, 1, kMostTimeoutSeconds * 1e3) / 1e3, into);
     }},
    {"timeout",
     [](const Json& value, GenerationOptions& into) {
       set_timeout(number_in(value, 1e-3, kMostTimeoutSeconds), into);
     }},
    {"stream", read_switch<&GenerationOptions::stream>},
    {"stream_options",
     [](const Json& value, GenerationOptions& into) {
       if (!value.is(Json::Type::object)) value.fail("expected an object");
       into.include_usage = value.bool_or("include_usage", false);
     }},
    {"timings_per_token", read_switch<&GenerationOptions::timings_per_token>},
    {"receipt", read_switch<&GenerationOptions::receipt>},
    {"profile", read_switch<&GenerationOptions::profile>},
};

}  // namespace

uint64_t random_seed() {
  uint64_t seed = 0;
  randombytes_buf(&seed, sizeof(seed));
  return seed;
}

void read_sampling(const Json& object, SamplerOptions& into) {
  for (const NumberField& field : kNumbers)
    if (const auto value = object.find(field.name))
      in_field(*value, [&] {
        into.*field.value = static_cast<float>(number_in(*value, field.low, field.high));
      });
  into.seed = random_seed();
  read_fields(object, kOtherSampling, into);
}

void read_generation(const Json& object, GenerationOptions& into) {
  read_sampling(object, into.sampling);
  read_fields(object, kGenerationFields, into);
}

std::vector<std::string> stops_of(const Json& value) {
  std::vector<std::string> stops = texts_of(value, kMostStops);
  std::erase(stops, "");  // some clients send one for none
  return stops;
}

uint32_t top_count_of(const Json& value) {
  return static_cast<uint32_t>(integer_in(value, 0, kMostTopProbabilities));
}

OutputFormat ollama_format(const Json& value) {
  if (value.is(Json::Type::object))
    return {.kind = OutputFormat::Kind::json_schema, .schema = value, .field = param_of(value)};
  const std::string name = text_of(value);
  if (name.empty()) return {};
  if (name != "json") value.fail(fmt::format("'{}' is neither \"json\" nor a schema", name));
  return {.kind = OutputFormat::Kind::json};
}

namespace {

std::string gbnf_of(const OutputFormat& format) {
  switch (format.kind) {
    case OutputFormat::Kind::text:
      return "";
    case OutputFormat::Kind::json:
      return gbnf_of_json(JsonKind::object);
    case OutputFormat::Kind::json_schema:
      return gbnf_from_json_schema(*format.schema);
    case OutputFormat::Kind::gbnf:
      return format.grammar;
  }
  return "";
}

}  // namespace

std::shared_ptr<const Grammar> grammar_for(const OutputFormat& format, const std::string& grammar) {
  try {
    const std::string gbnf = grammar.empty() ? gbnf_of(format) : grammar;
    if (gbnf.empty()) return {};
    return std::make_shared<const Grammar>(gbnf);
  } catch (const Error& error) {
    throw RequestError(error, grammar.empty() ? format.field : "tools");
  }
}

namespace {

constexpr size_t kMostTokens = 1 << 20;

[[noreturn]] void fail_count(const Json& value, size_t most) {
  value.fail(fmt::format("has {} entries; at most {} are taken", value.size(), most));
}

bool holds_integers(const Json& array) {
  bool all = array.size() > 0;
  array.for_each_element(
      [&](size_t, const Json& element) { all = all && element.is(Json::Type::integer); });
  return all;
}

TextOrTokens text_or_tokens_of(const Json& value) {
  if (value.is(Json::Type::array)) return {.tokens = tokens_of(value), .is_tokens = true};
  return {.text = text_of(value)};
}

}  // namespace

std::string param_of(const Json& value) {
  const std::string path = value.path(), prefix = fmt::format("{}: ", kRequestName);
  return path.starts_with(prefix) ? path.substr(prefix.size()) : "";
}

void in_field(const Json& value, const std::function<void()>& read) {
  try {
    read();
  } catch (const RequestError&) {
    throw;
  } catch (const Error& error) {
    throw RequestError(error, param_of(value));
  }
}

double number_in(const Json& value, double low, double high) {
  const double number = value.as_double();
  if (!(number >= low && number <= high))
    value.fail(fmt::format("{} is outside {}..{}", number, low, high));
  return number;
}

int64_t integer_in(const Json& value, int64_t low, int64_t high) {
  const int64_t number = value.as_int();
  if (number < low || number > high)
    value.fail(fmt::format("{} is outside {}..{}", number, low, high));
  return number;
}

std::string text_of(const Json& value) {
  return std::string(value.as_string());
}

std::vector<std::string> texts_of(const Json& value, size_t most) {
  if (value.is(Json::Type::string)) return {text_of(value)};
  std::vector<std::string> texts;
  value.for_each_element([&](size_t, const Json& element) { texts.push_back(text_of(element)); });
  if (texts.size() > most) fail_count(value, most);
  return texts;
}

std::vector<Token> tokens_of(const Json& value) {
  std::vector<Token> tokens;
  value.for_each_element([&](size_t, const Json& element) {
    tokens.push_back(static_cast<Token>(integer_in(element, 0, INT32_MAX)));
  });
  if (tokens.size() > kMostTokens) fail_count(value, kMostTokens);
  return tokens;
}

std::vector<TextOrTokens> texts_or_tokens_of(const Json& value, size_t most) {
  if (!value.is(Json::Type::array) || holds_integers(value)) return {text_or_tokens_of(value)};
  std::vector<TextOrTokens> entries;
  value.for_each_element(
      [&](size_t, const Json& element) { entries.push_back(text_or_tokens_of(element)); });
  if (entries.empty()) value.fail("is empty");
  if (entries.size() > most) fail_count(value, most);
  return entries;
}

Json required_field(const Json& object, std::string_view name) {
  if (auto value = object.find(name)) return *std::move(value);
  throw RequestError(400, "missing_required_parameter", std::string(name), "the field is missing");
}

Json parse_body(std::string_view body) {
  std::optional<Json> json;
  try {
    json = Json::parse(body, kRequestName);
  } catch (const Error& error) {
    throw RequestError(error, "");
  }
  if (!json->is(Json::Type::object))
    throw RequestError(Error(ErrorCode::input, kRequestName, "expected an object"), "");
  return *json;
}

}  // namespace tyto::api
