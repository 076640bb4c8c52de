#include "report/diagnosis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "base/json_value.h"
#include "base/spelling.h"
#include "report/html.h"

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

// For each step the layer where it is farthest off.
Table worst_table(const Diagnosis& diagnosis, Phase phase) {
  Table table{.id = fmt::format("worst-{}", tyto::name(phase)),
              .title = fmt::format("The worst layer of each step, {}", rows_text(diagnosis, phase)),
              .columns = {{"step", false},
                          {"layer"},
                          {"cosine"},
                          {"worst row", true, 2},
                          {"max abs error", true, 1},
                          {"largest value", true, 3},
                          {"NMSE", true, 2},
                          {"dispatch", false, 4}}};
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
              .title = "Residual stream after each layer, cosine",
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
      .title = "Not compared: steps inside a dispatch, whose results stay in it",
      .columns = {{"phase", false, 2}, {"dispatch", false}, {"times", true, 1}, {"steps", false}}};
  for (const HiddenSteps& hidden : diagnosis.hidden)
    table.rows.push_back({{std::string(tyto::name(hidden.phase)),
                           fmt::format("{} on {}", hidden.dispatch, hidden.device),
                           std::to_string(hidden.dispatches), joined(hidden.steps)}});
  if (table.rows.empty()) table.notes.push_back("None: every step was compared.");
  if (!diagnosis.uncompared.empty())
    table.notes.push_back("Not compared: steps that the reference does not have: " +
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

// The diagnosis as one page: a map of layers and steps, coloured by how far each is off.

namespace {

// Shades for 1 - cosine, each reaching ten times as far as the one before.
constexpr std::array<const char*, 7> kShades = {"up to 1e-6", "1e-5", "1e-4", "1e-3",
                                                "1e-2",       "1e-1", "more"};

constexpr const char* kMapStyle = R"css(
:root{--h0:#e4f1e6;--h1:#d3eadb;--h2:#e3ebc4;--h3:#f6e7b0;--h4:#f7cf98;--h5:#f0a583;--h6:#e2786c}
@media (prefers-color-scheme:dark){:root{--h0:#17301f;--h1:#1d3d2b;--h2:#36401d;--h3:#4c411a;--h4:#60401b;--h5:#75351f;--h6:#8c2a2a}}
.map{table-layout:fixed;min-width:46rem;font-size:.74rem}.map th{white-space:normal;overflow-wrap:normal;vertical-align:bottom}
.map th,.map td{padding:4px 3px}.map td{text-align:right;border:1px solid var(--card)}
.map td.hidden{background:repeating-linear-gradient(45deg,var(--track) 0 4px,var(--card) 4px 8px)}
.map td.past{outline:2px solid var(--unattributed);outline-offset:-2px;font-weight:700}
.legend i.hidden{background:repeating-linear-gradient(45deg,var(--track) 0 4px,var(--card) 4px 8px)}
.legend i.past{outline:2px solid var(--unattributed);outline-offset:-2px}
.h0{background:var(--h0)}.h1{background:var(--h1)}.h2{background:var(--h2)}.h3{background:var(--h3)}
.h4{background:var(--h4)}.h5{background:var(--h5)}.h6{background:var(--h6)}
)css";

size_t shade(const StepError& step) {
  if (!step.finite) return kShades.size() - 1;
  // As it is shown, with one digit, or 1e-05 would stand in two colours.
  const double shown = std::strtod(distance_text(step).c_str(), nullptr);
  double bound = 1e-6 * (1 + 1e-9);
  for (size_t i = 0; i + 1 < kShades.size(); ++i, bound *= 10)
    if (shown <= bound) return i;
  return kShades.size() - 1;
}

std::string cell(const StepError* step, double tolerance) {
  if (step == nullptr) return "<td class=\"hidden\" title=\"hidden inside a dispatch\"></td>";
  const std::string tooltip = fmt::format(
      "{}: cosine {:.8f}, worst row {:.8f}, max abs error {:.3g} of {:.3g}, NMSE {:.2e}, seen "
      "behind {} on {}",
      name(*step), step->cosine, step->worst_row_cosine, step->max_abs_error,
      step->max_abs_reference, step->nmse, step->dispatch, step->device);
  return fmt::format("<td class=\"h{}{}\" title=\"{}\">{}</td>", shade(*step),
                     is_past(*step, tolerance) ? " past" : "", escaped(tooltip),
                     escaped(distance_text(*step)));
}

// A line may end behind an underscore.
std::string breakable(const std::string& step) {
  std::string out;
  for (const char c : step) out += c == '_' ? std::string("_<wbr>") : std::string(1, c);
  return out;
}

std::string map(const Diagnosis& diagnosis, Phase phase) {
  // Every step that is visible in either phase has its column, so that what is hidden shows.
  const std::vector<std::string> columns = visible_steps(diagnosis, std::nullopt);
  std::string out = "<div class=\"scroll\"><table class=\"map\"><thead><tr><th>layer</th>";
  for (const std::string& column : columns) out += "<th class=\"n\">" + breakable(column) + "</th>";
  out += "</tr></thead><tbody>";
  for (int32_t layer = 0; layer < static_cast<int32_t>(diagnosis.layers); ++layer) {
    out += fmt::format("<tr><td>{}</td>", layer);
    for (const std::string& column : columns)
      out += cell(find_step(diagnosis, phase, layer, column), diagnosis.tolerance);
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

std::string legend() {
  std::string out = "<div class=\"legend\"><span>1 - cosine</span>";
  for (size_t i = 0; i < kShades.size(); ++i)
    out += fmt::format("<span><i class=\"h{}\"></i>{}</span>", i, kShades[i]);
  return out +
         "<span><i class=\"past\"></i>past tolerance</span>"
         "<span><i class=\"hidden\"></i>hidden inside a dispatch</span></div>";
}

std::string map_section(const Diagnosis& diagnosis) {
  std::string out = "<section id=\"map\"><h2>Layers and steps</h2>" + legend();
  out += "<div><h3>prefill of " + counted(diagnosis.prompt_tokens, "token") + "</h3>" +
         map(diagnosis, Phase::prefill) + "</div>";
  if (diagnosis.decode_tokens > 0)
    out += "<div><h3>" + counted(diagnosis.decode_tokens, "decoded token") + "</h3>" +
           map(diagnosis, Phase::decode) + "</div>";
  return out + "</section>";
}

std::string tiles(const Diagnosis& diagnosis) {
  const StepError* first = first_past(diagnosis);
  double lowest = 1;
  for (const StepError& step : diagnosis.steps) lowest = std::min(lowest, step.cosine);
  std::string out = "<div class=\"tiles\">";
  out +=
      tile(first == nullptr ? "none" : name(*first), "first step past tolerance", first != nullptr);
  out += tile(fmt::format("{:.6f}", lowest), "lowest cosine");
  out += tile(fmt::format("{}", diagnosis.tolerance), "tolerance, least cosine");
  out += tile(std::to_string(diagnosis.steps.size()), "results compared");
  return out + "</div>";
}

}  // namespace

std::string diagnosis_html(const Diagnosis& diagnosis) {
  const std::string title = diagnosis.model + " on " + diagnosis.device;
  std::string out = fmt::format(
      "{6}<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{0}: diagnosis</title><style>{1}{2}</style></head><body><header><h1>{0}</h1>"
      "<p class=\"muted\">{3} · {4} · tyto {5}</p></header><main>",
      escaped(title), kStyle, kMapStyle, escaped(diagnosis.settings), escaped(diagnosis.time),
      escaped(diagnosis.version), kDiagnosisPage.beginning);
  out += tiles(diagnosis) + "<p>" + escaped(diagnosis_verdict(diagnosis)) + "</p>";
  out += map_section(diagnosis);
  for (const Table& table : diagnosis_tables(diagnosis))
    if (!table.id.starts_with("layers-")) out += section(table, "");
  out += "<section><h2>What ran</h2><p>" + escaped(diagnosis.executed) +
         "</p><p>Prompt: " + escaped(diagnosis.prompt) + "</p></section>";
  return out + "</main><footer class=\"muted\"><p>Made by <code>" + escaped(diagnosis.command) +
         "</code></p></footer></body></html>\n";
}

namespace {

JsonValue number(double value) {
  return std::isfinite(value) ? JsonValue(value) : JsonValue(nullptr);
}

JsonValue step_json(const StepError& step, double tolerance) {
  return {{"phase", std::string(name(step.phase))},
          {"layer", step.layer < 0 ? JsonValue(nullptr) : JsonValue(step.layer)},
          {"step", step.step},
          {"dispatch", step.dispatch},
          {"device", step.device},
          {"rows", step.rows},
          {"cosine", number(step.cosine)},
          {"worst_row_cosine", number(step.worst_row_cosine)},
          {"max_abs_error", number(step.max_abs_error)},
          {"max_abs_reference", number(step.max_abs_reference)},
          {"nmse", number(step.nmse)},
          {"finite", step.finite},
          {"within", !is_past(step, tolerance)}};
}

JsonValue residual_json(const Diagnosis& diagnosis, Phase phase) {
  JsonValue list = JsonValue::array();
  for (const std::optional<double>& cosine : residual_cosines(diagnosis, phase))
    list.push_back(cosine ? number(*cosine) : JsonValue(nullptr));
  return list;
}

}  // namespace

std::string diagnosis_json(const Diagnosis& diagnosis) {
  JsonValue steps = JsonValue::array(), hidden = JsonValue::array();
  for (const StepError& step : diagnosis.steps)
    steps.push_back(step_json(step, diagnosis.tolerance));
  for (const HiddenSteps& of : diagnosis.hidden)
    hidden.push_back({{"phase", std::string(name(of.phase))},
                      {"dispatch", of.dispatch},
                      {"device", of.device},
                      {"dispatches", of.dispatches},
                      {"steps", of.steps}});
  const StepError* first = first_past(diagnosis);
  JsonValue json = {
      {"schema", "tyto-diagnosis-1"},
      {"tyto", diagnosis.version},
      {"time", diagnosis.time},
      {"command", diagnosis.command},
      {"model", diagnosis.model},
      {"device", diagnosis.device},
      {"settings", diagnosis.settings},
      {"executed", diagnosis.executed},
      {"prompt", diagnosis.prompt},
      {"prompt_tokens", diagnosis.prompt_tokens},
      {"decode_tokens", diagnosis.decode_tokens},
      {"tolerance", diagnosis.tolerance},
      {"verdict", first == nullptr && diagnosis.problem.empty() ? "pass" : "fail"},
      {"problem", diagnosis.problem.empty() ? JsonValue(nullptr) : JsonValue(diagnosis.problem)},
      {"first_past_tolerance",
       first == nullptr ? JsonValue(nullptr) : step_json(*first, diagnosis.tolerance)},
      {"residual_cosine",
       {{"prefill", residual_json(diagnosis, Phase::prefill)},
        {"decode", residual_json(diagnosis, Phase::decode)}}},
      {"steps", std::move(steps)},
      {"hidden", std::move(hidden)},
      {"uncompared", diagnosis.uncompared}};
  return json.dump(2) + "\n";
}

}  // namespace tyto
