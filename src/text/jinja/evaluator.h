// Walks a Program.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/parser.h"
#include "text/jinja/value.h"

namespace tyto::jinja {

Value evaluate(Machine& machine, const Expr& expr);

// Runs a builtin, a method or a macro; what else is called is an error.
Value call_value(Machine& machine, const Value& callee, const Arguments& arguments);

// Writes to machine.output. The scope for the template's own variables must be set.
void execute(Machine& machine, const Program& program);

// For evaluate(): the parts of a macro call that concern statements.
Value call_macro(Machine& machine, const Macro& macro, const Arguments& arguments);

}  // namespace tyto::jinja
