#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "model/adapters.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "plan/model_facts.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// For a model that Tyto does not run.
struct SurveyOutput {
  bool tensors = false;
  JsonFlag json = {};
};

// Prints what can be read of it and what is missing; `refusal` is why it was not opened. Nothing is
// printed of a file that cannot be surveyed either.
void show_survey(const std::filesystem::path& path, const Error& refusal,
                 const SurveyOutput& output) {
  std::optional<ModelSurvey> survey;
  try {
    survey = survey_model(path);
  } catch (const Error&) {
    return;  // the refusal is all there is to say
  }
  if (survey->missing.empty()) survey->missing.emplace_back(refusal.what());
  if (output.json.is_given() &&
      put_json(output.json, model_json(*survey, output.tensors).dump(2) + "\n"))
    return;
  print_coloured(to_text(facts_table(*survey), stdout_style()));
  if (output.tensors) print_coloured("\n" + to_text(tensor_table(*survey), stdout_style()));
}

struct InspectFlags {
  std::string model;
  std::vector<AdapterChoice> adapters;
  uint32_t context = 0;
  bool tensors = false;
  JsonFlag json;
};

// Only a vocabulary-only file may lack weights, and no folder; any other complaint stands.
Model open_for_inspection(const std::filesystem::path& path) {
  try {
    return open_model(path);
  } catch (const Error&) {
    std::error_code ignored;
    try {
      Model model = open_model(path, Need::vocabulary);
      if (model.tensors.empty() && !std::filesystem::is_directory(path, ignored)) return model;
    } catch (const Error&) {  // then the first complaint says more
    }
    throw;
  }
}

// What can be read of it, before the Error says that it does not run.
Model opened(const InspectFlags& flags) {
  const std::filesystem::path path = find_model(model_or_shipped(flags.model));
  try {
    Model model = open_for_inspection(path);
    add_adapters(flags.adapters, model);
    return model;
  } catch (Error& error) {
    if (error.code == ErrorCode::unsupported)
      show_survey(path, error, {.tensors = flags.tensors, .json = flags.json});
    if (error.hint.empty() && error.code == ErrorCode::input)
      error.hint = "the file is damaged: download it again, or get another one of the model";
    throw;
  }
}

void inspect(const InspectFlags& flags) {
  const Model model = opened(flags);
  const uint64_t positions = flags.context == 0 ? model.config.context : flags.context;
  if (flags.json.is_given() &&
      put_json(flags.json, model_json(model, positions, flags.tensors).dump(2) + "\n"))
    return;
  print_coloured(to_text(facts_table(model, positions), stdout_style()));
  if (flags.tensors) print_coloured("\n" + to_text(tensor_table(model), stdout_style()));
}

}  // namespace

void define_inspect(CommandLine& command) {
  InspectFlags& flags = command.values<InspectFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"-c,--context", &flags.context, "N",
       "count the KV cache for this context length (default: the model's)"},
      adapter_flag(flags.adapters),
      {"--tensors", &flags.tensors, "list every tensor"},
  });
  add_json_flag(command, flags.json);
  command.footer =
      "If Tyto cannot run the model, this shows what can be read and what Tyto lacks; the exit "
      "code "
      "is 1.\n\nExamples:\n  tyto inspect\n  tyto inspect -m model.gguf --tensors";
  command.run = [&flags] { inspect(flags); };
}

}  // namespace tyto
