#include "base/json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

using Type = Json::Type;

Json parse(std::string_view text) {
  return Json::parse(text, "f.json");
}

// The message of the Error that `action` throws, or "" when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::input);
    return error.what();
  }
  return "";
}

std::string parse_error(std::string_view text) {
  return error_of([&] { parse(text); });
}

TEST(Json, EveryValueHasItsType) {
  const std::vector<std::pair<const char*, Type>> cases = {
      {"{}", Type::object},     {"[]", Type::array},   {"\"\"", Type::string},
      {"0", Type::integer},     {"-7", Type::integer}, {"18446744073709551615", Type::integer},
      {"0.0", Type::number},    {"1e3", Type::number}, {"true", Type::boolean},
      {"false", Type::boolean}, {"null", Type::null},
  };
  for (const auto& [text, type] : cases) {
    EXPECT_EQ(parse(text).type(), type) << text;
    EXPECT_TRUE(parse(text).is(type)) << text;
  }
}

TEST(Json, ReadsValues) {
  const Json json = parse(R"({"s":"a\u00e9\n\"","i":-12,"d":2.5,"t":true,"f":false,"a":[1,2,3]})");
  EXPECT_EQ(json.at("s").as_string(), "a\u00e9\n\"");
  EXPECT_EQ(json.at("i").as_int(), -12);
  EXPECT_EQ(json.at("d").as_double(), 2.5);
  EXPECT_EQ(json.at("i").as_double(), -12.0);
  EXPECT_TRUE(json.at("t").as_bool());
  EXPECT_FALSE(json.at("f").as_bool());
  EXPECT_EQ(json.size(), 6u);
  EXPECT_EQ(json.at("a").size(), 3u);
  EXPECT_EQ(json.at("i").size(), 0u);
}

TEST(Json, StringsMayHoldNul) {
  EXPECT_EQ(parse("\"a\\u0000b\"").as_string(), std::string_view("a\0b", 3));
}

TEST(Json, WrongTypesNameTheField) {
  const Json json = parse(R"({"a":{"b":[null,{"c":"x"}]},"n":1.5})");
  const Json b = json.at("a").at("b");
  EXPECT_EQ(error_of([&] { (void)json.as_bool(); }), "f.json: expected a boolean, found an object");
  EXPECT_EQ(error_of([&] { (void)b.as_string(); }),
            "f.json: a.b: expected a string, found an array");
  EXPECT_EQ(error_of([&] { (void)b.at("c"); }), "f.json: a.b: expected an object, found an array");
  EXPECT_EQ(error_of([&] { (void)json.at("n").as_int(); }),
            "f.json: n: expected an integer, found a number");
  EXPECT_EQ(error_of([&] { (void)json.at("zz"); }), "f.json: field \"zz\" is missing");
  EXPECT_EQ(error_of([&] { (void)json.at("a").at("zz"); }), "f.json: a: field \"zz\" is missing");
  std::vector<std::string> messages;
  b.for_each_element([&](size_t, const Json& each) {
    messages.push_back(error_of([&] { (void)each.as_double(); }));
    if (each.is(Type::object)) messages.push_back(error_of([&] { (void)each.at("c").as_int(); }));
  });
  EXPECT_EQ(messages,
            (std::vector<std::string>{"f.json: a.b[0]: expected a number, found null",
                                      "f.json: a.b[1]: expected a number, found an object",
                                      "f.json: a.b[1].c: expected an integer, found a string"}));
  EXPECT_EQ(error_of([&] { json.at("n").for_each_element([](size_t, const Json&) {}); }),
            "f.json: n: expected an array, found a number");
  EXPECT_EQ(error_of([&] { b.for_each_member([](std::string_view, const Json&) {}); }),
            "f.json: a.b: expected an object, found an array");
  EXPECT_EQ(error_of([&] { b.fail("is odd"); }), "f.json: a.b: is odd");
}

TEST(Json, PathOfRootAndOfIndices) {
  EXPECT_EQ(parse("{}").path(), "f.json");
  parse("[[5]]").for_each_element([](size_t, const Json& outer) {
    outer.for_each_element(
        [](size_t, const Json& inner) { EXPECT_EQ(inner.path(), "f.json: [0][0]"); });
  });
}

TEST(Json, AnEmptyKeyIsNoIndex) {
  EXPECT_EQ(parse(R"({"a":{"":{"b":1}}})").at("a").at("").at("b").path(), "f.json: a..b");
}

