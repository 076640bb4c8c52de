// Functions that a model may ask to have called: which there are, which it must choose, and how
// models of its family write a call.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tyto {

struct Tool {
  std::string name;
  std::optional<Json> parameters;  // the JSON schema of its arguments; none: it has no arguments
};

// Read as OpenAI's "tools" and "tool_choice" are written. What is wrong is an Error naming the
// field, a choice that is not among the tools included.
std::vector<Tool> tools_from_json(const Json& array);

struct ToolChoice {
  enum class Kind { none, automatic, required };
  Kind kind = Kind::automatic;
  std::string name = {};  // the one that is required; empty: any of them
};
ToolChoice tool_choice_from_json(const Json& choice, const std::vector<Tool>& tools);

enum class ToolFormat {
  none,    // the template shows no tools, or writes no calls, or none that we can read
  llama3,  // {"name": "f", "parameters": {...}}, perhaps behind <|python_tag|>
  hermes,  // <tool_call> {"name": "f", "arguments": {...}} </tool_call>; Qwen's too
};

// How a format is written.
struct ToolSyntax {
  ToolFormat format = ToolFormat::none;
  std::string_view open;           // before a call ...
  std::string_view close;          // ... and behind it; empty: nothing
  std::string_view arguments_key;  // what the family calls the arguments
  bool opens_answers = false;      // a call may begin an answer without `open`
};
const ToolSyntax& tool_syntax(ToolFormat format);
std::span<const ToolSyntax> tool_syntaxes();  // of all formats

// Found by showing the template a tool and a call.
ToolFormat tool_format(const ChatTemplate& chat_template);

// Special tokens that spell `open` or `close`. A Detokenizer must be told to show them.
std::vector<Token> tool_marker_tokens(ToolFormat format, const Tokenizer& tokenizer);

// Gives GBNF rules of which the one called `rule` matches the values of a JSON schema; names of
// the others begin with it.
using SchemaRules = std::function<std::string(const Json& schema, const std::string& rule)>;

// A grammar whose texts are calls of the chosen tools and nothing else: one call, or several where
// `parallel` and the format allow it. The choice must be a required one.
std::string tool_call_gbnf(ToolFormat format, const std::vector<Tool>& tools,
                           const ToolChoice& choice, bool parallel, const SchemaRules& rules);

}  // namespace tyto
