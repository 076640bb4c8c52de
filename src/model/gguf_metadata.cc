#include "model/gguf_metadata.h"

#include "base/error.h"

namespace tyto {

template <typename T>
const T* GgufKeys::get(std::string_view key, const char* wanted) const {
  const auto found = gguf_.metadata.find(key);
  if (found == gguf_.metadata.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second.value);
  if (value == nullptr) fail_input(where(key), "is not {}", wanted);
  return value;
}

std::optional<uint64_t> GgufKeys::integer(std::string_view key) const {
  const auto found = gguf_.metadata.find(key);
  if (found == gguf_.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<uint64_t>(&found->second.value)) return *value;
  if (std::holds_alternative<std::vector<int64_t>>(found->second.value))
    fail_unsupported(where(key), "differs from layer to layer");
  const auto* value = std::get_if<int64_t>(&found->second.value);
  if (value == nullptr) fail_input(where(key), "is not an integer");
  if (*value < 0) fail_input(where(key), "{} is negative", *value);
  return static_cast<uint64_t>(*value);
}

std::optional<double> GgufKeys::real(std::string_view key) const {
  const double* value = get<double>(key, "a floating-point number");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufKeys::flag(std::string_view key) const {
  const bool* value = get<bool>(key, "a boolean");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::string* GgufKeys::text(std::string_view key) const {
  return get<std::string>(key, "a string");
}

const std::vector<std::string>* GgufKeys::strings(std::string_view key) const {
  return get<std::vector<std::string>>(key, "an array of strings");
}

const std::vector<int64_t>* GgufKeys::integers(std::string_view key) const {
  return get<std::vector<int64_t>>(key, "an array of integers");
}

bool GgufKeys::has_integers(std::string_view key) const {
  const auto found = gguf_.metadata.find(key);
  return found != gguf_.metadata.end() &&
         std::holds_alternative<std::vector<int64_t>>(found->second.value);
}

const std::vector<double>* GgufKeys::reals(std::string_view key) const {
  return get<std::vector<double>>(key, "an array of numbers");
}

}  // namespace tyto
