// The report as one page: drawings beside the same tables that the text report has.
#include "report/html.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ranges>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "report/report.h"
#include "report/summary.h"
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

namespace {

constexpr double kLeft = 44, kRight = 352, kTop = 26;  // a plot's area

// A round number not below `value`, and how many steps to draw up to it.
struct Scale {
  double top = 1;
  int steps = 4;
};
Scale nice_scale(double value) {
  if (value <= 0) return {};
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const auto& [factor, steps] : {std::pair{1.0, 4},
                                      {1.5, 3},
                                      {2.0, 4},
                                      {3.0, 3},
                                      {4.0, 4},
                                      {5.0, 5},
                                      {6.0, 3},
                                      {8.0, 4},
                                      {10.0, 5}})
    if (value <= factor * power) return {factor * power, steps};
  return {10 * power, 5};
}

void axes(Svg& svg, const Scale& scale, double bottom, const std::string& unit,
          const std::string& x_title) {
  for (int i = 0; i <= scale.steps; ++i) {
    const double y = bottom - (bottom - kTop) * i / scale.steps;
    svg.line(kLeft, y, kRight, y, i == 0 ? "axis" : "grid");
    svg.text(kLeft - 5, y + 3.5, fmt::format("{:.4g}", scale.top * i / scale.steps), "tick", "end");
  }
  svg.text(2, kTop - 13, unit, "tick");
  svg.text((kLeft + kRight) / 2, bottom + 28, x_title, "tick", "middle");
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string tag_class(const std::string& tag) {
  if (tag == "-") return "none";
  std::string letters;  // a tag may come from a file
  for (const char c : tag)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

std::string tag_series(const std::string& tag) {
  return "s-" + tag_class(tag);
}

std::string device_class(const PhaseSummary& phase) {
  return tag_series(phase.calls.empty() ? kHostTag : phase.calls.front().tag);
}

// Where the processor itself is the device, the host's work has a colour of its own.
std::string host_class(const PhaseSummary& phase) {
  const std::string processor = tag_series(kHostTag);
  return device_class(phase) == processor ? "s-host" : processor;
}

void Svg::rect(double x, double y, double width, double height, const std::string& classes,
               double radius, const std::string& tooltip) {
  out_ += fmt::format(
      R"(<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" rx="{}" class="{}")", x, y,
      std::max(0.0, width), std::max(0.0, height), radius, classes);
  out_ += tooltip.empty() ? "/>" : "><title>" + escaped(tooltip) + "</title></rect>";
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& classes) {
  out_ += fmt::format(R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" class="{}"/>)", x1,
                      y1, x2, y2, classes);
}

void Svg::path(const std::string& d, const std::string& classes) {
  out_ += fmt::format(R"(<path d="{}" class="{}"/>)", d, classes);
}

void Svg::circle(double x, double y, double radius, const std::string& classes,
                 const std::string& tooltip) {
  out_ +=
      fmt::format(R"(<circle cx="{:.2f}" cy="{:.2f}" r="{}" class="{}"><title>{}</title></circle>)",
                  x, y, radius, classes, escaped(tooltip));
}

void Svg::text(double x, double y, const std::string& content, const std::string& classes,
               const char* anchor) {
  if (content.empty()) return;
  out_ += fmt::format(R"(<text x="{:.2f}" y="{:.2f}" class="{}" text-anchor="{}">{}</text>)", x, y,
                      classes, anchor, escaped(content));
}

std::string Svg::take(double height, const std::string& label) const {
  return fmt::format(R"(<svg viewBox="0 0 {} {:.0f}" role="img" aria-label="{}">{}</svg>)", kWidth,
                     height, escaped(label), out_);
}

std::string stacked_bars(const std::string& label, const std::string& unit,
                         const std::vector<Series>& series,
                         const std::vector<std::vector<double>>& values,
                         const std::vector<std::string>& x_labels, const std::string& x_title) {
  constexpr double kBottom = 186;
  double highest = 0;
  for (const auto& bar : values) {
    double sum = 0;
    for (const double value : bar) sum += std::max(0.0, value);
    highest = std::max(highest, sum);
  }
  const Scale scale = nice_scale(highest);
  Svg svg;
  axes(svg, scale, kBottom, unit, x_title);
  const double step = (kRight - kLeft) / std::max<double>(1, static_cast<double>(values.size()));
  const double gap = step > 6 ? step * 0.18 : step > 3 ? 0.6 : 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = kLeft + step * static_cast<double>(i);
    double y = kBottom;
    for (size_t s = 0; s < values[i].size(); ++s) {
      const double height = std::max(0.0, values[i][s]) / scale.top * (kBottom - kTop);
      y -= height;
      if (height > 0.05)
        svg.rect(x + gap / 2, y, step - gap, height, series[s].classes, 0,
                 fmt::format("{}: {} {} {}", x_labels[i], series[s].label,
                             milliseconds(values[i][s]), unit));
    }
    // As many labels as fit, evenly.
    const size_t every = std::max<size_t>(1, (values.size() + 9) / 10);
    if (i % every == 0) svg.text(x + step / 2, kBottom + 13, x_labels[i], "tick", "middle");
  }
  return svg.take(kBottom + 34, label);
}

