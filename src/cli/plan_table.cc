#include "cli/plan_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_value.h"
#include "base/spelling.h"
#include "device/npu/npu_entry.h"
#include "model/stores/recommended_models.h"
#include "shell/help.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

std::string option_name(const PlanRow& row) {
  return row.kernels + " " + (row.fusion.empty() ? row.weights : row.fusion);
}

// "930 ± 26 %", "~8120"; bounds of an estimated row are marked as such.
std::string with_error(std::string value, double error, const char* mark) {
  value = mark + value;
  return error > 0 ? value + fmt::format(" ± {:.0f} %", error * 100) : value;
}

std::string first_token(const PlanRow& row) {
  const bool is_bound = row.kind == PlanKind::estimated;
  const bool is_reckoned = row.ttft_kind == PlanKind::estimated;
  return with_error(fmt::format("{:.0f}", row.ttft_ms), row.ttft_error_p90,
                    is_bound      ? "≥ "
                    : is_reckoned ? "~"
                                  : "");
}

std::string decode_speed(const PlanRow& row) {
  return with_error(fmt::format("{:.1f}", row.decode_tok_s), row.tpot_error_p90,
                    row.kind == PlanKind::estimated ? "≤ " : "");
}

TableRow table_row(const PlanRow& row) {
  const bool is_cpu = row.fusion.empty();
  const std::string rows = row.prompt_rows == 0 ? "any" : std::to_string(row.prompt_rows);
  return {
      {(row.is_recommended ? "* " : "  ") + option_name(row), std::string(name(row.kind)),
       std::string(name(row.runs)), first_token(row), decode_speed(row),
       human_bytes(row.memory_bytes), row.weights, fmt::format("{:.1f}", row.prefill_tok_s),
       fmt::format("{:.2f}", row.tpot_ms), is_cpu ? "-" : std::to_string(row.dispatches_per_token),
       rows, row.images == 0 ? "-" : "~" + human_bytes(row.heap_bytes),
       row.bottleneck.empty() ? "-" : row.bottleneck},
      row.is_recommended ? RowStyle::best : RowStyle::plain};
}

std::string about_the_machine(const PlanSubject& subject) {
  const std::string& machine = subject.request.machine;
  if (subject.is_elsewhere)
    return fmt::format("The NPU rows are for {}, which is not this machine.", machine);
  if (!subject.here.machine.empty())
    return fmt::format("This machine has an NPU ({}): the NPU rows are for {}.{}",
                       subject.here.found, machine,
                       built_with_xrt() ? "" : " This build of Tyto has no XRT and cannot use it.");
  return fmt::format("{} The NPU rows are for {}; --machine chooses another.",
                     subject.here.found.empty()
                         ? "No NPU was found on this machine."
                         : fmt::format("The NPU of this machine ({}) is not one that is modelled.",
                                       subject.here.found),
                     machine);
}

std::string recommendation(const PlanRow& row, const PlanSubject& subject) {
  const std::string fact = "* recommended, the fastest to decode that is known to work: ";
  if (!subject.is_of_a_shape)
    return fact + fmt::format("tyto run {}{}", subject.model_flag, row.flags);
  const std::vector<std::string> known = recommended_names(subject.request.shape);
  if (known.empty())
    return fact + fmt::format("tyto run -m MODEL {}, with a model of this shape", row.flags);
  return fact + fmt::format("tyto pull {0}, then tyto run -m {0} {1}", known.front(), row.flags);
}

std::string why_not_the_npu(const std::vector<PlanRow>& rows) {
  const bool is_left_out = std::ranges::any_of(
      rows, [](const PlanRow& row) { return !row.has_run_on_hardware && row.runs != Runs::no; });
  return is_left_out ? "No NPU row is recommended: Tyto's NPU code has only run on a simulator so "
                       "far, never on an NPU."
                     : "";
}

// What becomes of the file's weights.
std::string about_the_weights(const PlanRequest& request) {
  if (!request.file) return "";
  const FileWeights& file = *request.file;
  const std::string bf16 = file.type == DType::bf16 ? "as they are"
                           : info(file.type).block_values > 1
                               ? "decoded to bf16, which takes more memory and gains no quality"
                               : "rounded to bf16";
  const std::string q4nx = file.is_q4nx
                               ? "as they are"
                               : "rounded to 4 bits, which costs quality (`tyto verify` tests it)";
  return fmt::format(
      "The file's weights are {} ({}). cpu uses them as they are; air-bf16 uses them {}; air-q4nx "
      "uses them {}; FastFlowLM has its own files.",
      file.type_name, human_bytes(file.bytes), bf16, q4nx);
}

