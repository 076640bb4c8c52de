#include "text/jinja/builtins.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"
#include "text/jinja/value.h"

namespace tyto::jinja {
namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& each : table) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    result.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

void bind(Machine& machine, const Builtin& builtin, const Arguments& arguments, Call& call) {
  std::vector<std::string_view> parameters = words(builtin.parameters);
  TYTO_ASSERT(parameters.size() <= std::size(call.given));
  if (arguments.positional.size() > parameters.size()) {
    fail(machine, "'{}' takes at most {} arguments", builtin.name, parameters.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    call.given[i] = &arguments.positional[i];
  }
  std::vector<std::string_view> names = parameters;
  for (std::string_view& name : names) {
    if (name.ends_with('?')) name.remove_suffix(1);
  }
  for (const auto& [name, value] : arguments.named) {
    size_t i = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (i == names.size())
      fail(machine, "'{}' has no argument '{}'", builtin.name, printable_name(name));
    if (call.given[i] != nullptr) {
      fail(machine, "'{}' is given argument '{}' twice", builtin.name, name);
    }
    call.given[i] = &value;
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (call.given[i] == nullptr && !parameters[i].ends_with('?')) {
      fail(machine, "'{}' needs argument '{}'", builtin.name, parameters[i]);
    }
  }
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = find_in(text_filters(), name);
  return found != nullptr ? found : find_in(sequence_filters(), name);
}

const Builtin* find_test(std::string_view name) {
  return find_in(tests(), name);
}

const Builtin* find_function(std::string_view name) {
  return find_in(functions(), name);
}

const Builtin* find_method(const Value& self, std::string_view name) {
  if (is<std::string_view>(self)) return find_in(text_methods(), name);
  return find_in(container_methods(self), name);
}

Value call_builtin(Machine& machine, const Builtin& builtin, const Value& self,
                   const Arguments& arguments) {
  Nesting nesting(machine);
  Call call{.given = {}, .all = arguments};
  if (builtin.parameters != "*") bind(machine, builtin, arguments, call);
  return builtin.run(machine, self, call);
}

std::string_view replace_text(Machine& machine, std::string_view text, std::string_view old,
                              std::string_view fresh, int64_t limit) {
  charge_work(machine, text.size());
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  Builder out(machine);
  size_t at = 0;
  for (; limit != 0; --limit) {
    size_t found = find_text(text, old, at);
    if (found == std::string_view::npos) break;
    out.add(text.substr(at, found - at));
    out.add(fresh);
    at = found + old.size();
    if (!old.empty()) continue;
    // Python puts `fresh` before every code point and at the end.
    if (at == text.size()) break;
    size_t size = code_point_at(text, at).size;
    out.add(text.substr(at, size));
    at += size;
  }
  out.add(text.substr(at));
  return out.finish();
}

std::string_view in_case(Machine& machine, std::string_view text, Case wanted) {
  charge_heap(machine, 2 * text.size());  // a mapped letter is at most half as long again
  return keep(machine, change_case(text, wanted));
}

bool given_truthy(const Value* argument) {
  return argument != nullptr && truthy(*argument);
}

int64_t given_integer(Machine& machine, const Value* argument, int64_t fallback) {
  if (argument == nullptr) return fallback;
  std::optional<Number> number = as_number(*argument);
  if (!number || !number->whole) {
    fail(machine, "an argument should be an int and is {}", type_name(*argument));
  }
  return number->integer;
}

std::string_view given_text(Machine& machine, const Value* argument) {
  const auto* text = argument != nullptr ? std::get_if<std::string_view>(argument) : nullptr;
  if (text == nullptr) {
    fail(machine, "an argument should be a str and is {}",
         argument != nullptr ? type_name(*argument) : "missing");
  }
  return *text;
}

Value dotted_attribute(Machine& machine, const Value& value, std::string_view path) {
  Value current = value;
  for (;;) {
    size_t dot = std::min(path.find('.'), path.size());
    std::string_view name = path.substr(0, dot);
    int64_t index = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    bool number = !name.empty() && error == std::errc() && end == name.data() + name.size();
    current = subscript(machine, current, number ? Value(index) : Value(name));
    if (dot == path.size()) return current;
    path.remove_prefix(dot + 1);
  }
}

// Filters over texts and numbers. Names, arguments and results are Jinja's.

namespace {

Value upper(Machine& machine, const Value& self, const Call&) {
  return in_case(machine, to_text(machine, self), Case::upper);
}

Value lower(Machine& machine, const Value& self, const Call&) {
  return in_case(machine, to_text(machine, self), Case::lower);
}

Value capitalize(Machine& machine, const Value& self, const Call&) {
  return in_case(machine, to_text(machine, self), Case::capital);
}

// Unlike str.title(), an apostrophe does not begin a word here.
Value title(Machine& machine, const Value& self, const Call&) {
  std::string_view text = to_text(machine, self);
  charge_heap(machine, text.size() * sizeof(std::string_view));
  Builder out(machine);
  bool word_begins = true;
  for (std::string_view letter : split_code_points(text)) {
    step(machine);
    char32_t c = code_point_at(letter, 0).value;
    out.add(change_case(letter, word_begins ? Case::upper : Case::lower));
    word_begins = is_space(c) || (c < 0x80 && std::string_view("-({[<").find(
                                                  static_cast<char>(c)) != std::string_view::npos);
  }
  return out.finish();
}

Value trim(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = to_text(machine, self);
  if (call.given[0] == nullptr || is<None>(*call.given[0])) {
    charge_work(machine, text.size());
    return strip_space(text, Side::both);
  }
  std::string_view characters = given_text(machine, call.given[0]);
  charge_work(machine, text.size() * (characters.size() + 1));
  return strip_any(text, characters, Side::both);
}

Value replace(Machine& machine, const Value& self, const Call& call) {
  int64_t limit = call.given[2] == nullptr || is<None>(*call.given[2])
                      ? -1
                      : given_integer(machine, call.given[2], -1);
  return replace_text(machine, to_text(machine, self), to_text(machine, *call.given[0]),
                      to_text(machine, *call.given[1]), limit);
}

Value string(Machine& machine, const Value& self, const Call&) {
  return to_text(machine, self);
}

Value count_items(Machine& machine, const Value& self, const Call&) {
  return length(machine, self);
}

Value default_value(Machine&, const Value& self, const Call& call) {
  bool absent = is<Undefined>(self) || (given_truthy(call.given[1]) && !truthy(self));
  if (!absent) return self;
  return call.given[0] != nullptr ? *call.given[0] : Value(std::string_view());
}

Value escape(Machine& machine, const Value& self, const Call&) {
  static constexpr std::string_view kMarks = "&<>'\"";
  static constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string_view text = to_text(machine, self);
  Builder out(machine);
  for (size_t at = 0; at < text.size();) {
    size_t mark = std::min(text.find_first_of(kMarks, at), text.size());
    out.add(text.substr(at, mark - at));
    if (mark < text.size()) out.add(kEntities[kMarks.find(text[mark])]);
    at = mark + 1;
  }
  return out.finish();
}

Value indent(Machine& machine, const Value& self, const Call& call) {
  std::string_view text = to_text(machine, self);
  Builder margin_text(machine);
  if (call.given[0] != nullptr && is<std::string_view>(*call.given[0])) {
    margin_text.add(std::get<std::string_view>(*call.given[0]));
  } else {
    int64_t width = std::max<int64_t>(0, given_integer(machine, call.given[0], 4));
    margin_text.add(static_cast<size_t>(width), ' ');
  }
  std::string_view margin = margin_text.finish();
  bool first = given_truthy(call.given[1]), blank = given_truthy(call.given[2]);
  charge_heap(machine, text.size() * sizeof(std::string_view));
  std::vector<std::string_view> lines = split_lines(text);
  // A line end at the end begins one more line, and nothing at all is one empty line.
  if (lines.empty() || lines.back().data() + lines.back().size() != text.data() + text.size()) {
    lines.push_back("");
  }
  Builder out(machine);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.add("\n");
    if (i == 0 ? first : (blank || !lines[i].empty())) out.add(margin);
    out.add(lines[i]);
  }
  return out.finish();
}

Value format(Machine& machine, const Value& self, const Call& call) {
  if (!call.all.named.empty()) fail_construct(machine, "named values in a % format");
  return format_percent(machine, to_text(machine, self), call.all.positional);
}

Value tojson(Machine& machine, const Value& self, const Call& call) {
  JsonStyle style;
  style.ensure_ascii = given_truthy(call.given[0]);
  if (call.given[1] != nullptr && !is<None>(*call.given[1])) {
    style.indent = std::max<int64_t>(0, given_integer(machine, call.given[1], 0));
    style.item_separator = ",";
  }
  if (call.given[2] != nullptr && !is<None>(*call.given[2])) {
    std::vector<Value> separators = iterate(machine, *call.given[2]);
    if (separators.size() != 2) fail(machine, "tojson: separators should be two strings");
    style.item_separator = given_text(machine, &separators[0]);
    style.key_separator = given_text(machine, &separators[1]);
  }
  style.sort_keys = given_truthy(call.given[3]);
  return to_json(machine, self, style);
}

std::optional<double> parse_real(std::string_view text) {
  std::string digits = without_underscores(strip_space(text, Side::both));
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  double value = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  bool complete =
      !rest.empty() && end == rest.data() + rest.size() && !(digits[0] == '+' && rest[0] == '-');
  if (!complete || error == std::errc::invalid_argument) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_integer(Machine& machine, std::string_view text, int base) {
  std::string digits = without_underscores(strip_space(text, Side::both));
  bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    char letter = static_cast<char>(digits[1] | 0x20);
    bool prefix = (base == 16 && letter == 'x') || (base == 8 && letter == 'o') ||
                  (base == 2 && letter == 'b');
    if (prefix) digits.erase(0, 2);
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  if (negative) digits.insert(0, 1, '-');
  int64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) fail(machine, "'int': integer overflow");
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<int64_t> whole_part(Machine& machine, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (!(std::abs(value) < 9.2e18)) fail(machine, "'int': integer overflow");
  return static_cast<int64_t>(value);
}

Value to_integer(Machine& machine, const Value& self, const Call& call) {
  require_defined(machine, self);
  Value fallback = call.given[0] != nullptr ? *call.given[0] : Value(int64_t{0});
  std::optional<int64_t> result;
  if (std::optional<Number> number = as_number(self)) {
    if (number->whole) return number->integer;
    result = whole_part(machine, number->real);
  } else if (const auto* text = std::get_if<std::string_view>(&self)) {
    int64_t base = given_integer(machine, call.given[1], 10);
    if (base < 2 || base > 36) fail(machine, "'int': base {} is not between 2 and 36", base);
    charge_work(machine, 2 * text->size());
    result = parse_integer(machine, *text, static_cast<int>(base));
    std::optional<double> real = result ? std::nullopt : parse_real(*text);
    if (real) result = whole_part(machine, *real);
  }
  return result ? Value(*result) : fallback;
}

Value to_real(Machine& machine, const Value& self, const Call& call) {
  require_defined(machine, self);
  if (std::optional<Number> number = as_number(self)) return number->real;
  if (const auto* text = std::get_if<std::string_view>(&self)) {
    charge_work(machine, text->size());
    if (std::optional<double> real = parse_real(*text)) return *real;
  }
  return call.given[0] != nullptr ? *call.given[0] : Value(0.0);
}

Value absolute(Machine& machine, const Value& self, const Call&) {
  require_defined(machine, self);
  std::optional<Number> number = as_number(self);
  if (!number) fail(machine, "'abs' needs a number, not {}", type_name(self));
  if (!number->whole) return std::abs(number->real);
  if (number->integer == std::numeric_limits<int64_t>::min()) fail(machine, "integer overflow");
  return std::abs(number->integer);
}

Value round_number(Machine& machine, const Value& self, const Call& call) {
  std::optional<Number> number = as_number(self);
  if (!number) fail(machine, "'round' needs a number, not {}", type_name(self));
  int64_t precision = given_integer(machine, call.given[0], 0);
  if (precision < 0 || precision > 15) fail_construct(machine, "'round' to {} digits", precision);
  std::string_view method =
      call.given[1] != nullptr ? given_text(machine, call.given[1]) : std::string_view("common");
  double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(number->real * scale) / scale;
  if (method == "floor") return std::floor(number->real * scale) / scale;
  if (method != "common") fail(machine, "'round' has no method '{}'", printable_name(method));
  if (number->whole) return number->integer;
  // Printing rounds the exact value, as Python does; scaling would round twice.
  return parse_real(fmt::format("{:.{}f}", number->real, precision)).value_or(number->real);
}

constexpr Builtin kTextFilters[] = {
    {"abs", "", absolute},
    {"capitalize", "", capitalize},
    {"count", "", count_items},
    {"d", "default_value? boolean?", default_value},
    {"default", "default_value? boolean?", default_value},
    {"e", "", escape},
    {"escape", "", escape},
    {"float", "default?", to_real},
    {"format", "*", format},
    {"indent", "width? first? blank?", indent},
    {"int", "default? base?", to_integer},
    {"length", "", count_items},
    {"lower", "", lower},
    {"replace", "old new count?", replace},
    {"round", "precision? method?", round_number},
    {"safe", "", string},  // nothing is escaped unless asked for, so nothing needs marking
    {"string", "", string},
    {"title", "", title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson},
    {"trim", "chars?", trim},
    {"upper", "", upper},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

// Filters over lists and mappings. Where Jinja makes a generator, this makes the list.

namespace {

Value first(Machine& machine, const Value& self, const Call&) {
  std::vector<Value> items = iterate(machine, self);
  return items.empty() ? Value(Undefined{"first"}) : items.front();
}

Value last(Machine& machine, const Value& self, const Call&) {
  std::vector<Value> items = iterate(machine, self);
  return items.empty() ? Value(Undefined{"last"}) : items.back();
}

Value list(Machine& machine, const Value& self, const Call&) {
  return make_list(machine, iterate(machine, self));
}

Value reverse(Machine& machine, const Value& self, const Call&) {
  std::vector<Value> items = iterate(machine, self);
  std::reverse(items.begin(), items.end());
  if (!is<std::string_view>(self)) return make_list(machine, std::move(items));
  Builder out(machine);
  for (const Value& item : items) out.add(std::get<std::string_view>(item));
  return out.finish();
}

Value items(Machine& machine, const Value& self, const Call&) {
  List* result = make_list(machine);
  if (is<Undefined>(self)) return result;
  const Dict* const* dict = std::get_if<Dict*>(&self);
  if (dict == nullptr) fail(machine, "'items' needs a mapping, not {}", type_name(self));
  for (const auto& [key, value] : (*dict)->items) {
    push(machine, *result, make_list(machine, {key, value}, true));
  }
  return result;
}

// The attribute that an `attribute` argument names, or the value itself without one.
Value chosen(Machine& machine, const Value& value, const Value* attribute_argument) {
  if (attribute_argument == nullptr || is<None>(*attribute_argument)) return value;
  if (is<int64_t>(*attribute_argument)) return subscript(machine, value, *attribute_argument);
  return dotted_attribute(machine, value, given_text(machine, attribute_argument));
}

Value join(Machine& machine, const Value& self, const Call& call) {
  std::string_view glue = call.given[0] != nullptr ? to_text(machine, *call.given[0]) : "";
  Builder out(machine);
  bool more = false;
  for (const Value& item : iterate(machine, self)) {
    step(machine);
    if (more) out.add(glue);
    more = true;
    out.add(to_text(machine, chosen(machine, item, call.given[1])));
  }
  return out.finish();
}

// What sorting and comparing filters look at: letters of either case are the same by default.
struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> keyed(Machine& machine, const Value& self, bool case_sensitive,
                         const Value* attribute_argument) {
  std::vector<Keyed> result;
  for (const Value& item : iterate(machine, self)) {
    Value key = chosen(machine, item, attribute_argument);
    const auto* text = std::get_if<std::string_view>(&key);
    if (text != nullptr && !case_sensitive) key = in_case(machine, *text, Case::lower);
    charge_heap(machine, sizeof(Keyed));
    result.push_back({key, item});
  }
  return result;
}

Value sorted(Machine& machine, std::vector<Keyed> entries, bool descending) {
  std::stable_sort(entries.begin(), entries.end(), [&](const Keyed& a, const Keyed& b) {
    return descending ? order(machine, b.key, a.key) < 0 : order(machine, a.key, b.key) < 0;
  });
  List* result = make_list(machine);
  for (const Keyed& entry : entries) push(machine, *result, entry.item);
  return result;
}

Value sort(Machine& machine, const Value& self, const Call& call) {
  return sorted(machine, keyed(machine, self, given_truthy(call.given[1]), call.given[2]),
                given_truthy(call.given[0]));
}

Value dictsort(Machine& machine, const Value& self, const Call& call) {
  if (!is<Dict*>(self)) fail(machine, "'dictsort' needs a mapping, not {}", type_name(self));
  std::string_view by =
      call.given[1] != nullptr ? given_text(machine, call.given[1]) : std::string_view("key");
  if (by != "key" && by != "value") fail(machine, "'dictsort' sorts by key or value");
  Value position = int64_t{by == "value"};
  Value pairs = items(machine, self, call);
  return sorted(machine, keyed(machine, pairs, given_truthy(call.given[0]), &position),
                given_truthy(call.given[2]));
}

Value unique(Machine& machine, const Value& self, const Call& call) {
  List* seen = make_list(machine);
  List* result = make_list(machine);
  for (const Keyed& entry : keyed(machine, self, given_truthy(call.given[0]), call.given[1])) {
    if (contains(machine, seen, entry.key)) continue;
    push(machine, *seen, entry.key);
    push(machine, *result, entry.item);
  }
  return result;
}

Value extreme(Machine& machine, const Value& self, const Call& call, bool largest) {
  std::vector<Keyed> entries = keyed(machine, self, given_truthy(call.given[0]), call.given[1]);
  if (entries.empty()) return Undefined{"an element of an empty sequence"};
  const Keyed* best = &entries[0];
  for (const Keyed& entry : entries) {
    int place = order(machine, entry.key, best->key);
    if (largest ? place > 0 : place < 0) best = &entry;
  }
  return best->item;
}

Value min(Machine& machine, const Value& self, const Call& call) {
  return extreme(machine, self, call, false);
}

Value max(Machine& machine, const Value& self, const Call& call) {
  return extreme(machine, self, call, true);
}

Value sum(Machine& machine, const Value& self, const Call& call) {
  Value total = call.given[1] != nullptr ? *call.given[1] : Value(int64_t{0});
  for (const Value& item : iterate(machine, self)) {
    step(machine);
    total = binary(machine, Operator::add, total, chosen(machine, item, call.given[0]));
  }
  return total;
}

const Value* named(const Arguments& arguments, std::string_view name) {
  for (const auto& [each, value] : arguments.named) {
    if (each == name) return &value;
  }
  return nullptr;
}

// map(attribute="a.b", default=x) or map("filter", arguments...).
Value map(Machine& machine, const Value& self, const Call& call) {
  List* result = make_list(machine);
  if (!truthy(self)) return result;  // none is nothing to go through, here and in keep_if()
  const Value* attribute_argument = named(call.all, "attribute");
  if (call.all.positional.empty() && attribute_argument != nullptr) {
    const Value* fallback = named(call.all, "default");
    if (call.all.named.size() != (fallback != nullptr ? 2u : 1u)) {
      fail(machine, "'map' has only the named arguments attribute and default");
    }
    for (const Value& item : iterate(machine, self)) {
      Value value = chosen(machine, item, attribute_argument);
      push(machine, *result, is<Undefined>(value) && fallback != nullptr ? *fallback : value);
    }
    return result;
  }
  if (call.all.positional.empty()) fail(machine, "'map' needs a filter or an attribute");
  std::string_view name = given_text(machine, &call.all.positional[0]);
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) fail_construct(machine, "unknown filter '{}'", printable_name(name));
  Arguments rest = call.all;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : iterate(machine, self)) {
    push(machine, *result, call_builtin(machine, *filter, item, rest));
  }
  return result;
}

// The four filters that keep elements by a test; `skipped` arguments precede the test's name.
Value keep_if(Machine& machine, const Value& self, const Call& call, bool by_attribute,
              bool wanted) {
  if (!truthy(self)) return make_list(machine);
  size_t skipped = by_attribute ? 1 : 0;
  Arguments rest = call.all;
  if (rest.positional.size() < skipped) fail(machine, "an attribute's name is missing");
  const Value* attribute_argument = by_attribute ? &call.all.positional[0] : nullptr;
  const Builtin* test = nullptr;
  if (rest.positional.size() > skipped) {
    std::string_view name = given_text(machine, &rest.positional[skipped]);
    test = find_test(name);
    if (test == nullptr) fail_construct(machine, "unknown test '{}'", printable_name(name));
    ++skipped;
  }
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<ptrdiff_t>(skipped));
  List* result = make_list(machine);
  for (const Value& item : iterate(machine, self)) {
    step(machine);
    Value value = chosen(machine, item, attribute_argument);
    bool passes = truthy(test != nullptr ? call_builtin(machine, *test, value, rest) : value);
    if (passes == wanted) push(machine, *result, item);
  }
  return result;
}

Value select(Machine& machine, const Value& self, const Call& call) {
  return keep_if(machine, self, call, false, true);
}

Value reject(Machine& machine, const Value& self, const Call& call) {
  return keep_if(machine, self, call, false, false);
}

Value selectattr(Machine& machine, const Value& self, const Call& call) {
  return keep_if(machine, self, call, true, true);
}

Value rejectattr(Machine& machine, const Value& self, const Call& call) {
  return keep_if(machine, self, call, true, false);
}

constexpr Builtin kSequenceFilters[] = {
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"first", "", first},
    {"items", "", items},
    {"join", "d? attribute?", join},
    {"last", "", last},
    {"list", "", list},
    {"map", "*", map},
    {"max", "case_sensitive? attribute?", max},
    {"min", "case_sensitive? attribute?", min},
    {"reject", "*", reject},
    {"rejectattr", "*", rejectattr},
    {"reverse", "", reverse},
    {"select", "*", select},
    {"selectattr", "*", selectattr},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"sum", "attribute? start?", sum},
    {"unique", "case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const Builtin> sequence_filters() {
  return kSequenceFilters;
}

