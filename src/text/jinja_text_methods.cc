// The methods of str that templates use. Positions and lengths count code points.
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
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