std::string note_of(const PlanRow& row) {
  std::string text = row.needs;
  if (!row.note.empty()) text += (text.empty() ? "" : "; ") + row.note;
  if (row.published_ttft_ms > 0 && row.published_ttft_ms != row.ttft_ms)
    text += fmt::format("{}{:.0f} ms to the first token by MLIR-AIR's host and images of 2048 rows",
                        text.empty() ? "" : "; ", row.published_ttft_ms);
  return text;
}

std::string about_the_estimates(const PlanSubject& subject) {
  const char* host =
      subject.host == "native"
          ? "Tyto's own host"
          : "the host programs of those runs (`--overhead native --prompt-rows 256,512,2048` "
            "assumes "
            "Tyto's own host and images for short prompts, as `tyto profile --device vnpu` does)";
  return with_documents_found(fmt::format(
      "Modelled rows are estimates fitted to published measurements, with {}. ± is the range that "
      "held nine out of ten measurements the model had not seen. heap: estimated use of the NPU's "
      "67 MB heap (537 MB with newer drivers). docs/cost-model.md has the details.",
      host));
}

// What is true of several rows is said once.
std::vector<std::string> notes_of(const std::vector<PlanRow>& rows) {
  std::vector<std::pair<std::string, std::string>> said;  // what, and of which rows
  for (const PlanRow& row : rows) {
    const std::string note = note_of(row);
    if (note.empty()) continue;
    const auto known = std::ranges::find(said, note, &std::pair<std::string, std::string>::first);
    if (known != said.end())
      known->second += ", " + option_name(row);
    else
      said.emplace_back(note, option_name(row));
  }
  std::vector<std::string> notes;
  for (const auto& [note, options] : said) notes.push_back(options + ": " + note);
  return notes;
}

}  // namespace

Table plan_table(const std::vector<PlanRow>& rows, const PlanSubject& subject) {
  const PlanRequest& request = subject.request;
  Table table{.id = "plan",
              .title = fmt::format("{}: prompt {}, context {}, {} host, profile {}", request.shape,
                                   request.prompt_tokens, request.context_tokens, subject.host,
                                   subject.profile),
              .columns = {{"  option", false},
                          {"numbers", false},
                          {"runs today", false},
                          {"1st token ms"},
                          {"tok/s"},
                          {"memory"},
                          {"weights", false, 1},
                          {"prompt tok/s", true, 2},
                          {"ms per token", true, 3},
                          {"dispatches", true, 4},
                          {"prompt rows", true, 5},
                          {"heap", true, 6},
                          {"slowest part", false, 7}}};
  const auto add = [&](const std::string& note) {
    if (!note.empty()) table.notes.push_back(note);
  };
  table.notes.emplace_back("");
  for (const PlanRow& row : rows) {
    table.rows.push_back(table_row(row));
    if (row.is_recommended) add(recommendation(row, subject));
  }
  add(why_not_the_npu(rows));
  add(about_the_machine(subject));
  add(about_the_weights(request));
  for (const std::string& note : notes_of(rows)) add(note);
  const bool is_modelled =
      std::ranges::any_of(rows, [](const PlanRow& row) { return row.kind == PlanKind::modelled; });
  if (is_modelled) add(about_the_estimates(subject));
  return table;
}

std::string plan_json(const std::vector<PlanRow>& rows, const PlanRequest& request) {
  JsonValue json = JsonValue::array();
  const JsonValue file = request.file ? JsonValue(request.file->type_name) : JsonValue(nullptr);
  for (const PlanRow& row : rows)
    json.push_back({{"kind", name(row.kind)},
                    {"recommended", row.is_recommended},
                    {"has_run_on_hardware", row.has_run_on_hardware},
                    {"machine", row.machine},
                    {"shape", row.shape},
                    {"kernels", row.kernels},
                    {"fusion", row.fusion},
                    {"runs", name(row.runs)},
                    {"needs", row.needs},
                    {"flags", row.flags},
                    {"file_type", file},
                    {"weights", row.weights},
                    {"prompt_tokens", row.prompt_tokens},
                    {"context_tokens", row.context_tokens},
                    {"prompt_rows", row.prompt_rows},
                    {"ttft_ms", row.ttft_ms},
                    {"ttft_kind", name(row.ttft_kind)},
                    {"published_ttft_ms", row.published_ttft_ms},
                    {"prefill_tok_s", row.prefill_tok_s},
                    {"tpot_ms", row.tpot_ms},
                    {"decode_tok_s", row.decode_tok_s},
                    {"dispatches_per_token", row.dispatches_per_token},
                    {"memory_bytes", row.memory_bytes},
                    {"pinned_bytes", row.pinned_bytes},
                    {"images", row.images},
                    {"heap_bytes", row.heap_bytes},
                    {"bottleneck", row.bottleneck},
                    {"ttft_error_p90", row.ttft_error_p90},
                    {"tpot_error_p90", row.tpot_error_p90},
                    {"rel_error_p90", row.rel_error_p90},
                    {"note", row.note}});
  return json.dump(2) + "\n";
}

}  // namespace tyto