std::string share_bar(const std::string& label, const std::vector<Series>& series,
                      const std::vector<double>& values) {
  constexpr double kHeight = 22;
  double total = 0;
  for (const double value : values) total += std::max(0.0, value);
  Svg svg;
  double x = 0;
  for (size_t i = 0; i < values.size() && total > 0; ++i) {
    const double share = std::max(0.0, values[i]) / total;
    const double width = share * Svg::kWidth;
    svg.rect(x, 0, width, kHeight, series[i].classes, 0,
             fmt::format("{} {}", series[i].label, percent(share)));
    if (width > 44)
      svg.text(x + width / 2, 15, fmt::format("{:.0f} %", share * 100), "onbar", "middle");
    x += width;
  }
  return svg.take(kHeight, label);
}

std::string row_bars(const std::string& label, const std::vector<BarRow>& rows) {
  constexpr double kStep = 22, kBarLeft = 108, kBarRight = 296;
  Svg svg;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = kStep * static_cast<double>(i);
    svg.text(kBarLeft - 6, y + 14.5, rows[i].label, "tick ink", "end");
    svg.rect(kBarLeft, y + 3, kBarRight - kBarLeft, kStep - 7, "track", 2);
    const double width = std::clamp(rows[i].value, 0.0, 1.0) * (kBarRight - kBarLeft);
    svg.rect(kBarLeft, y + 3, width, kStep - 7, rows[i].classes, 2, rows[i].text);
    svg.text(kBarRight + 6, y + 14.5, rows[i].text, "tick ink");
  }
  return svg.take(kStep * static_cast<double>(std::max<size_t>(1, rows.size())), label);
}

std::string line_plot(const std::string& label, const std::string& unit,
                      const std::vector<Point>& points, const std::string& x_title) {
  constexpr double kBottom = 186;
  double highest = 0, first = 0, last = 0;
  for (const Point& point : points) {
    highest = std::max(highest, point.high);
    first = first == 0 ? std::log2(point.x) : std::min(first, std::log2(point.x));
    last = std::max(last, std::log2(point.x));
  }
  const Scale scale = nice_scale(highest);
  const auto x_of = [&](double x) {
    const double part = last > first ? (std::log2(x) - first) / (last - first) : 0.5;
    return kLeft + 14 + part * (kRight - kLeft - 28);
  };
  const auto y_of = [&](double y) { return kBottom - y / scale.top * (kBottom - kTop); };
  Svg svg;
  axes(svg, scale, kBottom, unit, x_title);
  std::string path;
  for (const Point& point : points) {
    path += fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", x_of(point.x), y_of(point.y));
    svg.line(x_of(point.x), y_of(point.low), x_of(point.x), y_of(point.high), "spread");
    svg.text(x_of(point.x), kBottom + 13, fmt::format("{:g}", point.x), "tick", "middle");
  }
  svg.path(path, "curve");
  for (const Point& point : points)
    svg.circle(x_of(point.x), y_of(point.y), 3.5, "dot",
               fmt::format("{:g}: {:.4g} {}", point.x, point.y, unit));
  return svg.take(kBottom + 34, label);
}

