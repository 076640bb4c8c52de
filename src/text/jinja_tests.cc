// What may follow `is`.
#include "text/jinja_builtins.h"
#include "text/jinja_format.h"
#include "text/jinja_machine.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace tyto::jinja {
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
