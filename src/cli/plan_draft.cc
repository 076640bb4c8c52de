#include "cli/plan_draft.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/plan_cpu.h"
#include "model/description.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "model/synth.h"
#include "report/tables.h"
#include "shell/command_line.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr double kAcceptances[] = {0.5, 0.6, 0.7, 0.8, 0.9};

// The draft decodes as many positions as the large model.
PlanRequest draft_request(const PlanRequest& request, const PlanDraftFlags& flags) {
  PlanRequest draft = request;
  draft.file.reset();
  if (!flags.shape.empty()) {
    draft.config = shape_by_name(flags.shape);
    draft.shape = draft.config.name;
  } else {
    const Model model = open_model(find_model(flags.model));
    draft.config = model.config;
    draft.file =
        FileWeights{main_weight_type(model), model.weight_bytes(), false, describe(model).type};
    draft.shape = model.config.name.empty() ? flags.model : model.config.name;
  }
  return draft;
}

DraftSpeed draft_speed(const PlanRequest& draft, const PlanDraftFlags& flags, bool may_measure) {
  if (flags.ms) return {draft.shape, *flags.ms, PlanKind::measured, true};
  if (!may_measure)
    throw Error(ErrorCode::usage, "--no-measure", "leaves the draft model's speed unknown",
                "give --draft-ms");
  const PlanRow row = cpu_rows(draft, flags.model).front();
  return {fmt::format("{} {}", draft.shape, row.weights), row.tpot_ms, row.kind};
}

// At best, of an estimated draft.
std::string bounded(const std::string& text, const DraftPlan& plan) {
  return (plan.draft.kind == PlanKind::estimated ? "≤ " : "") + text;
}

TableRow table_row(const DraftRow& row, const DraftPlan& plan) {
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

void add_plan_draft_flags(CommandLine& command, PlanDraftFlags& flags) {
  const std::vector<std::string> drafts = {"--draft", "--draft-shape"};
  command.add(
      "Draft model",
      {{"--draft", &flags.model, "MODEL",
        "estimate the speed-up if MODEL drafts tokens on the CPU for the model on the NPU"},
       {"--draft-shape", &flags.shape, "NAME", "use the shape of a public model as the draft model",
        Rules{.excludes = {"--draft"}}},
       {"--draft-ms", &flags.ms, "MS",
        "milliseconds per token of the draft model on the CPU (default: measured here)",
        Rules{.range = Range{0.001, 60'000}, .needs_one_of = drafts}},
       {"--acceptance", &flags.acceptance, "A",
        "share of drafted tokens that are accepted, as `tyto bench --draft` measures it (default: "
        "a table of 0.5 to 0.9)",
        Rules{.range = Range{0, 1}, .needs_one_of = drafts}}});
}

DraftPlan draft_plan(const PlanRequest& request, const PlanOption& option,
                     const PlanDraftFlags& flags, bool may_measure) {
  const PlanRequest draft = draft_request(request, flags);
  if (draft.config.vocab != request.config.vocab)
    throw Error(ErrorCode::usage, flags.shape.empty() ? "--draft" : "--draft-shape",
                fmt::format("{} has a vocabulary of {}, and {} has one of {}", draft.shape,
                            draft.config.vocab, request.shape, request.config.vocab),
                "a draft model drafts tokens of the same vocabulary");
  check(draft);
  const PlanRow plain = what_if(request, option);
  DraftPlan plan{.draft = draft_speed(draft, flags, may_measure),
                 .kernels = plain.kernels,
                 .fusion = plain.fusion,
                 .has_acceptance = flags.acceptance.has_value()};
  const std::vector<double> acceptances =
      flags.acceptance ? std::vector{*flags.acceptance}
                       : std::vector<double>(std::begin(kAcceptances), std::end(kAcceptances));
  plan.rows = draft_rows(request, option, plan.draft, acceptances);
  return plan;
}

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
    table.rows.push_back(table_row(row, plan));
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
  ordered_json json = ordered_json::array();
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
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tyto
