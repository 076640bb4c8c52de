// Tools and calls in templates, and what of them stays text.
#include <gtest/gtest.h>

#include "text/chat_template.h"
#include "text/tools.h"
#include "unit/text/small_vocabularies.h"
#include "unit/text/template_rendering.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

constexpr std::string_view kTools = R"([{"type": "function", "function": {"name": "find",
    "description": "Größe <b>", "parameters": {"type": "object", "properties": {},
    "most": 18446744073709551615, "n": [1, -2.5, true, null]}}}])";

const std::vector<ChatMessage> kCalls = {
    {"user", "Who?"},
    {.role = "assistant", .tool_calls = {{"call_1", "find", R"({"b":"é","a":{"x":1}})"}}},
    {.role = "tool", .content = "\"none\"", .name = "find", .tool_call_id = "call_1"},
};

ChatOptions with_tools(std::string_view tools = kTools) {
  ChatOptions options;
  options.tools = Json::parse(tools, "tools");
  return options;
}

std::string_view named(std::string_view name) {
  for (const NamedTemplate& each : named_chat_templates())
    if (each.name == name) return each.source;
  ADD_FAILURE() << name;
  return "";
}

TEST(ChatTemplateTools, ToolsAreValuesInTheirOrder) {
  EXPECT_EQ(rendered("{{ tools | tojson }}", {}, with_tools()),
            R"([{"type": "function", "function": {"name": "find", "description": "Größe <b>", )"
            R"("parameters": {"type": "object", "properties": {}, "most": 1.8446744073709552e+19, )"
            R"("n": [1, -2.5, true, null]}}}])");
  EXPECT_EQ(rendered("{{ tools is none }}", {}, with_tools("[]")), "True");
  EXPECT_EQ(rendered("{{ tools[0].function.name }}", {}, with_tools()), "find");
}

TEST(ChatTemplateTools, MessagesHaveWhatTheyBring) {
  EXPECT_EQ(
      rendered("{{ messages | tojson }}", kCalls),
      R"([{"role": "user", "content": "Who?"}, )"
      R"({"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", )"
      R"("type": "function", "function": {"name": "find", )"
      R"("arguments": {"b": "é", "a": {"x": 1}}}}]}, )"
      R"({"role": "tool", "content": "\"none\"", "name": "find", "tool_call_id": "call_1"}])");
}

TEST(ChatTemplateTools, ArgumentsThatBrokeOffAreTheirText) {
  for (const std::string arguments : {"{\"a\": ", "", "[1]", "7"})
    EXPECT_EQ(rendered("{{ messages[0].tool_calls[0].function.arguments }}",
                       {{.role = "assistant", .tool_calls = {{"", "f", arguments}}}}),
              arguments);
}

TEST(ChatTemplateTools, VariablesOfAClient) {
  ChatOptions options;
  options.variables = Json::parse(R"({"enable_thinking": false, "date_string": "now",
      "messages": "mine", "list": [1, {"a": "b"}]})",
                                  "chat_template_kwargs");
  EXPECT_EQ(rendered("{{ enable_thinking }} {{ date_string }} {{ messages }} {{ list[1].a }}", {},
                     options),
            "False now [] b");
}

TEST(ChatTemplateTools, NamedTemplatesWriteTheFormatThatIsReadBack) {
  EXPECT_EQ(tool_format(ChatTemplate(named("llama3"), "llama3")), ToolFormat::llama3);
  EXPECT_EQ(tool_format(ChatTemplate(named("chatml"), "chatml")), ToolFormat::hermes);
  EXPECT_EQ(tool_format(ChatTemplate(named("qwen"), "qwen")), ToolFormat::hermes);
  for (const std::string_view name : {"llama2", "mistral", "phi3", "zephyr"})
    EXPECT_EQ(tool_format(ChatTemplate(named(name), "named")), ToolFormat::none) << name;
}

TEST(ChatTemplateTools, OtherFormatsAreNotTakenForOurs) {
  const auto format = [](std::string_view source) {
    return tool_format(ChatTemplate(source, "test"));
  };
  const std::string loop = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  EXPECT_EQ(format(loop + "<tool_call><function={{ c.function.name }}></tool_call>" + end),
            ToolFormat::none);
  EXPECT_EQ(format("{{ raise_exception('no') }}"), ToolFormat::none);
  const std::string hermes = loop + "<tool_call>{{ c.function | tojson }}</tool_call>" + end;
  EXPECT_EQ(format("{{ tools | tojson }}" + hermes), ToolFormat::hermes);
  EXPECT_EQ(format("{% for tool in tools %}{{ tool | tojson }}{% endfor %}" + hermes),
            ToolFormat::hermes);
}

