#include "text/tools.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

constexpr uint64_t kSeed = 7;

std::vector<Tool> tools(const std::vector<std::string>& names = {"find", "hoot"}) {
  std::vector<Tool> result;
  for (const std::string& name : names) result.push_back({name, {}});
  return result;
}

// An answer put together again from its deltas: what is said, then "name(arguments)" of each call.
struct Joined {
  std::string content;
  std::vector<std::string> calls;
  bool operator==(const Joined&) const = default;
};

void PrintTo(const Joined& joined, std::ostream* out) {
  *out << "content \"" << joined.content << '"';
  for (const std::string& call : joined.calls) *out << ", " << call;
}

void add(Joined& joined, std::set<std::string>& ids, const AnswerDelta& delta) {
  joined.content += delta.content;
  for (const ToolCallDelta& call : delta.calls) {
    EXPECT_EQ(call.id.empty(), call.name.empty());
    if (!call.name.empty()) {
      EXPECT_EQ(call.index, joined.calls.size());
      EXPECT_TRUE(ids.insert(call.id).second);
      joined.calls.push_back(call.name + "(");
    } else {
      EXPECT_FALSE(call.arguments.empty());
    }
    ASSERT_EQ(call.index + 1, joined.calls.size());
    joined.calls.back() += call.arguments;
  }
}

Joined read(ToolFormat format, const std::vector<std::string_view>& pieces) {
  ToolCallStream stream(format, tools(), kSeed);
  Joined joined;
  std::set<std::string> ids;
  for (const std::string_view piece : pieces) add(joined, ids, stream.push(piece));
  add(joined, ids, stream.finish());
  EXPECT_EQ(stream.calls(), joined.calls.size());
  for (std::string& call : joined.calls) call += ")";
  return joined;
}

// Reads the text in one piece, byte by byte, and cut once and twice at every place.
Joined read_in_every_way(ToolFormat format, std::string_view text) {
  const Joined whole = read(format, {text});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  EXPECT_EQ(read(format, bytes), whole) << text;
  for (size_t i = 0; i <= text.size(); ++i)
    for (size_t j = i; j <= text.size(); j += 3)
      EXPECT_EQ(read(format, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}), whole)
          << text << " cut at " << i << " and " << j;
  return whole;
}

struct Case {
  std::string_view text;
  Joined expected;
};

void expect(ToolFormat format, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(read_in_every_way(format, c.text), c.expected);
  }
}

// Where calls may not be parallel, nothing comes behind the first whole one.
Joined read_one_call(ToolFormat format, std::string_view text, bool& is_over) {
  ToolCallStream stream(format, tools(), kSeed, false);
  Joined joined;
  std::set<std::string> ids;
  for (size_t i = 0; i < text.size(); ++i) add(joined, ids, stream.push(text.substr(i, 1)));
  add(joined, ids, stream.finish());
  is_over = stream.is_over();
  for (std::string& call : joined.calls) call += ")";
  return joined;
}

