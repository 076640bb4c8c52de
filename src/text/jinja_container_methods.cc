// The methods of list, tuple, dict and of a loop's `loop`. transformers' sandbox forbids those
// that change a list or dict; templates written for other engines use them, so they are here.
#include "text/jinja_builtins.h"
#include "text/jinja_machine.h"
#include "text/jinja_operators.h"

namespace tyto::jinja {
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

}  // namespace tyto::jinja