// The path keeps the document's key, not the caller's, which may be a temporary.
TEST(Json, PathOutlivesTheKeyAskedFor) {
  std::string key = "a key too long for a small string buffer";
  const Json value = parse("{\"" + key + "\":1}").at(std::string(key));
  key.assign(key.size(), '!');
  EXPECT_EQ(value.path(), "f.json: a key too long for a small string buffer");
}

TEST(Json, ValuesKeepTheDocumentAlive) {
  const std::string_view text = [] {
    static const Json kept =
        parse(R"({"a":{"b":"a text too long for a small string"}})").at("a").at("b");
    return kept.as_string();
  }();
  EXPECT_EQ(text, "a text too long for a small string");
}

TEST(Json, HostileKeysStayOnOneLine) {
  EXPECT_EQ(error_of([] { (void)parse("{\"a\\nb\":1}").at("a\nb").as_bool(); }),
            "f.json: a\\u000ab: expected a boolean, found a number");
}

TEST(Json, RepeatedNamesAreFoundAtAnyDepth) {
  parse(R"({"a":{"b":1},"c":[{"b":1},{"b":2}]})").refuse_repeated_names();
  for (const char* text : {R"({"a":1,"a":1})", R"({"a":1,"\u0061":2})", R"([{"c":{"a":1,"a":2}}])"})
    EXPECT_NE(error_of([&] { parse(text).refuse_repeated_names(); }).find("a: is there twice"),
              std::string::npos)
        << text;
}

TEST(Json, NoTextAtAllIsNoJson) {
  EXPECT_EQ(error_of([] { parse({}); }), "f.json: not valid JSON: there is no text");
}

TEST(Json, VisitsInOrder) {
  std::string visited;
  parse(R"({"z":1,"a":2,"m":3})").for_each_member([&](std::string_view key, const Json& value) {
    visited += std::string(key) + "=" + std::to_string(value.as_int()) + " ";
  });
  EXPECT_EQ(visited, "z=1 a=2 m=3 ");
  visited.clear();
  parse("[5,6]").for_each_element([&](size_t index, const Json& value) {
    visited += std::to_string(index) + "=" + std::to_string(value.as_int()) + " ";
  });
  EXPECT_EQ(visited, "0=5 1=6 ");
}

TEST(Json, FindTreatsNullAsAbsent) {
  const Json json = parse(R"({"n":null,"v":0})");
  EXPECT_FALSE(json.find("n"));
  EXPECT_FALSE(json.find("w"));
  ASSERT_TRUE(json.find("v"));
  EXPECT_EQ(json.find("v")->as_int(), 0);
  EXPECT_TRUE(json.at("n").is(Type::null));
  EXPECT_FALSE(parse("[1]").find("a"));
  EXPECT_FALSE(parse("3").find("a"));
}

TEST(Json, OfDuplicatesTheLastCounts) {
  const Json json = parse(R"({"a":1,"b":5,"a":2,"b":null})");
  EXPECT_EQ(json.at("a").as_int(), 2);
  EXPECT_EQ(json.find("a")->as_int(), 2);
  EXPECT_FALSE(json.find("b"));
  EXPECT_EQ(json.size(), 4u);
}

TEST(Json, KeysCompareUnescaped) {
  EXPECT_EQ(parse(R"({"\u0061b":1})").at("ab").as_int(), 1);
  EXPECT_FALSE(parse(R"({"ab":1})").find("a"));
}

TEST(Json, DefaultsStandForAbsentAndNull) {
  const Json json = parse(R"({"s":"x","u":4,"d":0.5,"b":true,"n":null})");
  EXPECT_EQ(json.string_or("s", "y"), "x");
  EXPECT_EQ(json.string_or("n", "y"), "y");
  EXPECT_EQ(json.uint_or("u", 9, 10), 4u);
  EXPECT_EQ(json.uint_or("w", 9, 10), 9u);
  EXPECT_EQ(json.double_or("d", 2), 0.5);
  EXPECT_EQ(json.double_or("u", 2), 4.0);
  EXPECT_EQ(json.double_or("w", 2), 2.0);
  EXPECT_TRUE(json.bool_or("b", false));
  EXPECT_FALSE(json.bool_or("n", false));
  EXPECT_NE(error_of([&] { (void)json.string_or("u", ""); }), "");
  EXPECT_NE(error_of([&] { (void)json.uint_or("u", 0, 3); }), "");
  EXPECT_NE(error_of([&] { (void)json.double_or("s", 0); }), "");
  EXPECT_NE(error_of([&] { (void)json.bool_or("u", false); }), "");
}

