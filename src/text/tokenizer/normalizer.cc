#include "text/tokenizer/normalizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

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

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The blocks of Chinese characters as BERT's published tokenizers have them, gap and all.
constexpr struct {
  char32_t first, last;
} kIdeographs[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                   {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};

bool is_ideograph(char32_t c) {
  return std::ranges::any_of(
      kIdeographs, [&](const auto& block) { return c >= block.first && c <= block.last; });
}

// The text with each character replaced by what `change` appends for it.
template <typename Change>
std::string each_character(std::string_view text, Change&& change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    change(head.code_point, out);
    text.remove_prefix(head.bytes);
  }
  return out;
}

void clean_control(char32_t c, std::string& out) {
  const bool is_space = c == '\t' || c == '\n' || c == '\r';
  if (c == 0 || c == kReplacement || (is_control(c) && !is_space)) return;
  append_utf8(is_white_space(c) ? U' ' : c, out);
}

void space_ideograph(char32_t c, std::string& out) {
  const bool spaced = is_ideograph(c);
  if (spaced) out.push_back(' ');
  append_utf8(c, out);
  if (spaced) out.push_back(' ');
}

std::string merge_spaces(std::string_view text) {
  std::string out(text);
  const auto both_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
  out.erase(std::unique(out.begin(), out.end(), both_spaces), out.end());
  return out;
}

std::string trim(std::string_view text, bool left) {
  const size_t at = left ? text.find_first_not_of(' ') : text.find_last_not_of(' ');
  if (at == std::string_view::npos) return {};
  return std::string(left ? text.substr(at) : text.substr(0, at + 1));
}

std::string step(Normalizer normalizer, std::string_view text, const Charsmap* charsmap) {
  switch (normalizer) {
    case Normalizer::nfc:
      return to_normal_form(text, NormalForm::nfc);
    case Normalizer::nfd:
      return to_normal_form(text, NormalForm::nfd);
    case Normalizer::nfkc:
      return to_normal_form(text, NormalForm::nfkc);
    case Normalizer::nfkd:
      return to_normal_form(text, NormalForm::nfkd);
    // The table may say anything.
    case Normalizer::charsmap:
      return as_valid_utf8(charsmap->apply(text));
    case Normalizer::clean_controls:
      return each_character(text, clean_control);
    case Normalizer::space_ideographs:
      return each_character(text, space_ideograph);
    case Normalizer::strip_accents:
      return each_character(text, [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_utf8(c, out);
      });
    case Normalizer::strip_marks:
      return each_character(text, [](char32_t c, std::string& out) {
        if (!is_mark(c)) append_utf8(c, out);
      });
    case Normalizer::lower_case:
      return each_character(text,
                            [](char32_t c, std::string& out) { append_utf8(lower_case(c), out); });
    case Normalizer::spaces:
      return each_character(text, [](char32_t c, std::string& out) {
        append_utf8(is_white_space(c) ? U' ' : c, out);
      });
    case Normalizer::merge_spaces:
      return merge_spaces(text);
    case Normalizer::trim_left:
      return trim(text, true);
    case Normalizer::trim_right:
      return trim(text, false);
  }
  return std::string(text);
}

}  // namespace

TextNormalizer::TextNormalizer(const Vocabulary& vocabulary, const std::string& name)
    : steps_(vocabulary.normalizers) {
  if (std::ranges::find(steps_, Normalizer::charsmap) != steps_.end())
    charsmap_.emplace(vocabulary.charsmap, name + ": precompiled_charsmap");
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string normalized(text);
  for (const Normalizer each : steps_)
    normalized = step(each, normalized, charsmap_ ? &*charsmap_ : nullptr);
  return normalized;
}

std::string as_valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    valid.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    valid.append(kReplacementCharacter);
    text.remove_prefix(utf8_head(text).bytes);
  }
  return valid;
}

}  // namespace tyto