// Functions a template can call by name.

namespace {

// range(stop), range(start, stop), range(start, stop, step)
Value range(Machine& machine, const Value&, const Call& call) {
  int64_t first = given_integer(machine, call.given[0], 0);
  int64_t start = call.given[1] != nullptr ? first : 0;
  int64_t stop = call.given[1] != nullptr ? given_integer(machine, call.given[1], 0) : first;
  int64_t pace = given_integer(machine, call.given[2], 1);
  if (pace == 0) fail(machine, "'range' with a step of zero");
  List* result = make_list(machine);
  for (int64_t i = start; pace > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(result->items.size()) == kMaxRange) {
      fail(machine, "'range' of more than {} numbers", kMaxRange);
    }
    push(machine, *result, i);
    if (__builtin_add_overflow(i, pace, &i)) break;
  }
  return result;
}

void collect(Machine& machine, Dict& target, const Arguments& arguments) {
  for (const Value& each : arguments.positional) {
    const Dict* const* dict = std::get_if<Dict*>(&each);
    if (dict == nullptr) fail(machine, "a mapping is made from {}", type_name(each));
    for (const auto& [key, value] : (*dict)->items) assign(machine, target, key, value);
  }
  for (const auto& [name, value] : arguments.named) assign(machine, target, name, value);
}

