#include <string.h>

#include <algorithm>

#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja/builtins.h"
#include "text/jinja/value.h"
#include "text/unicode.h"

namespace tyto::jinja {
namespace {

constexpr char32_t kInvalidByte = 0xDC00;
constexpr char32_t kSharpS = 0xDF;

CodePoint code_point_before(std::string_view text, size_t end) {
  for (size_t size = 1; size <= 4 && size <= end; ++size) {
    CodePoint found = code_point_at(text, end - size);
    if (found.size == size && (size > 1 || found.value < 0x80)) return found;
  }
  return {kInvalidByte + static_cast<unsigned char>(text[end - 1]), 1};
}

bool is_cased(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return false;
  }
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

template <typename Drop>
std::string_view strip_if(std::string_view text, Side side, Drop drop) {
  if (side != Side::right) {
    while (!text.empty()) {
      CodePoint c = code_point_at(text, 0);
      if (!drop(c, text.substr(0, c.size))) break;
      text.remove_prefix(c.size);
    }
  }
  if (side != Side::left) {
    while (!text.empty()) {
      CodePoint c = code_point_before(text, text.size());
      if (!drop(c, text.substr(text.size() - c.size))) break;
      text.remove_suffix(c.size);
    }
  }
  return text;
}

void append_in_case(std::string& result, const CodePoint& c, std::string_view bytes, Case wanted) {
  utf8proc_int32_t value = static_cast<utf8proc_int32_t>(c.value);
  if (c.value >= kInvalidByte && c.value < kInvalidByte + 0x100) {
    result += bytes;
  } else if (wanted == Case::lower) {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(value)), result);
  } else if (c.value == kSharpS) {
    result += wanted == Case::upper ? "SS" : "Ss";
  } else {
    value = wanted == Case::upper ? utf8proc_toupper(value) : utf8proc_totitle(value);
    append_utf8(static_cast<char32_t>(value), result);
  }
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  unsigned char byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1};
  const Utf8Head head = utf8_head(text.substr(at));
  if (head.kind != Utf8Head::Kind::valid) return {kInvalidByte + byte, 1};
  return {head.code_point, head.bytes};
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += code_point_at(text, at).size;
  return count;
}

size_t byte_offset(std::string_view text, size_t code_points) {
  size_t at = 0;
  for (; code_points > 0 && at < text.size(); --code_points) at += code_point_at(text, at).size;
  return at;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> result;
  for (size_t at = 0; at < text.size();) {
    size_t size = code_point_at(text, at).size;
    result.push_back(text.substr(at, size));
    at += size;
  }
  return result;
}

