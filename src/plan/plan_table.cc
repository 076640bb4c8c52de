#include "plan/plan_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "device/npu/npu_entry.h"
#include "model/description.h"
#include "model/model.h"
#include "model/stores/recommended_models.h"
#include "model/stores/stores.h"
#include "model/synth.h"

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
  return fmt::format(
      "Modelled rows are estimates fitted to published measurements, with {}. ± is the range that "
      "held nine out of ten measurements the model had not seen. heap: estimated use of the NPU's "
      "67 MB heap (537 MB with newer drivers). docs/cost-model.md has the details.",
      host);
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

void set_model(PlanRequest& request, const std::string& shape, const std::string& model) {
  request.file.reset();
  if (!shape.empty()) {
    request.config = shape_by_name(shape);
    request.shape = request.config.name;
    return;
  }
  const std::string name = model_or_shipped(model);
  const Model opened = open_model(find_model(name));
  request.config = opened.config;
  request.file = FileWeights{main_weight_type(opened), opened.weight_bytes(),
                             opened.format == "q4nx", describe(opened).type};
  request.shape = opened.config.name.empty() ? name : opened.config.name;
}

// Rows for the machine that the request names.
std::vector<PlanRow> npu_rows(const PlanRequest& request, const WantedRows& wanted,
                              const ImagesHere& images) {
  npu_machine(request.machine);
  std::vector<PlanRow> rows;
  for (const PlanOption& option : plan_options()) {
    if (!wanted.kernels.empty() && kernel_set_by_name(wanted.kernels) != option.kernels) continue;
    if (wanted.fusion && *wanted.fusion != option.fusion) continue;
    rows.push_back(what_if(request, option));
    say_what_runs(rows.back(), option, request.config, images);
  }
  if (rows.empty())
    throw Error(ErrorCode::usage, fmt::format("--fusion {}", name(*wanted.fusion)),
                "does not exist for " + wanted.kernels,
                "air-bf16 runs per op or block, air-q4nx and flm-q4 per token");
  const bool has_images =
      std::ranges::any_of(rows, [](const PlanRow& r) { return r.prompt_rows > 0; });
  if (wanted.names_prompt_rows && !has_images)
    throw Error(ErrorCode::usage, "--prompt-rows",
                "is of no use to kernels without a fixed number of rows",
                "air-bf16 per block and air-q4nx have one");
  return rows;
}

void recommend(std::vector<PlanRow>& rows, std::span<const std::string> machines,
               uint64_t most_pinned) {
  const auto best = best_row(rows, machines, most_pinned);
  if (!best) return;
  rows[*best].is_recommended = true;
  std::rotate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(*best),
              rows.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
}

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

std::string plan_json(const std::string& model) {
  PlanRequest request;
  set_model(request, "", model);
  std::vector<PlanRow> all;
  for (const NpuMachine& machine : npu_machines()) {
    request.machine = machine.name;
    std::vector<PlanRow> rows = npu_rows(request, {}, {});
    recommend(rows, std::vector{request.machine}, UINT64_MAX);
    std::ranges::move(rows, std::back_inserter(all));
  }
  return plan_json(all, request);
}

