#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/models_here.h"
#include "cli/terminal.h"
#include "model/stores/local_models.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct ModelsFlags {
  std::vector<std::string> folders;
  bool json = false;
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
void print_lines(const std::vector<LocalModel>& models, const auto& text_of) {
  std::string lines;
  for (const LocalModel& model : models)
    if (const std::string text = text_of(model);
        model.why_not.empty() && printable_line(text) == text)
      lines += text + "\n";
  print(lines);
}

ordered_json as_json(const ModelHere& here, const MachineHere& machine) {
  const auto& described = here.description;
  ordered_json json = {{"name", here.model.name},
                       {"short_name", here.shown},
                       {"store", here.model.store},
                       {"path", here.model.path.string()},
                       {"bytes", here.model.bytes},
                       {"family", nullptr},
                       {"type", nullptr},
                       {"context", nullptr},
                       {"weight_bytes", nullptr},
                       {"runs", here.runs()},
                       {"where", where_it_runs(here, machine)},
                       {"reason", here.reason},
                       {"hint", here.hint}};
  if (described) {
    json["family"] = described->config.architecture;
    json["type"] = described->type;
    json["context"] = described->config.context;
    json["weight_bytes"] = described->weight_bytes;
  }
  return json;
}

Table as_table(const std::vector<ModelHere>& models, const MachineHere& machine) {
  Table table{.id = "models",
              .title = fmt::format("{} model{} on this machine; -m takes the names", models.size(),
                                   models.size() == 1 ? "" : "s")};
  table.columns = {{"name", false, 0}, {"family", false, 3}, {"type", false, 1},
                   {"size", true, 2},  {"context", true, 4}, {"runs here", false, 0},
                   {"store", false, 5}};
  for (const ModelHere& here : models) {
    const auto& described = here.description;
    table.rows.push_back({{here.shown, described ? described->config.architecture : "-",
                           described ? described->type : "-", human_bytes(here.model.bytes),
                           described ? std::to_string(described->config.context) : "-",
                           where_it_runs(here, machine), here.model.store}});
  }
  if (std::any_of(models.begin(), models.end(), [](const ModelHere& each) { return !each.runs(); }))
    table.notes.emplace_back("`tyto inspect -m NAME` says why one does not run, and what to do.");
  if (machine.why_no_npu)
    table.notes.push_back(
        fmt::format("npu: {}; `tyto doctor` says more.", printable_line(*machine.why_no_npu)));
  return table;
}

void list_models(const ModelsFlags& flags) {
  const Listing listing = local_models({flags.folders.begin(), flags.folders.end()});
  if (flags.names) return print_lines(listing.models, [](auto& model) { return model.name; });
  if (flags.paths)
    return print_lines(listing.models, [](auto& model) { return model.path.string(); });
  const MachineHere machine = machine_here();
  const std::vector<ModelHere> models = models_here(listing, machine, progress_bar());
  note_remarks(listing.remarks);
  if (flags.json) {
    ordered_json json = ordered_json::array();
    for (const ModelHere& here : models) json.push_back(as_json(here, machine));
    return print(json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }
  if (models.empty())
    return print("No models on this machine. `tyto pull ORG/REPO` downloads one.\n");
  print_coloured(to_text(as_table(models, machine), stdout_style()));
}

}  // namespace

void define_models(CommandLine& command) {
  ModelsFlags& flags = command.values<ModelsFlags>();
  command.add({
      {"--in", &flags.folders, "DIR", "look below this folder, too; repeatable",
       Rules{.is_folder = true}},
      {"--json", &flags.json, "print JSON, with paths and whole reasons",
       Rules{.excludes = {"--names", "--paths"}}},
      {"--names", &flags.names, "print whole names alone, and open no model",
       Rules{.excludes = {"--paths"}}},
      {"--paths", &flags.paths, "print paths alone, and open no model"},
  });
  command.footer =
      "Looks into the Hugging Face cache, llama.cpp's cache, Ollama's store and LM Studio's "
      "folder.\n"
      "A model runs here where Tyto reads it and its weights fit into the memory.\n\n"
      "Examples:\n  tyto models\n  tyto models --in .";
  command.run = [&flags] { list_models(flags); };
}

}  // namespace tyto
