// The sections that tell the story of a run: headline, dataflow, attribution, layers, tokens.
#include <fmt/format.h>

#include <algorithm>

#include "base/columns.h"
#include "base/counted.h"
#include "base/joined.h"
#include "report/conclusion.h"
#include "report/report.h"
#include "report/table_parts.h"

namespace tyto {
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
        "Modelled: a virtual device's time comes from the cost model and is no measurement; the "
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

}  // namespace tyto
