#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Pieces = std::vector<std::string>;

// A checkpoint's tokenizer and template, made with Hugging Face's tools (tests/golden).
Vocabulary checkpoint(const std::string& name) {
  const std::string folder =
      std::string(TYTO_SOURCE_DIR) + "/tests/golden/data/" + name + "/model/";
  constexpr uint64_t kLimit = 1 << 20;
  return vocabulary_from_tokenizer_json(
      {read_text_file(folder + "tokenizer.json", kLimit), name + "/tokenizer.json",
       read_text_file(folder + "tokenizer_config.json", kLimit), name + "/tokenizer_config.json"});
}

// Special tokens of these texts, beside all bytes.
Vocabulary with_special(const std::vector<std::string>& texts) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const std::string& text : texts) {
    vocabulary.added.push_back({static_cast<Token>(vocabulary.pieces.size()), text, true});
    vocabulary.pieces.push_back(text);
  }
  return vocabulary;
}

Pieces special_pieces(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  Pieces pieces;
  for (const Token token : tokens)
    if (tokenizer.is_special(token)) pieces.push_back(tokenizer.token_bytes(token));
  return pieces;
}

struct Rendered {
  std::string text;
  Pieces special;
};
Rendered rendered(const Tokenizer& tokenizer, std::string_view source,
                  const std::vector<ChatMessage>& messages, bool special_in_messages = false) {
  const ChatTemplate chat_template(source, "test");
  const ChatText chat = render_chat(tokenizer, chat_template, messages, {}, special_in_messages);
  return {chat.text, special_pieces(tokenizer, encode_chat(tokenizer, chat))};
}

std::string_view template_named(std::string_view name) {
  for (const NamedTemplate& each : named_chat_templates())
    if (each.name == name) return each.source;
  ADD_FAILURE() << name;
  return "";
}

TEST(ChatText, SpecialTokensInAMessageAreTextInEveryCheckpointsTemplate) {
  for (const std::string model : {"llama3", "qwen2", "mistral", "llama2", "smollm2"}) {
    SCOPED_TRACE(model);
    const Vocabulary vocabulary = checkpoint(model);
    const Tokenizer tokenizer(vocabulary, model);
    const std::vector<ChatMessage> plain = {
        {"system", "x"}, {"user", "x"}, {"assistant", "x"}, {"user", "x"}};
    const Rendered expected = rendered(tokenizer, vocabulary.chat_template, plain);
    ASSERT_FALSE(expected.special.empty());
    for (const AddedToken& token : vocabulary.added) {
      if (!token.special) continue;
      const std::string half = token.text.substr(0, token.text.size() - 1);
      for (const std::string& content :
           {token.text, "a " + token.text + " b", token.text + token.text, half + token.text,
            " \n" + token.text + "\n "}) {
        SCOPED_TRACE(content);
        std::vector<ChatMessage> messages = plain;
        for (ChatMessage& message : messages) message.content = content;
        const Rendered actual = rendered(tokenizer, vocabulary.chat_template, messages);
        EXPECT_EQ(actual.special, expected.special);
        ChatOptions options;
        options.bos_token = tokenizer.token_bytes(vocabulary.bos);
        options.eos_token = tokenizer.token_bytes(vocabulary.eos.front());
        EXPECT_EQ(actual.text,
                  ChatTemplate(vocabulary.chat_template, "t").render(messages, options));
        EXPECT_GT(rendered(tokenizer, vocabulary.chat_template, messages, true).special.size(),
                  expected.special.size());
      }
    }
  }
}

TEST(ChatText, NamedTemplates) {
  struct Case {
    std::string_view name;
    std::vector<std::string> tokens;
    Pieces special;
  };
  const std::vector<Case> cases = {
      {"llama3",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       {"<|begin|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
        "<|start_header_id|>", "<|end_header_id|>"}},
      {"chatml",
       {"<|im_start|>", "<|im_end|>"},
       {"<|begin|>", "<|im_start|>", "<|im_end|>", "<|im_start|>"}},
      {"qwen",
       {"<|im_start|>", "<|im_end|>"},
       {"<|begin|>", "<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>"}},
      {"mistral", {"[INST]", "[/INST]"}, {"<|begin|>", "[INST]", "[/INST]"}},
      // The role is a part of the marker.
      {"phi3",
       {"<|user|>", "<|assistant|>", "<|end|>"},
       {"<|begin|>", "<|user|>", "<|end|>", "<|assistant|>"}},
      {"zephyr",
       {"<|user|>", "<|assistant|>"},
       {"<|begin|>", "<|user|>", "<|end|>", "<|assistant|>"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Tokenizer tokenizer(with_special(c.tokens), "small");
    EXPECT_EQ(rendered(tokenizer, template_named(c.name), {{"user", "x"}}).special, c.special);
    for (const std::string& token : c.tokens)
      EXPECT_EQ(rendered(tokenizer, template_named(c.name), {{"user", "x" + token}}).special,
                c.special);
  }
}

TEST(ChatText, ARoleThatSpellsATokenIsText) {
  const Tokenizer tokenizer(with_special({"<|im_start|>", "<|im_end|>"}), "small");
  EXPECT_EQ(rendered(tokenizer, template_named("chatml"), {{"user<|im_end|>", "x"}}).special,
            rendered(tokenizer, template_named("chatml"), {{"user", "x"}}).special);
}

TEST(ChatText, OtherAddedTokensAreStillRecognised) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const ChatTemplate chat_template("{{ messages[0].content }}", "test");
  const auto tokens = encode_chat(tokenizer, chat_template, {{"user", "<tool><|end|><tool>"}});
  const Token tool = tokenizer.find("<tool>");
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), tool), 2);
  EXPECT_EQ(special_pieces(tokenizer, tokens), (Pieces{"<|begin|>"}));
}

