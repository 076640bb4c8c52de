// The sections that tell the story of a run: headline, dataflow, attribution, layers, tokens.
#include "report/tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/spelling.h"
#include "base/utf8.h"
#include "report/report.h"
#include "report/summary.h"

namespace tyto {
namespace {

constexpr size_t kGap = 2;         // between columns
constexpr size_t kLeastText = 24;  // columns that text keeps before others are left out for it
constexpr size_t kShortText = 6;   // columns that it keeps whatever the terminal

std::string padded(const std::string& text, size_t to, bool right) {
  const size_t columns = columns_of(text);
  const std::string space(to > columns ? to - columns : 0, ' ');
  return right ? space + text : text + space;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// All but the rows.
Table printable_frame(const Table& table) {
  Table frame{.id = table.id,
              .title = printable_line(table.title),
              .modelled = table.modelled,
              .columns = table.columns};
  for (Column& column : frame.columns) column.header = printable_line(column.header);
  for (const std::string& note : table.notes) frame.notes.push_back(printable(note));
  return frame;
}

// A row of the layers stands a little to the right.
std::string shown_cell(const TableRow& row, size_t cell) {
  if (cell >= row.cells.size()) return "";
  return (cell == 0 && row.style == RowStyle::inner ? "  " : "") + printable_line(row.cells[cell]);
}

size_t longest_word(std::string_view header) {
  size_t longest = 0;
  for (size_t begin = 0; begin < header.size();) {
    const size_t end = std::min(header.find(' ', begin), header.size());
    longest = std::max(longest, columns_of(header.substr(begin, end - begin)));
    begin = end + 1;
  }
  return longest;
}

Ink ink_of(RowStyle style) {
  if (style == RowStyle::alarm) return Ink::red;
  return style == RowStyle::best ? Ink::green : Ink::plain;
}

// What a column would like to have, and what it can do with.
struct Wish {
  size_t index = 0;
  uint8_t rank = 0;
  bool is_text = false;
  size_t header = 0, cells = 0;  // on one line
  size_t word = 0;               // the header's longest
  size_t least = 0;

  size_t whole() const { return std::max(header, cells); }
};

std::vector<Wish> wishes_of(const Table& table) {
  std::vector<Wish> wishes;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    const std::string header = printable_line(column.header);
    Wish wish{.index = i, .rank = column.rank, .is_text = !column.is_number};
    wish.header = columns_of(header);
    for (const TableRow& row : table.rows)
      wish.cells = std::max(wish.cells, columns_of(shown_cell(row, i)));
    wish.word = longest_word(header);
    wish.least = std::max(wish.word, wish.is_text ? std::min(wish.cells, kLeastText) : wish.cells);
    wishes.push_back(wish);
  }
  return wishes;
}

template <typename Width>
size_t line_width(const std::vector<Wish>& wishes, Width width) {
  size_t total = wishes.empty() ? 0 : (wishes.size() - 1) * kGap;
  for (const Wish& wish : wishes) total += width(wish);
  return total;
}

size_t least_of(const Wish& wish) {
  return wish.least;
}

void leave_out_columns(std::vector<Wish>& wishes, size_t most) {
  while (line_width(wishes, least_of) > most) {
    const auto last =
        std::max_element(wishes.rbegin(), wishes.rend(),
                         [](const Wish& one, const Wish& other) { return one.rank < other.rank; });
    if (last == wishes.rend() || last->rank == 0) return;
    wishes.erase(std::next(last).base());
  }
}

// The text that has most gives way where nothing else may be left out.
void squeeze_text(std::vector<Wish>& wishes, size_t most) {
  while (line_width(wishes, least_of) > most) {
    Wish* widest = nullptr;
    for (Wish& wish : wishes)
      if (wish.is_text && wish.least > std::max(kShortText, wish.word) &&
          (widest == nullptr || wish.least >= widest->least))
        widest = &wish;
    if (widest == nullptr) return;
    --widest->least;
  }
}

// Room that is left goes to cells first, from left to right, and then to headers.
void share_out(std::vector<Wish>& wishes, size_t most) {
  for (const auto wanted : {&Wish::cells, &Wish::header})
    for (Wish& wish : wishes) {
      const size_t used = line_width(wishes, least_of);
      if (used >= most || wish.*wanted <= wish.least) continue;
      wish.least += std::min(most - used, wish.*wanted - wish.least);
    }
}

}  // namespace

TableText::TableText(const Table& table, const TextStyle& style)
    : table_(printable_frame(table)), style_(style) {
  std::vector<Wish> wishes = wishes_of(table);
  const size_t whole = line_width(wishes, [](const Wish& wish) { return wish.whole(); });
  if (style.width == 0 || whole <= style.width) {
    for (const Wish& wish : wishes) shown_.push_back({wish.index, wish.whole()});
    return;
  }
  leave_out_columns(wishes, style.width);
  squeeze_text(wishes, style.width);
  share_out(wishes, style.width);
  for (const Wish& wish : wishes) shown_.push_back({wish.index, wish.least});
  std::vector<std::string> left_out;
  for (size_t i = 0, next = 0; i < table_.columns.size(); ++i) {
    if (next < shown_.size() && shown_[next].index == i)
      ++next;
    else if (!table_.columns[i].header.empty())
      left_out.push_back(table_.columns[i].header);
  }
  if (!left_out.empty())
    table_.notes.push_back("hidden columns (`| less -S` shows them): " + joined(left_out, ", "));
}

// Cells of several lines beside each other.
std::string TableText::lines_of(const std::vector<std::vector<std::string>>& cells, Ink ink) const {
  size_t height = 0;
  for (const auto& cell : cells) height = std::max(height, cell.size());
  std::string out;
  for (size_t at = 0; at < height; ++at) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i)
      line += std::string(i == 0 ? 0 : kGap, ' ') +
              padded(at < cells[i].size() ? cells[i][at] : "", shown_[i].width,
                     table_.columns[shown_[i].index].is_number);
    out += inked(without_trailing_space(line), ink, style_) + "\n";
  }
  return out;
}

