// Opening models from disk.
#include "model/model.h"

#include <numeric>

#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

namespace fs = std::filesystem;

std::string open_error(const fs::path& path, Need need = Need::weights) {
  return error_of([&] { open_model(path, need); });
}

TEST(OpenModel, FolderAndGgufOfEachArchitecture) {
  for (const char* architecture : {"llama", "mistral", "qwen2", "qwen3", "granite", "olmo2",
                                   "smollm3", "phi3", "gemma2", "gemma3_text", "cohere", "lfm2"}) {
    const Scratch scratch;
    const Config config = small_config(architecture);
    synthesize(config, "f32", 1, scratch / "hf");
    const Model folder = open_model(scratch / "hf");
    EXPECT_EQ(folder.format, "safetensors");
    EXPECT_EQ(folder.config.architecture, architecture);
    EXPECT_EQ(folder.config.qkv_bias, config.qkv_bias);
    EXPECT_EQ(folder.config.qk_norm, config.qk_norm);
    EXPECT_EQ(differences_from_llama(folder.config), differences_from_llama(config));
    EXPECT_EQ(folder.weights.layers.size(), 2u);
    EXPECT_FALSE(folder.config.tied_head);
    EXPECT_NE(folder.weights.head.bytes.data(), folder.weights.embedding.bytes.data());
    ASSERT_TRUE(folder.vocabulary.has_value());
    EXPECT_EQ(folder.vocabulary->pieces.size(), 300u);

    synthesize(config, "f32", 1, scratch / "m.gguf");
    const Model file = open_model(scratch / "m.gguf");
    EXPECT_EQ(file.format, "gguf v3");
    EXPECT_EQ(file.weight_bytes(), folder.weight_bytes());
    for (const Config* read : {&folder.config, &file.config}) {
      EXPECT_EQ(read->embedding_scale, config.embedding_scale) << architecture;
      EXPECT_EQ(read->residual_scale, config.residual_scale) << architecture;
      EXPECT_EQ(read->attention_scale, config.attention_scale) << architecture;
      EXPECT_EQ(read->logit_divisor, config.logit_divisor) << architecture;
      EXPECT_EQ(read->unrotated, config.unrotated) << architecture;
      EXPECT_EQ(read->rope.rotated, config.rope.rotated) << architecture;
      EXPECT_EQ(read->rope.attention_factor, config.rope.attention_factor) << architecture;
      EXPECT_EQ(read->rope.short_divisors, config.rope.short_divisors) << architecture;
      EXPECT_EQ(rope_frequencies(*read), rope_frequencies(config)) << architecture;
      EXPECT_EQ(read->window, config.window) << architecture;
      EXPECT_EQ(read->windowed, config.windowed) << architecture;
      EXPECT_EQ(read->layer_kinds, config.layer_kinds) << architecture;
      EXPECT_EQ(read->conv_taps, config.conv_taps) << architecture;
      EXPECT_EQ(read->score_cap, config.score_cap) << architecture;
      EXPECT_EQ(read->logit_cap, config.logit_cap) << architecture;
      EXPECT_EQ(read->activation, config.activation) << architecture;
    }
    // Whatever a file holds of a norm, it comes out as what multiplies.
    for (const Model* read : {&folder, &file}) {
      const std::vector<float> norm = values_of(read->weights.final_norm);
      EXPECT_NEAR(std::accumulate(norm.begin(), norm.end(), 0.0) / 64, 1.0, 0.1) << architecture;
    }
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

// Puts `to` for `from` into the header of a safetensors file, and `metadata` in front of it.
void rewrite_header(const fs::path& path, const std::string& from, const std::string& to,
                    const std::string& metadata = R"("format":"pt")") {
  const std::string text = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  std::string header = text.substr(8, length);
  const std::string data = text.substr(8 + length), old = R"("format":"pt")";
  if (const size_t at = header.find(from + '"'); at != std::string::npos)
    header.replace(at, from.size(), to);
  header.replace(header.find(old), old.size(), metadata);
  while (header.size() % 8 != 0) header += ' ';
  length = header.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}

// Which of the two matrices a file holds is its writer's choice.
TEST(OpenModel, TiedMatricesUnderEitherName) {
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  const Scratch scratch;
  Config config = small_config();
  config.tied_head = true;
  synthesize(config, "f32", 1, scratch / "hf");
  const std::vector<float> values = values_of(open_model(scratch / "hf").weights.embedding);
  const std::string saved = read_file(scratch / "hf/model.safetensors");
  const std::string tied = read_file(scratch / "hf/config.json");
  std::string untied = tied;
  untied.replace(untied.find(R"("tie_word_embeddings": true)"), 27,
                 R"("tie_word_embeddings": false)");
  const fs::path file = scratch / "hf/model.safetensors";

  rewrite_header(file, embedding, head);
  Model model = open_model(scratch / "hf");
  EXPECT_EQ(values_of(model.weights.embedding), values);
  EXPECT_EQ(model.weights.head.bytes.data(), model.weights.embedding.bytes.data());
  EXPECT_EQ(model.parameters() * 4, model.weight_bytes());
  write_file(scratch / "hf/config.json", untied);
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), "tensor " + embedding + " is missing");

  // As the format's own library says it; then even an untied config has both.
  write_file(file, saved);
  const std::string alias = R"("format":"pt","model.embed_tokens.weight":"lm_head.weight")";
  rewrite_header(file, embedding, head, alias);
  model = open_model(scratch / "hf");
  EXPECT_FALSE(model.config.tied_head);
  EXPECT_EQ(values_of(model.weights.embedding), values);
  EXPECT_EQ(values_of(model.weights.head), values);
  write_file(file, saved);
  rewrite_header(file, "nothing", "nothing",
                 R"("format":"pt","lm_head.weight":")" + embedding + '"');
  EXPECT_EQ(values_of(open_model(scratch / "hf").weights.head), values);

  // In shards, whose index may have both names.
  write_file(scratch / "hf/config.json", tied);
  write_file(file, saved);
  rewrite_header(file, embedding, head, alias);
  fs::rename(file, scratch / "hf/model-00001-of-00001.safetensors");
  EXPECT_EQ(values_of(open_model(scratch / "hf").weights.embedding), values);
  write_file(scratch / "hf/model.safetensors.index.json",
             R"({"weight_map":{"lm_head.weight":"model-00001-of-00001.safetensors",)"
             R"("model.embed_tokens.weight":"model-00001-of-00001.safetensors"}})");
  EXPECT_EQ(values_of(open_model(scratch / "hf").weights.embedding), values);
}

