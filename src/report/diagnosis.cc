#include "report/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/counted.h"
#include "base/joined.h"
#include "report/diagnosis_parts.h"

namespace tyto {
namespace {

constexpr std::array<std::string_view, 24> kOrder = {"attn_norm",  "q",
                                                     "k",          "v",
                                                     "q_norm",     "k_norm",
                                                     "q_rope",     "k_rope",
                                                     "q_scale",    "k_cache",
                                                     "v_cache",    "attention",
                                                     "o",          "attn_post_norm",
                                                     "attn_scale", "attn_residual",
                                                     "ffn_norm",   "gate",
                                                     "up",         "swiglu",
                                                     "down",       "ffn_post_norm",
                                                     "ffn_scale",  "ffn_residual"};

constexpr std::array<Phase, 2> kPhases = {Phase::prefill, Phase::decode};

std::string rows_text(const Diagnosis& diagnosis, Phase phase) {
  return phase == Phase::prefill ? "prefill of " + counted(diagnosis.prompt_tokens, "token")
                                 : counted(diagnosis.decode_tokens, "decoded token");
}

Table matrix_table(const Diagnosis& diagnosis, Phase phase) {
  Table table{.id = fmt::format("layers-{}", tyto::name(phase)),
              .title = fmt::format("1 - cosine by layer and step, {}", rows_text(diagnosis, phase)),
              .columns = {{"layer"}}};
  const std::vector<std::string> steps = visible_steps(diagnosis, phase);
  for (const std::string& step : steps) table.columns.push_back({step, true, 2});
  for (int32_t layer = 0; layer < static_cast<int32_t>(diagnosis.layers); ++layer) {
    TableRow row{{std::to_string(layer)}};
    for (size_t i = 0; i < steps.size(); ++i) {
      const StepError* found = find_step(diagnosis, phase, layer, steps[i]);
      row.cells.push_back(found == nullptr ? "" : distance_text(*found));
      if (found != nullptr && is_past(*found, diagnosis.tolerance)) {
        row.cells.back() += "!";
        row.style = RowStyle::alarm;
        table.columns[i + 1].rank = 1;  // what is past the tolerance is the last to be left out
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Of each step the layer where it is farthest off.
Table worst_table(const Diagnosis& diagnosis, Phase phase) {
  Table table{
      .id = fmt::format("worst-{}", tyto::name(phase)),
      .title = fmt::format("Each step where it is farthest off, {}", rows_text(diagnosis, phase)),
      .columns = {{"step", false},
                  {"layer"},
                  {"cosine"},
                  {"worst row", true, 2},
                  {"max abs error", true, 1},
                  {"of at most", true, 3},
                  {"NMSE", true, 2},
                  {"seen behind", false, 4}}};
  std::vector<const StepError*> worst;
  for (const StepError& step : diagnosis.steps) {
    if (step.phase != phase) continue;
    const auto found = std::find_if(worst.begin(), worst.end(), [&](const StepError* other) {
      return other->step == step.step && (other->layer < 0) == (step.layer < 0);
    });
    if (found == worst.end())
      worst.push_back(&step);
    else if (!(step.cosine >= (*found)->cosine) || !step.finite)
      *found = &step;
  }
  for (const StepError* step : worst)
    table.rows.push_back(
        {{step->step, step->layer < 0 ? "-" : std::to_string(step->layer),
          fmt::format("{:.7f}", step->cosine), fmt::format("{:.7f}", step->worst_row_cosine),
          fmt::format("{:.3g}", step->max_abs_error),
          fmt::format("{:.3g}", step->max_abs_reference), fmt::format("{:.2e}", step->nmse),
          fmt::format("{} on {}", step->dispatch, step->device)},
         is_past(*step, diagnosis.tolerance) ? RowStyle::alarm : RowStyle::plain});
  return table;
}

Table residual_table(const Diagnosis& diagnosis) {
  Table table{.id = "residual",
              .title = "Residual stream behind each layer, cosine",
              .columns = {{"layer"}, {"prefill"}, {"decode"}}};
  const auto text = [](const std::optional<double>& cosine) {
    return cosine ? fmt::format("{:.7f}", *cosine) : std::string("hidden");
  };
  const auto prefill = residual_cosines(diagnosis, Phase::prefill);
  const auto decode = residual_cosines(diagnosis, Phase::decode);
  for (size_t layer = 0; layer < prefill.size(); ++layer) {
    const auto is_bad = [&](const std::optional<double>& cosine) {
      return cosine && !(*cosine >= diagnosis.tolerance);
    };
    table.rows.push_back(
        {{std::to_string(layer), text(prefill[layer]), text(decode[layer])},
         is_bad(prefill[layer]) || is_bad(decode[layer]) ? RowStyle::alarm : RowStyle::plain});
  }
  return table;
}

Table hidden_table(const Diagnosis& diagnosis) {
  Table table{
      .id = "hidden",
      .title = "Hidden inside a dispatch: computed, but nothing of it left to compare",
      .columns = {{"phase", false, 2}, {"dispatch", false}, {"times", true, 1}, {"steps", false}}};
  for (const HiddenSteps& hidden : diagnosis.hidden)
    table.rows.push_back({{std::string(tyto::name(hidden.phase)),
                           fmt::format("{} on {}", hidden.dispatch, hidden.device),
                           std::to_string(hidden.dispatches), joined(hidden.steps)}});
  if (table.rows.empty()) table.notes.push_back("Nothing: every step could be seen.");
  if (!diagnosis.uncompared.empty())
    table.notes.push_back("Seen, but the reference has no such step: " +
                          joined(diagnosis.uncompared));
  return table;
}

}  // namespace

bool is_past(const StepError& step, double tolerance) {
  return !step.finite || !(step.cosine >= tolerance);
}

const StepError* first_past(const Diagnosis& diagnosis) {
  for (const StepError& step : diagnosis.steps)
    if (is_past(step, diagnosis.tolerance)) return &step;
  return nullptr;
}

std::string name(const StepError& step) {
  return fmt::format("{}{} in {}", step.layer < 0 ? "" : fmt::format("L{:02}.", step.layer),
                     step.step, name(step.phase));
}

std::vector<std::optional<double>> residual_cosines(const Diagnosis& diagnosis, Phase phase) {
  std::vector<std::optional<double>> result(diagnosis.layers);
  for (size_t layer = 0; layer < result.size(); ++layer)
    if (const StepError* step =
            find_step(diagnosis, phase, static_cast<int32_t>(layer), "ffn_residual"))
      result[layer] = step->cosine;
  return result;
}

std::vector<std::string> visible_steps(const Diagnosis& diagnosis, std::optional<Phase> phase) {
  std::vector<std::string> result;
  for (const std::string_view step : kOrder)
    for (const StepError& seen : diagnosis.steps)
      if ((!phase || seen.phase == *phase) && seen.layer >= 0 && seen.step == step) {
        result.emplace_back(step);
        break;
      }
  return result;
}

const StepError* find_step(const Diagnosis& diagnosis, Phase phase, int32_t layer,
                           const std::string& step) {
  for (const StepError& candidate : diagnosis.steps)
    if (candidate.phase == phase && candidate.layer == layer && candidate.step == step)
      return &candidate;
  return nullptr;
}

std::string distance_text(const StepError& step) {
  if (!step.finite) return "not finite";
  const double distance = 1 - step.cosine;
  return distance < 1e-12 ? "0" : fmt::format("{:.0e}", distance);
}

std::string diagnosis_verdict(const Diagnosis& diagnosis) {
  std::string line;
  if (!diagnosis.problem.empty()) line = diagnosis.problem + "; ";
  const StepError* first = first_past(diagnosis);
  if (first == nullptr)
    return line + fmt::format("all {} visible results are within tolerance, cosine >= {}",
                              diagnosis.steps.size(), diagnosis.tolerance);
  line += fmt::format("first step past tolerance: {}, {}", name(*first),
                      first->finite
                          ? fmt::format("cosine {:.7f} < {}", first->cosine, diagnosis.tolerance)
                          : "not finite");
  const size_t index = static_cast<size_t>(first - diagnosis.steps.data());
  return line + (index == 0 ? std::string("; nothing was seen before it")
                            : fmt::format("; the last good one before it: {}",
                                          name(diagnosis.steps[index - 1])));
}

std::vector<Table> diagnosis_tables(const Diagnosis& diagnosis) {
  std::vector<Table> tables;
  for (const Phase phase : kPhases) {
    const bool has_any = std::any_of(diagnosis.steps.begin(), diagnosis.steps.end(),
                                     [&](const StepError& step) { return step.phase == phase; });
    if (!has_any) continue;
    tables.push_back(matrix_table(diagnosis, phase));
    tables.push_back(worst_table(diagnosis, phase));
  }
  tables.push_back(residual_table(diagnosis));
  tables.push_back(hidden_table(diagnosis));
  return tables;
}

}  // namespace tyto
