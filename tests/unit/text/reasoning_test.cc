#include "text/reasoning.h"

#include <gtest/gtest.h>

#include <vector>

namespace tyto {
namespace {

using Parts = std::pair<std::string, std::string>;  // thoughts, answer

Parts read(const std::vector<std::string_view>& pieces, bool is_open) {
  ReasoningStream stream(is_open);
  Parts parts;
  const auto add = [&](const ReasoningDelta& delta) {
    parts.first += delta.reasoning;
    parts.second += delta.content;
  };
  for (const std::string_view piece : pieces) add(stream.push(piece));
  add(stream.finish());
  return parts;
}

void expect(std::string_view text, const Parts& expected, bool is_open = false) {
  SCOPED_TRACE(text);
  EXPECT_EQ(read({text}, is_open), expected);
  for (size_t i = 0; i <= text.size(); ++i)
    for (size_t j = i; j <= text.size(); ++j)
      EXPECT_EQ(read({text.substr(0, i), text.substr(i, j - i), text.substr(j)}, is_open), expected)
          << "cut at " << i << " and " << j;
}

TEST(ReasoningStream, ThoughtsComeFirst) {
  expect("<think>\nhm, 1 < 2\n\nso\n</think>\n\nYes. ", {"hm, 1 < 2\n\nso", "Yes. "});
  expect("\n<think>\n\n</think>\n\nYes.", {"", "Yes."});
  expect("hm </thin </think>Yes.", {"hm </thin", "Yes."}, true);
  expect(" </x", {"</x", ""}, true);
  expect("<think> a <</think> b", {"a <", "b"});
}

TEST(ReasoningStream, WithoutThem) {
  expect("", {"", ""});
  expect(" \n", {"", " \n"});
  expect(" Yes <think>no</think>", {"", " Yes <think>no</think>"});
  expect("<thin", {"", "<thin"});
}

TEST(ReasoningStream, WhatEndsTooEarly) {
  expect("<think>hm \n", {"hm", ""});
  expect("<think>hm </th", {"hm </th", ""});
}

TEST(ReasoningStream, PromptsThatOpenIt) {
  EXPECT_TRUE(prompt_opens_reasoning("<assistant>\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning("<assistant>\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning(""));
}

}  // namespace
}  // namespace tyto