bool is_space(char32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_letter(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

std::string_view strip_space(std::string_view text, Side side) {
  return strip_if(text, side,
                  [](const CodePoint& c, std::string_view) { return is_space(c.value); });
}

std::string_view strip_any(std::string_view text, std::string_view characters, Side side) {
  return strip_if(text, side, [&](const CodePoint&, std::string_view bytes) {
    return characters.find(bytes) != std::string_view::npos;
  });
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    size_t next = at + c.size;
    if (is_line_end(c.value)) {
      lines.push_back(text.substr(begin, at - begin));
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string change_case(std::string_view text, Case wanted) {
  std::string result;
  result.reserve(text.size());
  bool after_letter = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    Case here = wanted;
    if (wanted == Case::title) here = after_letter ? Case::lower : Case::title;
    if (wanted == Case::capital) here = at > 0 ? Case::lower : Case::title;
    append_in_case(result, c, text.substr(at, c.size), here);
    after_letter = is_cased(c.value);
    at += c.size;
  }
  return result;
}

bool all_in_case(std::string_view text, Case wanted) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    at += c.size;
    if (!is_cased(c.value)) continue;
    bool lower = utf8proc_category(static_cast<utf8proc_int32_t>(c.value)) == UTF8PROC_CATEGORY_LL;
    if (lower != (wanted == Case::lower)) return false;
    any = true;
  }
  return any;
}

std::string without_underscores(std::string_view number) {
  std::string digits(number);
  std::erase(digits, '_');
  return digits;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// The methods of list, tuple, dict and of a loop's `loop`. transformers' sandbox forbids those
// that change a list or dict; templates written for other engines use them, so they are here.

namespace {

List& list_of(const Value& self) {
  return *std::get<List*>(self);
}
Dict& dict_of(const Value& self) {
  return *std::get<Dict*>(self);
}

Value append(Machine& machine, const Value& self, const Call& call) {
  push(machine, list_of(self), *call.given[0]);
  return None{};
}

Value extend(Machine& machine, const Value& self, const Call& call) {
  for (const Value& item : iterate(machine, *call.given[0])) push(machine, list_of(self), item);
  return None{};
}

// Where Python's index points, between 0 and size.
size_t clamped(int64_t index, size_t size) {
  int64_t limit = static_cast<int64_t>(size);
  if (index < 0) index = index < -limit ? 0 : index + limit;
  return static_cast<size_t>(std::min(index, limit));
}

Value insert(Machine& machine, const Value& self, const Call& call) {
  std::vector<Value>& items = list_of(self).items;
  size_t at = clamped(given_integer(machine, call.given[0], 0), items.size());
  charge_heap(machine, sizeof(Value));
  charge_work(machine, (items.size() - at) * sizeof(Value));
  items.insert(items.begin() + static_cast<ptrdiff_t>(at), *call.given[1]);
  return None{};
}

Value pop_item(Machine& machine, const Value& self, const Call& call) {
  std::vector<Value>& items = list_of(self).items;
  int64_t size = static_cast<int64_t>(items.size());
  int64_t index = given_integer(machine, call.given[0], -1);
  if (index < 0 && index >= -size) index += size;
  if (index < 0 || index >= size) fail(machine, "'pop' of an element that is not there");
  charge_work(machine, items.size() * sizeof(Value));
  Value result = items[static_cast<size_t>(index)];
  items.erase(items.begin() + static_cast<ptrdiff_t>(index));
  return result;
}

Value index_of(Machine& machine, const Value& self, const Call& call) {
  const List& list = list_of(self);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (equal(machine, list.items[i], *call.given[0])) return static_cast<int64_t>(i);
  }
  fail(machine, "'index': the element is not there");
}

Value count(Machine& machine, const Value& self, const Call& call) {
  int64_t total = 0;
  for (const Value& item : list_of(self).items) total += equal(machine, item, *call.given[0]);
  return total;
}

Value copy_list(Machine& machine, const Value& self, const Call&) {
  return make_list(machine, list_of(self).items);
}

Value get(Machine& machine, const Value& self, const Call& call) {
  const Value* found = find(machine, dict_of(self), *call.given[0]);
  if (found != nullptr) return *found;
  return call.given[1] != nullptr ? *call.given[1] : Value(None{});
}

enum class Part { key, value, both };

template <Part part>
Value parts(Machine& machine, const Value& self, const Call&) {
  List* result = make_list(machine);
  for (const auto& [key, value] : dict_of(self).items) {
    if (part == Part::key) push(machine, *result, key);
    if (part == Part::value) push(machine, *result, value);
    if (part == Part::both) push(machine, *result, make_list(machine, {key, value}, true));
  }
  return result;
}

Value pop_key(Machine& machine, const Value& self, const Call& call) {
  Dict& dict = dict_of(self);
  const Value* found = find(machine, dict, *call.given[0]);
  if (found == nullptr) {
    if (call.given[1] == nullptr) fail(machine, "'pop' of a key that is not there");
    return *call.given[1];
  }
  charge_work(machine, dict.items.size() * 2 * sizeof(Value));
  Value result = *found;
  std::erase_if(dict.items, [&](const auto& item) { return &item.second == found; });
  return result;
}

Value update(Machine& machine, const Value& self, const Call& call) {
  for (const Value& other : call.all.positional) {
    if (!is<Dict*>(other)) fail(machine, "'update' needs a mapping, not {}", type_name(other));
    if (&dict_of(other) == &dict_of(self)) continue;
    for (const auto& [key, value] : dict_of(other).items) {
      assign(machine, dict_of(self), key, value);
    }
  }
  for (const auto& [name, value] : call.all.named) assign(machine, dict_of(self), name, value);
  return None{};
}

Value setdefault(Machine& machine, const Value& self, const Call& call) {
  if (const Value* found = find(machine, dict_of(self), *call.given[0])) return *found;
  Value fallback = call.given[1] != nullptr ? *call.given[1] : Value(None{});
  assign(machine, dict_of(self), *call.given[0], fallback);
  return fallback;
}

Value copy_dict(Machine& machine, const Value& self, const Call&) {
  charge_heap(machine, dict_of(self).items.size() * 2 * sizeof(Value));
  Dict* result = make_dict(machine);
  result->items = dict_of(self).items;
  return result;
}

Value cycle(Machine& machine, const Value& self, const Call& call) {
  const std::vector<Value>& values = call.all.positional;
  if (values.empty()) fail(machine, "'cycle' needs values");
  return values[std::get<Loop*>(self)->index % values.size()];
}

Value changed(Machine& machine, const Value& self, const Call& call) {
  Loop& loop = *std::get<Loop*>(self);
  Value now = make_list(machine, call.all.positional);
  if (equal(machine, loop.last_changed, now)) return false;
  loop.last_changed = now;
  return true;
}

constexpr Builtin kListMethods[] = {
    {"index", "value", index_of}, {"count", "value", count},         {"append", "value", append},
    {"extend", "values", extend}, {"insert", "index value", insert}, {"pop", "index?", pop_item},
    {"copy", "", copy_list},
};
constexpr size_t kTupleMethods = 2;  // the first ones: those that change nothing

constexpr Builtin kDictMethods[] = {
    {"copy", "", copy_dict},          {"get", "key default?", get},
    {"items", "", parts<Part::both>}, {"keys", "", parts<Part::key>},
    {"pop", "key default?", pop_key}, {"setdefault", "key default?", setdefault},
    {"update", "*", update},          {"values", "", parts<Part::value>},
};

constexpr Builtin kLoopMethods[] = {{"changed", "*", changed}, {"cycle", "*", cycle}};

}  // namespace

std::span<const Builtin> container_methods(const Value& self) {
  if (const List* const* list = std::get_if<List*>(&self)) {
    std::span<const Builtin> all = kListMethods;
    return (*list)->tuple ? all.first(kTupleMethods) : all;
  }
  if (is<Dict*>(self)) return kDictMethods;
  if (is<Loop*>(self)) return kLoopMethods;
  return {};
}

// The methods of str that templates use. Positions and lengths count code points.

namespace {

constexpr size_t kNoMatch = std::string_view::npos;

std::string_view text_of(const Value& self) {
  return std::get<std::string_view>(self);
}

bool absent(const Value* argument) {
  return argument == nullptr || is<None>(*argument);
}

template <Side side>
Value strip(Machine& machine, const Value& self, const Call& call) {
  if (absent(call.given[0])) {
    charge_work(machine, text_of(self).size());
    return strip_space(text_of(self), side);
  }
  std::string_view characters = given_text(machine, call.given[0]);
  charge_work(machine, text_of(self).size() * (characters.size() + 1));
  return strip_any(text_of(self), characters, side);
}

template <Case wanted>
Value cased(Machine& machine, const Value& self, const Call&) {
  return in_case(machine, text_of(self), wanted);
}

Value split_at_space(Machine& machine, std::string_view rest, int64_t limit) {
  List* parts = make_list(machine);
  for (rest = strip_space(rest, Side::left); !rest.empty(); --limit) {
    if (limit == 0) {
      push(machine, *parts, rest);
      break;
    }
    size_t end = 0;
    while (end < rest.size()) {
      CodePoint c = code_point_at(rest, end);
      if (is_space(c.value)) break;
      end += c.size;
    }
    push(machine, *parts, rest.substr(0, end));
    rest = strip_space(rest.substr(end), Side::left);
  }
  return parts;
}

// A negative number of splits is no limit.
int64_t split_limit(Machine& machine, const Value* argument) {
  int64_t limit = given_integer(machine, argument, -1);
  return limit < 0 ? static_cast<int64_t>(kMaxText) + 1 : limit;
}

std::string_view separator(Machine& machine, const Value* argument) {
  std::string_view text = given_text(machine, argument);
  if (text.empty()) fail(machine, "'split' at an empty separator");
  return text;
}

Value split(Machine& machine, const Value& self, const Call& call) {
  std::string_view rest = text_of(self);
  charge_work(machine, rest.size());
  int64_t limit = split_limit(machine, call.given[1]);
  if (absent(call.given[0])) return split_at_space(machine, rest, limit);
  std::string_view sep = separator(machine, call.given[0]);
  List* parts = make_list(machine);
  for (; limit > 0; --limit) {
    size_t found = find_text(rest, sep);
    if (found == kNoMatch) break;
    push(machine, *parts, rest.substr(0, found));
    rest.remove_prefix(found + sep.size());
  }
  push(machine, *parts, rest);
  return parts;
}

Value rsplit(Machine& machine, const Value& self, const Call& call) {
  std::string_view rest = text_of(self);
  if (absent(call.given[0])) fail_construct(machine, "'rsplit' at white space");
  std::string_view sep = separator(machine, call.given[0]);
  charge_work(machine, rest.size() * sep.size());
  List* parts = make_list(machine);
  for (int64_t limit = split_limit(machine, call.given[1]); limit > 0; --limit) {
    size_t found = rest.rfind(sep);
    if (found == kNoMatch) break;
    push(machine, *parts, rest.substr(found + sep.size()));
    rest = rest.substr(0, found);
  }
  push(machine, *parts, rest);
  std::reverse(parts->items.begin(), parts->items.end());
  return parts;
}

Value splitlines(Machine& machine, const Value& self, const Call&) {
  charge_heap(machine, text_of(self).size() * sizeof(std::string_view));
  List* lines = make_list(machine);
  for (std::string_view line : split_lines(text_of(self))) push(machine, *lines, line);
  return lines;
}

Value partition(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self), sep = separator(machine, call.given[0]);
  charge_work(machine, text.size());
  size_t found = find_text(text, sep);
  if (found == kNoMatch)
    return make_list(machine, {text, std::string_view(), std::string_view()}, true);
  return make_list(machine, {text.substr(0, found), sep, text.substr(found + sep.size())}, true);
}

// startswith and endswith take one string or a tuple of them.
template <typename Matches>
Value any_affix(Machine& machine, const Value& argument, Matches matches) {
  const List* const* list = std::get_if<List*>(&argument);
  if (list == nullptr) return matches(given_text(machine, &argument));
  for (const Value& each : (*list)->items) {
    step(machine);
    if (matches(given_text(machine, &each))) return true;
  }
  return false;
}

Value startswith(Machine& machine, const Value& self, const Call& call) {
  return any_affix(machine, *call.given[0], [&](std::string_view affix) {
    charge_work(machine, affix.size());
    return text_of(self).starts_with(affix);
  });
}

Value endswith(Machine& machine, const Value& self, const Call& call) {
  return any_affix(machine, *call.given[0], [&](std::string_view affix) {
    charge_work(machine, affix.size());
    return text_of(self).ends_with(affix);
  });
}

Value removeprefix(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self), prefix = given_text(machine, call.given[0]);
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text;
}

