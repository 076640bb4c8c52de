// Other people's tokenizer vectors: llama.cpp's vocabulary-only GGUFs with their .inp and .out
// files, fetched by tests/scripts/fetch_references.
#include <gtest/gtest.h>

#include <sstream>

#include "base/file.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace tyto {
namespace {

std::filesystem::path references() {
  return TYTO_REFERENCES_DIR;
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos;
       begin = end + separator.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<Token> ids_in(const std::string& line) {
  std::istringstream in(line);
  std::vector<Token> ids;
  for (Token id; in >> id;) ids.push_back(id);
  return ids;
}

class VocabularyVectors : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyVectors, AllEqual) {
  if (!std::filesystem::exists(references() / "versions")) {
    const auto reason = references() / "unavailable";
    GTEST_SKIP() << (std::filesystem::exists(reason)
                         ? read_text_file(reason, 1000)
                         : "reference data was not fetched; run make test");
  }
  const auto path =
      references() / "llama.cpp/models" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
  const Model model = open_model(path, Need::vocabulary);
  const Tokenizer tokenizer(*model.vocabulary, path.string());
  auto texts = split(read_text_file(path.string() + ".inp", 1 << 20), "\n__ggml_vocab_test__\n");
  auto lines = split(read_text_file(path.string() + ".out", 1 << 20), "\n");
  if (lines.back().empty()) lines.pop_back();
  if (texts.back().empty()) texts.pop_back();  // the file ends with a separator
  ASSERT_EQ(texts.size(), lines.size());
  ASSERT_GT(texts.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer.encode(texts[i], {.add_bos = false});
    EXPECT_EQ(ids, ids_in(lines[i])) << texts[i];
    EXPECT_EQ(tokenizer.decode(ids), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(LlamaCpp, VocabularyVectors,
                         testing::Values("llama-bpe", "llama-spm", "gpt-2", "qwen2", "phi-3",
                                         "starcoder", "refact", "mpt", "deepseek-coder", "falcon",
                                         "command-r", "qwen35"),
                         [](const auto& name) {
                           std::string text = name.param;
                           for (char& c : text)
                             if (c == '-') c = '_';
                           return text;
                         });

}  // namespace
}  // namespace tyto
