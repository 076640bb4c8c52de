// The diagnosis as one page: a map of layers and steps, coloured by how far each is off.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/counted.h"
#include "report/diagnosis_parts.h"
#include "report/html_parts.h"
#include "report/html_style.h"
#include "report/svg.h"

namespace tyto {
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

}  // namespace tyto
