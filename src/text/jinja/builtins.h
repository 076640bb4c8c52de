// Filters, tests, methods and functions: tables of Builtin, looked up by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "text/jinja/methods.h"
#include "text/jinja/value.h"

namespace tyto::jinja {

// Null when this subset does not have it.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);

// Matches the arguments with the builtin's parameters and runs it.
Value call_builtin(Machine& machine, const Builtin& builtin, const Value& self,
                   const Arguments& arguments);

// The tables, one per file that implements them.
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> tests();
std::span<const Builtin> functions();
std::span<const Builtin> text_methods();
std::span<const Builtin> container_methods(const Value& self);

// Replaces `old`, at most `limit` times when it is not negative. str.replace and its filter.
std::string_view replace_text(Machine& machine, std::string_view text, std::string_view old,
                              std::string_view fresh, int64_t limit);

std::string_view in_case(Machine& machine, std::string_view text, Case wanted);

// Arguments that must have a type.
bool given_truthy(const Value* argument);
int64_t given_integer(Machine& machine, const Value* argument, int64_t fallback);
std::string_view given_text(Machine& machine, const Value* argument);

// Follows "a.b.0" from a value, as the attribute arguments of filters do.
Value dotted_attribute(Machine& machine, const Value& value, std::string_view path);

}  // namespace tyto::jinja