std::string TableText::head() const {
  std::string out;
  if (!table_.title.empty()) {
    const std::string title = table_.title + (table_.modelled ? "  [modelled]" : "");
    const size_t columns = columns_of(title);
    const bool fits = style_.width == 0 || columns <= style_.width;
    const auto lines = fits ? std::vector{title} : wrapped_lines(title, style_.width);
    for (const std::string& line : lines) out += inked(line, Ink::bold, style_) + "\n";
    out += inked(std::string(fits ? columns : style_.width, '-'), Ink::dim, style_) + "\n";
  }
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (const ShownColumn& column : shown_) {
    const std::string& header = table_.columns[column.index].header;
    cells.push_back(columns_of(header) <= column.width ? std::vector{header}
                                                       : wrapped_lines(header, column.width));
    height = std::max(height, cells.back().size());
  }
  for (auto& cell : cells) cell.insert(cell.begin(), height - cell.size(), "");
  const bool has_headers = std::any_of(table_.columns.begin(), table_.columns.end(),
                                       [](const Column& each) { return !each.header.empty(); });
  return has_headers ? out + lines_of(cells, Ink::bold) : out;
}

std::string TableText::row(const TableRow& row) const {
  std::vector<std::vector<std::string>> cells;
  for (size_t i = 0; i < shown_.size(); ++i) {
    const ShownColumn& column = shown_[i];
    const std::string text = shown_cell(row, column.index);
    const bool fits = style_.width == 0 || table_.columns[column.index].is_number ||
                      columns_of(text) <= column.width;
    const bool is_wrapped = i + 1 == shown_.size() && text.find(' ') != std::string::npos;
    if (fits)
      cells.push_back({text});
    else if (is_wrapped)
      cells.push_back(wrapped_lines(text, column.width));
    else
      cells.push_back({text.find(' ') == std::string::npos ? shortened(text, column.width)
                                                           : shortened_at_end(text, column.width)});
  }
  return lines_of(cells, ink_of(row.style));
}

std::string TableText::foot() const {
  std::string out;
  for (const std::string& note : table_.notes)
    for (const std::string& line :
         style_.width == 0 ? std::vector{note} : wrapped_lines(note, style_.width))
      out += inked(line, Ink::dim, style_) + "\n";
  return out;
}

std::string to_text(const Table& table, const TextStyle& style) {
  const TableText text(table, style);
  std::string out = text.head();
  for (const TableRow& row : table.rows) out += text.row(row);
  return out + text.foot();
}

