#include "cli/inspect_survey.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/spelling.h"
#include "base/utf8.h"
#include "model/description.h"
#include "report/tables.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct SurveyedTotal {
  uint64_t tensors = 0, bytes = 0;
};

std::map<std::string, SurveyedTotal> totals_by_type(const ModelSurvey& survey) {
  std::map<std::string, SurveyedTotal> totals;
  for (const SurveyedTensor& tensor : survey.tensors) {
    SurveyedTotal& total = totals[tensor.type];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

std::string shape_text(const SurveyedTensor& tensor) {
  return joined(tensor.shape, " x ", [](uint64_t extent) { return fmt::format("{}", extent); });
}

ordered_json as_json(const ModelSurvey& survey, bool with_tensors) {
  ordered_json json = {{"path", survey.path.string()},
                       {"runs", false},
                       {"missing", survey.missing},
                       {"format", survey.format},
                       {"architecture", survey.architecture}};
  for (const auto& [key, value] : survey.metadata) json["metadata"][key] = value;
  for (const auto& [type, total] : totals_by_type(survey))
    json["types"][type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  if (with_tensors)
    for (const SurveyedTensor& tensor : survey.tensors)
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", tensor.type},
                                 {"shape", tensor.shape},
                                 {"bytes", tensor.bytes}});
  return json;
}

Table facts_table(const ModelSurvey& survey) {
  Table table{.id = "model", .title = "", .columns = {{"", false}, {"", false}}};
  const auto row = [&](const std::string& label, const std::string& value) {
    table.rows.push_back({{printable_line(label), printable_line(value)}});
  };
  row("model", survey.path.string());
  row("format", survey.format);
  row("architecture", survey.architecture.empty() ? "not said" : survey.architecture);
  row("runs", "no");
  for (const std::string& missing : survey.missing) row("  missing", missing);
  for (const auto& [type, total] : totals_by_type(survey))
    row("  " + type,
        fmt::format("{} in {}", human_bytes(total.bytes), counted(total.tensors, "tensor")));
  for (const auto& [key, value] : survey.metadata) row(key, value);
  return table;
}

Table tensor_table(const ModelSurvey& survey) {
  Table table{.id = "tensors",
              .title = "",
              .columns = {{"tensor", false}, {"type", false}, {"shape", false}, {"size", true, 1}}};
  for (const SurveyedTensor& tensor : survey.tensors)
    table.rows.push_back({{printable_name(tensor.name), printable_name(tensor.type),
                           shape_text(tensor), human_bytes(tensor.bytes)}});
  return table;
}

}  // namespace

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
      put_json(output.json, as_json(*survey, output.tensors)
                                    .dump(2, ' ', false, ordered_json::error_handler_t::replace) +
                                "\n"))
    return;
  print_coloured(to_text(facts_table(*survey), stdout_style()));
  if (output.tensors) print_coloured("\n" + to_text(tensor_table(*survey), stdout_style()));
}

}  // namespace tyto
