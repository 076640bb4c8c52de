#include "base/json_value.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace tyto {
namespace {

JsonValue copy_of(const std::string& text) {
  return JsonValue(Json::parse(text, "text"));
}

TEST(JsonValue, BracesAreObjectsWherePairsBeginWithNames) {
  EXPECT_EQ(JsonValue({{"a", 1}, {"b", nullptr}}).dump(), R"({"a":1,"b":null})");
  EXPECT_EQ(JsonValue({"a", "b"}).dump(), R"(["a","b"])");
  EXPECT_EQ(JsonValue({{"a", {{"b", {1, 2}}}}}).dump(), R"({"a":{"b":[1,2]}})");
  EXPECT_EQ(JsonValue::array({"a", 1}).dump(), R"(["a",1])");
  EXPECT_EQ(JsonValue(std::vector<std::string>{"x"}).dump(), R"(["x"])");
  EXPECT_EQ(JsonValue(std::map<std::string, int>{{"x", 3}}).dump(), R"({"x":3})");
  JsonValue made;
  made["list"].push_back(true);
  made["list"].push_back(JsonValue::object());
  made.update({{"more", 1}, {"list", JsonValue::array()}});
  EXPECT_EQ(made.dump(), R"({"list":[],"more":1})");
  made.erase("list");
  EXPECT_FALSE(made.contains("list"));
}

TEST(JsonValue, NumbersReadBackAsThemselves) {
  const std::pair<double, const char*> kWritten[] = {
      {0, "0.0"},
      {-0.0, "-0.0"},
      {1, "1.0"},
      {-1.5, "-1.5"},
      {0.1, "0.1"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {1.25e-7, "1.25e-07"},
      {1e14, "100000000000000.0"},
      {1e15, "1e+15"},
      {123456.75, "123456.75"},
      {1e300, "1e+300"},
      {std::numeric_limits<double>::infinity(), "null"},
  };
  for (const auto& [number, text] : kWritten) EXPECT_EQ(JsonValue(number).dump(), text);
  EXPECT_EQ(JsonValue(std::numeric_limits<uint64_t>::max()).dump(), "18446744073709551615");
  EXPECT_EQ(JsonValue(std::numeric_limits<int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(JsonValue(7u), JsonValue(7));
  EXPECT_EQ(JsonValue(7), JsonValue(7.0));
  EXPECT_FALSE(JsonValue(7) == JsonValue("7"));
}

TEST(JsonValue, TextIsEscapedAndUtf8) {
  EXPECT_EQ(JsonValue("a\"\\\b\f\n\r\t\x1b\x7f/").dump(),
            "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u001b\x7f/\"");
  EXPECT_EQ(JsonValue("\xf0\x9f\xa6\x89 \xff|\xe2\x82|").dump(),
            "\"\xf0\x9f\xa6\x89 \xef\xbf\xbd|\xef\xbf\xbd|\"");
}

TEST(JsonValue, IndentedAsFilesAre) {
  const JsonValue json = {{"a", {1, {{"b", 2}}}}, {"c", JsonValue::array()}};
  EXPECT_EQ(json.dump(2),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"c\": []\n}");
}

TEST(JsonValue, WhatIsReadIsWrittenAsItWas) {
  for (const char* text :
       {R"({"z":[1,-2,18446744073709551615,0.5,"x",true,null],"a":{}})", "[]", R"("x")", "2.0"})
    EXPECT_EQ(copy_of(text).dump(), text);
}

}  // namespace
}  // namespace tyto
