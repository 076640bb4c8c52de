// What can be read of a model that cannot be run, and what would be needed to run it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tyto {

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

// Of a file or folder that open_model refuses as unsupported. Of what is not even in its format, or
// damaged, an Error.
ModelSurvey survey_model(const std::filesystem::path& path);

}  // namespace tyto