TEST(ToolCallStream, OneCallAtATime) {
  struct {
    ToolFormat format;
    std::string_view text;
    Joined expected;
    bool is_over;
  } const cases[] = {
      {ToolFormat::hermes,
       "Hm. <tool_call>{\"name\": \"find\", \"arguments\": {}}</tool_call> And "
       "<tool_call>{\"name\": \"hoot\", \"arguments\": {}}</tool_call>",
       {"Hm.", {"find({})"}},
       true},
      {ToolFormat::llama3,
       "{\"name\": \"find\", \"parameters\": {\"a\": 1}}; {\"name\": \"hoot\", \"parameters\": {}}",
       {"", {"find({\"a\": 1})"}},
       true},
      {ToolFormat::hermes,
       "<tool_call>{\"name\": \"find\", \"arguments\": {]</tool_call>x",
       {"]</tool_call>x", {"find({)"}},
       false},
      {ToolFormat::hermes, "no call", {"no call", {}}, false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    bool is_over = false;
    EXPECT_EQ(read_one_call(c.format, c.text, is_over), c.expected);
    EXPECT_EQ(is_over, c.is_over);
  }
}

// Texts that are the same in and out.
void expect_content(ToolFormat format, const std::vector<std::string_view>& texts) {
  for (const std::string_view text : texts) {
    SCOPED_TRACE(text);
    EXPECT_EQ(read_in_every_way(format, text), (Joined{std::string(text), {}}));
  }
}

TEST(ToolCallStream, HermesCallsAreToldFromText) {
  expect(
      ToolFormat::hermes,
      {
          {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"a\": [1, {}], \"b\": \"é}\\\"\"}}\n"
           "</tool_call>",
           {"", {"find({\"a\": [1, {}], \"b\": \"é}\\\"\"})"}}},
          {"Let me see.\n\n<tool_call>{\"name\":\"find\",\"arguments\":{}}</tool_call>\n",
           {"Let me see.", {"find({})"}}},
          {"<tool_call>\n{\"name\": \"find\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
           "<tool_call>\n{\"name\": \"hoot\", \"arguments\": {}}\n</tool_call>",
           {"", {"find({\"a\":1})", "hoot({})"}}},
          {"<tool_call>{\"name\":\"hoot\",\"arguments\":{}}</tool_call> Done. ",
           {" Done. ", {"hoot({})"}}},
          // Other orders and names of fields, none at all, and more of them.
          {"<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"find\"}</tool_call>",
           {"", {"find({\"a\": 1})"}}},
          {"<tool_call>{\"name\": \"hoot\"}</tool_call>", {"", {"hoot({})"}}},
          {"<tool_call>{\"id\": [{}], \"name\": \"find\", \"parameters\": {\"a\":1}, \"x\": 2}"
           "</tool_call>",
           {"", {"find({\"a\":1})"}}},
          {"<tool_call>[{\"name\":\"find\",\"arguments\":{}}, {\"name\":\"hoot\"}]</tool_call>",
           {"", {"find({})", "hoot({})"}}},
      });
}

TEST(ToolCallStream, WhatEndsTooEarly) {
  expect(
      ToolFormat::hermes,
      {
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":1}}", {"", {"find({\"a\":1})"}}},
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":1}\n</tool_call>",
           {"", {"find({\"a\":1})"}}},
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":1}}</tool_",
           {"", {"find({\"a\":1})"}}},
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":1}}\n<tool_call>{\"name\":\"hoot\"}",
           {"", {"find({\"a\":1})", "hoot({})"}}},
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\": [1, \"x",
           {"", {"find({\"a\": [1, \"x)"}}},
      });
}

TEST(ToolCallStream, WhatIsNoCallIsContent) {
  expect_content(ToolFormat::hermes,
                 {"", " ", "Hello.\n\n", "a < b <tool", "<tool_call", "<<tool_call>>",
                  "<tool_call></tool_call>", "<tool_call>\n", "<tool_call>{\"name\": \"fi",
                  "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
                  "<tool_call>{\"name\": \"find\", \"arguments\": \"{}\"}</tool_call>",
                  "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
                  "<tool_call>{\"arguments\": {}}</tool_call> x", "<tool_call>find(1)</tool_call>",
                  "  <tool_call>{]", "{\"name\": \"find\", \"arguments\": {}}", "</tool_call>"});
  // A call behind one that is none.
  expect(ToolFormat::hermes, {{"<tool_call>oops <tool_call>{\"name\":\"hoot\"}</tool_call>",
                               {"<tool_call>oops", {"hoot({})"}}},
                              {"<tool_call>{\"name\": \"<tool_call>{\"name\":\"hoot\"}</tool_call>",
                               {"<tool_call>{\"name\": \"", {"hoot({})"}}}});
}

TEST(ToolCallStream, ArgumentsEndWhereTheyStopBeingJson) {
  expect(ToolFormat::hermes,
         {{"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":}}</tool_call>",
           {"}}</tool_call>", {"find({\"a\":)"}}},
          {"<tool_call>{\"name\":\"find\",\"arguments\":{\"a\":01}}</tool_call>",
           {"1}}</tool_call>", {"find({\"a\":0)"}}}});
}

TEST(ToolCallStream, Llama3CallsAreToldFromText) {
  expect(
      ToolFormat::llama3,
      {
          {"{\"name\": \"find\", \"parameters\": {\"a\": \"x\"}}", {"", {"find({\"a\": \"x\"})"}}},
          {"\n <|python_tag|>{\"name\": \"find\", \"parameters\": {\"a\": -1.5e3}}",
           {"", {"find({\"a\": -1.5e3})"}}},
          {"{\"type\": \"function\", \"name\": \"hoot\", \"parameters\": {}}\n",
           {"", {"hoot({})"}}},
          {"{\"name\": \"find\", \"parameters\": {}}; {\"name\": \"hoot\", \"parameters\": {}}",
           {"", {"find({})", "hoot({})"}}},
          {"[{\"name\": \"find\", \"parameters\": {}}, {\"name\": \"hoot\"}]",
           {"", {"find({})", "hoot({})"}}},
          {"Wait.<|python_tag|>{\"name\": \"hoot\"}", {"Wait.", {"hoot({})"}}},
          {"{\"name\": \"hoot\"}\nDone.", {"\nDone.", {"hoot({})"}}},
      });
  expect_content(
      ToolFormat::llama3,
      {"", "\n\n", "Hello. {\"name\": \"hoot\"}", "{", "{\"name\": \"Ada\", \"age\": 3}", "[1, 2]",
       "[{\"a\": {\"name\": \"find\"}}]", "{\"name\": \"find\", \"parameters\": 1}",
       "<|python_tag|>find.call(x=\"1\")", "<|pyth", "{\"a\": tru}"});
}