std::string milliseconds(double value) {
  const double size = std::abs(value);
  if (size < 5e-7) return "0";
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 10) return fmt::format("{:.2f}", value);
  if (size >= 0.1) return fmt::format("{:.3f}", value);
  return fmt::format("{:.4f}", value);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string megabytes(double bytes) {
  if (bytes == 0) return "0";
  return fmt::format("{:.3g}", bytes / 1e6);
}

std::string compact(double value) {
  constexpr std::array<const char*, 4> kUnits = {"", "k", "M", "G"};
  size_t unit = 0;
  for (; std::abs(value) >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
}

namespace {

constexpr double kUnattributedAlarm = 0.01;

std::string seconds_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds)
                      : fmt::format("{} ms", milliseconds(seconds * 1e3));
}

// Mean and deviation over the runs, where there are several.
std::string spread(const Profile& profile, double (*value)(const Headline&)) {
  if (profile.runs.size() < 2) return "";
  std::vector<double> samples;
  for (const ProfileRun& run : profile.runs)
    samples.push_back(value(summarise(profile, run).headline));
  const Spread all = spread_of(samples);
  return fmt::format("; over {} runs {} ± {}", samples.size(), milliseconds(all.mean),
                     milliseconds(all.deviation));
}

}  // namespace

void add_facts(const Profile& profile, Table& table) {
  const Facts& facts = profile.facts;
  table.notes.push_back(
      fmt::format("{}: {}, {:.1f} MB of weights, {}; fusion {}, kv {}, {} positions, prefill in "
                  "chunks of {}, {}",
                  facts.model_name, facts.origin.model_format,
                  static_cast<double>(facts.origin.weight_bytes) / 1e6,
                  counted(facts.layers, "layer"), facts.origin.fusion, facts.kv_type, facts.context,
                  facts.prefill_chunk, counted(facts.threads, "thread")));
  for (const DeviceFacts& device : facts.devices)
    table.notes.push_back(fmt::format("{}{}: {}{}", device.name,
                                      device.is_virtual ? " (virtual)" : "", device.description,
                                      device.is_host ? "; takes the host's steps" : ""));
  if (is_modelled(profile))
    table.notes.push_back(
        "Modelled: a virtual device's time comes from the cost model and is not a measurement; the "
        "host's time was measured on this machine.");
}

Table headline_table(const Profile& profile, const ProfileRun& run, const Summary& summary) {
  const Headline& headline = summary.headline;
  Table table{.id = "headline",
              .title = "Headline",
              .modelled = summary.modelled,
              .columns = {{"", false}, {"", true}, {"", false}}};
  const Plausibility& verdict = run.receipt.plausibility;
  if (verdict.verdict == Verdict::refused) {
    table.rows.push_back({{"speed", "refused", "it cannot be true:"}, RowStyle::alarm});
    for (const std::string& reason : verdict.reasons)
      table.rows.push_back({{"", "", reason}, RowStyle::alarm});
  } else {
    table.rows.push_back(
        {{"TTFT", seconds_text(headline.ttft_ms / 1e3),
          fmt::format("time to the first of {}, tokenizing included{}",
                      counted(headline.generated_tokens, "token"),
                      spread(profile, [](const Headline& h) { return h.ttft_ms; }))}});
    table.rows.push_back({{"prefill", fmt::format("{:.1f} tok/s", headline.prefill_tok_s),
                           counted(headline.prompt_tokens, "prompt token") + " in TTFT"}});
    if (summary.decode.tokens > 0) {
      table.rows.push_back(
          {{"TPOT", seconds_text(headline.tpot_ms / 1e3),
            fmt::format("per token after the first, mean of {}{}", summary.decode.tokens,
                        spread(profile, [](const Headline& h) { return h.tpot_ms; }))}});
      table.rows.push_back({{"decode", fmt::format("{:.2f} tok/s", headline.decode_tok_s), ""}});
    }
  }
  table.rows.push_back({{"set-up", seconds_text(headline.setup_s), "once, not part of TTFT"}});
  if (run.lost > 0)
    table.rows.push_back(
        {{"incomplete", "",
          fmt::format("the recording was full: {} events were not kept, so these are the first {} "
                      "tokens only",
                      run.lost, summary.decode.tokens + 1)},
         RowStyle::alarm});
  add_facts(profile, table);
  return table;
}

