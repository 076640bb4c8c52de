// Tyto as another program has it.
#include "library/tyto.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tyto::library {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A tiny model with random weights whose thoughts stand between special tokens, and a template
// that opens one.
class Thinking : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "thinking_model";
    fs::remove_all(folder_);
    fs::copy(fs::path(TYTO_SOURCE_DIR) / "tests/golden/data/qwen3/model", folder_,
             fs::copy_options::recursive);
    std::string tokenizer = read(folder_ / "tokenizer.json");
    for (const char* marker : {"\"<think>\"", "\"</think>\""}) {
      const size_t at = tokenizer.find("\"special\": false", tokenizer.find(marker));
      ASSERT_NE(at, std::string::npos);
      tokenizer.replace(at, 16, "\"special\": true");
    }
    std::ofstream(folder_ / "tokenizer.json") << tokenizer;
    std::ofstream(folder_ / "chat_template.jinja")
        << "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // An answer of random tokens.
  Answer ask(Model& model, uint64_t seed, bool raw = false) {
    Question question;
    question.prompt = "Hi";
    question.raw = raw;
    question.most_tokens = 100;
    question.temperature = 50;
    question.seed = seed;
    told_.clear();
    return model.answer(question, [&](std::string_view text) {
      told_ += text;
      return true;
    });
  }

  fs::path folder_;
  std::string told_;
};

TEST_F(Thinking, ThoughtsAreNoPartOfTheText) {
  Model model({.model = folder_.string(), .threads = 1});
  size_t answered = 0;
  for (uint64_t seed = 0; seed < 40 && answered == 0; ++seed) {
    const Answer answer = ask(model, seed);
    EXPECT_EQ(told_, answer.text);
    EXPECT_EQ((answer.text + answer.thought).find("think>"), std::string::npos);
    answered += !answer.text.empty() && !answer.thought.empty();
  }
  EXPECT_GT(answered, 0u) << "no thought came to an end";
}

TEST_F(Thinking, ARawPromptIsContinuedAsItIs) {
  Model model({.model = folder_.string(), .threads = 1});
  const Answer answer = ask(model, 1, true);
  EXPECT_EQ(answer.thought, "");
  EXPECT_FALSE(answer.text.empty());
  EXPECT_EQ(told_, answer.text);
}

// Also where the model has no template and its vocabulary begins each text with a space of its own.
TEST(Library, WithoutATemplateTheAnswerKeepsItsFirstSpace) {
  const fs::path folder = fs::path(testing::TempDir()) / "no_template_model";
  fs::remove_all(folder);
  fs::copy(fs::path(TYTO_SOURCE_DIR) / "tests/golden/data/llama2/model", folder,
           fs::copy_options::recursive);
  std::string config = read(folder / "tokenizer_config.json");
  const std::string key = "\"chat_template\"";
  config.replace(config.find(key), key.size(), "\"another\"");
  std::ofstream(folder / "tokenizer_config.json") << config;
  Model model({.model = folder.string(), .threads = 1});
  Question question;
  question.prompt = "Once upon a";
  question.most_tokens = 3;
  question.temperature = 50;
  size_t spaces = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    question.seed = seed;
    question.raw = true;
    const std::string raw = model.answer(question).text;
    question.raw = false;
    EXPECT_EQ(model.answer(question).text, raw) << seed;
    spaces += raw.starts_with(' ');
  }
  EXPECT_GT(spaces, 0u);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tyto::library
