#include "text/reasoning.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using DividedText = std::pair<std::string, std::string>;  // thoughts, answer

// How the answer begins: the vocabulary's format, and what the prompt ends with.
struct Begin {
  ThoughtFormat format = ThoughtFormat::think;
  std::string_view prompt = "";
  bool only_final = false;
};
constexpr Begin kOpen{.prompt = "<assistant>\n<think>\n"};
constexpr Begin kHarmony{ThoughtFormat::harmony,
                         "<|start|>user<|message|>x<|end|><|start|>assistant"};

DividedText read(const std::vector<std::string_view>& pieces, const Begin& begin) {
  ReasoningStream stream(begin.format, begin.prompt, begin.only_final);
  DividedText parts;
  const auto add = [&](const ReasoningDelta& delta) {
    parts.first += delta.reasoning;
    parts.second += delta.content;
  };
  for (const std::string_view piece : pieces) add(stream.push(piece));
  add(stream.finish());
  return parts;
}

void expect(std::string_view text, const DividedText& expected, const Begin& begin = {}) {
  SCOPED_TRACE(text);
  EXPECT_EQ(read({text}, begin), expected);
  for (size_t i = 0; i <= text.size(); ++i)
    for (size_t j = i; j <= text.size(); j += 1 + text.size() / 16)
      EXPECT_EQ(read({text.substr(0, i), text.substr(i, j - i), text.substr(j)}, begin), expected)
          << "cut at " << i << " and " << j;
}

TEST(ReasoningStream, ThoughtsComeFirst) {
  expect("<think>\nhm, 1 < 2\n\nso\n</think>\n\nYes. ", {"hm, 1 < 2\n\nso", "Yes. "});
  expect("\n<think>\n\n</think>\n\nYes.", {"", "Yes."});
  expect("hm </thin </think>Yes.", {"hm </thin", "Yes."}, kOpen);
  expect(" </x", {"</x", ""}, kOpen);
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
  expect("a", {"a", ""}, {.prompt = "<think>"});
  expect("a", {"", "a"}, {.prompt = "<assistant>\n<think>\n\n</think>\n\n"});
}

TEST(ReasoningStream, ChannelsOfHarmony) {
  expect(
      "<|channel|>analysis<|message|>1 < 2, <|so\n<|end|><|start|>assistant<|channel|>final"
      "<|message|> Yes.\n<|return|>",
      {"1 < 2, <|so\n", " Yes.\n"}, kHarmony);
  expect("<|channel|>final <|constrain|>json<|message|>{}", {"", "{}"}, kHarmony);
  expect("<|channel|>finally<|message|>x", {"x", ""},
         {ThoughtFormat::harmony, kHarmony.prompt, true});
  expect("<|channel|>commentary<|message|>First,<|end|><|channel|>final<|message|>second.",
         {"", "First,\n\nsecond."}, kHarmony);
  expect(
      "<|channel|>analysis<|message|>a<|end|>\n<|start|>assistant<|channel|>analysis<|message|>"
      "b<|end|>",
      {"a\n\nb", ""}, kHarmony);
}

TEST(ReasoningStream, CallsOfHarmonyAreNotLost) {
  const DividedText call{"", "to=functions.f {\"x\":1}"};
  expect("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\":1}<|call|>", call,
         kHarmony);
  expect(" to=functions.f<|channel|>commentary json<|message|>{\"x\":1}<|call|>", call, kHarmony);
}

TEST(ReasoningStream, WhatIsNoHarmonyIsSaid) {
  for (const char* text : {"Yes. 1 < 2", "to", " t", "\n", "toad", "<|x|>", "<|channel", ""})
    expect(text, {"", text}, kHarmony);
  expect("hm<|channel|>final<|message|>Yes.", {"", "hm\n\nYes."}, kHarmony);
  const std::string header(300, 'x');
  EXPECT_EQ(read({"<|channel|>", header}, kHarmony), (DividedText{"", header}));
  EXPECT_EQ(read({"to=<|constrain<|channel|>|>", header}, kHarmony),
            (DividedText{"", "to=<|constrain|>" + header}))
      << "only the marker in the middle is one";
  expect("a<|return|>b", {"", "a\n\nb"}, kHarmony);  // as where ends are ignored
}

TEST(ReasoningStream, PromptsThatEndInsideAMessage) {
  const auto prompt = [](std::string_view text) { return Begin{ThoughtFormat::harmony, text}; };
  expect("a<|end|><|start|>assistant<|channel|>final<|message|>b", {"a", "b"},
         prompt("<|start|>assistant<|channel|>analysis<|message|>"));
  expect("b<|return|>", {"", "b"}, prompt("<|start|>assistant<|channel|>final<|message|>a"));
  expect(" to=f<|message|>b", {"to=f b", ""}, prompt("<|start|>assistant<|channel|>analysis"));
  expect("<|start|>assistant<|channel|>final<|message|>b", {"", "b"},
         prompt("<|start|>user<|message|>x<|end|>"));
}

// Where a grammar holds the final channel, nothing else is the answer.
TEST(ReasoningStream, OnlyTheFinalChannelAnswers) {
  const Begin begin{ThoughtFormat::harmony, kHarmony.prompt, true};
  expect("hm<|channel|>commentary<|message|>a<|end|><|channel|>final<|message|>{}",
         {"hm\n\na", "{}"}, begin);
}

Tokenizer tokenizer_with(const std::vector<std::string>& special) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const std::string& text : special) {
    vocabulary.added.push_back({static_cast<Token>(vocabulary.pieces.size()), text, true});
    vocabulary.pieces.push_back(text);
  }
  settle_harmony_ends(vocabulary);
  return {vocabulary, "test"};
}

TEST(ThoughtMarkers, AreTheVocabularys) {
  const Tokenizer plain = tokenizer_with({});
  const Tokenizer think = tokenizer_with({"<think>", "</think>"});
  const Tokenizer harmony =
      tokenizer_with({"<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"});
  EXPECT_EQ(thought_format(plain), ThoughtFormat::think);
  EXPECT_EQ(thought_format(think), ThoughtFormat::think);
  EXPECT_EQ(thought_format(harmony), ThoughtFormat::harmony);
  EXPECT_TRUE(special_thought_markers(plain).empty());
  EXPECT_EQ(special_thought_markers(think).size(), 2u);
  EXPECT_EQ(special_thought_markers(harmony).size(), 4u);  // with <|end|>, without ends of text

  EXPECT_FALSE(thoughts_ahead(plain, "<assistant>"));
  EXPECT_TRUE(thoughts_ahead(plain, "<assistant><think>\n"));
  EXPECT_TRUE(thoughts_ahead(think, "<assistant>"));
  EXPECT_FALSE(thoughts_ahead(think, "<assistant><think>\n\n</think>\n\n"));
  EXPECT_TRUE(thoughts_ahead(harmony, "<|start|>assistant"));
  EXPECT_FALSE(thoughts_ahead(harmony, "<|start|>assistant<|channel|>final<|message|>"));
}

TEST(MarkedThoughts, AreOneTextAgain) {
  MarkedThoughts marked;
  std::string text;
  for (const ReasoningDelta& delta :
       {ReasoningDelta{"a", ""}, {"b", ""}, {"", "c"}, {"", "d"}, {"e", ""}})
    text += marked.push(delta);
  text += marked.finish();
  text += marked.finish();
  EXPECT_EQ(text, "<think>\nab\n</think>\n\ncd<think>\ne\n</think>\n\n");
}

}  // namespace
}  // namespace tyto