// The dataflow as a drawing: one box per step from top to bottom, the layers in a frame with their
// loop, and at the end what it came to.

namespace {

constexpr double kArrow = 12;
constexpr double kMiddle = Svg::kWidth / 2;
constexpr double kOuterLeft = 14, kOuterRight = 346;
constexpr double kInnerLeft = 30, kInnerRight = 318;
constexpr double kSmallShare = 0.002;  // below it a step is one line without a frame

std::string subtitle(const FlowRow& row) {
  std::string text = row.tag == "-" ? "" : row.tag + (row.modelled ? ", modelled" : "");
  if (row.is_dispatch && row.launches > 1) text += fmt::format(" · {:.4g} launches", row.launches);
  if (!row.is_dispatch && !row.note.empty()) text += " · " + row.note;
  return text;
}

std::string copies(const FlowRow& row) {
  if (!row.is_dispatch || row.write_ms + row.read_ms <= 0) return "";
  return fmt::format("write {} / run {} / read {}", milliseconds(row.write_ms),
                     milliseconds(row.run_ms), milliseconds(row.read_ms));
}

class FlowDrawing {
 public:
  FlowDrawing(const PhaseSummary& phase, bool prefill)
      : phase_(phase), flow_(phase.flow), prefill_(prefill) {}

  std::string draw(const Attribution& wall, bool modelled) {
    start(prefill_ ? "prompt" : "last token");
    for (size_t i = 0; i < flow_.rows.size();) {
      if (flow_.rows[i].in_layer) {
        size_t end = i;
        while (end < flow_.rows.size() && flow_.rows[end].in_layer) ++end;
        layers(i, end);
        i = end;
      } else {
        step(flow_.rows[i++], kOuterLeft, kOuterRight);
      }
    }
    result(wall, modelled);
    return svg_.take(y_ + 4,
                     prefill_ ? "Dataflow of the prefill" : "Dataflow of one decoded token");
  }

 private:
  void start(const std::string& what) {
    svg_.rect(kMiddle - 46, y_, 92, 22, "pill", 11);
    svg_.text(kMiddle, y_ + 15, what, "small ink", "middle");
    y_ += 22;
  }

  void arrow() {
    svg_.line(kMiddle, y_, kMiddle, y_ + kArrow - 4, "flow");
    svg_.path(fmt::format("M{} {:.2f}l4 -5h-8z", kMiddle, y_ + kArrow), "flowhead");
    y_ += kArrow;
  }

  void step(const FlowRow& row, double left, double right) {
    if (row.tag == "-" || row.share < kSmallShare) return small_step(row, left, right);
    arrow();
    const std::string tag = tag_class(row.tag);
    const std::string third = copies(row);
    const double height =
        (third.empty() ? 38 : 50) + 40 * std::sqrt(std::clamp(row.share, 0.0, 1.0));
    const std::string tooltip =
        fmt::format("{}: {} ms, {}", row.label, milliseconds(row.total_ms), percent(row.share));
    svg_.rect(left, y_, right - left, height, "box " + tag, 6, tooltip);
    svg_.rect(left, y_, 5, height, "fill " + tag, 2);
    const double text_y = y_ + height / 2 - (third.empty() ? 4 : 10);
    svg_.text(left + 14, text_y, row.label, "strong ink");
    svg_.text(right - 10, text_y, milliseconds(row.ms) + " ms", "strong ink", "end");
    svg_.text(left + 14, text_y + 14, subtitle(row), "small muted");
    svg_.text(right - 10, text_y + 14, percent(row.share), "small muted", "end");
    svg_.text(left + 14, text_y + 27, third, "small muted");
    svg_.rect(left + 5, y_ + height - 3, row.share * (right - left - 5), 3, "fill " + tag);
    y_ += height;
  }

