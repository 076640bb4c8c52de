#include "evidence/seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "evidence/digest.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

// The parts of a seal in compact JSON; between them stand values of known length.
constexpr std::string_view kHash = ",\"hash\":\"";
constexpr std::string_view kKey = ",\"signature\":{\"key\":\"";
constexpr std::string_view kSignature = "\",\"ed25519\":\"";

constexpr std::string_view kBlanks = " \t\n\r";

// Takes `text` off the end of `from`, if it ends so.
bool take_end(std::string_view& from, std::string_view text) {
  if (!from.ends_with(text)) return false;
  from.remove_suffix(text.size());
  return true;
}

std::string_view take_end(std::string_view& from, size_t count) {
  const std::string_view end = from.substr(from.size() - std::min(count, from.size()));
  from.remove_suffix(end.size());
  return end;
}

// The end of a string that begins at `at`, behind its closing quote.
size_t end_of_string(std::string_view json, size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at)
    if (json[at] == '\\') ++at;
  return std::min(json.size(), at + 1);
}

// The end of the value that begins at `at`: a string, a bracket's contents, or up to a separator.
size_t end_of_value(std::string_view json, size_t at) {
  size_t depth = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      at = end_of_string(json, at);
      if (depth == 0) return at;
      continue;
    }
    const bool closes = c == '}' || c == ']';
    if (depth == 0 && (closes || c == ',')) return at;
    if (closes && --depth == 0) return at + 1;
    if (c == '{' || c == '[') ++depth;
    ++at;
  }
  return json.size();
}

}  // namespace

void seal(ordered_json& object, const SigningKey* key) {
  const std::string text = object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  const std::string hash = digest(text);
  object["hash"] = hash;
  if (key == nullptr) return;
  object["signature"] = {{"key", key->public_key().text}, {"ed25519", key->sign(hash)}};
}

Seal read_seal(std::string_view object) {
  const std::string text = without_space(object);
  std::string_view rest = text, key, signature;
  const bool is_signed = take_end(rest, "\"}}");
  if (is_signed) {
    signature = take_end(rest, kSignatureLetters);
    const bool follows_key = take_end(rest, kSignature);
    key = take_end(rest, kPublicKeyLetters);
    if (!follows_key || !take_end(rest, kKey)) return {};
  } else if (!take_end(rest, "}")) {
    return {};
  }
  if (!take_end(rest, "\"")) return {};
  const std::string_view hash = take_end(rest, kDigestDigits);
  if (!take_end(rest, kHash)) return {};
  Seal result{std::string(hash), digest(std::string(rest) + "}"), {}};
  const PublicKey signer{std::string(key)};
  if (is_signed) result.signature = {signer, is_signed_by(signer, signature, hash)};
  return result;
}

std::string distrust(const Seal& seal, const PublicKey& trusted) {
  if (!seal.signature) return "is not signed";
  if (!seal.signature->is_good) return "has a signature that is not of its contents";
  if (seal.signature->key == trusted) return "";
  return fmt::format("is signed by {}, which is not the trusted key", seal.signature->key.text);
}

std::string without_space(std::string_view json) {
  std::string result;
  result.reserve(json.size());
  for (size_t at = 0; at < json.size();) {
    const size_t end = json[at] == '"' ? end_of_string(json, at) : at + 1;
    if (kBlanks.find(json[at]) == kBlanks.npos) result += json.substr(at, end - at);
    at = end;
  }
  return result;
}

std::string_view member_text(std::string_view object, std::string_view name) {
  std::string_view found;
  size_t at = object.find('{');
  while (at < object.size()) {
    const size_t quote = object.find('"', at);  // behind the bracket or the comma
    if (quote == object.npos) break;
    const size_t end = end_of_string(object, quote);
    const size_t colon = object.find(':', end);
    const size_t value = std::min(object.size(), object.find_first_not_of(kBlanks, colon + 1));
    at = end_of_value(object, value);
    if (object.substr(quote + 1, end - quote - 2) == name) found = object.substr(value, at - value);
    at = object.find(',', at);
  }
  return found;
}

std::vector<std::string_view> element_texts(std::string_view array) {
  std::vector<std::string_view> result;
  size_t at = array.find('[');
  while (at < array.size()) {
    const size_t value = array.find_first_not_of(kBlanks, at + 1);
    if (value == array.npos || array[value] == ']') break;
    at = end_of_value(array, value);
    result.push_back(array.substr(value, at - value));
    at = array.find(',', at);
  }
  return result;
}

}  // namespace tyto
