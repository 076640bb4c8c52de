#include "text/tools.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/printable.h"

namespace tyto {
namespace {

constexpr ToolSyntax kSyntaxes[] = {
    {ToolFormat::none, "", "", "", false},
    {ToolFormat::llama3, "<|python_tag|>", "", "parameters", true},
    {ToolFormat::hermes, "<tool_call>", "</tool_call>", "arguments", false},
};

// Some templates go through the tools without looking whether there are any.
constexpr std::string_view kProbeTools = R"([{"type": "function", "function": {
  "name": "probe", "description": "", "parameters": {"type": "object",
  "properties": {"x": {"type": "integer", "description": ""}}, "required": ["x"]}}}])";

std::string without_white_space(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) result += c;
  return result;
}

void require_function(const Json& object) {
  const auto type = object.find("type");
  if (!type || type->as_string() == "function") return;
  fail_unsupported(type->path(), "{} is not supported, only \"function\" is",
                   printable_name(type->as_string()));
}

// Calls are recognised by the text between the quotes, so a name must need no escapes in JSON.
std::string name_of(const Json& function) {
  const Json name = function.at("name");
  const std::string text(name.as_string());
  if (text.empty()) name.fail("is empty");
  const auto needs_escape = [](char c) { return c == '"' || c == '\\' || (c >= 0 && c < ' '); };
  if (std::any_of(text.begin(), text.end(), needs_escape))
    name.fail("quotes, backslashes and control characters have no place in a name");
  return text;
}

// `shown` is what the template makes with the tools of the options. Some templates know no tools,
// and say nothing of it.
bool shows_tools(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
                 ChatOptions options, std::string_view shown) {
  options.tools.reset();
  try {
    return chat_template.render(messages, options) != shown;
  } catch (const Error&) {
    return true;  // it uses them without looking whether there are any
  }
}

}  // namespace

std::vector<Tool> tools_from_json(const Json& array) {
  std::vector<Tool> tools;
  array.for_each_element([&](size_t, const Json& tool) {
    require_function(tool);
    const Json function = tool.at("function");
    const auto parameters = function.find("parameters");
    if (parameters && !parameters->is(Json::Type::object))
      parameters->fail("expected a JSON schema, which is an object");
    tools.push_back({name_of(function), parameters});
  });
  return tools;
}

ToolChoice tool_choice_from_json(const Json& choice, const std::vector<Tool>& tools) {
  using Kind = ToolChoice::Kind;
  if (choice.is(Json::Type::object)) {
    require_function(choice);
    const Json name = choice.at("function").at("name");
    const auto is_it = [&](const Tool& tool) { return tool.name == name.as_string(); };
    if (std::none_of(tools.begin(), tools.end(), is_it))
      name.fail(fmt::format("{} is none of the tools", printable_name(name.as_string())));
    return {Kind::required, std::string(name.as_string())};
  }
  const std::string_view word = choice.as_string();
  if (word == "none") return {Kind::none};
  if (word == "auto") return {Kind::automatic};
  if (word != "required")
    choice.fail(fmt::format("{} is not one of none, auto, required or an object naming a function",
                            printable_name(word)));
  if (tools.empty()) choice.fail("a call is required, but there are no tools");
  return {Kind::required};
}

const ToolSyntax& tool_syntax(ToolFormat format) {
  return kSyntaxes[static_cast<size_t>(format)];
}

std::span<const ToolSyntax> tool_syntaxes() {
  return kSyntaxes;
}

ToolFormat tool_format(const ChatTemplate& chat_template) {
  ChatOptions options;
  options.add_generation_prompt = false;
  options.tools = Json::parse(kProbeTools, "tools");
  const ChatMessage call{.role = "assistant", .tool_calls = {{"call00001", "probe", R"({"x":1})"}}};
  const std::vector<ChatMessage> messages = {{"user", "x"}, call};
  std::string shown;
  try {
    shown = chat_template.render(messages, options);
  } catch (const Error&) {
    return ToolFormat::none;  // it refuses calls
  }
  if (!shows_tools(chat_template, messages, options, shown)) return ToolFormat::none;
  shown = without_white_space(shown);
  for (const ToolSyntax& syntax : kSyntaxes) {
    if (syntax.format == ToolFormat::none) continue;
    const std::string written =
        fmt::format(R"({}{{"name":"probe","{}":{{"x":1}}}}{})",
                    syntax.opens_answers ? "" : syntax.open, syntax.arguments_key, syntax.close);
    if (shown.find(written) != std::string::npos) return syntax.format;
  }
  return ToolFormat::none;
}

std::vector<Token> tool_marker_tokens(ToolFormat format, const Tokenizer& tokenizer) {
  const ToolSyntax& syntax = tool_syntax(format);
  std::vector<Token> tokens;
  for (const AddedToken& token : tokenizer.vocabulary().added)
    if (token.special && !token.text.empty() &&
        (token.text == syntax.open || token.text == syntax.close))
      tokens.push_back(token.id);
  return tokens;
}

std::string tool_call_gbnf(ToolFormat format, const std::vector<Tool>& tools,
                           const ToolChoice& choice, bool parallel, const SchemaRules& rules) {
  TYTO_ASSERT(choice.kind == ToolChoice::Kind::required);
  if (format == ToolFormat::none)
    throw Error(ErrorCode::unsupported, "tool_choice",
                "the model's chat template has no format for calls that Tyto knows",
                "leave tool_choice out, or choose another template");
  const ToolSyntax& syntax = tool_syntax(format);
  std::string functions, definitions;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Tool& tool = tools[i];
    if (!choice.name.empty() && tool.name != choice.name) continue;
    const std::string rule = fmt::format("tool-{}", i);
    const std::string arguments = rule + "-arguments";
    functions += (functions.empty() ? "" : " | ") + rule;
    definitions += fmt::format("{} ::= \"{{\\\"name\\\": \\\"{}\\\", \\\"{}\\\": \" {} \"}}\"\n",
                               rule, tool.name, syntax.arguments_key, arguments);
    definitions +=
        tool.parameters ? rules(*tool.parameters, arguments) : arguments + " ::= \"{}\"\n";
    if (!definitions.ends_with('\n')) definitions += '\n';
  }
  // Llama 3's own templates refuse an answer with more than one call.
  const bool may_repeat = parallel && !syntax.opens_answers;
  const std::string call =
      syntax.opens_answers ? "function"
                           : fmt::format("\"{}\\n\" function \"\\n{}\"", syntax.open, syntax.close);
  return fmt::format("root ::= call{}\ncall ::= {}\nfunction ::= {}\n{}",
                     may_repeat ? " (\"\\n\" call)*" : "", call, functions, definitions);
}

}  // namespace tyto
