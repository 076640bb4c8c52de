#include "cli/prompt.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto::test {
namespace {

// A machine that has these.
bool is_here(const std::string& word) {
  return word == "owlet" || word == "llama3.2:1b" || word == "a.gguf" || word == "org/repo";
}

WordMeaning meaning(std::vector<std::string> words, bool has_model = false,
                    const std::string& prompt_flag = "") {
  return meaning_of({"tyto run", std::move(words), has_model, prompt_flag}, is_here);
}

std::string refusal(std::vector<std::string> words, bool has_model = false,
                    const std::string& prompt_flag = "") {
  try {
    meaning(std::move(words), has_model, prompt_flag);
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    return error.what();
  }
  return "no error";
}

TEST(ModelWords, TheFirstWordIsAModelWhereItIsOne) {
  for (const char* name : {"owlet", "llama3.2:1b", "a.gguf", "org/repo"}) {
    const WordMeaning alone = meaning({name});
    EXPECT_EQ(alone.model, name);
    EXPECT_FALSE(alone.prompt);
    EXPECT_FALSE(alone.is_absent);
    const WordMeaning both = meaning({name, "Tell me a story"});
    EXPECT_EQ(both.model, name);
    EXPECT_EQ(both.prompt, "Tell me a story");
    EXPECT_EQ(meaning({name}, false, "--prompt").model, name);
  }
  EXPECT_EQ(meaning({"owlet", "-"}).prompt, "-");
}

TEST(ModelWords, OtherFirstWordsArePrompts) {
  for (const char* text :
       {"Hello", "Tell me a story", "-", "", "llama", "3/4?", "Really:", "a :b"}) {
    const WordMeaning found = meaning({text});
    EXPECT_EQ(found.model, "") << text;
    EXPECT_EQ(found.prompt, text);
  }
  EXPECT_TRUE(meaning({"Hello"}).is_guess);
  EXPECT_FALSE(meaning({"Tell me"}).is_guess);
  EXPECT_FALSE(meaning({"-"}).is_guess);
  EXPECT_FALSE(meaning({}).prompt);
}

TEST(ModelWords, WithAModelFlagEveryWordIsThePrompt) {
  const WordMeaning found = meaning({"owlet"}, true);
  EXPECT_EQ(found.model, "");
  EXPECT_EQ(found.prompt, "owlet");
  EXPECT_FALSE(found.is_guess);
  EXPECT_EQ(meaning({"x.gguf"}, true).prompt, "x.gguf");
}

TEST(ModelWords, WhatCanOnlyBeAModelAndIsAbsent) {
  for (const char* name :
       {"x.gguf", "my model.gguf", "llama3.2:3b", "org/other", "org/other:Q4_K_M", "./folder",
        "/models/x", "../up", "ollama:x", "llama3.2", "gemma3", "Qwen3-4B"}) {
    const WordMeaning found = meaning({name});
    EXPECT_TRUE(found.is_absent) << name;
    EXPECT_EQ(found.model, name);
  }
  EXPECT_EQ(meaning({"x.gguf", "Hello"}).prompt, "Hello");
}

TEST(ModelWords, MoreThanOnePromptIsRefused) {
  EXPECT_EQ(refusal({"tell", "me", "it's"}),
            "tyto run takes one prompt; put it in quotes: tyto run 'tell me it'\\''s'");
  EXPECT_EQ(refusal({"owlet", "tell", "me"}),
            "tyto run takes one prompt; put it in quotes: tyto run owlet 'tell me'");
  EXPECT_EQ(refusal({"owlet", "hi"}, true),
            "tyto run takes one prompt; put it in quotes: tyto run 'owlet hi'");
  EXPECT_EQ(refusal({"Hello"}, false, "--prompt"), "PROMPT and --prompt exclude each other");
  EXPECT_EQ(refusal({"owlet", "Hello"}, false, "--file"), "PROMPT and --file exclude each other");
}

}  // namespace
}  // namespace tyto::test