TEST(OpenModel, GitLfsPointers) {
  const Scratch scratch;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0f\nsize 123456\n";
  const std::string told = "is a git-LFS pointer, not the file itself | run `git lfs pull`";
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  for (const char* name : {"model.safetensors", "tokenizer.json", "config.json"}) {
    const std::string saved = read_file(scratch / "hf" / name);
    write_file(scratch / "hf" / name, pointer);
    EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), name + std::string(": ") + told);
    write_file(scratch / "hf" / name, saved);
  }
  write_file(scratch / "hf/generation_config.json", pointer);
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), "generation_config.json: " + told);
  std::filesystem::remove(scratch / "hf/generation_config.json");
  std::filesystem::remove(scratch / "hf/model.safetensors");
  write_file(scratch / "hf/model.safetensors.index.json", pointer);
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "hf"), "index.json: " + told);
  write_file(scratch / "m.gguf", pointer);
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "m.gguf"), "m.gguf: " + told);
}

TEST(OpenModel, TemplatesInFilesOfTheirOwn) {
  const Scratch scratch;
  synthesize(small_config(), "bf16", 1, scratch / "hf");
  const std::string own = open_model(scratch / "hf").vocabulary->chat_template;
  write_file(scratch / "hf/additional_chat_templates/tool_use.jinja", "T");
  write_file(scratch / "hf/additional_chat_templates/notes.txt", "N");
  Vocabulary vocabulary = *open_model(scratch / "hf").vocabulary;
  EXPECT_EQ(chat_template_for(vocabulary, true), "T");
  EXPECT_EQ(chat_template_for(vocabulary, false), own);
  EXPECT_EQ(vocabulary.more_templates.size(), 1u);
  write_file(
      scratch / "hf/tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"D"},{"name":"rag","template":"R"}]})");
  vocabulary = *open_model(scratch / "hf").vocabulary;
  EXPECT_EQ(vocabulary.chat_template, "D");
  EXPECT_EQ(vocabulary.more_templates.size(), 2u);
  write_file(scratch / "hf/chat_template.jinja", "J");
  vocabulary = *open_model(scratch / "hf").vocabulary;
  EXPECT_EQ(vocabulary.chat_template, "J");
  EXPECT_EQ(vocabulary.more_templates.size(), 1u);
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
  fs::remove(scratch / "b.gguf");
  write_file(scratch / "config.json", "{}");  // as some repositories of GGUFs have it
  write_file(scratch / "mmproj-f16.gguf", "");
  EXPECT_EQ(open_model(scratch.path()).format, "gguf v3");
}

TEST(OpenModel, ASnapshotIsCalledAsItsRepository) {
  const Scratch scratch;
  const fs::path snapshots = scratch / "models--org--My-Model/snapshots";
  fs::create_directories(snapshots);
  synthesize(small_config(), "bf16", 1, snapshots / "0a1b2c");
  EXPECT_EQ(open_model(snapshots / "0a1b2c").config.name, "My-Model");
  fs::rename(snapshots, scratch / "others");
  EXPECT_EQ(open_model(scratch / "others/0a1b2c").config.name, "0a1b2c");
}

TEST(OpenModel, WhatIsNoModel) {
  const Scratch scratch;
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "none"), "none: no such file or folder");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch.path()), "neither config.json nor a GGUF");
  write_file(scratch / "x.gguf", "hello");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "x.gguf"), "x.gguf: not a GGUF file");
  write_file(scratch / "empty.gguf", "");
  EXPECT_PRED_FORMAT2(contains, open_error(scratch / "empty.gguf"), "the file is empty");
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

}  // namespace
}  // namespace tyto::test