Value removesuffix(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self), suffix = given_text(machine, call.given[0]);
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return text;
}

Value replace_method(Machine& machine, const Value& self, const Call& call) {
  return replace_text(machine, text_of(self), given_text(machine, call.given[0]),
                      given_text(machine, call.given[1]),
                      given_integer(machine, call.given[2], -1));
}

int64_t position_or_none(Machine& machine, std::string_view text, size_t found) {
  charge_work(machine, text.size());
  if (found == kNoMatch) return -1;
  return static_cast<int64_t>(count_code_points(text.substr(0, found)));
}

Value find_position(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self);
  charge_work(machine, text.size());
  return position_or_none(machine, text, find_text(text, given_text(machine, call.given[0])));
}

Value rfind_position(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self), part = given_text(machine, call.given[0]);
  charge_work(machine, text.size() * (part.size() + 1));
  return position_or_none(machine, text, text.rfind(part));
}

Value index_of_text(Machine& machine, const Value& self, const Call& call) {
  Value found = find_position(machine, self, call);
  if (std::get<int64_t>(found) < 0) fail(machine, "'index': the part is not there");
  return found;
}

Value count_text(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = text_of(self), part = given_text(machine, call.given[0]);
  charge_work(machine, text.size());
  if (part.empty()) return length(machine, self) + 1;
  int64_t total = 0;
  for (size_t at = 0; (at = find_text(text, part, at)) != kNoMatch; at += part.size()) ++total;
  return total;
}

