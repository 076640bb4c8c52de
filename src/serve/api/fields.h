// Fields of a request, read by tables: an unknown one is ignored, as clients expect; a known one
// that cannot be used is a RequestError that names it. null is as good as absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto::api {

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

}  // namespace tyto::api
