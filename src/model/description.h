// What a model is called, how large it is and of which type: the one place that says so, for
// tables, receipts and servers. Read from headers alone: no weight is looked at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"
#include "tensor/dtype.h"

namespace tyto {

struct Model;

struct ModelDescription {
  Config config;
  std::string name;           // its own, else its file's or folder's
  std::string size;           // "1.0B", or "30.5B.A3.3B" where a token takes a part of the weights
  std::string type;           // the file's: "q4_k_m", "bf16", "q4nx"; empty: it has no weights
  std::string main_type;      // what most weights have, which decides speed: "q4_k"
  uint64_t weight_bytes = 0;  // in memory
  bool has_tokenizer = false;
};

ModelDescription describe(const Model& model);

// Refuses what open_model refuses, with its words. Of a q4nx bundle the blocks are not looked at,
// whose laying out as rows is most of the work of opening one.
ModelDescription describe_model(const std::filesystem::path& path);

// A number of weights as people write it: "656K", "270M", "1.0B", "405B".
std::string count_text(uint64_t count);

// The name that llama-quantize has for a general.file_type of GGUF; none: there is no such type.
std::optional<std::string_view> file_type_name(uint64_t file_type);

// The file's own type, if it has one, and else that of most weights. A file that says it is
// quantised is not believed where its weights are not, nor the other way round.
std::string weight_type(std::optional<uint64_t> file_type, DType main_type);

// What can be read of a model that cannot be run, and what would be needed to run it.

struct SurveyedTensor {
  std::string name, type;
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

struct ModelSurvey {
  std::filesystem::path path;
  std::string format;
  std::string architecture;                                   // empty: the file does not say
  std::vector<std::pair<std::string, std::string>> metadata;  // long values cut
  std::vector<SurveyedTensor> tensors;
  std::vector<std::string> missing;  // in Tyto, for it to run
};

// Describes a file or folder that open_model refuses as unsupported. What is not even in its
// format, or damaged, is an Error.
ModelSurvey survey_model(const std::filesystem::path& path);

}  // namespace tyto