TEST(ToolCallStream, WithoutAFormatEverythingIsContent) {
  expect_content(ToolFormat::none, {"<tool_call>{\"name\": \"hoot\"}</tool_call>", " "});
}

// What a client sees while the model writes.
TEST(ToolCallStream, ArgumentsComeAsTheyAreWritten) {
  ToolCallStream stream(ToolFormat::hermes, tools(), kSeed);
  EXPECT_EQ(stream.push("Hm. ").content, "Hm.");
  EXPECT_TRUE(stream.push("<tool_call>{\"name\": \"find\", \"argu").calls.empty());
  const AnswerDelta first = stream.push("ments\": {\"a");
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "find");
  EXPECT_EQ(first.calls[0].arguments, "{\"a");
  const AnswerDelta second = stream.push("\": 1");
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_EQ(second.calls[0].name, "");
  EXPECT_EQ(second.calls[0].arguments, "\": 1");
  EXPECT_EQ(stream.push("}").calls.at(0).arguments, "}");
  const AnswerDelta rest = stream.push("}\n</tool_call>");
  EXPECT_TRUE(rest.calls.empty() && rest.content.empty());
}

TEST(ToolCallStream, IdsFollowFromTheSeed) {
  const auto id = [](uint64_t seed) {
    ToolCallStream stream(ToolFormat::llama3, tools(), seed);
    return stream.push("{\"name\": \"hoot\"}").calls.at(0).id;
  };
  EXPECT_EQ(id(1), id(1));
  EXPECT_NE(id(1), id(2));
  EXPECT_EQ(id(1).size(), 5u + 24u);
  EXPECT_TRUE(id(1).starts_with("call_"));
}

// A head that never ends must not be read again and again.
TEST(ToolCallStream, LongTextsThatBecomeNoCall) {
  std::string text = "<tool_call>{\"x\": \"" + std::string(300'000, 'a');
  EXPECT_EQ(read(ToolFormat::hermes, {text}).content, text);
  text = "<tool_call>{\"x\": " + std::string(100'000, '[');
  EXPECT_EQ(read(ToolFormat::hermes, {text}).content, text);
  text = std::string(1'000'000, '\n');
  EXPECT_EQ(read(ToolFormat::hermes, {text}).content, text);
}

TEST(ToolMarkers, SpecialOnesAreShownWhereAskedFor) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  const auto add_token = [&](const std::string& text, bool special) {
    vocabulary.added.push_back({static_cast<Token>(vocabulary.pieces.size()), text, special});
    vocabulary.pieces.push_back(text);
    return vocabulary.added.back().id;
  };
  const Token python = add_token("<|python_tag|>", true);
  const Token open = add_token("<tool_call>", false);
  const Token close = add_token("</tool_call>", true);
  const Tokenizer tokenizer(std::move(vocabulary), "small");
  EXPECT_EQ(tool_marker_tokens(ToolFormat::llama3, tokenizer), std::vector<Token>{python});
  EXPECT_EQ(tool_marker_tokens(ToolFormat::hermes, tokenizer), std::vector<Token>{close});
  EXPECT_TRUE(tool_marker_tokens(ToolFormat::none, tokenizer).empty());
  Detokenizer hiding(tokenizer);
  EXPECT_EQ(hiding.push(python) + hiding.push(open) + hiding.push(close), "<tool_call>");
  Detokenizer showing(tokenizer, true, {close});
  EXPECT_EQ(showing.push(python) + showing.push(open) + showing.push(close),
            "<tool_call></tool_call>");
}

Json json(const std::string& text) {
  return Json::parse(text, "request");
}

std::string refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tools, OfAClient) {
  const auto offered = tools_from_json(json(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
          {"function": {"name": "g", "parameters": null, "strict": true}}])"));
  ASSERT_EQ(offered.size(), 2u);
  EXPECT_EQ(offered[0].name, "f");
  EXPECT_EQ(offered[0].parameters->text(), "{\"type\":\"object\"}");
  EXPECT_FALSE(offered[1].parameters);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "request: expected an array, found an object"},
      {R"([{"type": "web_search"}])",
       "request: [0].type: web_search is not supported, only \"function\" is"},
      {R"([{"type": "function"}])", "request: [0]: field \"function\" is missing"},
      {R"([{"function": {"name": 1}}])",
       "request: [0].function.name: expected a string, found a number"},
      {R"([{"function": {"name": ""}}])", "request: [0].function.name: is empty"},
      {R"([{"function": {"name": "a\"b"}}])",
       "request: [0].function.name: quotes, backslashes and control characters have no place in a "
       "name"},
      {R"([{"function": {"name": "f", "parameters": "x"}}])",
       "request: [0].function.parameters: expected a JSON schema, which is an object"},
  };
  for (const auto& [text, expected] : cases)
    EXPECT_EQ(refusal([&] { tools_from_json(json(text)); }), expected);
}

