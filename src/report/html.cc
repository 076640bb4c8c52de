// The report as one page: drawings beside the same tables that the text report has.
#include "report/html.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

#include "base/spelling.h"
#include "report/report.h"
#include "report/summary.h"
#include "report/svg.h"
#include "report/tables.h"

namespace tyto {
namespace {

constexpr size_t kSetupShades = 10;
constexpr size_t kMostBars = 90;  // in a plot over tokens; more are averaged together

std::vector<Series> wall_series(const PhaseSummary& phase) {
  return {{"device wait", device_class(phase)},
          {"host ops", host_class(phase)},
          {"copies", "s-copies"},
          {"scheduling", "s-scheduling"},
          {"unattributed", "s-unattributed"}};
}

std::vector<double> wall_parts(const Attribution& wall) {
  return {wall.device, wall.host, wall.copies, wall.scheduling, wall.unattributed};
}

// Programs of a layer; the last part is always the scheduling between them.
std::string part_colour(size_t index, size_t count) {
  constexpr size_t kColours = 7;
  return index + 1 == count ? "s-scheduling" : fmt::format("p{}", index % kColours);
}

std::string legend(const std::vector<Series>& series) {
  std::string out = "<div class=\"legend\">";
  for (const Series& item : series)
    out += fmt::format("<span><i class=\"{}\"></i>{}</span>", item.classes, escaped(item.label));
  return out + "</div>";
}

std::string titled(const std::string& title, const std::string& drawing) {
  return "<div><h3>" + escaped(title) + "</h3>" + drawing + "</div>";
}

std::string pair(const std::string& left, const std::string& right) {
  return "<div class=\"pair\">" + left + right + "</div>";
}

std::string attribution_drawing(const Summary& summary) {
  const std::vector<Series> series = wall_series(summary.prefill);
  std::string out = legend(series);
  out += "<div class=\"pair wide\">" +
         titled(fmt::format("prefill, {} ms", milliseconds(summary.prefill.wall.wall)),
                share_bar("Attribution of the prefill", series, wall_parts(summary.prefill.wall)));
  if (summary.decode.tokens > 0)
    out += titled(fmt::format("decode, {} ms per token", milliseconds(summary.headline.tpot_ms)),
                  share_bar("Attribution of decoding", wall_series(summary.decode),
                            wall_parts(summary.decode.wall)));
  return out + "</div>";
}

std::string layers_drawing(const Summary& summary) {
  std::vector<Series> series;
  for (size_t i = 0; i < summary.layer_parts.size(); ++i)
    series.push_back({summary.layer_parts[i], part_colour(i, summary.layer_parts.size())});
  std::vector<std::vector<double>> first, later;
  std::vector<std::string> labels;
  for (const LayerRow& row : summary.layers) {
    first.push_back(row.prefill_parts);
    later.push_back(row.decode_parts);
    labels.push_back(std::to_string(row.layer));
  }
  if (labels.empty()) return "";
  return legend(series) +
         pair(titled("prefill", stacked_bars("Time per layer in the prefill", "ms", series, first,
                                             labels, "layer")),
              titled("decode, per token", stacked_bars("Time per layer and decoded token", "ms",
                                                       series, later, labels, "layer")));
}

std::string trend_drawing(const Summary& summary) {
  if (summary.tokens.empty()) return "";
  const std::vector<Series> series = wall_series(summary.decode);
  const size_t per_bar = (summary.tokens.size() + kMostBars - 1) / kMostBars;
  std::vector<std::vector<double>> bars;
  std::vector<std::string> labels;
  for (size_t i = 0; i < summary.tokens.size(); i += per_bar) {
    const size_t end = std::min(summary.tokens.size(), i + per_bar);
    std::vector<double> mean(series.size());
    for (size_t k = i; k < end; ++k) {
      const std::vector<double> parts = wall_parts(summary.tokens[k].wall);
      for (size_t part = 0; part < parts.size(); ++part)
        mean[part] += parts[part] / static_cast<double>(end - i);
    }
    bars.push_back(std::move(mean));
    labels.push_back(std::to_string(summary.tokens[i].context));
  }
  return legend(series) + "<div>" +
         stacked_bars("Time of each decoded token", "ms", series, bars, labels,
                      "positions in the KV cache") +
         "</div>";
}

std::string operators_drawing(const Summary& summary) {
  const auto bars = [](const PhaseSummary& phase, const char* label) {
    std::vector<BarRow> rows;
    for (const OperatorRow& row : phase.operators)
      rows.push_back({row.label, row.share, percent(row.share), "bar"});
    return row_bars(label, rows);
  };
  return pair(titled("prefill, share of wall", bars(summary.prefill, "Operators of the prefill")),
              titled("decode, share of wall", bars(summary.decode, "Operators of decoding")));
}

std::string dispatch_drawing(const Table& table, const Summary& summary) {
  std::vector<BarRow> first, later;
  const auto bar = [](const std::string& label, uint64_t count, const PhaseSummary& phase) {
    const auto all = static_cast<double>(std::max<uint64_t>(1, phase.wall.dispatches));
    return BarRow{label, static_cast<double>(count) / all, std::to_string(count),
                  device_class(phase)};
  };
  size_t at = 0;
  for (size_t i = 0; i < summary.prefill.histogram.size(); ++i) {
    const uint64_t a = summary.prefill.histogram[i], b = summary.decode.histogram[i];
    if (a + b == 0) continue;
    const std::string& label = table.rows[at++].cells[0];
    first.push_back(bar(label, a, summary.prefill));
    later.push_back(bar(label, b, summary.decode));
  }
  return pair(titled("prefill", row_bars("Dispatches of the prefill by run time", first)),
              titled("decode", row_bars("Dispatches of decoding by run time", later)));
}

std::string setup_drawing(const Summary& summary) {
  std::vector<Series> series;
  std::vector<double> values;
  for (size_t i = 0; i < summary.setup.size(); ++i) {
    series.push_back({summary.setup[i].phase, fmt::format("u{}", i % kSetupShades)});
    values.push_back(summary.setup[i].seconds);
  }
  return legend(series) + "<div class=\"left\">" + share_bar("Set-up", series, values) + "</div>";
}

// Drawings first; the tables of the text report lie folded below them.
std::string flow_section(const Profile& profile, const Summary& summary) {
  std::string out = "<section id=\"dataflow\"><h2>Dataflow" + badge(summary.modelled) + "</h2>";
  std::vector<Series> tags;
  for (const DeviceFacts& device : profile.facts.devices)
    tags.push_back({device.tag + ": " + device.name + (device.is_virtual ? ", modelled" : ""),
                    tag_series(device.tag)});
  const Table prefill = flow_table(summary.prefill, summary, true);
  const Table decode = flow_table(summary.decode, summary, false);
  const bool decoded = summary.decode.tokens > 0;
  out +=
      legend(tags) + pair(titled("Prefill", flow_drawing(summary.prefill, true, summary.modelled)),
                          decoded ? titled("One decoded token, on average",
                                           flow_drawing(summary.decode, false, summary.modelled))
                                  : "");
  std::string names;
  for (const std::string& line : name_lines(summary)) names += "<p>" + escaped(line) + "</p>";
  if (!names.empty()) out += "<div class=\"notes\">" + names + "</div>";
  out += titled(fmt::format("Before it, once: set-up, {:.0f} ms", summary.headline.setup_s * 1e3),
                setup_drawing(summary));
  out += folded(prefill.title, table_html(prefill));
  if (decoded) out += folded(decode.title, table_html(decode));
  return out + "</section>";
}

std::string drawing_for(const Table& table, const Summary& summary) {
  if (table.id == "attribution") return attribution_drawing(summary);
  if (table.id == "layers") return layers_drawing(summary);
  if (table.id == "trend") return trend_drawing(summary);
  if (table.id == "operators") return operators_drawing(summary);
  if (table.id == "dispatches") return dispatch_drawing(table, summary);
  if (table.id == "setup") return setup_drawing(summary);
  return "";
}

std::string tiles(const ProfileRun& run, const Summary& summary) {
  const Headline& headline = summary.headline;
  std::string out = "<div class=\"tiles\">";
  if (run.receipt.plausibility.verdict == Verdict::refused) {
    out += tile("refused", "speed: it cannot be true", true);
  } else {
    const std::string suffix = summary.modelled ? ", modelled" : "";
    out += tile(milliseconds(headline.ttft_ms) + " ms", "time to first token" + suffix);
    out += tile(fmt::format("{:.0f} tok/s", headline.prefill_tok_s),
                fmt::format("prefill of {}{}", counted(headline.prompt_tokens, "token"), suffix));
    if (summary.decode.tokens > 0) {
      out += tile(milliseconds(headline.tpot_ms) + " ms", "per token" + suffix);
      out += tile(fmt::format("{:.1f} tok/s", headline.decode_tok_s), "decode" + suffix);
    }
  }
  if (const auto dispatches = dispatches_per_token(run.receipt))
    out += tile(fmt::format("{:.4g}", *dispatches), "dispatches per token");
  out += tile(fmt::format("{:.0f} ms", headline.setup_s * 1e3), "set-up, once");
  return out + "</div>";
}

// The tiles have no room for the spread of several runs, nor for what is wrong.
bool is_told_by_tiles(const Profile& profile, const ProfileRun& run) {
  return profile.runs.size() == 1 && run.lost == 0 &&
         run.receipt.plausibility.verdict != Verdict::refused;
}

void drop_rows(Table& table) {
  table.rows.clear();
  table.title = "About this run";
}

std::string sweep_drawing(const Profile& profile) {
  std::vector<Point> prefill, decode;
  for (const SweepRow& row : profile.sweep) {
    if (row.prefill_s.empty() || row.receipt.plausibility.verdict == Verdict::refused) continue;
    std::vector<double> rates;
    for (const double seconds : row.prefill_s) rates.push_back(row.prompt_tokens / seconds);
    const auto point = [&](const std::vector<double>& samples) {
      const Spread spread = spread_of(samples);
      return Point{static_cast<double>(row.prompt_tokens), spread.mean, spread.min, spread.max};
    };
    prefill.push_back(point(rates));
    if (!row.tpot_ms.empty()) decode.push_back(point(row.tpot_ms));
  }
  return pair(titled("prefill", line_plot("Prefill speed by prompt length", "tok/s", prefill,
                                          "prompt tokens")),
              titled("decode", line_plot("Time per token by prompt length", "ms/token", decode,
                                         "prompt tokens")));
}

std::string run_sections(const Profile& profile) {
  const ProfileRun& run = typical_run(profile);
  const Summary summary = summarise(profile, run);
  std::string out =
      "<p class=\"lead\">" + escaped(conclusion(run, summary)) + "</p>" + tiles(run, summary);
  for (const std::string& line : request_lines(profile, run))
    out += "<p class=\"muted\">" + escaped(line) + "</p>";
  for (Table table : report_tables(profile)) {
    if (table.id == "sweep" || table.id == "dataflow-decode") continue;
    if (table.id == "headline" && is_told_by_tiles(profile, run)) drop_rows(table);
    out += table.id == "dataflow-prefill" ? flow_section(profile, summary)
                                          : section(table, drawing_for(table, summary));
  }
  return out;
}

}  // namespace

std::string html_report(const Profile& profile) {
  const Facts& facts = profile.facts;
  const auto is_accelerator = [](const DeviceFacts& device) { return !device.is_host; };
  const std::string title =
      facts.model_name + " on " +
      joined(facts.devices | std::views::filter(is_accelerator), ", ", &DeviceFacts::name);
  std::string out = fmt::format(
      "{5}<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>{0}: profile</title><style>{1}</style></head><body><header><h1>{0}{2}</h1>"
      "<p class=\"muted\">{3} · tyto {4}</p></header><main>",
      escaped(title), kStyle, badge(is_modelled(profile)), escaped(facts.origin.time),
      escaped(facts.origin.version), kProfilePage.beginning);
  if (!profile.sweep.empty()) out += section(sweep_table(profile), sweep_drawing(profile));
  if (!profile.runs.empty()) out += run_sections(profile);
  return out + "</main><footer class=\"muted\"><p>Made by <code>" + escaped(facts.origin.command) +
         "</code></p></footer></body></html>\n";
}

namespace {

constexpr size_t kOpenRows = 14;     // longer tables are folded
constexpr size_t kManyColumns = 12;  // as much as a laptop shows when they are close together

}  // namespace

std::string badge(bool modelled) {
  return modelled ? "<span class=\"badge\">modelled</span>" : "";
}

std::string table_html(const Table& table) {
  const bool is_wide = table.columns.size() >= kManyColumns;
  std::string out =
      fmt::format("<div class=\"scroll\"><table{}>", is_wide ? " class=\"dense\"" : "");
  const bool has_header = std::any_of(table.columns.begin(), table.columns.end(),
                                      [](const Column& column) { return !column.header.empty(); });
  if (has_header) {
    out += "<thead><tr>";
    for (const Column& column : table.columns)
      out += fmt::format("<th{}>{}</th>", column.is_number ? " class=\"n\"" : "",
                         escaped(column.header));
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const TableRow& row : table.rows) {
    constexpr const char* kClasses[] = {"", " class=\"inner\"", " class=\"total\"",
                                        " class=\"alarm\"", " class=\"best\""};
    out += fmt::format("<tr{}>", kClasses[static_cast<size_t>(row.style)]);
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const bool is_last_text = !table.columns[i].is_number && i + 1 == table.columns.size();
      out += fmt::format("<td{}>{}</td>",
                         table.columns[i].is_number ? " class=\"n\""
                         : is_last_text             ? " class=\"w\""
                                                    : "",
                         escaped(row.cells[i]));
    }
    out += "</tr>";
  }
  out += "</tbody></table></div>";
  return out;
}

std::string folded(const std::string& summary, const std::string& content) {
  return "<details><summary>" + escaped(summary) + "</summary>" + content + "</details>";
}

std::string notes_html(const Table& table) {
  if (table.notes.empty()) return "";
  std::string out = "<div class=\"notes\">";
  for (const std::string& note : table.notes) out += "<p>" + escaped(note) + "</p>";
  return out + "</div>";
}

std::string section(const Table& table, const std::string& drawings) {
  std::string rows = table.rows.empty() ? "" : table_html(table);
  if (table.rows.size() > kOpenRows) rows = folded(fmt::format("{} rows", table.rows.size()), rows);
  return fmt::format("<section id=\"{}\"><h2>{}{}</h2>{}{}{}</section>", table.id,
                     escaped(table.title), badge(table.modelled), drawings, rows,
                     notes_html(table));
}

std::string tile(const std::string& value, const std::string& label, bool alarm) {
  return fmt::format("<div class=\"tile{}\"><b>{}</b><span>{}</span></div>", alarm ? " alarm" : "",
                     escaped(value), escaped(label));
}

}  // namespace tyto
