// Filters over texts and numbers. Names, arguments and results are Jinja's.
#include <charconv>
#include <cmath>

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
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

}  // namespace tyto::jinja
