#include "model/stores/short_names.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "model/stores/local_models.h"

namespace tyto {
namespace {

constexpr size_t kDateDigits = 4;  // "2507"

bool is_separator(char c) {
  return c == '-' || c == '_' || c == ':';
}

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Where the rest of the name begins, npos if the name begins otherwise.
size_t end_of_beginning(std::string_view beginning, std::string_view name) {
  size_t at = 0;
  for (const char c : beginning) {
    if (is_separator(c)) continue;
    while (at < name.size() && is_separator(name[at])) ++at;
    if (at == name.size() || lower(name[at]) != lower(c)) return std::string_view::npos;
    ++at;
  }
  return at;
}

// "1b", "0.5B", "8x7b", "A3B" (weights that are read for a token), "E2B" (effective ones), "270m".
bool is_size(std::string_view part) {
  if (part.starts_with('a') || part.starts_with('e')) part.remove_prefix(1);
  if (part.size() < 2 || !is_digit(part.front())) return false;
  if (!part.ends_with('b') && !part.ends_with('m')) return false;
  part.remove_suffix(1);
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == 'x'; });
}

bool tells_only_a_variant(std::string_view part) {
  std::string plain;
  for (const char c : part) plain += lower(c);
  for (const char* word : {"", "instruct", "it", "chat", "gguf"})
    if (plain == word) return true;
  const bool is_date =
      plain.size() == kDateDigits && std::all_of(plain.begin(), plain.end(), is_digit);
  return is_date || is_size(plain);
}

bool begins_name(std::string_view short_name, std::string_view name) {
  const size_t at = end_of_beginning(short_name, name);
  if (at == std::string_view::npos) return false;
  std::string_view rest = name.substr(at);
  if (!rest.empty() && !is_separator(rest.front())) return false;
  while (!rest.empty() && rest.front() != ':') {  // behind a colon stands a tag
    const size_t end = std::min(rest.find_first_of("-_:", 1), rest.size());
    if (!tells_only_a_variant(rest.substr(1, end - 1))) return false;
    rest.remove_prefix(end);
  }
  return true;
}

}  // namespace

bool is_short_for(std::string_view short_name, std::string_view name) {
  if (std::all_of(short_name.begin(), short_name.end(), is_separator)) return false;
  if (const StoreName* store = store_of(name)) {
    if (short_name.starts_with(store->prefix)) short_name.remove_prefix(store->prefix.size());
    name.remove_prefix(store->prefix.size());
  }
  if (store_of(short_name) != nullptr) return false;
  const std::string_view last = name.substr(name.rfind('/') + 1);
  // "Qwen_Qwen3-4B-GGUF" begins with the publisher of the weights.
  const std::string_view behind_publisher = last.substr(last.find('_') + 1);
  return begins_name(short_name, name) || begins_name(short_name, last) ||
         begins_name(short_name, behind_publisher);
}

}  // namespace tyto
