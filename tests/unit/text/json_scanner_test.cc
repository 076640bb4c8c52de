#include "text/tools.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace tyto {
namespace {

bool is_object(const std::string& text) {
  try {
    return Json::parse(text, "test").is(Json::Type::object);
  } catch (const Error&) {
    return false;
  }
}

// Whether the scanner takes all of the text and is done with the last byte.
bool is_taken(const std::string& text) {
  JsonScanner scanner;
  for (const char c : text)
    if (!scanner.push(c)) return false;
  return scanner.is_complete();
}

// Every text, with every byte left out and every byte doubled, is JSON to both readers or to none.
TEST(JsonScanner, AgreesWithTheJsonReader) {
  const std::vector<std::string> texts = {
      "{}",
      "{ }",
      R"({"a": 1, "b": [], "c": {}})",
      R"({"a": [1, -2, 0, 1.5, -0.25, 1e5, 1E-5, 2.5e+10], "b": [true, false, null]})",
      R"({"a": "x\"\\\/\b\f\n\r\t\u00e9 é", "": [[[{"a": [{}]}]]]})",
      "{\"a\"\n:\t1\r, \"b\" : \"\" }",
  };
  for (const std::string& text : texts) {
    EXPECT_TRUE(is_taken(text)) << text;
    for (size_t i = 0; i < text.size(); ++i) {
      if (static_cast<unsigned char>(text[i]) >= 0x80) continue;  // it does not check UTF-8
      const std::string without = text.substr(0, i) + text.substr(i + 1);
      const std::string doubled = text.substr(0, i) + text.substr(i, 1) + text.substr(i);
      EXPECT_EQ(is_taken(without), is_object(without)) << without;
      EXPECT_EQ(is_taken(doubled), is_object(doubled)) << doubled;
    }
  }
}

TEST(JsonScanner, RefusesAtTheFirstWrongByte) {
  const std::vector<std::pair<std::string, size_t>> cases = {
      {"[1]", 0},         {"{1", 1},         {"{\"a\" 1", 5},    {"{\"a\":}", 5},
      {"{\"a\":01", 6},   {"{\"a\":-x", 6},  {"{\"a\":1.}", 7},  {"{\"a\":trux", 8},
      {"{\"a\":1]", 6},   {"{\"a\":[1}", 7}, {"{\"a\":\"\n", 6}, {"{\"a\":\"\\x", 7},
      {"{\"a\":1,}", 7},  {"{,", 1},         {"{}}", 2},         {"{\"a\":\"\\u00g", 10},
      {"{\"a\":[1,]", 8}, {"{} ", 2},
  };
  for (const auto& [text, wrong] : cases) {
    JsonScanner scanner;
    size_t taken = 0;
    while (taken < text.size() && scanner.push(text[taken])) ++taken;
    EXPECT_EQ(taken, wrong) << text;
  }
}

TEST(JsonScanner, DepthIsBounded) {
  JsonScanner scanner;
  size_t opened = 0;
  while (opened < 1000 && scanner.push('{') && scanner.push('"') && scanner.push('"') &&
         scanner.push(':'))
    ++opened;
  EXPECT_EQ(opened, 64u);
}

}  // namespace
}  // namespace tyto