Table flow_table(const PhaseSummary& phase, const Summary& summary, bool prefill) {
  const Flow& flow = phase.flow;
  Table table{.id = prefill ? "dataflow-prefill" : "dataflow-decode",
              .title = prefill ? "Dataflow, prefill: prompt to first token"
                               : "Dataflow, decode: one token (mean)",
              .modelled = summary.modelled,
              .columns = {{"step", false},
                          {"where", false},
                          {"ms", true, 1},
                          {"x", true, 1},
                          {"total ms", true},
                          {"share", true},
                          {"", false, 2}}};
  bool inside = false;
  const auto end_of_layers = [&] {
    table.rows.push_back(
        {{counted(flow.layers, "layer"), "", milliseconds(flow.layer_ms),
          std::to_string(flow.layers), milliseconds(flow.layer_ms * flow.layers),
          percent(flow.total_ms > 0 ? flow.layer_ms * flow.layers / flow.total_ms : 0), ""},
         RowStyle::total});
  };
  for (const FlowRow& row : flow.rows) {
    if (inside && !row.in_layer) end_of_layers();
    inside = row.in_layer;
    std::string note = row.note;
    if (row.is_dispatch && row.launches > 0)
      note = fmt::format("{:.4g} launch{}", row.launches, row.launches == 1 ? "" : "es");
    if (row.is_dispatch && row.write_ms + row.read_ms > 0)
      note += fmt::format(": write {} / run {} / read {}", milliseconds(row.write_ms),
                          milliseconds(row.run_ms), milliseconds(row.read_ms));
    const bool alarm = row.label == "unattributed" && row.share > kUnattributedAlarm;
    table.rows.push_back({{row.label, row.tag + (row.modelled ? " modelled" : ""),
                           milliseconds(row.ms), row.in_layer ? std::to_string(flow.layers) : "",
                           milliseconds(row.total_ms), percent(row.share), note},
                          alarm          ? RowStyle::alarm
                          : row.in_layer ? RowStyle::inner
                                         : RowStyle::plain});
  }
  if (inside) end_of_layers();
  table.rows.push_back(
      {{prefill ? "TTFT" : "TPOT", "", "", "", milliseconds(flow.total_ms), percent(1), ""},
       RowStyle::total});
  const bool is_last = !prefill || summary.decode.tokens == 0;
  if (is_last) table.notes = name_lines(summary);
  if (!prefill) return table;
  std::vector<std::string> phases;
  for (const SetupRow& row : summary.setup)
    phases.push_back(fmt::format("{} {}", row.phase, seconds_text(row.seconds)));
  table.notes.push_back("Before it, once: " + joined(phases, " -> "));
  return table;
}

Table attribution_table(const Summary& summary) {
  Table table{.id = "attribution",
              .title = "Wall-time attribution",
              .modelled = summary.modelled,
              .columns = {{"", false},
                          {"prefill ms", true},
                          {"share", true, 2},
                          {"decode ms/token", true},
                          {"share", true, 2},
                          {"", false, 1}}};
  const Attribution& first = summary.prefill.wall;
  const Attribution& later = summary.decode.wall;
  const double tokens = std::max(1u, summary.decode.tokens);
  const auto row = [&](const char* label, double Attribution::* part, const std::string& note,
                       RowStyle style = RowStyle::plain) {
    const auto share = [&](const Attribution& wall) {
      return percent(wall.wall > 0 ? wall.*part / wall.wall : 0);
    };
    table.rows.push_back({{label, milliseconds(first.*part), share(first),
                           milliseconds(later.*part / tokens), share(later), note},
                          style});
  };
  row("device wait", &Attribution::device,
      fmt::format("{} and {:.4g} dispatches", first.dispatches,
                  static_cast<double>(later.dispatches) / tokens));
  row("host ops", &Attribution::host,
      fmt::format("{} and {:.4g} operations", first.host_ops,
                  static_cast<double>(later.host_ops) / tokens));
  row("copies", &Attribution::copies, "buffers written and read");
  row("scheduling", &Attribution::scheduling, "inside the pipeline, between dispatches");
  const bool alarm = first.unattributed_share() > kUnattributedAlarm ||
                     later.unattributed_share() > kUnattributedAlarm;
  row("unattributed", &Attribution::unattributed, alarm ? "more than 1 %" : "outside all of these",
      alarm ? RowStyle::alarm : RowStyle::plain);
  row("wall", &Attribution::wall, "", RowStyle::total);
  return table;
}

