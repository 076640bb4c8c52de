#include <fmt/format.h>

#include <algorithm>

#include "base/json_value.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "model/stores/local_models.h"
#include "plan/models_here.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct ModelsFlags {
  std::vector<std::string> folders;
  JsonFlag json;
  bool names = false;
  bool paths = false;
};

constexpr size_t kMostRemarks = 5;

void note_remarks(const std::vector<std::string>& remarks) {
  for (size_t i = 0; i < std::min(remarks.size(), kMostRemarks); ++i) note("note: " + remarks[i]);
  if (remarks.size() > kMostRemarks)
    note(fmt::format("note: {} more that could not be looked at", remarks.size() - kMostRemarks));
}

// For shells: what has a line break or is no text cannot be typed, and is left out.
std::string lines_of(const std::vector<LocalModel>& models, const auto& text_of) {
  std::string lines;
  for (const LocalModel& model : models)
    if (const std::string text = text_of(model);
        model.why_not.empty() && printable_line(text) == text)
      lines += text + "\n";
  return lines;
}

// First the names that people type, then those with a store that are longer.
void print_names(const std::vector<LocalModel>& models) {
  const ModelNames names(models);
  const auto short_name = [&](const LocalModel& model) { return names.shortest(model); };
  std::vector<LocalModel> others = models;
  std::erase_if(others, [&](const LocalModel& model) { return short_name(model) == model.name; });
  print(lines_of(models, short_name) +
        lines_of(others, [](const LocalModel& model) { return model.name; }));
}

JsonValue as_json(const ModelHere& here, const MachineHere& machine) {
  const auto& described = here.description;
  JsonValue json = {{"name", here.model.name},
                    {"short_name", here.shown},
                    {"store", here.model.store},
                    {"path", here.model.path.string()},
                    {"bytes", here.model.bytes},
                    {"family", nullptr},
                    {"size", nullptr},
                    {"type", nullptr},
                    {"context", nullptr},
                    {"weight_bytes", nullptr},
                    {"is_model", here.is_model},
                    {"runs", here.runs()},
                    {"where", where_it_runs(here, machine)},
                    {"reason", here.reason},
                    {"hint", here.hint}};
  if (described) {
    json["family"] = described->config.architecture;
    json["size"] = described->size;
    json["type"] = described->type;
    json["context"] = described->config.context;
    json["weight_bytes"] = described->weight_bytes;
  }
  return json;
}

// "2 models on this machine; 1 more is damaged, incomplete or no model".
std::string title_of(const std::vector<ModelHere>& all) {
  const auto models =
      std::count_if(all.begin(), all.end(), [](const ModelHere& each) { return each.is_model; });
  const auto others = static_cast<ptrdiff_t>(all.size()) - models;
  const std::string rest =
      others == 0 ? "-m takes the names"
                  : fmt::format("{} more {} damaged, incomplete or not {}", others,
                                others == 1 ? "is" : "are", others == 1 ? "a model" : "models");
  return fmt::format("{} model{} on this machine; {}", models, models == 1 ? "" : "s", rest);
}

// The table shows the weights, as inspect does: a folder holds more than these.
uint64_t shown_bytes(const ModelHere& here) {
  return here.description ? here.description->weight_bytes : here.model.bytes;
}

Table as_table(const std::vector<ModelHere>& models, const MachineHere& machine) {
  Table table{.id = "models", .title = title_of(models)};
  table.columns = {{"name", false, 0}, {"family", false, 3}, {"type", false, 1},
                   {"size", true, 2},  {"context", true, 4}, {"runs here", false, 0},
                   {"store", false, 5}};
  for (const ModelHere& here : models) {
    const auto& described = here.description;
    const std::string family =
        described ? fmt::format("{} {}", described->config.architecture, described->size) : "-";
    table.rows.push_back(
        {{here.shown, family, described ? described->type : "-", human_bytes(shown_bytes(here)),
          described ? std::to_string(described->config.context) : "-", where_it_runs(here, machine),
          here.model.store}});
  }
  if (std::any_of(models.begin(), models.end(), [](const ModelHere& each) { return !each.runs(); }))
    table.notes.emplace_back("`tyto inspect NAME` says why one does not run, and what to do.");
  const bool is_shipped_alone = models.size() == 1 && models.front().model.store == "Tyto";
  if (is_shipped_alone) table.notes.emplace_back("`tyto pull` lists models that fit this machine.");
  if (machine.why_no_npu)
    table.notes.push_back(
        fmt::format("npu: {}; `tyto doctor` says more.", printable_line(*machine.why_no_npu)));
  return table;
}

void list_models(const ModelsFlags& flags) {
  const Listing listing = local_models({flags.folders.begin(), flags.folders.end()});
  if (flags.names) return print_names(listing.models);
  if (flags.paths)
    return print(lines_of(listing.models, [](auto& model) { return model.path.string(); }));
  const MachineHere machine = machine_here();
  const std::vector<ModelHere> models = models_here(listing, machine, progress_bar());
  note_remarks(listing.remarks);
  if (flags.json.is_given()) {
    JsonValue json = JsonValue::array();
    for (const ModelHere& here : models) json.push_back(as_json(here, machine));
    const std::string text = json.dump(2);
    if (put_json(flags.json, text + "\n")) return;
  }
  if (models.empty())
    return print("No models on this machine. `tyto pull` lists some that fit it.\n");
  print_coloured(to_text(as_table(models, machine), stdout_style()));
}

}  // namespace

void define_models(CommandLine& command) {
  ModelsFlags& flags = command.values<ModelsFlags>();
  command.add({
      {"--in", &flags.folders, "DIR", "look for models below this folder, too; repeatable",
       Rules{.is_folder = true}},
      {"--names", &flags.names, "print only names; opens no model, so it is fast",
       Rules{.excludes = {"--paths"}}},
      {"--paths", &flags.paths, "print only paths; opens no model, so it is fast"},
  });
  add_json_flag(command, flags.json);
  command.flag("--json").rules.excludes = {"--names", "--paths"};
  command.footer =
      "Looks into the Hugging Face cache, llama.cpp's cache, Ollama's store and LM Studio's "
      "folder. A model runs here if Tyto can read it and its weights fit into memory.\n\n"
      "Examples:\n  tyto models\n  tyto models --in .";
  command.run = [&flags] { list_models(flags); };
}

}  // namespace tyto