Value join_method(Machine& machine, const Value& self, const Call& call) {
  Builder out(machine);
  bool more = false;
  for (const Value& item : iterate(machine, *call.given[0])) {
    step(machine);
    if (more) out.add(text_of(self));
    more = true;
    out.add(given_text(machine, &item));
  }
  return out.finish();
}

Value format_method(Machine& machine, const Value& self, const Call& call) {
  return format_braces(machine, text_of(self), call.all);
}

template <typename Accepts>
Value all_letters(Machine& machine, const Value& self, Accepts accepts) {
  std::string_view text = text_of(self);
  charge_work(machine, text.size());
  for (size_t at = 0; at < text.size();) {
    CodePoint c = code_point_at(text, at);
    if (!accepts(c.value)) return false;
    at += c.size;
  }
  return !text.empty();
}

Value isdigit(Machine& machine, const Value& self, const Call&) {
  return all_letters(machine, self, is_digit);
}

Value isalpha(Machine& machine, const Value& self, const Call&) {
  return all_letters(machine, self, is_letter);
}

Value isalnum(Machine& machine, const Value& self, const Call&) {
  return all_letters(machine, self, [](char32_t c) { return is_letter(c) || is_digit(c); });
}

Value isspace(Machine& machine, const Value& self, const Call&) {
  return all_letters(machine, self, is_space);
}