  void small_step(const FlowRow& row, double left, double right) {
    const bool alarm = row.label == "unattributed" && row.share > 0.01;
    y_ += 5;
    svg_.line(kMiddle, y_ - 5, kMiddle, y_, "flow");
    svg_.rect(left, y_, right - left, 19, alarm ? "pill alarm" : "pill", 5);
    svg_.text(left + 14, y_ + 13.5, row.label + (row.tag == "-" ? "" : " · " + subtitle(row)),
              "small muted");
    svg_.text(right - 10, y_ + 13.5,
              row.ms < 5e-7 ? (row.label == "pad" ? "none" : "0 ms") : milliseconds(row.ms) + " ms",
              alarm ? "small alarmtext" : "small muted", "end");
    y_ += 19;
  }

  void layers(size_t begin, size_t end) {
    arrow();
    const double top = y_;
    Svg inner;
    std::swap(inner, svg_);  // the frame's height is known after its contents
    y_ += 26;
    for (size_t i = begin; i < end; ++i) step(flow_.rows[i], kInnerLeft, kInnerRight);
    y_ += 10;
    std::swap(inner, svg_);
    const double bottom = y_;
    svg_.rect(kOuterLeft, top, kOuterRight - kOuterLeft, bottom - top, "frame", 9);
    svg_.text(kInnerLeft, top + 17,
              fmt::format("× {} layer{}", flow_.layers, flow_.layers == 1 ? "" : "s"),
              "strong ink");
    svg_.text(kInnerRight, top + 17,
              fmt::format("{} ms each, {} ms", milliseconds(flow_.layer_ms),
                          milliseconds(flow_.layer_ms * flow_.layers)),
              "small muted", "end");
    svg_.append(inner);
    svg_.path(
        fmt::format("M{} {:.2f}h16v{:.2f}h-10", kInnerRight, bottom - 22, -(bottom - top - 50)),
        "loop");
    svg_.path(fmt::format("M{} {:.2f}l6 -4v8z", kInnerRight + 1, top + 28.0), "flowhead");
  }

  void result(const Attribution& wall, bool modelled) {
    arrow();
    const double width = kOuterRight - kOuterLeft;
    svg_.rect(kOuterLeft, y_, width, 54, "result", 8);
    svg_.text(kOuterLeft + 14, y_ + 22, prefill_ ? "first token" : "next token", "strong inverse");
    svg_.text(kOuterRight - 12, y_ + 22,
              fmt::format("{} {} ms{}", prefill_ ? "TTFT" : "TPOT", milliseconds(flow_.total_ms),
                          modelled ? ", modelled" : ""),
              "strong inverse", "end");
    double x = kOuterLeft + 14;
    const double bar = width - 26;
    const std::pair<double, std::string> parts[] = {{wall.device, device_class(phase_)},
                                                    {wall.host, host_class(phase_)},
                                                    {wall.copies, "s-copies"},
                                                    {wall.scheduling, "s-scheduling"},
                                                    {wall.unattributed, "s-unattributed"}};
    for (const auto& [value, classes] : parts) {
      const double part = wall.wall > 0 ? std::max(0.0, value) / wall.wall * bar : 0;
      svg_.rect(x, y_ + 34, part, 9, classes);
      x += part;
    }
    y_ += 54;
  }

  const PhaseSummary& phase_;
  const Flow& flow_;
  bool prefill_;
  Svg svg_;
  double y_ = 4;
};

}  // namespace

std::string flow_drawing(const PhaseSummary& phase, bool prefill, bool modelled) {
  return FlowDrawing(phase, prefill).draw(phase.wall, modelled);
}

std::string flow_picture(const Profile& profile) {
  if (profile.runs.empty()) fail_input("profile", "has no run to draw");
  const Summary summary = summarise(profile, profile.runs.back());
  const bool decoded = summary.decode.tokens > 0;
  std::string drawing =
      flow_drawing(decoded ? summary.decode : summary.prefill, !decoded, summary.modelled);
  // On a page the drawing has the page's namespace and style, and a width to fit into.
  drawing.insert(drawing.find('>') + 1,
                 fmt::format("<style>{}svg{{max-width:none}}</style>", kStyle));
  drawing.insert(drawing.find("<svg") + 4, R"( xmlns="http://www.w3.org/2000/svg")");
  return drawing;
}

}  // namespace tyto