TEST(Json, UnsignedLimits) {
  const auto read = [](std::string_view text, uint64_t limit) {
    return parse(text).as_uint(limit);
  };
  EXPECT_EQ(read("0", 0), 0u);
  EXPECT_EQ(read("128", 128), 128u);
  EXPECT_EQ(error_of([&] { read("129", 128); }), "f.json: 129 is outside 0..128");
  EXPECT_EQ(error_of([&] { read("-1", 128); }), "f.json: -1 is outside 0..128");
  EXPECT_EQ(read("9223372036854775807", UINT64_MAX), uint64_t{INT64_MAX});
  EXPECT_NE(error_of([&] { read("18446744073709551615", UINT64_MAX); }), "");
  EXPECT_NE(error_of([&] { read("-9223372036854775808", UINT64_MAX); }), "");
}

TEST(Json, WholeNumbersMayBeWrittenAsReals) {
  EXPECT_EQ(parse("1e5").as_int(), 100000);
  EXPECT_EQ(parse("131072.0").as_uint(1 << 20), 131072u);
  EXPECT_EQ(parse("-0.0").as_uint(5), 0u);
  for (const char* text : {"0.5", "-1e-9", "1e16", "-1e16", "1e300", "\"1\"", "true", "[]"})
    EXPECT_NE(error_of([&] { (void)parse(text).as_int(); }), "") << text;
}

// What transformers writes for "no limit" in tokenizer_config.json.
TEST(Json, IntegersBeyond64BitsAreNumbers) {
  const Json json = parse(
      R"({"model_max_length": 1000000000000000019884624838656, "s": "\"99999999999999999999", )"
      R"("n":[-123456789012345678901234567890,18446744073709551616 , 1.00000000000000000000000001,)"
      R"( 12345678901234567890123e2, 7]})");
  EXPECT_EQ(json.at("model_max_length").type(), Type::number);
  EXPECT_EQ(json.at("model_max_length").as_double(), 1e30);
  EXPECT_EQ(json.at("s").as_string(), "\"99999999999999999999");
  EXPECT_NE(error_of([&] { (void)json.at("model_max_length").as_uint(UINT64_MAX); }), "");
  std::vector<double> numbers;
  json.at("n").for_each_element(
      [&](size_t, const Json& each) { numbers.push_back(each.as_double()); });
  EXPECT_EQ(numbers, (std::vector<double>{-123456789012345678901234567890.0, 18446744073709551616.0,
                                          1.0, 12345678901234567890123e2, 7}));
  EXPECT_EQ(parse("100000000000000000000000").as_double(), 1e23);
}

TEST(Json, RefusesBadText) {
  for (const std::string& text : std::vector<std::string>{"",
                                                          " ",
                                                          "{",
                                                          "[1,]",
                                                          "{\"a\":}",
                                                          "{a:1}",
                                                          "[1 2]",
                                                          "nul",
                                                          "\"a",
                                                          "\"\\x\"",
                                                          "\"\\ud800\"",
                                                          "01",
                                                          "-",
                                                          "[1]x",
                                                          "{\"a\" 1}",
                                                          "'a'",
                                                          "\"\n\"",
                                                          "}",
                                                          "000000000000000000000000",
                                                          "12345678901234567890123x",
                                                          "\"\\",
                                                          std::string("[\0]", 3)}) {
    const std::string error = parse_error(text);
    EXPECT_TRUE(error.starts_with("f.json: not valid JSON: ")) << text << " -> " << error;
    EXPECT_EQ(error.find('\n'), error.npos);
  }
}

