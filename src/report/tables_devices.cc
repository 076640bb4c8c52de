// The sections about devices: calls, buffers, dispatches, operators, receipt, sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "base/counted.h"
#include "base/joined.h"
#include "report/report.h"
#include "report/table_parts.h"

namespace tyto {
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
    add("simulation", fmt::format("took {:.2f} s of wall time, which is no device's speed",
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
