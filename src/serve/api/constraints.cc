#include "serve/api/constraints.h"

#include "serve/api/errors.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_schema.h"

namespace tyto::api {
namespace {

std::string gbnf_of(const OutputFormat& format) {
  switch (format.kind) {
    case OutputFormat::Kind::text:
      return "";
    case OutputFormat::Kind::json:
      return gbnf_of_json(JsonKind::object);
    case OutputFormat::Kind::json_schema:
      return gbnf_from_json_schema(*format.schema);
    case OutputFormat::Kind::gbnf:
      return format.grammar;
  }
  return "";
}

}  // namespace

std::shared_ptr<const Grammar> grammar_for(const OutputFormat& format, const std::string& grammar) {
  try {
    const std::string gbnf = grammar.empty() ? gbnf_of(format) : grammar;
    if (gbnf.empty()) return {};
    return std::make_shared<const Grammar>(gbnf);
  } catch (const Error& error) {
    throw RequestError(error, grammar.empty() ? format.field : "tools");
  }
}

}  // namespace tyto::api
