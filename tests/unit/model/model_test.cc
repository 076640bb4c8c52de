// Opening models from disk, and finding them by name.
#include "model/model.h"

#include <cstdlib>
#include <optional>

#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

namespace fs = std::filesystem;

std::string open_error(const fs::path& path, Need need = Need::weights) {
  return error_of([&] { open_model(path, need); });
}

TEST(OpenModel, FolderAndGgufOfEachArchitecture) {
  for (const char* architecture : {"llama", "mistral", "qwen2", "qwen3"}) {
    const Scratch scratch;
    const Config config = small_config(architecture);
    synthesize(config, "f32", 1, scratch / "hf");
    const Model folder = open_model(scratch / "hf");
    EXPECT_EQ(folder.format, "safetensors");
    EXPECT_EQ(folder.config.architecture, architecture);
    EXPECT_EQ(folder.config.qkv_bias, config.qkv_bias);
    EXPECT_EQ(folder.config.qk_norm, config.qk_norm);
    EXPECT_EQ(folder.weights.layers.size(), 2u);
    EXPECT_FALSE(folder.config.tied_head);
    EXPECT_NE(folder.weights.head.bytes.data(), folder.weights.embedding.bytes.data());
    ASSERT_TRUE(folder.vocabulary.has_value());
    EXPECT_EQ(folder.vocabulary->pieces.size(), 300u);

    synthesize(config, "f32", 1, scratch / "m.gguf");
    const Model file = open_model(scratch / "m.gguf");
    EXPECT_EQ(file.format, "gguf v3");
    EXPECT_EQ(file.weight_bytes(), folder.weight_bytes());
    EXPECT_EQ(values_of(file.weights.layers[1].down), values_of(folder.weights.layers[1].down));
    ASSERT_TRUE(file.vocabulary.has_value());
    EXPECT_EQ(file.vocabulary->pieces, folder.vocabulary->pieces);
    EXPECT_EQ(file.vocabulary->merges, folder.vocabulary->merges);
    EXPECT_EQ(file.vocabulary->bos, folder.vocabulary->bos);
    EXPECT_EQ(file.vocabulary->eos, folder.vocabulary->eos);
    EXPECT_EQ(file.vocabulary->add_bos, folder.vocabulary->add_bos);
    EXPECT_EQ(file.vocabulary->split_patterns, folder.vocabulary->split_patterns);
  }
}

TEST(OpenModel, ModelsMayMove) {
  const Scratch scratch;
  synthesize(small_config(), "f32", 1, scratch / "m.gguf");
  Model model = open_model(scratch / "m.gguf");
  const std::vector<float> before = values_of(model.weights.embedding);
  const std::vector<Model> moved = [&] {
    std::vector<Model> models;
    models.push_back(std::move(model));
    models.push_back(Model{});
    return models;
  }();
  EXPECT_EQ(values_of(moved[0].weights.embedding), before);
}

TEST(OpenModel, TiedHead) {
  const Scratch scratch;
  Config config = small_config();
  config.tied_head = true;
  synthesize(config, "f32", 1, scratch / "hf");
  Model model = open_model(scratch / "hf");
  EXPECT_TRUE(model.config.tied_head);
  EXPECT_EQ(model.weights.head.bytes.data(), model.weights.embedding.bytes.data());

  const std::string text = read_file(scratch / "hf/config.json");
  const auto with = [&](const std::string& field) {
    const std::string tied = R"("tie_word_embeddings": true)";
    write_file(scratch / "hf/config.json",
               std::string(text).replace(text.find(tied), tied.size(), field));
  };
  // A config that says nothing about it leaves the word to the tensors.
  with(R"("tie_word_embeddings": null)");
  model = open_model(scratch / "hf");
  EXPECT_TRUE(model.config.tied_head);
  EXPECT_EQ(model.weights.head.bytes.data(), model.weights.embedding.bytes.data());
  with(R"("tie_word_embeddings": false)");
  EXPECT_PRED_FORMAT2(
      contains, open_error(scratch / "hf"),
      "config.json: tie_word_embeddings: is false, but the checkpoint has no tensor "
      "lm_head.weight");
}

TEST(OpenModel, CompanionFilesOfACheckpoint) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  write_file(scratch / "hf/generation_config.json",
             R"({"eos_token_id":[1,5],"temperature":0.6,"top_k":50})");
  write_file(scratch / "hf/chat_template.jinja", "{{ messages }}");
  const Model model = open_model(scratch / "hf");
  EXPECT_EQ(model.vocabulary->eos, (std::vector<Token>{1, 5}));
  EXPECT_EQ(model.vocabulary->chat_template, "{{ messages }}");
  EXPECT_EQ(model.defaults.temperature, 0.6f);
  EXPECT_EQ(model.defaults.top_k, 50u);
  EXPECT_FALSE(model.defaults.top_p.has_value());

  write_file(scratch / "hf/generation_config.json", R"({"eos_token_id":300})");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"),
                      "generation_config.json: eos_token_id: 300 is outside 300 tokens");
  fs::remove(scratch / "hf/generation_config.json");

  fs::remove(scratch / "hf/tokenizer.json");
  EXPECT_FALSE(open_model(scratch / "hf").vocabulary.has_value());
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf", Need::vocabulary),
                      "has no tokenizer.json");
}

