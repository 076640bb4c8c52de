#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

class Schema {
 public:
  explicit Schema(const std::string& json)
      : matcher_(std::make_shared<const Grammar>(
            grammar_from_json_schema(Json::parse(json, "schema")))) {}

  bool has(std::string_view text) {
    auto place = matcher_.start();
    for (const char byte : text) place = matcher_.next(place, static_cast<uint8_t>(byte));
    return matcher_.may_end(place);
  }

  // A sentence as a sampler might find it that knows nothing but what is allowed, and ends when it
  // may; empty when it goes on for too long.
  std::string random_sentence(ByteStream& random) {
    auto place = matcher_.start();
    std::string text;
    while (text.size() < 4000) {
      std::vector<uint8_t> bytes;
      for (unsigned byte = 0; byte < 256; ++byte)
        if (matcher_.next(place, static_cast<uint8_t>(byte)) != GrammarMatcher::kNowhere)
          bytes.push_back(static_cast<uint8_t>(byte));
      if (matcher_.may_end(place) && (bytes.empty() || random.below(2) == 0)) return text;
      // Closing brackets and quotes more often than their share, so that it ends.
      uint8_t chosen = bytes[random.below(static_cast<uint32_t>(bytes.size()))];
      for (const uint8_t byte : bytes)
        if (std::string_view("\"]}").find(static_cast<char>(byte)) != std::string_view::npos &&
            random.below(3) == 0)
          chosen = byte;
      text.push_back(static_cast<char>(chosen));
      place = matcher_.next(place, chosen);
    }
    return "";
  }

 private:
  GrammarMatcher matcher_;
};

void expect_has(const std::string& schema, const std::vector<std::string>& members,
                const std::vector<std::string>& others) {
  SCOPED_TRACE(schema);
  Schema parsed(schema);
  for (const std::string& text : members) EXPECT_TRUE(parsed.has(text)) << text;
  for (const std::string& text : others) EXPECT_FALSE(parsed.has(text)) << text;
}

TEST(JsonSchema, EachTypeTakesItsValues) {
  expect_has(R"({"type":"boolean"})", {"true", "false"}, {"null", "True", ""});
  expect_has(R"({"type":"null"})", {"null"}, {"0"});
  expect_has(R"({"type":"integer"})", {"0", "-12", "9007199254740991"}, {"01", "1.5", "1e3", "-"});
  expect_has(R"({"type":"number"})", {"0", "-1.25", "1e10", "2.5E-7"}, {"1.", ".5", "1e400", "+1"});
  expect_has(R"({"type":["string","null"]})", {"null", "\"x\""}, {"1"});
  expect_has(R"({"type":"string","nullable":true})", {"null", "\"x\""}, {"1"});
  expect_has("{}", {"1", "\"a\"", "[1, {\"b\":null}]", "{}"}, {"a", "[1,]", "{1:2}"});
  expect_has("true", {"1", "[]"}, {"x"});
}

TEST(JsonSchema, StringsHaveLengthsInCharacters) {
  expect_has(
      R"({"type":"string"})",
      {R"("")", R"("a b")", R"("\n\"\\")", R"("\u00e9 é")", R"("\ud83d\uDE00")"},
      {R"("a)", "\"a\nb\"", R"("\x")", R"("\ud83d")", R"("\ude00")", "\"\xff\"", "\"\xc3\""});
  expect_has(R"({"type":"string","minLength":1,"maxLength":3})",
             {R"("a")", R"("äöü")", R"("\n\n\n")", R"("\ud83d\ude00ab")"}, {R"("")", R"("abcd")"});
  expect_has(R"({"minLength":2})", {R"("ab")", R"("abcdef")"}, {R"("a")", "1"});
  expect_has(R"({"type":"string","minLength":3,"maxLength":2,"nullable":true})", {"null"},
             {"\"ab\""});
}