Value make_namespace(Machine& machine, const Value&, const Call& call) {
  charge_heap(machine, sizeof(Namespace));
  Namespace& space = machine.namespaces.emplace_back();
  collect(machine, space.members, call.all);
  return &space;
}

Value dict(Machine& machine, const Value&, const Call& call) {
  Dict* result = make_dict(machine);
  collect(machine, *result, call.all);
  return result;
}

Value raise_exception(Machine& machine, const Value&, const Call& call) {
  std::string words(to_text(machine, *call.given[0]));
  std::replace(words.begin(), words.end(), '\n', ' ');
  fail(machine, "the template says: {}", printable_line(words, 400));
}

// datetime.now().strftime(): the C library's conversions, those that need no locale.
Value strftime_now(Machine& machine, const Value&, const Call& call) {
  static constexpr std::string_view kConversions = "aAbBCdDeFgGhHIjklmMpPrRsStTuUVwWyY";
  std::string_view pattern = given_text(machine, call.given[0]);
  Builder out(machine);
  for (size_t at = 0; at < pattern.size();) {
    size_t percent = std::min(pattern.find('%', at), pattern.size());
    out.add(pattern.substr(at, percent - at));
    if (percent == pattern.size()) break;
    size_t letter = percent + 1;
    std::string conversion = "%";
    if (letter < pattern.size() && pattern[letter] == '-') conversion += pattern[letter++];
    char c = letter < pattern.size() ? pattern[letter] : 0;
    at = letter + 1;
    if (c == '%') {
      out.add("%");
    } else if (c == 'f') {
      out.add("000000");
    } else if (c != 0 && kConversions.find(c) != std::string_view::npos) {
      conversion += c;
      char text[64];
      out.add({text, std::strftime(text, sizeof text, conversion.c_str(), &machine.now)});
    } else {
      fail_construct(machine, "unknown conversion '{}' in strftime_now",
                     printable_name(pattern.substr(percent, at - percent)));
    }
  }
  return out.finish();
}

