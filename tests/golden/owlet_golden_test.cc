// The shipped model against Hugging Face transformers: prompts, tokens and greedy answers.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "golden/golden_data.h"
#include "support/software_gpu.h"
#include "text/chat_template.h"

namespace tyto {
namespace {

constexpr double kOwletMargin = 0.01;

std::filesystem::path owlet() {
  return std::filesystem::path(TYTO_SOURCE_DIR) / "models/owlet";
}

// How many tokens Tyto likes better than this one.
size_t rank(std::span<const float> logits, Token token) {
  const float own = logits[static_cast<size_t>(token)];
  return static_cast<size_t>(
      std::count_if(logits.begin(), logits.end(), [&](float other) { return other > own; }));
}

// The CPU computes in f32 as the golden model did. A device that rounds to bf16 between launches,
// as the bf16 golden model also does, may prefer another token, but the golden one stays in its
// top 5.
size_t worst_rank() {
  return golden::device_name() == "cpu" ? 0 : 4;
}

// Feeds the golden answer and asks, before each token, what Tyto would have said.
void check_answer(Pipeline& pipeline, const std::vector<Token>& prompt, const Json& answer,
                  size_t& clear) {
  const std::vector<Token> expected = golden::tokens(answer.at("ids"));
  std::vector<double> margins;
  answer.at("margin").for_each_element(
      [&](size_t, const Json& margin) { margins.push_back(margin.as_double()); });
  ASSERT_EQ(margins.size(), expected.size());
  Sequence sequence(pipeline);
  std::span<const float> logits = pipeline.run(sequence, prompt);
  for (size_t step = 0; step < expected.size(); ++step) {
    if (margins[step] > kOwletMargin) {
      EXPECT_LE(rank(logits, expected[step]), worst_rank()) << "step " << step;
      ++clear;
    }
    logits = pipeline.run(sequence, {&expected[step], 1});
  }
}

TEST(Owlet, PromptsTokensAndGreedyAnswersAreHuggingFaces) {
  EngineOptions options;
  options.model = owlet().string();
  options.device = golden::device_name();
  options.settings = golden::device_name() == "vulkan"
                         ? testing_support::software_gpu()
                         : DeviceSettings{{"prompt-rows", "128"}, {"vnpu-hostile", "on"}};
  Engine engine(options);
  const ChatTemplate chat_template =
      choose_chat_template(engine.tokenizer().vocabulary(), "", "owlet");
  const Json golden = Json::parse_file((owlet() / "golden.json").string(), 4 << 20);
  size_t prompts = 0, clear = 0;
  golden.at("prompts").for_each_element([&](size_t, const Json& prompt) {
    std::vector<ChatMessage> messages;
    prompt.at("messages").for_each_element([&](size_t, const Json& message) {
      messages.push_back({std::string(message.at("role").as_string()),
                          std::string(message.at("content").as_string())});
    });
    const auto ids = encode_chat(engine.tokenizer(), chat_template, messages);
    EXPECT_EQ(ids, golden::tokens(prompt.at("ids"))) << messages.back().content;
    SCOPED_TRACE(messages.back().content);
    check_answer(engine.pipeline(), ids, prompt.at("f32"), clear);
    const Tokenizer& tokenizer = engine.tokenizer();
    EXPECT_EQ(tokenizer.decode(golden::tokens(prompt.at("f32").at("ids")), true),
              prompt.at("f32").at("text").as_string());
    ++prompts;
  });
  EXPECT_EQ(prompts, 12u);
  EXPECT_GT(clear, 500u);  // so that the margins cannot quietly excuse everything
}

}  // namespace
}  // namespace tyto
