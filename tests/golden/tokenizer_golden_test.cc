// Tokenizers and chat templates against Hugging Face's, for every kind among the fixtures.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "golden/golden_data.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

struct Kind {
  std::string name;
  std::filesystem::path file;
  std::filesystem::path model;  // a fixture that uses it
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<Kind> kinds() {
  std::vector<Kind> result;
  for (const auto& entry :
       std::filesystem::directory_iterator(golden::data_folder() / "tokenizers"))
    result.push_back({entry.path().stem().string(), entry.path(), {}});
  std::sort(result.begin(), result.end(),
            [](const Kind& a, const Kind& b) { return a.name < b.name; });
  for (Kind& kind : result)
    Json::parse_file(kind.file.string(), 4 << 20)
        .at("fixtures")
        .for_each_element([&](size_t i, const Json& name) {
          if (i == 0) kind.model = golden::data_folder() / name.as_string() / "model";
        });
  return result;
}

class TokenizerGolden : public testing::TestWithParam<Kind> {
 protected:
  const Json expected_ = Json::parse_file(GetParam().file.string(), 4 << 20);
  const Model model_ = open_model(GetParam().model, Need::vocabulary);
  const Tokenizer tokenizer_{*model_.vocabulary, GetParam().name};
};

TEST_P(TokenizerGolden, IdsAndTextsAreHuggingFaces) {
  expected_.at("strings").for_each_element([&](size_t, const Json& entry) {
    const std::string text(entry.at("text").as_string());
    const auto ids = tokenizer_.encode(text, {.add_bos = false, .parse_special = true});
    EXPECT_EQ(ids, golden::tokens(entry.at("ids"))) << text;
    const auto with_bos = tokenizer_.encode(text, {.add_bos = true, .parse_special = true});
    EXPECT_EQ(with_bos, golden::tokens(entry.at("ids_bos"))) << text;
    EXPECT_EQ(tokenizer_.decode(ids), entry.at("decoded").as_string()) << text;
    EXPECT_EQ(tokenizer_.decode(ids, true), entry.at("decoded_special").as_string()) << text;
    Detokenizer stream(tokenizer_);
    std::string streamed;
    for (Token token : ids) streamed += stream.push(token);
    EXPECT_EQ(streamed + stream.finish(), entry.at("decoded").as_string()) << text;
  });
}

TEST_P(TokenizerGolden, ConversationsRenderAsHuggingFaceRendersThem) {
  const ChatTemplate chat_template(model_.vocabulary->chat_template, GetParam().name);
  const Vocabulary& vocabulary = *model_.vocabulary;
  expected_.at("chats").for_each_element([&](size_t, const Json& entry) {
    std::vector<ChatMessage> messages;
    entry.at("messages").for_each_element([&](size_t, const Json& message) {
      messages.push_back({std::string(message.at("role").as_string()),
                          std::string(message.at("content").as_string())});
    });
    ChatOptions options;
    options.add_generation_prompt = entry.at("add_generation_prompt").as_bool();
    if (vocabulary.bos >= 0) options.bos_token = tokenizer_.token_bytes(vocabulary.bos);
    options.eos_token = std::string(expected_.at("eos").as_string());
    EXPECT_EQ(chat_template.render(messages, options), entry.at("rendered").as_string());
  });
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, TokenizerGolden, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace tyto
