// Functions a template can call by name.
#include <algorithm>

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"

namespace tyto::jinja {
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

}  // namespace tyto::jinja
