// What a server knows of a model that it serves: which of its templates does what.
#include "serve/model_text.h"
#include "base/json_value.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "engine/engine.h"
#include "model/convert.h"
#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto {
namespace {

// Conversations with tools and their calls, as two formats write them.
std::string calling(const std::string& open, const std::string& arguments,
                    const std::string& close) {
  return "{{ tools | tojson }}{% for m in messages %}{{ m.content }}"
         "{% for c in m.tool_calls or [] %}" +
         open + R"({"name": "{{ c.function.name }}", ")" + arguments +
         R"(": {{ c.function.arguments | tojson }}})" + close + "{% endfor %}{% endfor %}";
}
const std::string kLlama = calling("", "parameters", "");
const std::string kHermes = calling("<tool_call>", "arguments", "</tool_call>");

class ModelTexts : public testing::Test {
 protected:
  ModelTexts() { synthesize(shape_by_name("tiny"), "bf16", 1, folder()); }
  std::string folder() const { return (scratch_ / "hf").string(); }

  // The same from a checkpoint's folder and from a GGUF.
  void check(const std::map<std::string, std::string>& templates,
             const std::function<void(const ModelText&)>& expect, const std::string& chosen = "") {
    JsonValue config = {{"chat_template", JsonValue::array()}};
    for (const auto& [name, source] : templates)
      config["chat_template"].push_back({{"name", name}, {"template", source}});
    test::write_file(scratch_ / "hf/tokenizer_config.json", config.dump());
    std::filesystem::remove(scratch_ / "hf/chat_template.jinja");
    const std::string gguf = (scratch_ / "m.gguf").string();
    std::filesystem::remove(gguf);
    ThreadPool pool(1);
    quantize_model(open_model(folder()), "bf16", gguf, pool);
    for (const std::string& path : {folder(), gguf}) {
      SCOPED_TRACE(path);
      EngineOptions options;
      options.model = path;
      options.threads = 1;
      Engine engine(options);
      expect(*text_of("m", engine, chosen, {}));
    }
  }

 private:
  const test::Scratch scratch_;
};

TEST_F(ModelTexts, TheTemplateForToolsSaysHowCallsAreWritten) {
  const auto has = [](ToolFormat format) {
    return [format](const ModelText& text) { EXPECT_EQ(text.tool_format, format); };
  };
  check({{"default", kLlama}, {"tool_use", kHermes}}, has(ToolFormat::hermes));
  check({{"default", kHermes}, {"tool_use", kLlama}}, has(ToolFormat::llama3));
  check({{"default", kHermes}, {"rag", kLlama}}, has(ToolFormat::hermes));
  check({{"default", "D"}, {"rag", kLlama}}, has(ToolFormat::none));
  check({{"tool_use", kHermes}}, has(ToolFormat::hermes));
  // One that is chosen is for all conversations.
  check({{"default", kLlama}, {"tool_use", kHermes}, {"rag", "R"}}, has(ToolFormat::none), "rag");
  check({{"default", kHermes}, {"rag", kLlama}}, has(ToolFormat::llama3), "rag");
}

TEST_F(ModelTexts, WithoutADefaultTheTemplatesAreNamed) {
  check({{"rag", "R"}, {"my_own", "M"}}, [](const ModelText& text) {
    EXPECT_EQ(text.chat_template, nullptr);
    EXPECT_EQ(text.tool_template, nullptr);
    EXPECT_EQ(text.why_no_tools, "");
    EXPECT_EQ(text.why_no_chat,
              "has the chat templates my_own, rag, and none that is called default");
  });
  const std::string told =
      "m: has the chat templates my_own, rag, and none that is called default "
      "| choose one: --chat-template my_own";
  check({{"rag", "R"}, {"my_own", "M"}}, [&](const ModelText& text) {
    const auto choose = [&] { choose_chat_template(text.tokenizer->vocabulary(), "", "m"); };
    EXPECT_EQ(test::error_of(choose), told);
  });
  check({{"tool_use", kHermes}}, [](const ModelText& text) {
    EXPECT_EQ(text.chat_template, nullptr);
    EXPECT_NE(text.tool_template, nullptr);
    EXPECT_EQ(text.why_no_chat, "has the chat template tool_use, and none that is called default");
  });
  check(
      {{"rag", "R"}, {"my_own", "M"}},
      [](const ModelText& text) {
        EXPECT_NE(text.chat_template, nullptr);
        EXPECT_EQ(text.why_no_chat, "");
      },
      "my_own");
}

}  // namespace
}  // namespace tyto