TEST(Json, WhatIsWrongIsSaidInPlainWordsWithItsPlace) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"Hello there", "line 1, column 1: expected a value, found 'Hello'"},
      {"{", "line 1, column 2: the text ends too early, expected a name in double quotes or }"},
      {"[1,\n 2 3]", "line 2, column 4: expected a comma or ], found '3'"},
      {"[1,]", "line 1, column 4: expected a value, found ']'"},
      {"{\"a\" 1}", "line 1, column 6: expected a colon behind the name, found '1'"},
      {"{\"a\":1,}", "line 1, column 8: expected a name in double quotes, found '}'"},
      {"{a:1}", "line 1, column 2: expected a name in double quotes or }, found 'a'"},
      {"[1]x", "line 1, column 4: expected nothing behind the end, found 'x'"},
      {"\"a", "line 1, column 1: the text in quotes is not closed"},
      {"[\"a\nb\"]", "line 1, column 2: the text in quotes is not closed on its line"},
      {"\"\\x\"", "line 1, column 2: JSON has no \\x"},
      {"01", "line 1, column 1: '01' is not a number"},
      {"[1.]", "line 1, column 2: '1.' is not a number"},
  };
  for (const auto& each : cases)
    EXPECT_EQ(parse_error(each.text), std::string("f.json: not valid JSON: ") + each.message)
        << each.text;
}

TEST(Json, NumbersThatJsonHasNoneForAreNamedWithTheirField) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"NaN", "f.json: not valid JSON: NaN is not a number"},
      {"[1, Infinity]", "f.json: [1]: not valid JSON: Infinity is not a number"},
      {R"({"a":1,"rope_theta":NaN})", "f.json: rope_theta: not valid JSON: NaN is not a number"},
      {R"({"a":{"x":[{"y":0},{"NaN":"Infinity","z":-Infinity}]},"b":2})",
       "f.json: a.x[1].z: not valid JSON: -Infinity is not a number"},
      {R"({"q\"uote":"\\","b":1e400})", "f.json: b: not valid JSON: 1e400 is not a number"},
      {"1e99999999999999999999", "f.json: not valid JSON: 1e99999999999999999999 is not a number"},
  };
  for (const auto& each : cases) EXPECT_EQ(parse_error(each.text), each.message) << each.text;
  EXPECT_EQ(parse_error(R"({"NaN":"Infinity","b":nul})").find("is not a number"),
            std::string::npos);
}

TEST(Json, RefusesInvalidUtf8) {
  for (const char* bytes : {"\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_NE(parse_error("{\"a\":\"" + std::string(bytes) + "\"}"), "") << bytes;
  EXPECT_EQ(parse("\"\xf0\x9f\xa6\x89\"").as_string(), "\U0001f989");
}

TEST(Json, BoundsDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(parse_error(nested(64)), "");
  EXPECT_EQ(parse_error(nested(65)), "f.json: JSON nests deeper than 64");
  EXPECT_EQ(parse_error(nested(1'000'000)), "f.json: JSON nests deeper than 64");
  EXPECT_NE(parse_error(std::string(1'000'000, '[')), "");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  objects += "0" + std::string(100'000, '}');
  EXPECT_EQ(parse_error(objects), "f.json: JSON nests deeper than 64");
  // The bound also holds after the second attempt that long integers need.
  EXPECT_EQ(parse_error("[1000000000000000000000," + nested(1000) + "]"),
            "f.json: JSON nests deeper than 64");
}

TEST(Json, ReadsManyMembers) {
  constexpr int kMembers = 130'000;
  std::string text = "{";
  for (int i = 0; i < kMembers; ++i)
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + std::to_string(i);
  text += "}";
  const Json json = parse(text);
  EXPECT_EQ(json.size(), size_t{kMembers});
  int64_t sum = 0;
  json.for_each_member([&](std::string_view, const Json& value) { sum += value.as_int(); });
  EXPECT_EQ(sum, int64_t{kMembers} * (kMembers - 1) / 2);
  EXPECT_EQ(json.at("129999").as_int(), 129999);
}

TEST(Json, ParsesFilesOfBoundedSize) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("tyto_json_test_" + std::to_string(::getpid()) + ".json");
  std::ofstream(path) << R"({"a":tru})";
  EXPECT_TRUE(error_of([&] { Json::parse_file(path.string(), 100); }).starts_with(path.string()));
  std::ofstream(path) << R"({"a":1})";
  EXPECT_EQ(Json::parse_file(path.string(), 7).at("a").as_int(), 1);
  EXPECT_NE(error_of([&] { Json::parse_file(path.string(), 6); }), "");
  std::filesystem::remove(path);
  EXPECT_NE(error_of([&] { Json::parse_file(path.string(), 7); }), "");
}

}  // namespace
}  // namespace tyto