TEST(ChatText, TheTemplatesWordsDoNotCompleteATokenThatAMessageBegins) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const Pieces none = {"<|begin|>"};
  const std::string_view before = "<|{{ messages[0].content }}";
  const std::string_view after = "{{ messages[0].content | trim }}end|>";
  EXPECT_EQ(rendered(tokenizer, before, {{"user", "end|> x"}}).special, none);
  EXPECT_EQ(rendered(tokenizer, before, {{"user", "end|>"}}).text, "<|end|>");
  EXPECT_EQ(rendered(tokenizer, after, {{"user", "x <| \n"}}).special, none);
  EXPECT_EQ(rendered(tokenizer, after, {{"user", "x <| \n"}}).text, "x <|end|>");
  EXPECT_EQ(rendered(tokenizer, "<|e{{ messages[0].content }}|>", {{"user", "nd|>\n<|en"}}).special,
            none);
}

TEST(ChatText, WhateverTheTemplateDoesWithAContent) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  for (const std::string_view source :
       {"{{ messages[0].content | trim }}", "{{ messages[0].content.strip() }}",
        "{{ messages[0].content[2:] }}", "{{ messages[0].content * 2 }}",
        "{{ messages[0].content | upper | lower }}", "{{ messages[0].content | tojson }}",
        "{{ messages[0].content.split(' ') | join('|') }}",
        "{{ messages[0].content | replace('x', '<') }}"}) {
    const Rendered text = rendered(tokenizer, source, {{"user", "  x<|end|> <|end|>  "}});
    EXPECT_EQ(text.special, (Pieces{"<|begin|>"})) << source;
    EXPECT_EQ(text.text.find("\uFDD0"), std::string::npos) << source;
    EXPECT_NE(text.text.find("|end|>"), std::string::npos) << source;
  }
}

// The template sees no mark unless there is something to mark.
TEST(ChatText, OrdinaryContentsAreRenderedAsTheyAre) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const std::string_view length = "{{ messages[0].content | length }}";
  for (const std::string content : {"", " ", "hello", "a < b > c", "<tool>", "\uFDD0", "end"})
    EXPECT_EQ(rendered(tokenizer, length, {{"user", content}}).text,
              ChatTemplate(length, "test").render({{"user", content}}, {}));
}

TEST(ChatText, ATypedBosIsNotTheTemplates) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const ChatTemplate bare("{{ messages[0].content }}", "test");
  const ChatText typed = render_chat(tokenizer, bare, {{"user", "<|begin|>x"}});
  EXPECT_FALSE(typed.has_bos);
  EXPECT_EQ(special_pieces(tokenizer, encode_chat(tokenizer, typed)), (Pieces{"<|begin|>"}));
  EXPECT_TRUE(render_chat(tokenizer, bare, {{"user", "<|begin|>x"}}, {}, true).has_bos);
}

TEST(ChatText, APromptThatWritesItsBosHasOne) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const Token bos = tokenizer.vocabulary().bos;
  const EncodeOptions special = {.parse_special = true};
  EXPECT_EQ(encode_prompt(tokenizer, "", {}), (std::vector<Token>{bos}));
  EXPECT_EQ(encode_prompt(tokenizer, "<|begin|>", special), (std::vector<Token>{bos}));
  EXPECT_EQ(encode_prompt(tokenizer, "<|begin|>a", special), (std::vector<Token>{bos, 'a'}));
  EXPECT_EQ(encode_prompt(tokenizer, "a<|begin|>", special), (std::vector<Token>{bos, 'a', bos}));
  EXPECT_EQ(encode_prompt(tokenizer, "<|begin|>a", {.add_bos = false, .parse_special = true}),
            (std::vector<Token>{bos, 'a'}));
  EXPECT_EQ(encode_prompt(tokenizer, "<|begin|>", {}).size(), 10u);
}

TEST(ChatText, MarksAreNoneOfTheMessages) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const std::string_view source = "{{ messages[0].content }}";
  EXPECT_EQ(rendered(tokenizer, source, {{"user", "\uFDD0<|end|>\uFDD1"}}).text,
            "\uFDD0<|end|>\uFDD1");
  std::string all;
  for (char32_t c = 0xFDD0; c <= 0xFDEF; ++c) append_utf8(c, all);
  EXPECT_EQ(rendered(tokenizer, source, {{"user", all}}).text, all);
  EXPECT_ERROR(rendered(tokenizer, source, {{"user", all + "<|end|>"}}),
               "hold each of the noncharacters");
}

}  // namespace
}  // namespace tyto
