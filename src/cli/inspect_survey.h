// `tyto inspect` of a model that Tyto does not run.
#pragma once

#include <filesystem>

#include "base/error.h"
#include "shell/json_flag.h"

namespace tyto {

struct SurveyOutput {
  bool tensors = false;
  JsonFlag json = {};
};

// Prints what can be read of it and what is missing; `refusal` is why it was not opened. Nothing is
// printed of a file that cannot be surveyed either.
void show_survey(const std::filesystem::path& path, const Error& refusal,
                 const SurveyOutput& output);

}  // namespace tyto