TEST(Tools, ChoiceNamesAToolOrAKind) {
  using Kind = ToolChoice::Kind;
  const auto choice = [](const std::string& text) {
    return tool_choice_from_json(json(text), tools());
  };
  EXPECT_EQ(choice("\"none\"").kind, Kind::none);
  EXPECT_EQ(choice("\"auto\"").kind, Kind::automatic);
  EXPECT_EQ(choice("\"required\"").kind, Kind::required);
  const ToolChoice one = choice(R"({"type": "function", "function": {"name": "hoot"}})");
  EXPECT_EQ(one.kind, Kind::required);
  EXPECT_EQ(one.name, "hoot");
  EXPECT_EQ(refusal([&] { choice("\"any\""); }),
            "request: any is not one of none, auto, required or an object naming a function");
  EXPECT_EQ(refusal([&] { choice(R"({"function": {"name": "fly"}})"); }),
            "request: function.name: fly is not one of the tools");
  EXPECT_EQ(refusal([&] { choice("7"); }), "request: expected a string, found a number");
  EXPECT_EQ(refusal([&] { tool_choice_from_json(json("\"required\""), {}); }),
            "request: a call is required, but there are no tools");
}

TEST(Tools, GrammarOfARequiredCall) {
  const auto offered = tools_from_json(json(
      R"([{"function": {"name": "find", "parameters": {"type": "object"}}},
          {"function": {"name": "hoot"}}])"));
  const SchemaRules rules = [](const Json& schema, const std::string& rule) {
    return rule + " ::= " + rule + "-x\n" + rule + "-x ::= \"" + schema.string_or("type", "") + '"';
  };
  const auto grammar = [&](ToolFormat format, const ToolChoice& choice, bool parallel) {
    return tool_call_gbnf(format, offered, choice, parallel, rules);
  };
  const ToolChoice any{ToolChoice::Kind::required};
  const std::string find_arguments =
      "tool-0-arguments ::= tool-0-arguments-x\ntool-0-arguments-x ::= \"object\"\n";
  EXPECT_EQ(
      grammar(ToolFormat::hermes, any, true),
      "root ::= call (\"\\n\" call)*\n"
      "call ::= \"<tool_call>\\n\" function \"\\n</tool_call>\"\n"
      "function ::= tool-0 | tool-1\n"
      "tool-0 ::= \"{\\\"name\\\": \\\"find\\\", \\\"arguments\\\": \" tool-0-arguments \"}\"\n" +
          find_arguments +
          "tool-1 ::= \"{\\\"name\\\": \\\"hoot\\\", \\\"arguments\\\": \" tool-1-arguments \"}\"\n"
          "tool-1-arguments ::= \"{}\"\n");
  EXPECT_EQ(
      grammar(ToolFormat::llama3, {ToolChoice::Kind::required, "find"}, true),
      "root ::= call\ncall ::= function\nfunction ::= tool-0\n"
      "tool-0 ::= \"{\\\"name\\\": \\\"find\\\", \\\"parameters\\\": \" tool-0-arguments \"}\"\n" +
          find_arguments);
  EXPECT_TRUE(grammar(ToolFormat::hermes, any, false).starts_with("root ::= call\n"));
  EXPECT_ERROR(grammar(ToolFormat::none, any, false), "has no format for calls");
}

}  // namespace
}  // namespace tyto