Table layer_table(const Summary& summary) {
  Table table{.id = "layers",
              .title = "Per layer",
              .modelled = summary.modelled,
              .columns = {{"layer", true},
                          {"prefill ms", true},
                          {"decode avg ms", true},
                          {"min", true, 1},
                          {"max", true, 1}}};
  for (const LayerRow& row : summary.layers)
    table.rows.push_back(
        {{std::to_string(row.layer), milliseconds(row.prefill_ms), milliseconds(row.decode.avg),
          milliseconds(row.decode.min), milliseconds(row.decode.max)}});
  return table;
}

Table trend_table(const Summary& summary) {
  const Trend& trend = summary.trend;
  Table table{.id = "trend",
              .title = "Per-token trend",
              .modelled = summary.modelled,
              .columns = {{"token", false}, {"ms", true}, {"", false}}};
  if (summary.tokens.empty()) {
    table.notes.push_back("No token was decoded after the first.");
    return table;
  }
  const auto row = [&](const char* label, const std::string& value, const std::string& note = "") {
    table.rows.push_back({{label, value, note}});
  };
  const auto at = [&](size_t i) {
    return fmt::format("at {} positions", summary.tokens[i].context);
  };
  row("first", milliseconds(trend.first), at(0));
  row("middle", milliseconds(trend.middle), at(summary.tokens.size() / 2));
  row("last", milliseconds(trend.last), at(summary.tokens.size() - 1));
  row("min", milliseconds(trend.min));
  row("max", milliseconds(trend.max));
  row("avg", milliseconds(trend.avg));
  row("drift", fmt::format("{:+.1f} %", trend.drift_percent), "first to last");
  row("slope", fmt::format("{:+.3f}", trend.slope_us_per_position),
      fmt::format("± {:.3f} us per position of context, least squares with standard error",
                  trend.slope_error_us));
  return table;
}

Table setup_table(const Profile& profile, const Summary& summary) {
  Table table{.id = "setup",
              .title = "Set-up",
              .columns = {{"phase", false}, {"seconds", true}, {"share", true}, {"", false}}};
  for (const SetupRow& row : summary.setup)
    table.rows.push_back({{row.phase, fmt::format("{:.4f}", row.seconds), percent(row.share),
                           row.count > 1 ? fmt::format("{} times", row.count) : ""}});
  table.rows.push_back(
      {{"set-up", fmt::format("{:.4f}", profile.setup_seconds), percent(1), ""}, RowStyle::total});
  table.notes.push_back("Measured on this machine, a virtual device's set-up included.");
  return table;
}

// What it comes to, before the tables.
std::string opening(const Profile& profile, const TextStyle& style) {
  if (profile.runs.empty()) return "";
  const ProfileRun& run = typical_run(profile);
  std::vector<std::string> lines = {conclusion(run, summarise(profile, run))};
  for (const std::string& line : request_lines(profile, run)) lines.push_back(line);
  std::string out;
  for (const std::string& line : lines)
    for (const std::string& part :
         style.width == 0 ? std::vector{line} : wrapped_lines(line, style.width))
      out += inked(part, Ink::bold, style) + "\n";
  return out + "\n";
}

std::string text_report(const Profile& profile, const TextStyle& style) {
  return opening(profile, style) + joined(report_tables(profile), "\n", [&](const Table& table) {
           return to_text(table, style);
         });
}

// The sections about devices: calls, buffers, dispatches, operators, receipt, sweep.

