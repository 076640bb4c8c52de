#include "base/redaction.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/spelling.h"

namespace tyto {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kQuotes = "\"'`<>";
// Whose value is a secret: of headers, and at the end of the names of flags and variables.
constexpr std::array<std::string_view, 7> kHeaders = {
    "authorization", "proxy-authorization", "x-api-key", "api-key", "x-auth-token",
    "cookie",        "set-cookie"};
constexpr std::array<std::string_view, 12> kLastParts = {
    "key",      "apikey", "token",  "password",   "passwd",      "passphrase",
    "passcode", "pwd",    "secret", "credential", "credentials", "auth"};
constexpr std::string_view kHubToken = "hf_";
constexpr size_t kShortestHubToken = 16;  // behind that; names in programs are shorter

bool is_alphanumeric(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

bool is_in(char c, std::string_view set) {
  return set.find(c) != std::string_view::npos;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

size_t end_of(std::string_view text, size_t begin, std::string_view stops) {
  return std::min(text.find_first_of(stops, begin), text.size());
}

// In words that hold an address. Passwords hold quotes, slashes and @, whatever they should: all up
// to the last @ is taken.
void add_addresses(std::string_view text, std::vector<TextPart>& parts) {
  constexpr std::string_view kMark = "://";
  for (size_t at = text.find(kMark); at != std::string_view::npos;) {
    size_t begin = at + kMark.size();
    const size_t end = end_of(text, begin, kSpaces);
    const size_t sign = text.substr(begin, end - begin).rfind('@');
    if (sign != std::string_view::npos) {
      parts.push_back({begin, begin + sign});
      begin += sign;
    }
    for (size_t mark = text.find('?', begin); mark < end; mark = text.find('?', mark)) {
      const size_t query = mark + 1;
      mark = std::min(end, end_of(text, query, kQuotes));
      size_t stop = mark;
      while (stop > query && is_in(text[stop - 1], ":;,.)")) --stop;  // the sentence's own marks
      if (stop > query) parts.push_back({query, stop});
    }
    at = text.find(kMark, end);
  }
}

// "name:word@host", where it is no path.
void add_users(std::string_view text, std::vector<TextPart>& parts) {
  for (size_t sign = text.find('@'); sign != std::string_view::npos;
       sign = text.find('@', sign + 1)) {
    size_t begin = sign;
    while (begin > 0 && !is_in(text[begin - 1], " \t\r\n/=@\"'`<>")) --begin;
    const size_t colon = text.substr(begin, sign - begin).find(':');
    const bool is_path = begin > 0 && text[begin - 1] == '/';
    const bool has_word = colon != std::string_view::npos && colon > 0 && begin + colon + 1 < sign;
    const bool has_host =
        sign + 1 < text.size() && (is_alphanumeric(text[sign + 1]) || text[sign + 1] == '[');
    if (has_word && has_host && !is_path) parts.push_back({begin, sign});
  }
}

// "Authorization: Bearer WORD", but not "--api-key: is empty".
void add_headers(std::string_view text, std::vector<TextPart>& parts) {
  const std::string small = lower(text);
  for (const std::string_view name : kHeaders) {
    for (size_t at = small.find(name); at != std::string::npos; at = small.find(name, at)) {
      const bool begins =
          at == 0 || (!is_alphanumeric(small[at - 1]) && !is_in(small[at - 1], "-_"));
      at += name.size();
      const size_t colon = small.find_first_not_of(" \t", at);
      if (!begins || colon == std::string::npos || small[colon] != ':') continue;
      const size_t begin = std::min(small.find_first_not_of(" \t", colon + 1), small.size());
      at = end_of(text, begin, "\r\n\"'");
      if (at > begin) parts.push_back({begin, at});
    }
  }
}

void add_hub_tokens(std::string_view text, std::vector<TextPart>& parts) {
  for (size_t at = text.find(kHubToken); at != std::string_view::npos;
       at = text.find(kHubToken, at + 1)) {
    size_t end = at + kHubToken.size();
    while (end < text.size() && is_alphanumeric(text[end])) ++end;
    if (end - at >= kHubToken.size() + kShortestHubToken) parts.push_back({at, end});
  }
}

// In order, and one where several touch.
std::vector<TextPart> joined_parts(std::vector<TextPart> parts) {
  std::sort(parts.begin(), parts.end(),
            [](const TextPart& one, const TextPart& other) { return one.begin < other.begin; });
  std::vector<TextPart> result;
  for (const TextPart& part : parts) {
    if (!result.empty() && part.begin <= result.back().end)
      result.back().end = std::max(result.back().end, part.end);
    else
      result.push_back(part);
  }
  return result;
}

std::string without(std::string_view text, const std::vector<TextPart>& parts,
                    std::string_view instead) {
  std::string result;
  size_t from = 0;
  for (const TextPart& part : parts) {
    result.append(text.substr(from, part.begin - from)).append(instead);
    from = part.end;
  }
  return result.append(text.substr(from));
}

// "--api-key", "HF_TOKEN", but neither "--api-key-file" nor "--max-tokens".
bool is_name_of_secret(std::string_view name) {
  if (name.empty() || name.find_first_of(" \t\r\n/:") != std::string_view::npos) return false;
  const size_t cut = name.find_last_of("-_.");
  const std::string last = lower(name.substr(cut == std::string_view::npos ? 0 : cut + 1));
  return std::find(kLastParts.begin(), kLastParts.end(), last) != kLastParts.end();
}

}  // namespace

std::vector<TextPart> secret_parts(std::string_view text) {
  std::vector<TextPart> parts;
  add_addresses(text, parts);
  add_users(text, parts);
  add_headers(text, parts);
  add_hub_tokens(text, parts);
  return joined_parts(std::move(parts));
}

std::string redacted(std::string_view text) {
  return without(text, secret_parts(text), kHidden);
}

std::vector<std::vector<TextPart>> secret_parts(const std::vector<std::string>& words,
                                                const std::vector<std::string>& secrets) {
  std::vector<std::vector<TextPart>> result;
  bool is_value = false;  // the word before was a secret's name
  for (const std::string& word : words) {
    std::vector<TextPart> parts = secret_parts(word);
    for (const std::string& secret : secrets)
      for (size_t at = secret.empty() ? std::string::npos : word.find(secret);
           at != std::string::npos; at = word.find(secret, at + 1))
        parts.push_back({at, at + secret.size()});
    const bool is_flag = word.starts_with('-');
    const size_t mark = word.find_first_of(is_flag ? "=: \t\r\n" : "=");
    const bool is_named = is_name_of_secret(std::string_view(word).substr(0, mark));
    if (is_value && !word.empty()) parts.push_back({0, word.size()});
    if (is_named && mark != std::string::npos && mark + 1 < word.size())
      parts.push_back({mark + 1, word.size()});
    is_value = is_named && mark == std::string::npos && is_flag;
    result.push_back(joined_parts(std::move(parts)));
  }
  return result;
}

std::vector<std::string> redacted_words(const std::vector<std::string>& words) {
  const auto parts = secret_parts(words, {});
  std::vector<std::string> result;
  for (size_t i = 0; i < words.size(); ++i) result.push_back(without(words[i], parts[i], kHidden));
  return result;
}

std::string redacted_command(const std::vector<std::string>& words,
                             const std::vector<std::string>& secrets) {
  const auto parts = secret_parts(words, secrets);
  std::string result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string rest = without(words[i], parts[i], "");
    const std::string shown = without(words[i], parts[i], kHidden);
    const bool is_plain = !parts[i].empty() && (rest.empty() || shell_word(rest) == rest);
    result += (i == 0 ? "" : " ") + (is_plain ? shown : shell_word(shown));
  }
  return result;
}

namespace {

// As a shell takes them.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  bool is_quoted = false, is_in_word = false;
  for (size_t i = 0; i < command.size(); ++i) {
    const bool ends = !is_quoted && command[i] == ' ';
    if (!ends && !is_in_word) words.emplace_back();
    is_in_word = !ends;
    if (ends) continue;
    if (command[i] == '\'')
      is_quoted = !is_quoted;
    else if (command[i] == '\\' && !is_quoted && i + 1 < command.size())
      words.back() += command[++i];
    else
      words.back() += command[i];
  }
  return words;
}

}  // namespace

std::string redacted_command_text(const std::string& command) {
  const std::vector<std::string> words = words_of(command);
  const auto parts = secret_parts(words, {});
  const bool has_secrets = std::ranges::any_of(parts, [](const auto& of) { return !of.empty(); });
  return has_secrets ? redacted_command(words, {}) : command;
}

std::string redacted_address(std::string_view address) {
  std::vector<TextPart> parts;
  const size_t sign = address.rfind('@');
  if (sign != std::string_view::npos) parts.push_back({0, sign});
  const size_t mark = address.find('?', sign == std::string_view::npos ? 0 : sign);
  if (mark != std::string_view::npos) parts.push_back({mark + 1, address.size()});
  return redacted(without(address, parts, kHidden));
}

std::string redacted_quote(std::string_view text) {
  const size_t sign = text.rfind('@');
  if (sign == std::string_view::npos) return redacted(text);
  const size_t quote = text.find('\'');
  const size_t begin = quote < sign ? quote + 1 : 0;
  return redacted(without(text, {{begin, sign}}, kHidden));
}

}  // namespace tyto
