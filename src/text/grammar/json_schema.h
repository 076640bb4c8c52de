// Grammars of JSON: any object, or what a JSON schema describes (docs/grammar.md).
#pragma once

#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace tyto {

// GBNF for the values that the schema describes. All of its rules are called `rule` or begin with
// `rule` and a dash, so that several schemas have room in one grammar. A schema that is broken is
// an input Error, one that says what a grammar cannot an unsupported one; both name the place.
std::string gbnf_from_json_schema(const Json& schema, const std::string& rule = "root");

Grammar grammar_from_json_schema(const Json& schema);

// Any JSON object or any JSON value, in the same way.
enum class JsonKind { object, value };
std::string gbnf_of_json(JsonKind kind, const std::string& rule = "root");

}  // namespace tyto
