// What a chat's answer is divided into, from its tokens to what clients get.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/job.h"
#include "serve/api/generation.h"
#include "unit/text/small_vocabularies.h"

namespace tyto::api {
namespace {

std::shared_ptr<const ModelText> model_of(const std::vector<std::string>& special,
                                          const std::string& chat_template) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const std::string& text : special) {
    vocabulary.added.push_back({static_cast<Token>(vocabulary.pieces.size()), text, true});
    vocabulary.pieces.push_back(text);
  }
  settle_harmony_ends(vocabulary);
  auto model = std::make_shared<ModelText>();
  model->name = "test";
  model->context = 1000;
  model->tokenizer = std::make_shared<const Tokenizer>(vocabulary, "test");
  model->chat_template = std::make_shared<const ChatTemplate>(chat_template, "test");
  model->tool_format = ToolFormat::hermes;
  return model;
}

std::shared_ptr<const ModelText> harmony_model() {
  return model_of(
      {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|return|>", "<|call|>"},
      "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>"
      "{% endfor %}<|start|>assistant");
}

ChatCompletionRequest hello() {
  return {.conversation = {.messages = {{.role = "user", .content = "Hi"}}}};
}

// The text as the model's tokens, special ones where it spells them, through all that is between
// the scheduler and the client.
Said answer_of(const Generation& generation, const std::string& text, bool* is_enough = nullptr) {
  const Tokenizer& tokenizer = *generation.model->tokenizer;
  TextStream stream(tokenizer, {}, generation.shown_special, false);
  TextDivider divide = generation.divide();
  Said said;
  for (const Token token : tokenizer.encode(text, {.add_bos = false, .parse_special = true})) {
    if (tokenizer.is_eos(token)) break;
    if (divide(stream.push(token), false, said)) continue;
    if (is_enough != nullptr) *is_enough = true;
    return said;
  }
  divide(stream.finish(), true, said);
  return said;
}

TEST(ApiPrompts, ChannelsAreThoughtAndSaid) {
  const Generation generation = chat_generation(harmony_model(), hello());
  const Said said = answer_of(
      generation,
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.");
  EXPECT_EQ(said.thought, "hm");
  EXPECT_EQ(said.text, "Yes.");
  EXPECT_EQ(answer_of(generation, "<|channel|>commentary to=functions.f<|message|>{}<|call|>").text,
            "to=functions.f {}");
  EXPECT_EQ(answer_of(generation, "Plain.").text, "Plain.");
}

TEST(ApiPrompts, AFormatHoldsTheFinalChannelAlone) {
  ChatCompletionRequest request = hello();
  request.options.format.kind = OutputFormat::Kind::json;
  const Generation generation = chat_generation(harmony_model(), request);
  EXPECT_TRUE(generation.thoughts);
  const Said said =
      answer_of(generation,
                "<|channel|>commentary<|message|>I will.<|end|><|start|>assistant<|channel|>final"
                "<|message|>{}");
  EXPECT_EQ(said.thought, "I will.");
  EXPECT_EQ(said.text, "{}");
}

TEST(ApiPrompts, MarkersThatAreSpecialAreStillFound) {
  const auto model = model_of({"<think>", "</think>"}, "{{ messages[0].content }}<think>\n");
  const Said said = answer_of(chat_generation(model, hello()), "hm</think>\n\nYes.");
  EXPECT_EQ(said.thought, "hm");
  EXPECT_EQ(said.text, "Yes.");
}

TEST(ApiPrompts, OneCallIsEnoughWhereTheyMayNotBeParallel) {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)";
  for (const bool parallel : {true, false}) {
    ChatCompletionRequest request = hello();
    request.tools = {{"f", {}}};
    request.parallel_calls = parallel;
    bool is_enough = false;
    const Said said = answer_of(chat_generation(model_of({}, "{{ messages[0].content }}"), request),
                                "I call " + call + " and " + call, &is_enough);
    EXPECT_EQ(is_enough, !parallel);
    EXPECT_EQ(said.calls.back().index, parallel ? 1u : 0u);
    EXPECT_EQ(said.text, parallel ? "I call and" : "I call");
  }
}

}  // namespace
}  // namespace tyto::api