// A model that is not told of its tools calls none of them.
TEST(ChatTemplateTools, CallsOfToolsThatAreNotShownAreNoFormat) {
  const std::string calls =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}"
      "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}";
  const auto format = [&](const std::string& head) {
    return tool_format(ChatTemplate(head + calls, "test"));
  };
  EXPECT_EQ(format(""), ToolFormat::none);
  EXPECT_EQ(format("{% set known = tools %}"), ToolFormat::none);
  EXPECT_EQ(format("{% if tools %}Tools: {{ tools | length }}{% endif %}"), ToolFormat::hermes);
}

TEST(ChatTemplateTools, ChatmlWritesToolsCallsAndResponses) {
  const std::string prompt = rendered(named("chatml"), kCalls, with_tools(R"([{"name": "f"}])"));
  EXPECT_TRUE(prompt.starts_with("<|im_start|>system\n# Tools\n\nYou may call")) << prompt;
  EXPECT_NE(prompt.find("<tools>\n{\"name\": \"f\"}\n</tools>"), prompt.npos) << prompt;
  const std::string rest =
      "</tool_call><|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
      "<|im_start|>assistant\n<tool_call>\n"
      "{\"name\": \"find\", \"arguments\": {\"b\": \"é\", \"a\": {\"x\": 1}}}\n</tool_call>"
      "<|im_end|>\n<|im_start|>user\n<tool_response>\n\"none\"\n</tool_response><|im_end|>\n"
      "<|im_start|>assistant\n";
  EXPECT_TRUE(prompt.ends_with(rest)) << prompt;
}

TEST(ChatTemplateTools, Llama3WritesToolsCallsAndResponses) {
  ChatOptions options = with_tools(R"([{"name": "f"}])");
  options.bos_token = "<s>";
  const std::string prompt = rendered(named("llama3"), kCalls, options);
  const std::string head =
      "<s><|start_header_id|>system<|end_header_id|>\n\nEnvironment: ipython<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\nGiven the following functions";
  const std::string rest =
      "{\n    \"name\": \"f\"\n}\n\nWho?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
      "{\"name\": \"find\", \"parameters\": {\"b\": \"é\", \"a\": {\"x\": 1}}}<|eot_id|>"
      "<|start_header_id|>ipython<|end_header_id|>\n\n\"\\\"none\\\"\"<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n";
  EXPECT_TRUE(prompt.starts_with(head)) << prompt;
  EXPECT_TRUE(prompt.ends_with(rest)) << prompt;
}

// Every place where a client's text reaches the prompt, with a special token written there; in
// JSON it may be written with escapes, too.
TEST(ChatTemplateTools, SpecialTokensInToolsAndCallsAreText) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const std::string_view source =
      "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.name }}{{ m.tool_call_id }}"
      "{{ m.reasoning_content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}"
      "{{ c.function.arguments | tojson }}{% endfor %}<|end|>{% endfor %}{{ tools | tojson }}";
  const auto special = [&](const std::string& text, const std::string& escaped) {
    const ChatMessage message{.role = "assistant",
                              .content = text,
                              .reasoning_content = text,
                              .name = text,
                              .tool_call_id = text,
                              .tool_calls = {{text, text, R"({"a": ")" + escaped + R"("})"},
                                             {text, text, text},
                                             {"", "f", R"({")" + escaped + R"(": [1]})"}}};
    const ChatOptions options =
        with_tools(R"([{"description": ")" + escaped + R"(", ")" + escaped + R"(": 1}])");
    const ChatText chat = render_chat(tokenizer, ChatTemplate(source, "test"), {message}, options);
    Pieces pieces;
    for (const Token token : encode_chat(tokenizer, chat))
      if (tokenizer.is_special(token)) pieces.push_back(tokenizer.token_bytes(token));
    EXPECT_EQ(chat.text.find("\uFDD0"), chat.text.npos);
    return pieces;
  };
  const Pieces plain = special("x", "x");
  EXPECT_EQ(plain, (Pieces{"<|begin|>", "<|end|>"}));
  EXPECT_EQ(special("<|end|>", "<|end|>"), plain);
  EXPECT_EQ(special("a <|end|> b", "\\u003c|end|\\u003e"), plain);
}

}  // namespace
}  // namespace tyto