constexpr Builtin kFunctions[] = {
    {"dict", "*", dict},
    {"namespace", "*", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"range", "start stop? step?", range},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

std::span<const Builtin> functions() {
  return kFunctions;
}

// What may follow `is`.

namespace {

template <typename T>
Value is_a(Machine&, const Value& self, const Call&) {
  return is<T>(self);
}

Value is_defined(Machine&, const Value& self, const Call&) {
  return !is<Undefined>(self);
}

template <bool wanted>
Value is_the_boolean(Machine&, const Value& self, const Call&) {
  const bool* value = std::get_if<bool>(&self);
  return value != nullptr && *value == wanted;
}

Value is_number(Machine&, const Value& self, const Call&) {
  return as_number(self).has_value();
}

// The undefined behaves as an empty sequence, and the tests say so.
Value is_iterable(Machine&, const Value& self, const Call&) {
  return is<std::string_view>(self) || is<List*>(self) || is<Dict*>(self) || is<Undefined>(self);
}

Value is_callable(Machine&, const Value& self, const Call&) {
  return is<const Builtin*>(self) || is<const BoundMethod*>(self) || is<const Macro*>(self);
}

template <Operator op>
Value compares(Machine& machine, const Value& self, const Call& call) {
  return compare(machine, op, self, *call.given[0]);
}

int64_t remainder(Machine& machine, const Value& self, int64_t divisor) {
  Value result = binary(machine, Operator::modulo, self, divisor);
  const int64_t* whole = std::get_if<int64_t>(&result);
  return whole != nullptr ? *whole : (truthy(result) ? 1 : 0);
}

Value is_even(Machine& machine, const Value& self, const Call&) {
  return remainder(machine, self, 2) == 0;
}

Value is_odd(Machine& machine, const Value& self, const Call&) {
  return remainder(machine, self, 2) == 1;
}

Value is_divisible(Machine& machine, const Value& self, const Call& call) {
  return remainder(machine, self, given_integer(machine, call.given[0], 1)) == 0;
}

template <Case wanted>
Value is_in_case(Machine& machine, const Value& self, const Call&) {
  std::string_view text = to_text(machine, self);
  charge_work(machine, text.size());
  return all_in_case(text, wanted);
}

// Identity, which for values without an address is equality within one type.
Value is_same(Machine& machine, const Value& self, const Call& call) {
  const Value& other = *call.given[0];
  if (const List* const* list = std::get_if<List*>(&self)) {
    return is<List*>(other) && *list == std::get<List*>(other);
  }
  if (const Dict* const* dict = std::get_if<Dict*>(&self)) {
    return is<Dict*>(other) && *dict == std::get<Dict*>(other);
  }
  return self.index() == other.index() && equal(machine, self, other);
}

constexpr Builtin kTests[] = {
    {"defined", "", is_defined},
    {"undefined", "", is_a<Undefined>},
    {"none", "", is_a<None>},
    {"boolean", "", is_a<bool>},
    {"true", "", is_the_boolean<true>},
    {"false", "", is_the_boolean<false>},
    {"string", "", is_a<std::string_view>},
    {"integer", "", is_a<int64_t>},
    {"float", "", is_a<double>},
    {"number", "", is_number},
    {"mapping", "", is_a<Dict*>},
    {"iterable", "", is_iterable},
    {"sequence", "", is_iterable},
    {"callable", "", is_callable},
    {"sameas", "other", is_same},
    {"even", "", is_even},
    {"odd", "", is_odd},
    {"divisibleby", "num", is_divisible},
    {"lower", "", is_in_case<Case::lower>},
    {"upper", "", is_in_case<Case::upper>},
    {"in", "seq", compares<Operator::in>},
    {"==", "other", compares<Operator::equal>},
    {"eq", "other", compares<Operator::equal>},
    {"equalto", "other", compares<Operator::equal>},
    {"!=", "other", compares<Operator::not_equal>},
    {"ne", "other", compares<Operator::not_equal>},
    {"<", "other", compares<Operator::less>},
    {"lt", "other", compares<Operator::less>},
    {"lessthan", "other", compares<Operator::less>},
    {"<=", "other", compares<Operator::less_equal>},
    {"le", "other", compares<Operator::less_equal>},
    {">", "other", compares<Operator::greater>},
    {"gt", "other", compares<Operator::greater>},
    {"greaterthan", "other", compares<Operator::greater>},
    {">=", "other", compares<Operator::greater_equal>},
    {"ge", "other", compares<Operator::greater_equal>},
};

}  // namespace

std::span<const Builtin> tests() {
  return kTests;
}

}  // namespace tyto::jinja