namespace {

// At best, of an estimated draft.
std::string bounded(const std::string& text, const DraftPlan& plan) {
  return (plan.draft.kind == PlanKind::estimated ? "≤ " : "") + text;
}

TableRow draft_row(const DraftRow& row, const DraftPlan& plan) {
  const bool pays = row.ratio > 1;
  return {{fmt::format("{:.2f}", row.acceptance), std::string(name(row.way)),
           std::to_string(row.guesses), "modelled",
           bounded(fmt::format("{:.1f} ± {:.0f} %", row.decode_tok_s, 100 * row.error_p90), plan),
           bounded(fmt::format("{:.2f} ± {:.0f} %", row.ratio, 100 * row.ratio_error_p90), plan),
           fmt::format("{:.1f}", row.check_ms),
           row.break_even_check_ms > 0 ? fmt::format("{:.1f}", row.break_even_check_ms) : "never",
           fmt::format("{:.2f}", row.tokens_per_round), fmt::format("{:.1f}", row.draft_ms),
           row.image_rows == 0 ? "1" : std::to_string(row.image_rows)},
          pays ? RowStyle::best : RowStyle::plain};
}

std::string about_the_draft(const DraftPlan& plan, const PlanSubject& subject) {
  const DraftSpeed& draft = plan.draft;
  if (draft.is_given)
    return fmt::format("A token of {} takes {:.2f} ms, as given.", draft.name, draft.tpot_ms);
  return fmt::format(
      "A token of {} takes {}{:.2f} ms, {} on the cpu of this machine{}.", draft.name,
      draft.kind == PlanKind::estimated ? "at least " : "", draft.tpot_ms, name(draft.kind),
      subject.is_elsewhere
          ? fmt::format("; {} has another one: --draft-ms takes its speed", subject.request.machine)
          : "");
}

std::string conclusion(const DraftPlan& plan) {
  const DraftRow* best = nullptr;
  for (const DraftRow& row : plan.rows)
    if (best == nullptr || row.ratio > best->ratio) best = &row;
  if (best->ratio <= 1)
    return fmt::format("No row is faster than plain decoding, {:.1f} tok/s.", best->plain_tok_s);
  return fmt::format(
      "The fastest row has {:.2f} times the speed of plain decoding, {:.1f} tok/s.{}", best->ratio,
      best->plain_tok_s,
      best->ratio - best->ratio * best->ratio_error_p90 <= 1 ? " That is within the error." : "");
}

}  // namespace

Table draft_table(const DraftPlan& plan, const PlanSubject& subject) {
  const PlanRequest& request = subject.request;
  Table table{
      .id = "plan-draft",
      .title = fmt::format("{} with {} on {}, drafts of {}: context {}, {} host, profile {}",
                           request.shape, plan.kernels, request.machine, plan.draft.name,
                           request.context_tokens, subject.host, subject.profile),
      .columns = {{"acceptance"},
                  {"checked by", false},
                  {"drafted"},
                  {"numbers", false},
                  {"tok/s"},
                  {"of plain"},
                  {"check ms", true, 1},
                  {"pays below ms", true, 2},
                  {"tokens a round", true, 3},
                  {"draft ms", true, 4},
                  {"rows", true, 5}}};
  for (const DraftRow& row : plan.has_acceptance ? plan.rows : best_drafts(plan.rows))
    table.rows.push_back(draft_row(row, plan));
  table.notes = {
      "", conclusion(plan), about_the_draft(plan, subject),
      "All of this is modelled, not measured. The decode's image takes one row, so it checks "
      "drafted tokens one by one, which gains nothing. The prompt's images compute all their rows, "
      "with "
      "bf16 weights, while the host attends to the cache. \"pays below\": drafting pays with a "
      "kernel that checks the drafted tokens in less time than this."};
  if (!plan.has_acceptance)
    table.notes.emplace_back(
        "Each row drafts the best number of tokens from 1 to 8. How many are accepted depends on "
        "the two models and on the text: `tyto bench --draft` measures it on the cpu, and "
        "--acceptance takes it.");
  return table;
}

std::string draft_json(const DraftPlan& plan, const PlanRequest& request) {
  JsonValue json = JsonValue::array();
  for (const DraftRow& row : plan.rows)
    json.push_back({{"kind", name(PlanKind::modelled)},
                    {"machine", request.machine},
                    {"shape", request.shape},
                    {"kernels", plan.kernels},
                    {"fusion", plan.fusion},
                    {"context_tokens", request.context_tokens},
                    {"draft", plan.draft.name},
                    {"draft_kind", plan.draft.is_given ? "given" : name(plan.draft.kind)},
                    {"draft_tpot_ms", plan.draft.tpot_ms},
                    {"acceptance", row.acceptance},
                    {"acceptance_given", plan.has_acceptance},
                    {"checked_by", name(row.way)},
                    {"image_rows", row.image_rows},
                    {"guesses", row.guesses},
                    {"tokens_per_round", row.tokens_per_round},
                    {"draft_ms", row.draft_ms},
                    {"check_ms", row.check_ms},
                    {"round_ms", row.round_ms},
                    {"break_even_check_ms", row.break_even_check_ms},
                    {"decode_tok_s", row.decode_tok_s},
                    {"plain_tok_s", row.plain_tok_s},
                    {"ratio", row.ratio},
                    {"error_p90", row.error_p90},
                    {"ratio_error_p90", row.ratio_error_p90}});
  return json.dump(2) + "\n";
}

}  // namespace tyto
