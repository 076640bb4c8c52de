#include "model/stores/repo_files.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto {
namespace {

using Names = std::vector<std::string>;

// meta-llama/Llama-3.2-1B-Instruct
const Names kLlama = {".gitattributes",
                      "LICENSE.txt",
                      "README.md",
                      "USE_POLICY.md",
                      "config.json",
                      "generation_config.json",
                      "model.safetensors",
                      "original/consolidated.00.pth",
                      "original/params.json",
                      "original/tokenizer.model",
                      "special_tokens_map.json",
                      "tokenizer.json",
                      "tokenizer_config.json"};

// mistralai/Mistral-7B-Instruct-v0.3
const Names kMistral = {".gitattributes",
                        "README.md",
                        "config.json",
                        "consolidated.safetensors",
                        "generation_config.json",
                        "model-00001-of-00003.safetensors",
                        "model-00002-of-00003.safetensors",
                        "model-00003-of-00003.safetensors",
                        "model.safetensors.index.json",
                        "params.json",
                        "special_tokens_map.json",
                        "tokenizer.json",
                        "tokenizer.model",
                        "tokenizer.model.v3",
                        "tokenizer_config.json"};

// bartowski/Llama-3.2-1B-Instruct-GGUF
const Names kBartowski = {".gitattributes",
                          "Llama-3.2-1B-Instruct-IQ3_M.gguf",
                          "Llama-3.2-1B-Instruct-IQ4_XS.gguf",
                          "Llama-3.2-1B-Instruct-Q3_K_L.gguf",
                          "Llama-3.2-1B-Instruct-Q3_K_XL.gguf",
                          "Llama-3.2-1B-Instruct-Q4_0.gguf",
                          "Llama-3.2-1B-Instruct-Q4_0_4_4.gguf",
                          "Llama-3.2-1B-Instruct-Q4_0_4_8.gguf",
                          "Llama-3.2-1B-Instruct-Q4_0_8_8.gguf",
                          "Llama-3.2-1B-Instruct-Q4_K_L.gguf",
                          "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
                          "Llama-3.2-1B-Instruct-Q4_K_S.gguf",
                          "Llama-3.2-1B-Instruct-Q6_K.gguf",
                          "Llama-3.2-1B-Instruct-Q6_K_L.gguf",
                          "Llama-3.2-1B-Instruct-Q8_0.gguf",
                          "Llama-3.2-1B-Instruct-f16.gguf",
                          "Llama-3.2-1B-Instruct.imatrix",
                          "README.md"};

// A repository as unsloth's are: config.json beside GGUFs, large ones in folders, a projector.
const Names kUnsloth = {".gitattributes",
                        "BF16/Qwen3-30B-A3B-BF16-00001-of-00002.gguf",
                        "BF16/Qwen3-30B-A3B-BF16-00002-of-00002.gguf",
                        "Qwen3-30B-A3B-Q2_K.gguf",
                        "Qwen3-30B-A3B-Q4_K_M.gguf",
                        "Qwen3-30B-A3B-UD-Q2_K_XL.gguf",
                        "Qwen3-30B-A3B-UD-Q4_K_M.gguf",
                        "Qwen3-30B-A3B-UD-Q4_K_XL.gguf",
                        "README.md",
                        "config.json",
                        "imatrix_unsloth.gguf",
                        "mmproj-BF16.gguf",
                        "mmproj-F16.gguf",
                        "mtp-Qwen3-30B-A3B-Q4_0.gguf"};

// martineden/Llama-3.2-1B-Instruct-GGUF: lower case, a dot before the quantisation.
const Names kMartineden = {".gitattributes", "llama-3.2-1b-instruct.Q2_K.gguf",
                           "llama-3.2-1b-instruct.Q3_K_L.gguf", "llama-3.2-1b-instruct.Q5_K_M.gguf",
                           "llama-3.2-1b-instruct.Q8_0.gguf"};

Error refused(const Names& all, const std::string& asked) {
  try {
    files_of_model(all, asked);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was refused";
  return Error(ErrorCode::input, "", "");
}

TEST(RepoFiles, checkpoint_is_what_readers_need) {
  EXPECT_EQ(files_of_model(kLlama, ""),
            (Names{"config.json", "generation_config.json", "model.safetensors",
                   "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(files_of_model(kMistral, ""),
            (Names{"config.json", "generation_config.json", "model-00001-of-00003.safetensors",
                   "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                   "model.safetensors.index.json", "special_tokens_map.json", "tokenizer.json",
                   "tokenizer.model", "tokenizer_config.json"}));
  EXPECT_EQ(files_of_model({"config.json", "model.q4nx", "tokenizer.json", "README.md"}, ""),
            (Names{"config.json", "model.q4nx", "tokenizer.json"}));
  // Both kinds: the checkpoint, unless a quantisation is asked for.
  Names both = kLlama;
  both.emplace_back("Llama-Q4_0.gguf");
  EXPECT_EQ(files_of_model(both, "").size(), 6u);
  EXPECT_EQ(files_of_model(both, "q4_0"), Names{"Llama-Q4_0.gguf"});
}

TEST(RepoFiles, a_part_that_is_missing_is_said) {
  Names all = kMistral;
  std::erase(all, "model-00002-of-00003.safetensors");
  EXPECT_NE(std::string(refused(all, "").what()).find("part 2 of 3 is not there"),
            std::string::npos);
  all = kUnsloth;
  std::erase(all, "BF16/Qwen3-30B-A3B-BF16-00001-of-00002.gguf");
  const Error error = refused(all, "BF16");
  EXPECT_EQ(error.code, ErrorCode::input);
  EXPECT_NE(std::string(error.what()).find("part 1 of 2 is not there"), std::string::npos);
}

TEST(RepoFiles, without_a_quantisation_the_usual_one) {
  EXPECT_EQ(files_of_model(kBartowski, ""), Names{"Llama-3.2-1B-Instruct-Q4_K_M.gguf"});
  EXPECT_EQ(files_of_model(kUnsloth, ""), Names{"Qwen3-30B-A3B-Q4_K_M.gguf"});
  EXPECT_EQ(files_of_model(kMartineden, ""), Names{"llama-3.2-1b-instruct.Q8_0.gguf"});
  EXPECT_EQ(files_of_model({"a.gguf", "mmproj-a.gguf"}, ""), Names{"a.gguf"});
  const Error several = refused({"a-Q2_K.gguf", "a-Q3_K_S.gguf"}, "");
  EXPECT_EQ(several.code, ErrorCode::usage);
  EXPECT_NE(several.hint.find("Q2_K, Q3_K_S"), std::string::npos) << several.hint;
  EXPECT_EQ(refused({"README.md", "pytorch_model.bin", "config.json"}, "").code, ErrorCode::usage);
  EXPECT_EQ(refused({}, "").code, ErrorCode::usage);
}

TEST(RepoFiles, quantisations_are_whole_parts_of_names) {
  EXPECT_EQ(files_of_model(kBartowski, "Q4_0"), Names{"Llama-3.2-1B-Instruct-Q4_0.gguf"});
  EXPECT_EQ(files_of_model(kBartowski, "q6_k"), Names{"Llama-3.2-1B-Instruct-Q6_K.gguf"});
  EXPECT_EQ(files_of_model(kBartowski, "F16"), Names{"Llama-3.2-1B-Instruct-f16.gguf"});
  EXPECT_EQ(files_of_model(kMartineden, "q5_K_m"), Names{"llama-3.2-1b-instruct.Q5_K_M.gguf"});
  EXPECT_EQ(files_of_model({"model_q4_k_m.gguf", "model_q8_0.gguf"}, "Q4_K_M"),
            Names{"model_q4_k_m.gguf"});
  EXPECT_EQ(files_of_model(kUnsloth, "UD-Q4_K_XL"), Names{"Qwen3-30B-A3B-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(files_of_model(kUnsloth, "q4_k_xl"), Names{"Qwen3-30B-A3B-UD-Q4_K_XL.gguf"});
  EXPECT_EQ(files_of_model(kUnsloth, "Q4_K_M"), Names{"Qwen3-30B-A3B-Q4_K_M.gguf"});
  EXPECT_EQ(files_of_model(kUnsloth, "UD-Q4_K_M"), Names{"Qwen3-30B-A3B-UD-Q4_K_M.gguf"});
  const Error none = refused(kBartowski, "Q4_K");
  EXPECT_EQ(none.code, ErrorCode::usage);
  EXPECT_NE(none.hint.find("Q4_K_L, Q4_K_M, Q4_K_S"), std::string::npos) << none.hint;
}

TEST(RepoFiles, split_files_come_whole) {
  const Names parts = {"BF16/Qwen3-30B-A3B-BF16-00001-of-00002.gguf",
                       "BF16/Qwen3-30B-A3B-BF16-00002-of-00002.gguf"};
  EXPECT_EQ(files_of_model(kUnsloth, "bf16"), parts);
  EXPECT_EQ(files_of_model(kUnsloth, parts[1]), parts);
  EXPECT_EQ(files_of_model({"Q4_K_M/m-00002-of-00002.gguf", "Q4_K_M/m-00001-of-00002.gguf",
                            "Q8_0/m-00001-of-00001.gguf"},
                           "Q4_K_M"),
            (Names{"Q4_K_M/m-00001-of-00002.gguf", "Q4_K_M/m-00002-of-00002.gguf"}));
}

TEST(RepoFiles, files_by_name) {
  EXPECT_EQ(files_of_model(kUnsloth, "mmproj-F16.gguf"), Names{"mmproj-F16.gguf"});
  EXPECT_EQ(files_of_model(kLlama, "config.json"), Names{"config.json"});
  EXPECT_EQ(files_of_model(kLlama, "consolidated.00.pth"), Names{"original/consolidated.00.pth"});
  const Error twice = refused({"a/m.gguf", "b/m.gguf"}, "m.gguf");
  EXPECT_NE(twice.hint.find("a/m.gguf, b/m.gguf"), std::string::npos);
  EXPECT_EQ(refused(kUnsloth, "absent.gguf").code, ErrorCode::usage);
}

TEST(RepoFiles, several_models_of_one_quantisation_are_named_by_file) {
  const Names all = {"Qwen3-0.6B-Q4_K_M.gguf", "Qwen3-1.7B-Q4_K_M.gguf"};
  const Error error = refused(all, "Q4_K_M");
  EXPECT_NE(std::string(error.what()).find("2 models have it"), std::string::npos);
  EXPECT_NE(error.hint.find("Qwen3-0.6B-Q4_K_M.gguf, Qwen3-1.7B-Q4_K_M.gguf"), std::string::npos);
}

}  // namespace
}  // namespace tyto
