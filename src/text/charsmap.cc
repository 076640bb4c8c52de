#include "text/charsmap.h"

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {

namespace {

constexpr uint32_t kTrieBlock = 256;  // units of one node's children lie inside of such a block

// Real tables make a character at most eleven times as long (U+FDFA).
constexpr size_t kMaxGrowth = 64;

// The fields of a unit. One that has its highest bit set is a value, which no label equals.
uint32_t label(uint32_t unit) {
  return unit & (uint32_t{1} << 31 | 0xFF);
}
bool is_value(uint32_t unit) {
  return unit >> 31 != 0;
}
uint32_t value(uint32_t unit) {
  return unit & ~(uint32_t{1} << 31);
}
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset(uint32_t unit) {
  return unit >> 10 << ((unit & uint32_t{1} << 9) >> 6);
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (size_t i = 4; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

Charsmap::Charsmap(std::string_view table, const std::string& name) : name_(name) {
  constexpr size_t kUnitBytes = sizeof(uint32_t);
  const size_t trie_bytes = table.size() < kUnitBytes ? 0 : little_endian(table);
  if (trie_bytes == 0 || trie_bytes % (kTrieBlock * kUnitBytes) != 0 ||
      trie_bytes >= table.size() - kUnitBytes || table.back() != '\0')
    fail_input(name, "its {} bytes are no table of {} bytes of trie and replacements", table.size(),
               trie_bytes);
  for (size_t at = 0; at < trie_bytes; at += kUnitBytes)
    units_.push_back(little_endian(table.substr(kUnitBytes + at)));
  replacements_ = table.substr(kUnitBytes + trie_bytes);
  for (uint32_t i = 0; i < units_.size(); ++i) {
    if (is_value(units_[i])) continue;
    const uint64_t children = i ^ offset(units_[i]);
    if (children >= units_.size() ||
        (has_value(units_[i]) && value(units_[children]) >= replacements_.size()))
      fail_input(name, "unit {} of its trie leads outside", i);
  }
  if (is_value(units_[0])) fail_input(name, "its trie has no root");
}

Charsmap::Found Charsmap::longest(std::string_view text) const {
  Found found;
  uint32_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    const uint32_t unit = units_[node];
    if (byte == 0 || label(unit) != byte) break;
    node ^= offset(unit);
    if (has_value(unit)) found = {i + 1, value(units_[node])};
  }
  return found;
}

std::string Charsmap::apply(std::string_view text) const {
  const size_t most = kMaxGrowth * (text.size() + 1);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Found found = longest(text);
    if (found.bytes > 0)
      out.append(replacements_.c_str() + found.replacement);
    else
      out.append(text.substr(0, utf8_head(text).bytes));
    text.remove_prefix(found.bytes > 0 ? found.bytes : utf8_head(text).bytes);
    if (out.size() > most) fail_input(name_, "makes a text more than {} times as long", kMaxGrowth);
  }
  return out;
}

std::string from_base64(std::string_view letters, const std::string& where) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (letters.ends_with('=')) letters.remove_suffix(1);
  std::string bytes;
  bytes.reserve(letters.size() * 3 / 4);
  uint32_t bits = 0;
  for (size_t i = 0; i < letters.size(); ++i) {
    const size_t six = kLetters.find(letters[i]);
    if (six == std::string_view::npos) fail_input(where, "byte {} is no letter of base64", i);
    bits = bits << 6 | static_cast<uint32_t>(six);
    if (i % 4 != 0) bytes.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  return bytes;
}

}  // namespace tyto