namespace {

std::string share_or_unknown(double share) {
  return share > 0 ? percent(share) : "n/a";
}

std::string range_label(size_t bucket) {
  const auto edge = [](size_t i) {
    const double edge_ms = kHistogramEdgesMs[i];
    return edge_ms < 1 ? fmt::format("{:g} us", edge_ms * 1e3) : fmt::format("{:g} ms", edge_ms);
  };
  if (bucket == 0) return "up to " + edge(0);
  if (bucket == kHistogramEdgesMs.size()) return "over " + edge(bucket - 1);
  return edge(bucket - 1) + " to " + edge(bucket);
}

void add_call_rows(Table& table, const PhaseSummary& phase, const char* name) {
  for (const CallRow& row : phase.calls)
    table.rows.push_back(
        {{row.program, name, row.tag + (row.modelled ? " modelled" : ""),
          std::to_string(row.run.count), milliseconds(row.run.avg), milliseconds(row.run.p50),
          milliseconds(row.run.p95), milliseconds(row.run.max), fmt::format("{:.4g}", row.launches),
          megabytes(row.bytes_written), megabytes(row.bytes_read), fmt::format("{:.2f}", row.gb_s),
          fmt::format("{:.1f}", row.gflops),
          share_or_unknown(row.peak_bandwidth_share) + " / " +
              share_or_unknown(row.peak_flops_share)}});
}

void add_buffer_rows(Table& table, const PhaseSummary& phase, const char* name) {
  double write = 0, run = 0, read = 0;
  for (const CallRow& row : phase.calls) {
    table.rows.push_back(
        {{row.program, name, milliseconds(row.write.avg), milliseconds(row.run.avg),
          milliseconds(row.read.avg), megabytes(row.bytes_written), megabytes(row.bytes_read),
          std::to_string(row.run.count)}});
    write += row.write.total;
    run += row.run.total;
    read += row.read.total;
  }
  const double all = write + run + read;
  if (all <= 0) return;
  table.rows.push_back({{"all calls, total", name, milliseconds(write), milliseconds(run),
                         milliseconds(read), "", "", ""},
                        RowStyle::total});
  table.rows.push_back(
      {{"share", name, percent(write / all), percent(run / all), percent(read / all), "", "", ""},
       RowStyle::total});
}

std::string mean_and_spread(const std::vector<double>& samples, int digits) {
  if (samples.empty()) return "";
  const Spread spread = spread_of(samples);
  if (samples.size() == 1) return fmt::format("{:.{}f}", spread.mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", spread.mean, digits, spread.deviation, digits);
}

std::string counts(const DeviceCounters& device) {
  return fmt::format("{} of {} completed, {}, {} bytes, {} FLOP declared", device.completions,
                     counted(device.submissions, "submission"), counted(device.launches, "launch"),
                     compact(static_cast<double>(device.bytes)),
                     compact(static_cast<double>(device.flops)));
}

std::string energy_text(const Energy& energy) {
  if (!energy.prefill_joules && !energy.decode_joules) return "n/a (" + energy.reason + ")";
  return fmt::format("{:.3f} J prefill, {:.3f} J decode, read from {}",
                     energy.prefill_joules.value_or(0), energy.decode_joules.value_or(0),
                     energy.rail);
}

// "o_ffn 47df58f0, ...": enough digits to compare by eye; the JSON has them all.
std::string loaded_text(const Receipt& receipt, const std::string& device) {
  const auto is_on_device = [&](const LoadedCode& code) { return code.device == device; };
  return joined(receipt.loaded_code | std::views::filter(is_on_device), ", ",
                [](const LoadedCode& code) { return code.program + " " + code.hash.substr(0, 8); });
}

}  // namespace

Table call_table(const Profile& profile, const Summary& summary) {
  Table table{.id = "calls",
              .title = "Device calls",
              .modelled = summary.modelled,
              .columns = {{"program", false},
                          {"phase", false},
                          {"where", false},
                          {"calls", true},
                          {"avg ms", true},
                          {"p50", true, 3},
                          {"p95", true, 4},
                          {"max", true, 2},
                          {"launches", true, 5},
                          {"MB in", true, 6},
                          {"MB out", true, 6},
                          {"GB/s", true, 1},
                          {"GFLOP/s", true, 1},
                          {"of peaks", true, 1}}};
  add_call_rows(table, summary.prefill, "prefill");
  add_call_rows(table, summary.decode, "decode");
  table.notes.push_back(
      "From submission to completion. GB/s and FLOP/s are of the work that the launches declare; "
      "of peaks: of the memory's and of the arithmetic's.");
  for (const DeviceFacts& device : profile.facts.devices) {
    if (device.is_host) continue;
    if (device.peak.gb_s <= 0 && device.peak.gflops <= 0) continue;
    table.notes.push_back(fmt::format(
        "Peak of {}: {} GB/s, {} GFLOP/s ({})", device.name,
        device.peak.gb_s > 0 ? compact(device.peak.gb_s) : "unknown",
        device.peak.gflops > 0 ? compact(device.peak.gflops) : "unknown", device.peak.source));
  }
  return table;
}

Table host_table(const Summary& summary) {
  Table table{.id = "host",
              .title = "Host operations",
              .columns = {{"operation", false},
                          {"phase", false},
                          {"count", true, 1},
                          {"avg ms", true},
                          {"p95", true, 3},
                          {"max", true, 2},
                          {"total ms", true}}};
  const auto add = [&](const PhaseSummary& phase, const char* name) {
    double total = 0;
    uint64_t count = 0;
    for (const HostRow& row : phase.host) {
      table.rows.push_back(
          {{row.label, name, std::to_string(row.time.count), milliseconds(row.time.avg),
            milliseconds(row.time.p95), milliseconds(row.time.max), milliseconds(row.time.total)}});
      total += row.time.total;
      count += row.time.count;
    }
    if (count > 0)
      table.rows.push_back(
          {{"all", name, std::to_string(count), "", "", "", milliseconds(total)}, RowStyle::total});
  };
  add(summary.prefill, "prefill");
  add(summary.decode, "decode");
  table.notes.push_back("Measured on this machine.");
  return table;
}

Table buffer_table(const Summary& summary) {
  Table table{.id = "buffers",
              .title = "Buffer write / run / read per call",
              .modelled = summary.modelled,
              .columns = {{"program", false},
                          {"phase", false},
                          {"write ms", true},
                          {"run ms", true},
                          {"read ms", true},
                          {"MB in", true, 1},
                          {"MB out", true, 1},
                          {"calls", true, 2}}};
  add_buffer_rows(table, summary.prefill, "prefill");
  add_buffer_rows(table, summary.decode, "decode");
  if (summary.prefill.wall.copies + summary.decode.wall.copies <= 0)
    table.notes.push_back("Nothing was copied: the device computes in the host's memory.");
  return table;
}

Table dispatch_table(const Profile& profile, const ProfileRun& run, const Summary& summary) {
  Table table{.id = "dispatches",
              .title = "Dispatches",
              .modelled = summary.modelled,
              .columns = {{"run time", false}, {"prefill", true}, {"decode", true}}};
  for (size_t i = 0; i < summary.prefill.histogram.size(); ++i)
    if (summary.prefill.histogram[i] + summary.decode.histogram[i] > 0)
      table.rows.push_back({{range_label(i), std::to_string(summary.prefill.histogram[i]),
                             std::to_string(summary.decode.histogram[i])}});
  table.rows.push_back({{"all", std::to_string(summary.prefill.wall.dispatches),
                         std::to_string(summary.decode.wall.dispatches)},
                        RowStyle::total});
  if (const auto per_token = dispatches_per_token(run.receipt))
    table.notes.push_back(
        fmt::format("{:.4g} dispatches per decoded token (fusion {}), counted by "
                    "the device's completions",
                    *per_token, profile.facts.origin.fusion));
  return table;
}

Table operator_table(const Summary& summary) {
  Table table{.id = "operators",
              .title = "Operators",
              .modelled = summary.modelled,
              .columns = {{"operator", false},
                          {"phase", false},
                          {"launches", true, 2},
                          {"avg ms", true, 1},
                          {"total ms", true},
                          {"share", true},
                          {"GB/s", true, 3},
                          {"GFLOP/s", true, 3},
                          {"", false}}};
  const auto add = [&](const PhaseSummary& phase, const char* name) {
    for (const OperatorRow& row : phase.operators)
      table.rows.push_back({{row.label, name, std::to_string(row.calls), milliseconds(row.avg),
                             milliseconds(row.total), percent(row.share),
                             row.gb_s > 0 ? fmt::format("{:.2f}", row.gb_s) : "",
                             row.gflops > 0 ? fmt::format("{:.1f}", row.gflops) : "",
                             row.modelled ? "modelled" : ""}});
  };
  add(summary.prefill, "prefill");
  add(summary.decode, "decode");
  table.notes.push_back("All devices, the host's steps included; share of the phase's wall time.");
  return table;
}

Table receipt_table(const Profile& profile, const ProfileRun& run) {
  const Receipt& receipt = run.receipt;
  Table table{.id = "receipt",
              .title = "Receipt",
              .modelled = is_modelled(profile),
              .columns = {{"", false}, {"", false}}};
  const auto add = [&](const std::string& label, const std::string& text,
                       RowStyle style = RowStyle::plain) {
    table.rows.push_back({{label, text}, style});
  };
  const std::string executed = execution_text(receipt);
  add("executed on", executed,
      executed == device_names(receipt.devices) ? RowStyle::plain : RowStyle::alarm);
  for (const DeviceCounters& device : receipt.devices)
    add("  " + device.device,
        (device.is_virtual ? "virtual, time modelled: " : "") + counts(device));
  for (const std::string& fallback : receipt.fallbacks) add("fallback", fallback);
  if (receipt.fallbacks.empty()) add("fallbacks", "none");
  if (!receipt.on_host.empty()) add("on the host", "by design: " + joined(receipt.on_host, ", "));
  add("stopped at", run.stopped);
  add("energy", energy_text(receipt.energy));
  const bool refused = receipt.plausibility.verdict == Verdict::refused;
  add("plausibility", std::string(name(receipt.plausibility.verdict)),
      refused ? RowStyle::alarm : RowStyle::plain);
  for (const std::string& reason : receipt.plausibility.reasons)
    add("  refused", reason, RowStyle::alarm);
  for (const std::string& check : receipt.plausibility.checks) add("  holds", check);
  for (const std::string& unknown : receipt.plausibility.unchecked) add("  unchecked", unknown);
  add("weights", profile.facts.origin.weights_hash +
                     " (every byte of the weights, config, tokenizer, template)");
  for (const DeviceCounters& device : receipt.devices)
    if (const std::string list = loaded_text(receipt, device.device); !list.empty())
      add("loaded", device.device + ": " + list);
  if (run.simulated_seconds > 0)
    add("simulation", fmt::format("took {:.2f} s of wall time, which is not a device's speed",
                                  run.simulated_seconds));
  add("command", profile.facts.origin.command);
  add("time", profile.facts.origin.time);
  return table;
}

Table sweep_table(const Profile& profile) {
  Table table{.id = "sweep",
              .title = "Scaling with the prompt",
              .modelled = is_modelled(profile),
              .columns = {{"prompt", true},
                          {"prefill s", true, 1},
                          {"prefill tok/s", true},
                          {"decode tok/s", true},
                          {"ms/token", true, 2},
                          {"executed on", false}}};
  for (const SweepRow& row : profile.sweep) {
    const std::string length = std::to_string(row.prompt_tokens);
    const Plausibility& verdict = row.receipt.plausibility;
    if (verdict.verdict == Verdict::refused) {
      table.rows.push_back(
          {{length, "refused", "refused", "refused", "refused", verdict.reasons.front()},
           RowStyle::alarm});
      continue;
    }
    std::vector<double> prefill_rate, decode_rate;
    for (const double s : row.prefill_s) prefill_rate.push_back(row.prompt_tokens / s);
    for (const double each : row.tpot_ms) decode_rate.push_back(1e3 / each);
    table.rows.push_back(
        {{length, mean_and_spread(row.prefill_s, 4), mean_and_spread(prefill_rate, 1),
          mean_and_spread(decode_rate, 2), mean_and_spread(row.tpot_ms, 3),
          row.note.empty() ? execution_text(row.receipt) : row.note}});
  }
  table.notes.push_back("prefill: from the prompt's tokens to the first token chosen");
  add_facts(profile, table);
  return table;
}

std::vector<Table> report_tables(const Profile& profile) {
  std::vector<Table> tables;
  if (!profile.sweep.empty()) tables.push_back(sweep_table(profile));
  if (profile.runs.empty()) return tables;
  const ProfileRun& run = typical_run(profile);
  const Summary summary = summarise(profile, run);
  tables.push_back(headline_table(profile, run, summary));
  tables.push_back(flow_table(summary.prefill, summary, true));
  if (summary.decode.tokens > 0) tables.push_back(flow_table(summary.decode, summary, false));
  tables.push_back(attribution_table(summary));
  tables.push_back(layer_table(summary));
  tables.push_back(call_table(profile, summary));
  tables.push_back(host_table(summary));
  tables.push_back(buffer_table(summary));
  tables.push_back(dispatch_table(profile, run, summary));
  tables.push_back(operator_table(summary));
  tables.push_back(trend_table(summary));
  tables.push_back(setup_table(profile, summary));
  tables.push_back(receipt_table(profile, run));
  return tables;
}

}  // namespace tyto