TEST(JsonSchema, PatternsBoundStrings) {
  const auto pattern = [](const std::string& text) {
    return R"({"type":"string","pattern":")" + text + "\"}";
  };
  expect_has(pattern("^[a-z]+-\\\\d{2,3}$"), {R"("ab-12")", R"("z-123")"},
             {R"("ab-1")", R"("-12")"});
  expect_has(pattern("^(?:yes|no)?$"), {R"("yes")", R"("no")", R"("")"}, {R"("maybe")"});
  expect_has(pattern("b+"), {R"("b")", R"("abbc")"}, {R"("ac")"});
  expect_has(pattern("^a|b$"), {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"});
  expect_has(pattern("^[^a-c]$"), {R"("d")", R"("\"")", R"("\\")", R"("é")"}, {R"("a")", R"(""")"});
  expect_has(pattern("^\\\\w+@\\\\w+\\\\.com$"), {R"("me@here.com")"}, {R"("me@here,com")"});
  expect_has(pattern("^.$"), {R"("x")", R"("\t")"}, {R"("\n")", R"("xx")"});
  expect_has(pattern("^\\\\u00e9\\\\x41\\\\/$"), {R"("éA/")"}, {R"("eA/")"});
}

TEST(JsonSchema, FormatsBoundStrings) {
  const auto format = [](const std::string& name) {
    return R"({"type":"string","format":")" + name + "\"}";
  };
  expect_has(format("date"), {R"("2024-02-29")"}, {R"("2024-13-01")", R"("24-01-01")"});
  expect_has(format("time"), {R"("23:59:59Z")", R"("01:02:03.5+02:00")"}, {R"("24:00:00Z")"});
  expect_has(format("date-time"), {R"("2024-02-29T12:00:00Z")"}, {R"("2024-02-29 12:00:00Z")"});
  expect_has(format("uuid"), {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"});
  expect_has(format("email"), {R"("anything")"}, {"1"});  // an annotation
}

TEST(JsonSchema, IntegersBetweenBounds) {
  for (const auto& [low, high] : std::vector<std::pair<int, int>>{
           {0, 9}, {0, 0}, {5, 123}, {-7, 12}, {-120, -15}, {-1, 0}, {99, 100}, {1, 1000}}) {
    Schema schema(fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", low, high));
    for (int value = -1100; value <= 1100; ++value)
      ASSERT_EQ(schema.has(std::to_string(value)), low <= value && value <= high)
          << value << " in " << low << ".." << high;
    EXPECT_FALSE(schema.has("-0"));
    EXPECT_FALSE(schema.has("007"));
  }
  expect_has(R"({"type":"integer","exclusiveMinimum":0})", {"1", "12345678"}, {"0", "-1"});
  expect_has(R"({"type":"integer","exclusiveMaximum":-9.5})", {"-10", "-99999"}, {"-9", "0"});
  expect_has(R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
             {"9007199254740991", "-9007199254740991", "0"}, {"9007199254740992"});
}

TEST(JsonSchema, NumbersBetweenBounds) {
  expect_has(R"({"type":"number","minimum":0,"maximum":1})", {"0", "0.5", "1", "1.0", "0.0"},
             {"1.1", "-0.5", "2", "1.01"});
  expect_has(R"({"type":"number","exclusiveMinimum":0})", {"0.001", "1", "12.5"},
             {"0", "0.0", "-1", "-0.5"});
  expect_has(R"({"type":"number","minimum":-2,"exclusiveMaximum":3})",
             {"-2", "-2.0", "-1.99", "-0.5", "0", "2.999"}, {"-2.1", "3", "3.0"});
}

TEST(JsonSchema, EnumsAndConstants) {
  expect_has(R"({"enum":["red",1,null,{"a":[1,2]}]})", {"\"red\"", "1", "null", R"({"a":[1,2]})"},
             {"\"blue\"", "2", "\"re\""});
  expect_has(R"({"type":"string","enum":["a\"b",3]})", {R"("a\"b")"}, {"3"});
  expect_has(R"({"const":null})", {"null"}, {"0"});
  expect_has(R"({"allOf":[{"enum":["a","b"]},{"enum":["c","b"]}]})", {"\"b\""}, {"\"a\"", "\"c\""});
}

TEST(JsonSchema, ObjectsInOrder) {
  const std::string properties =
      R"("properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}})";
  expect_has(
      R"({"type":"object",)" + properties + R"(,"required":["a","c"]})",
      {R"({"a":1,"c":3})", R"({"a": 1, "b": 2, "c": 3})", "{\n  \"a\": 1,\n  \"c\": 3\n}"},
      {R"({"a":1})", R"({"c":3,"a":1})", "{}", R"({"a":1,"c":3,"d":4})", R"({"a":1,,"c":3})"});
  expect_has(R"({"type":"object",)" + properties + R"(,"required":["b"]})",
             {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
             {"{}", R"({"a":1,"c":3})", R"({,"b":2})", R"({"b":2,})"});
  expect_has(R"({)" + properties + "}",
             {"{}", "{ }", R"({"a":1})", R"({"c":3})", R"({"b":2,"c":3})", R"({"a":1,"c":3})"},
             {R"({"c":3,"b":2})", R"({"a":"x"})", "[]"});
}

TEST(JsonSchema, OtherMembers) {
  expect_has(R"({"type":"object"})", {"{}", R"({"x":[1,{}],"y":"z"})"}, {"[]", R"({"x"})"});
  expect_has(R"({"additionalProperties":{"type":"integer"}})", {"{}", R"({"x":1,"y":2})"},
             {R"({"x":"y"})"});
  expect_has(
      R"({"properties":{"name":{"type":"string"},"note":{"type":"string"}},"required":["name"],
                 "additionalProperties":{"type":"integer"}})",
      {R"({"name":"x"})", R"({"name":"x","age":3})",
       R"({"name":"x","note":"","n":1,"names":2,"":3})"},
      {R"({"name":"x","name":3})", R"({"age":3})", R"({"name":"x","note":3})",
       R"({"name":"x","n\u006fte":3})"});
  expect_has(R"({"additionalProperties":true,"minProperties":1,"maxProperties":2})",
             {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  expect_has(R"({"properties":{},"additionalProperties":false})", {"{}"}, {R"({"a":1})"});
  expect_has(R"({"type":"object","required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})"},
             {"{}", R"({"y":2})"});
}

TEST(JsonSchema, ArraysHaveItemsAndCounts) {
  expect_has(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,\n 3]"},
             {"[1,]", "[\"a\"]"});
  for (int least = 0; least < 4; ++least)
    for (int most = 0; most < 4; ++most) {
      Schema schema(fmt::format(
          R"({{"type":["array","null"],"items":{{"type":"integer"}},"minItems":{},"maxItems":{}}})",
          least, most));
      for (int count = 0; count < 6; ++count) {
        std::string text = "[";
        for (int i = 0; i < count; ++i) text += i == 0 ? "1" : ",1";
        EXPECT_EQ(schema.has(text + "]"), least <= count && count <= most)
            << count << " in " << least << ".." << most;
      }
    }
  expect_has(R"({"prefixItems":[{"type":"integer"},{"type":"string"}]})", {R"([1,"a"])"},
             {"[1]", R"([1,"a",2])", "[]"});
  expect_has(R"({"prefixItems":[{"type":"integer"}],"items":{"type":"boolean"},"maxItems":3})",
             {"[1]", "[1,true]", "[1,true,false]"}, {"[1,2]", "[1,true,true,true]"});
  expect_has(R"({"type":"array","minItems":2})", {R"([1,"a"])"}, {"[1]"});
  expect_has(R"({"type":"array","items":false})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, AnyOfOneOfAndAllOfCombine) {
  expect_has(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", "\"a\""},
             {"\"ab\"", "null"});
  expect_has(R"({"oneOf":[{"const":1},{"const":2}]})", {"1", "2"}, {"3"});
  expect_has(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],
                 "anyOf":[{"properties":{"b":{"type":"null"}},"required":["b"]},{"properties":{"c":{"type":"null"}},"required":["c"]}]})",
             {R"({"a":1,"b":null})", R"({"a":1,"c":null})"}, {R"({"a":1})", R"({"b":null})"});
  expect_has(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                          {"properties":{"a":{"minimum":5},"b":{"type":"integer"}},"required":["b"]}]})",
             {R"({"a":5,"b":0})"}, {R"({"a":4,"b":0})", R"({"a":5})"});
  expect_has(R"({"allOf":[{"type":["integer","string"]},{"type":["number","null"]}]})", {"1"},
             {"1.5", "\"a\"", "null"});
}

TEST(JsonSchema, ReferencesAreFollowed) {
  expect_has(
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},
                 "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"]}}})",
      {R"({"value":1,"next":{"value":2,"next":null}})"}, {R"({"value":1,"next":2})"});
  expect_has(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  expect_has(
      R"({"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a","description":"too"}},"required":["a","b"]})",
      {R"({"a":1,"b":2})"}, {R"({"a":1,"b":"x"})"});
  expect_has(R"({"definitions":{"a/b~c":{"type":"null"}},"$ref":"#/definitions/a~1b~0c"})",
             {"null"}, {"1"});
  expect_has(
      R"({"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n","minimum":3}},"required":["a"]})",
      {R"({"a":3})"}, {R"({"a":2})"});
}

TEST(JsonSchema, BlanksHaveAnEnd) {
  Schema schema(R"({"properties":{"a":{"type":"integer"}},"required":["a"]})");
  EXPECT_TRUE(schema.has("{\n    \"a\" : 1\n}"));
  EXPECT_FALSE(schema.has("{  \"a\":1}"));
  EXPECT_FALSE(schema.has("{\n\n\"a\":1}"));
  EXPECT_FALSE(schema.has("{\n" + std::string(21, ' ') + "\"a\":1}"));
  EXPECT_FALSE(schema.has(" {\"a\":1}"));
  EXPECT_FALSE(schema.has("{\"a\":1} "));
}

std::string refusal(const std::string& json, ErrorCode code) {
  try {
    (void)grammar_from_json_schema(Json::parse(json, "schema"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code, code) << error.what();
    return error.what();
  }
  return "";
}

TEST(JsonSchema, RefusalsNameTheKeyword) {
  const auto unsupported = [](const std::string& json) {
    return refusal(json, ErrorCode::unsupported);
  };
  EXPECT_EQ(unsupported(R"({"properties":{"a":{"not":{}}}})"),
            "schema: properties.a.not: this keyword is not supported");
  EXPECT_EQ(unsupported(R"({"items":{"type":"integer","multipleOf":3}})"),
            "schema: items.multipleOf: this keyword is not supported");
  EXPECT_NE(unsupported(R"({"uniqueItems":true})"), "");
  EXPECT_EQ(refusal(R"({"uniqueItems":false,"title":"x","unheard-of":1})", ErrorCode::input), "");
  EXPECT_NE(unsupported(R"({"$ref":"other.json#/a"})").find("another document"), std::string::npos);
  EXPECT_NE(unsupported("{\"pattern\":\"^a(?=b)\"}").find("schema: pattern"), std::string::npos);
  for (const char* pattern :
       {"(a", "a)", "[a", "\\\\1", "\\\\bfoo", "a**", "a{,2}", "(a$)", "\\\\p{L}", "a^b", "[z-a]"})
    EXPECT_NE(unsupported(fmt::format(R"({{"pattern":"{}"}})", pattern)), "") << pattern;
  EXPECT_NE(unsupported(R"({"pattern":"^a$","maxLength":3})"), "");
  EXPECT_NE(unsupported(R"({"type":"number","minimum":0.5})"), "");
  EXPECT_NE(unsupported(R"({"enum":["a"],"minLength":3})"), "");
  const auto broken = [](const std::string& json) { return refusal(json, ErrorCode::input); };
  EXPECT_EQ(broken(R"({"type":"text"})"), "schema: type: there is no type \"text\"");
  EXPECT_EQ(broken(R"({"properties":{"a":{"minLength":"x"}}})"),
            "schema: properties.a.minLength: expected an integer, found a string");
  EXPECT_EQ(broken(R"({"$ref":"#/$defs/x"})"), "schema: $ref: there is no \"$defs\"");
  EXPECT_NE(broken("3"), "");
  EXPECT_NE(broken("false"), "");
  EXPECT_NE(broken(R"({"type":["string"],"allOf":[{"type":"integer"}]})"), "");
}

// Few words that would become much, or never end.
TEST(JsonSchema, ErrorsPointIntoTheSchema) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"properties":{"a":{"type":"string","maxLength":65537}}})", "properties.a.maxLength"},
      {R"({"properties":{"a":{"type":"string","minLength":1000000}}})", "properties.a.minLength"},
      {R"({"type":"array","maxItems":65537})", "maxItems"},
      {R"({"type":"array","minItems":9000000})", "minItems"},
      {R"({"type":"string","pattern":"^a{65537}$"})", "pattern"},
      {R"({"type":"string","pattern":"^a{1,65537}$"})", "pattern"},
      {R"({"type":"string","pattern":"^a{3,2}$"})", "pattern"},
      {R"({"type":"string","pattern":"^a{99999999999}$"})", "pattern"},
      {R"({"type":"string","pattern":"^a{}$"})", "pattern"},
      {R"({"type":"string","pattern":"^a{1,2,3}$"})", "pattern"},
  };
  for (const auto& [schema, place] : kCases) {
    try {
      (void)grammar_from_json_schema(Json::parse(schema, "schema"));
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(fmt::format("schema: {}: ", place)))
          << error.what();
    }
  }
  expect_has(R"({"type":"string","pattern":"^a{2}b{1,}c{0,2}$"})", {"\"aab\"", "\"aabbcc\""},
             {"\"ab\"", "\"aabccc\""});
}

TEST(JsonSchema, HostileSizes) {
  const auto broken = [](const std::string& json) { return refusal(json, ErrorCode::input); };
  EXPECT_NE(broken(R"({"$ref":"#"})"), "");
  EXPECT_NE(broken(R"({"allOf":[{"$ref":"#"}]})"), "");
  EXPECT_NE(broken(R"({"type":"object","anyOf":[{"$ref":"#"},{"$ref":"#"}]})"), "");
  std::string doubling = R"({"$ref":"#/$defs/a0","type":"string","$defs":{)";
  for (int i = 0; i < 20; ++i)
    doubling += fmt::format(
        R"("a{0}":{{"allOf":[{{"$ref":"#/$defs/a{1}"}},{{"$ref":"#/$defs/a{1}"}}]}},)", i, i + 1);
  EXPECT_NE(broken(doubling + R"("a20":{}}})").find("too large"), std::string::npos);
  EXPECT_NE(broken(R"({"type":"string","maxLength":1000000})"), "");
  EXPECT_NE(
      broken(
          R"({"type":"array","items":{"type":"array","items":{"type":"string","maxLength":9000},"maxItems":9000},"minItems":9000000})"),
      "");
  std::string deep = "{}";
  for (int i = 0; i < 30; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_EQ(broken(deep), "");
  for (int i = 0; i < 25; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_NE(broken(deep).find("too deep"), std::string::npos);
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 2000; ++i)
    chain += fmt::format(R"("a{}":{{"items":{{"$ref":"#/$defs/a{}"}}}},)", i, i + 1);
  EXPECT_EQ(broken(chain + R"("a2000":{}}})"), "");
  const std::string name(10000, 'n');
  EXPECT_EQ(broken(R"({"properties":{")" + name + R"(":{}},"additionalProperties":true})"), "");
}

TEST(JsonSchema, SeveralFitIntoOneGrammar) {
  const Json one = Json::parse(R"({"properties":{"x":{"type":"string"}},"required":["x"]})", "one");
  const Json two = Json::parse(R"({"properties":{"y":{"type":"string"}},"required":["y"]})", "two");
  const std::string gbnf = "root ::= \"one \" one | \"two \" two | \"any \" any\n" +
                           gbnf_from_json_schema(one, "one") + gbnf_from_json_schema(two, "two") +
                           gbnf_of_json(JsonKind::object, "any");
  GrammarMatcher matcher(std::make_shared<const Grammar>(gbnf));
  const auto has = [&](std::string_view text) {
    auto place = matcher.start();
    for (const char byte : text) place = matcher.next(place, static_cast<uint8_t>(byte));
    return matcher.may_end(place);
  };
  EXPECT_TRUE(has(R"(one {"x":"a"})"));
  EXPECT_TRUE(has(R"(two {"y":"a"})"));
  EXPECT_TRUE(has(R"(any {"z":[1]})"));
  EXPECT_FALSE(has(R"(one {"y":"a"})"));
  EXPECT_FALSE(has("any [1]"));
}

// Whatever comes out is JSON, and is in the schema's own words what it asks for.
TEST(JsonSchema, EverySentenceIsJson) {
  Schema any("{}");
  Schema mixed(
      R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},"n":{"type":"number"},
      "tags":{"type":"array","items":{"type":"string","pattern":"[\"\\\\\\\\é]"},"maxItems":3},"more":{}},
      "required":["id"],"additionalProperties":{"type":"string"}})");
  ByteStream random(11);
  int parsed = 0;
  for (int i = 0; i < 150; ++i)
    for (Schema* schema : {&any, &mixed}) {
      const std::string text = schema->random_sentence(random);
      if (text.empty()) continue;
      ASSERT_NO_THROW((void)Json::parse(text, "sentence")) << text;
      ++parsed;
    }
  EXPECT_GT(parsed, 200);
}

}  // namespace
}  // namespace tyto