TEST(OpenModel, VocabularyAloneIsEnoughForTokenising) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  fs::remove(scratch / "hf/model.safetensors");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), "has neither model.safetensors");
  EXPECT_FALSE(open_model(scratch / "hf", Need::vocabulary).has_weights());
  fs::remove(scratch / "hf/config.json");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), "has no config.json");
  EXPECT_TRUE(open_model(scratch / "hf", Need::vocabulary).vocabulary.has_value());
}

TEST(OpenModel, AFolderOfGgufs) {
  const Scratch scratch;
  synthesize(small_config(), "q8_0", 1, scratch / "a.gguf");
  EXPECT_TRUE(open_model(scratch.path()).has_weights());
  fs::copy(scratch / "a.gguf", scratch / "b.gguf");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch.path()),
                      "holds several GGUFs, name one: a.gguf b.gguf");
}

TEST(OpenModel, WhatIsNoModel) {
  const Scratch scratch;
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "none"), "none: no such file or folder");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch.path()), "neither config.json nor a GGUF");
  write_file(scratch / "x.gguf", "hello");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "x.gguf"), "x.gguf: not a GGUF file");
  write_file(scratch / "empty.gguf", "");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "empty.gguf"), "not a GGUF file");
  write_file(scratch / "model.safetensors", "");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "model.safetensors"),
                      "give the folder it is in");
}

TEST(OpenModel, ShapeMismatchNamesBothShapes) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  std::string text = read_file(scratch / "hf/config.json");
  const std::string hidden = R"("intermediate_size": 96)";
  text.replace(text.find(hidden), hidden.size(), R"("intermediate_size": 128)");
  write_file(scratch / "hf/config.json", text);
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"),
                      "tensor model.layers.0.mlp.gate_proj.weight: shape [96, 64], the config asks "
                      "for [128, 64]");
}

// Sets variables for one test and puts back what was there.
class Environment : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      saved_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
    }
    clear();
  }
  static void clear() {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override {
    clear();
    for (size_t i = 0; i < saved_.size(); ++i)
      if (saved_[i]) ::setenv(kNames[i], saved_[i]->c_str(), 1);
  }
  static constexpr const char* kNames[] = {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::optional<std::string>> saved_;
  Scratch scratch_;
};

using FindModel = Environment;

TEST_F(FindModel, PathsThatExistAreTaken) {
  write_file(scratch_ / "m.gguf", "");
  EXPECT_EQ(find_model((scratch_ / "m.gguf").string()), scratch_ / "m.gguf");
  EXPECT_EQ(find_model(scratch_.path().string()), scratch_.path());
}

TEST_F(FindModel, RepositoriesAreFoundInEveryCache) {
  const struct {
    const char* variable;
    std::string value, hub;
  } caches[] = {
      {"HF_HUB_CACHE", (scratch_ / "one").string(), "one"},
      {"HF_HOME", (scratch_ / "two").string(), "two/hub"},
      {"XDG_CACHE_HOME", (scratch_ / "three").string(), "three/huggingface/hub"},
      {"HOME", (scratch_ / "four").string(), "four/.cache/huggingface/hub"},
  };
  for (const auto& cache : caches) {
    clear();
    ::setenv(cache.variable, cache.value.c_str(), 1);
    const fs::path repository = scratch_ / (cache.hub + "/models--org--My.Model-1B");
    EXPECT_NE(error_of([] { find_model("org/My.Model-1B"); }), "no error");
    write_file(repository / "snapshots/abc123/config.json", "{}");
    EXPECT_EQ(find_model("org/My.Model-1B"), repository / "snapshots/abc123");  // the only one
    write_file(repository / "snapshots/def456/config.json", "{}");
    EXPECT_MESSAGE([] { find_model("org/My.Model-1B"); }, "several revisions");
    write_file(repository / "refs/main", "def456\n");
    EXPECT_EQ(find_model("org/My.Model-1B"), repository / "snapshots/def456");
  }
}

TEST_F(FindModel, AbsentRepositoriesSayHowToFetchThem) {
  ::setenv("HF_HUB_CACHE", (scratch_ / "hub").c_str(), 1);
  const std::string error = error_of([] { find_model("meta-llama/Llama-3.2-1B-Instruct"); });
  EXPECT_PRED_FORMAT2(contains, error, "`hf download meta-llama/Llama-3.2-1B-Instruct`");
  EXPECT_PRED_FORMAT2(contains, error, (scratch_ / "hub").string());
  EXPECT_PRED_FORMAT2(contains, error, "huggingface-cli");
}

TEST_F(FindModel, OtherNamesAreJustAbsent) {
  for (const char* name :
       {"model.gguf", "./models/x", "/no/such", "a/b/c", "dir/file.gguf", "../x"})
    EXPECT_EQ(error_of([&] { find_model(name); }), std::string(name) + ": no such file or folder");
  EXPECT_MESSAGE([] { find_model(""); }, "the name is empty");
}

TEST_F(FindModel, RefsCannotLeaveTheCache) {
  ::setenv("HF_HUB_CACHE", scratch_.path().c_str(), 1);
  write_file(scratch_ / "models--a--b/refs/main", "../../x");
  EXPECT_MESSAGE([] { find_model("a/b"); }, "\"../../x\" is not a revision");
  write_file(scratch_ / "models--a--b/refs/main", "gone");
  EXPECT_MESSAGE([] { find_model("a/b"); }, "hf download a/b");
}

}  // namespace
}  // namespace tyto::test
