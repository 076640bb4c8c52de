// Filters over lists and mappings. Where Jinja makes a generator, this makes the list.
#include <algorithm>

#include "base/printable.h"
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
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

}  // namespace tyto::jinja