template <Case wanted>
Value is_case(Machine& machine, const Value& self, const Call&) {
  charge_work(machine, text_of(self).size());
  return all_in_case(text_of(self), wanted);
}

constexpr Builtin kMethods[] = {
    {"capitalize", "", cased<Case::capital>},
    {"count", "sub", count_text},
    {"endswith", "suffix", endswith},
    {"find", "sub", find_position},
    {"format", "*", format_method},
    {"index", "sub", index_of_text},
    {"isalnum", "", isalnum},
    {"isalpha", "", isalpha},
    {"isdigit", "", isdigit},
    {"islower", "", is_case<Case::lower>},
    {"isspace", "", isspace},
    {"isupper", "", is_case<Case::upper>},
    {"join", "iterable", join_method},
    {"lower", "", cased<Case::lower>},
    {"lstrip", "chars?", strip<Side::left>},
    {"partition", "sep", partition},
    {"removeprefix", "prefix", removeprefix},
    {"removesuffix", "suffix", removesuffix},
    {"replace", "old new count?", replace_method},
    {"rfind", "sub", rfind_position},
    {"rsplit", "sep? maxsplit?", rsplit},
    {"rstrip", "chars?", strip<Side::right>},
    {"split", "sep? maxsplit?", split},
    {"splitlines", "", splitlines},
    {"startswith", "prefix", startswith},
    {"strip", "chars?", strip<Side::both>},
    {"title", "", cased<Case::title>},
    {"upper", "", cased<Case::upper>},
};

}  // namespace

std::span<const Builtin> text_methods() {
  return kMethods;
}

}  // namespace tyto::jinja
