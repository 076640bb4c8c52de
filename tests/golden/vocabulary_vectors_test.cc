// Other people's tokenizer vectors: llama.cpp's vocabulary-only GGUFs with their .inp and .out
// files, fetched by tests/scripts/fetch_references.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/file.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"

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

// Without vectors of their own; ours are of the same texts, made by the same release of llama.cpp.
constexpr const char* kOurVectors[] = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"};
constexpr const char* kTheirVectors[] = {"bert-bge",  "command-r", "deepseek-coder", "deepseek-llm",
                                         "falcon",    "gemma-4",   "gpt-2",          "llama-bpe",
                                         "llama-spm", "mpt",       "phi-3",          "qwen2",
                                         "qwen35",    "refact",    "starcoder"};

std::string why_not_fetched() {
  if (std::filesystem::exists(references() / "versions")) return "";
  const auto reason = references() / "unavailable";
  return std::filesystem::exists(reason) ? read_text_file(reason, 1000)
                                         : "reference data was not fetched; run make test";
}

std::filesystem::path vocabulary_file(const std::string& name) {
  return references() / "llama.cpp/models" / ("ggml-vocab-" + name + ".gguf");
}

// What comes back is the text, or where the tokenizer changes texts, one of the same tokens.
void expect_text_back(const Tokenizer& tokenizer, const std::vector<Token>& ids,
                      const std::string& text) {
  const std::string back = tokenizer.decode(ids);
  if (tokenizer.vocabulary().normalizers.empty() ||
      tokenizer.vocabulary().normalizers == std::vector{Normalizer::nfc}) {
    EXPECT_EQ(back, text);
    return;
  }
  const bool lost = std::find(ids.begin(), ids.end(), tokenizer.vocabulary().unknown) != ids.end();
  if (!lost) {
    EXPECT_EQ(tokenizer.encode(back, {.add_bos = false, .add_eos = false}), ids) << text;
  }
}

class VocabularyVectors : public testing::TestWithParam<const char*> {};

TEST_P(VocabularyVectors, AllEqual) {
  if (const std::string reason = why_not_fetched(); !reason.empty()) GTEST_SKIP() << reason;
  const std::string name = GetParam();
  const bool ours = std::ranges::find(kOurVectors, name) != std::end(kOurVectors);
  const auto path = vocabulary_file(name);
  const auto texts_of = ours ? vocabulary_file("qwen2") : path;
  const std::filesystem::path vectors =
      ours ? std::filesystem::path(TYTO_SOURCE_DIR) / "tests/data/vocabularies" / (name + ".out")
           : std::filesystem::path(path.string() + ".out");
  const Model model = open_model(path, Need::vocabulary);
  const Tokenizer tokenizer(*model.vocabulary, path.string());
  auto texts =
      split(read_text_file(texts_of.string() + ".inp", 1 << 20), "\n__ggml_vocab_test__\n");
  auto lines = split(read_text_file(vectors, 1 << 20), "\n");
  if (lines.back().empty()) lines.pop_back();
  if (texts.back().empty()) texts.pop_back();  // the file ends with a separator
  ASSERT_EQ(texts.size(), lines.size());
  ASSERT_GT(texts.size(), 40u);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto ids = tokenizer.encode(texts[i], {.add_bos = false, .add_eos = false});
    EXPECT_EQ(ids, ids_in(lines[i])) << texts[i];
    expect_text_back(tokenizer, ids, texts[i]);
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& name) {
  std::string text = name.param;
  for (char& c : text)
    if (c == '-') c = '_';
  return text;
}

INSTANTIATE_TEST_SUITE_P(LlamaCpp, VocabularyVectors, testing::ValuesIn(kTheirVectors), test_name);
INSTANTIATE_TEST_SUITE_P(LlamaCppOurs, VocabularyVectors, testing::ValuesIn(kOurVectors),
                         test_name);

// A vocabulary that a later release adds is not left out silently.
TEST(LlamaCppVocabularies, AreAllTested) {
  if (const std::string reason = why_not_fetched(); !reason.empty()) GTEST_SKIP() << reason;
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(references() / "llama.cpp/models"))
    found += entry.path().extension() == ".gguf" ? 1 : 0;
  EXPECT_EQ(found, std::size(kTheirVectors) + std::size(kOurVectors));
}

}  // namespace
}  // namespace tyto
