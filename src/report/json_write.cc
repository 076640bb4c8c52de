// The profile and the rows of its report as JSON. docs/profile.md is the schema's description.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "evidence/receipt_json.h"
#include "report/json_schema.h"
#include "report/report.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json limits_json(const DeviceLimits& limits) {
  return {{"gb_s", limits.gb_s},
          {"gflops", limits.gflops},
          {"dispatch_us", limits.dispatch_us},
          {"source", limits.source}};
}

ordered_json facts_json(const Facts& facts) {
  const ReceiptContext& origin = facts.origin;
  ordered_json devices = ordered_json::array(), limits = ordered_json::array();
  for (const DeviceFacts& device : facts.devices)
    devices.push_back({{"name", device.name},
                       {"tag", device.tag},
                       {"description", device.description},
                       {"virtual", device.is_virtual},
                       {"host", device.is_host},
                       {"peak", limits_json(device.peak)}});
  for (const NamedLimits& of : origin.limits)
    limits.push_back({{"device", of.device}, {"limits", limits_json(of.limits)}});
  return {{"tyto", origin.version},
          {"time", origin.time},
          {"command", origin.command},
          {"model", origin.model},
          {"model_name", facts.model_name},
          {"model_format", origin.model_format},
          {"model_size", origin.model_size},
          {"model_type", origin.model_type},
          {"weight_bytes", origin.weight_bytes},
          {"weights_hash", origin.weights_hash},
          {"weights_hash_form", origin.weights_hash_form},
          {"identity_seconds", origin.identity_seconds},
          {"identity_cached", origin.identity_cached},
          {"layers", facts.layers},
          {"fusion", origin.fusion},
          {"device_choice", origin.device_choice},
          {"threads", facts.threads},
          {"context", facts.context},
          {"prefill_chunk", facts.prefill_chunk},
          {"kv_type", facts.kv_type},
          {"sampling", facts.sampling},
          {"prompt", facts.prompt},
          {"devices", devices},
          {"limits", limits}};
}

ordered_json stat_json(const Stat& stat) {
  return {{"count", stat.count}, {"total", stat.total}, {"avg", stat.avg}, {"min", stat.min},
          {"p50", stat.p50},     {"p95", stat.p95},     {"max", stat.max}};
}

ordered_json wall_json(const Attribution& wall) {
  return {{"wall", wall.wall},
          {"device_wait", wall.device},
          {"host_ops", wall.host},
          {"copies", wall.copies},
          {"scheduling", wall.scheduling},
          {"unattributed", wall.unattributed},
          {"dispatches", wall.dispatches}};
}

ordered_json flow_json(const Flow& flow) {
  ordered_json rows = ordered_json::array();
  for (const FlowRow& row : flow.rows)
    rows.push_back({{"step", row.label},
                    {"where", row.tag},
                    {"modelled", row.modelled},
                    {"in_layer", row.in_layer},
                    {"ms", row.ms},
                    {"total_ms", row.total_ms},
                    {"share", row.share},
                    {"write_ms", row.write_ms},
                    {"run_ms", row.run_ms},
                    {"read_ms", row.read_ms},
                    {"launches", row.launches}});
  return {{"layers", flow.layers},
          {"layer_ms", flow.layer_ms},
          {"total_ms", flow.total_ms},
          {"rows", rows}};
}

ordered_json phase_json(const PhaseSummary& phase) {
  ordered_json calls = ordered_json::array(), host = ordered_json::array(),
               operators = ordered_json::array();
  for (const CallRow& row : phase.calls)
    calls.push_back({{"program", row.program},
                     {"where", row.tag},
                     {"modelled", row.modelled},
                     {"run_ms", stat_json(row.run)},
                     {"write_ms", stat_json(row.write)},
                     {"read_ms", stat_json(row.read)},
                     {"launches", row.launches},
                     {"bytes_written", row.bytes_written},
                     {"bytes_read", row.bytes_read},
                     {"gb_s", row.gb_s},
                     {"gflops", row.gflops},
                     {"share_of_peak_gb_s", row.peak_bandwidth_share},
                     {"share_of_peak_gflops", row.peak_flops_share}});
  for (const HostRow& row : phase.host)
    host.push_back({{"operation", row.label}, {"ms", stat_json(row.time)}});
  for (const OperatorRow& row : phase.operators)
    operators.push_back({{"operator", row.label},
                         {"modelled", row.modelled},
                         {"launches", row.calls},
                         {"total_ms", row.total},
                         {"avg_ms", row.avg},
                         {"share", row.share},
                         {"gb_s", row.gb_s},
                         {"gflops", row.gflops}});
  return {{"tokens", phase.tokens},
          {"flow", flow_json(phase.flow)},
          {"wall", wall_json(phase.wall)},
          {"calls", calls},
          {"host", host},
          {"operators", operators},
          {"histogram_ms", kHistogramEdgesMs},
          {"histogram", phase.histogram}};
}

ordered_json report_json(const Profile& profile, const ProfileRun& run) {
  const Summary summary = summarise(profile, run);
  const Headline& headline = summary.headline;
  ordered_json layers = ordered_json::array(), tokens = ordered_json::array(),
               setup = ordered_json::array();
  for (const LayerRow& row : summary.layers)
    layers.push_back({{"layer", row.layer},
                      {"prefill_ms", row.prefill_ms},
                      {"decode_ms", stat_json(row.decode)}});
  for (const TokenRow& row : summary.tokens)
    tokens.push_back(
        {{"token", row.token}, {"context", row.context}, {"wall", wall_json(row.wall)}});
  for (const SetupRow& row : summary.setup)
    setup.push_back({{"phase", row.phase}, {"seconds", row.seconds}, {"count", row.count}});
  ordered_json head = {{"modelled", summary.modelled},
                       {"prompt_tokens", headline.prompt_tokens},
                       {"generated_tokens", headline.generated_tokens},
                       {"setup_s", headline.setup_s}};
  if (run.receipt.plausibility.verdict == Verdict::refused) {
    head["refused"] = run.receipt.plausibility.reasons;
  } else {
    head["ttft_ms"] = headline.ttft_ms;
    head["tpot_ms"] = headline.tpot_ms;
    head["prefill_tok_s"] = headline.prefill_tok_s;
    head["decode_tok_s"] = headline.decode_tok_s;
  }
  const Trend& trend = summary.trend;
  return {{"modelled", summary.modelled},
          {"headline", head},
          {"prefill", phase_json(summary.prefill)},
          {"decode", phase_json(summary.decode)},
          {"layers", layers},
          {"tokens", tokens},
          {"trend",
           {{"first", trend.first},
            {"middle", trend.middle},
            {"last", trend.last},
            {"min", trend.min},
            {"max", trend.max},
            {"avg", trend.avg},
            {"drift_percent", trend.drift_percent},
            {"slope_us_per_position", trend.slope_us_per_position},
            {"slope_error_us", trend.slope_error_us}}},
          {"setup", setup}};
}

ordered_json sweep_json(const Profile& profile) {
  ordered_json rows = ordered_json::array();
  for (const SweepRow& row : profile.sweep)
    rows.push_back({{"prompt_tokens", row.prompt_tokens},
                    {"generated_tokens", row.generated_tokens},
                    {"modelled", has_virtual_device(row.receipt)},
                    {"prefill_s", row.prefill_s},
                    {"tpot_ms", row.tpot_ms},
                    {"note", row.note},
                    {"receipt", receipt_fields(row.receipt, profile.facts.origin)}});
  return rows;
}

// One event to a line, as an array in the order of kEventColumns.
void append_events(std::string& out, const std::vector<Event>& events) {
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    fmt::format_to(std::back_inserter(out), "{}\n[{},{},{},{},{},{},{},{},{},{},{},{},{}]",
                   i == 0 ? "" : ",", static_cast<int>(e.kind), e.name, e.device, e.dispatch,
                   e.token, e.position, e.rows, e.launches, e.start_ns, e.end_ns, e.modelled_ns,
                   e.bytes, e.flops);
  }
}

std::string run_json(const Profile& profile, const ProfileRun& run) {
  const ordered_json head = {{"lost", run.lost},
                             {"stopped", run.stopped},
                             {"answer", run.answer},
                             {"simulated_s", run.simulated_seconds},
                             {"receipt", receipt_fields(run.receipt, profile.facts.origin)}};
  std::string out = text_of(head);
  out.pop_back();
  out += ",\n\"events\":[";
  append_events(out, run.events);
  return out + "]}";
}

}  // namespace

std::string json_report(const Profile& profile) {
  ordered_json setup = ordered_json::array(), names = ordered_json::array();
  const uint64_t begin = setup_begin(profile);
  for (const SetupSpan& span : profile.setup)
    setup.push_back({span.phase, span.start_ns - begin, span.end_ns - begin});
  for (const EventName& name : profile.names)
    names.push_back({name.label, name.layer == kNoLayer ? -1 : static_cast<int>(name.layer),
                     name.block, static_cast<int>(name.op)});
  std::string out = "{\"schema\":\"" + std::string(kProfileSchema) + "\"";
  const auto add = [&](const char* key, const std::string& value) {
    out += fmt::format(",\n\"{}\":{}", key, value);
  };
  add("facts", text_of(facts_json(profile.facts)));
  if (!profile.runs.empty()) add("report", text_of(report_json(profile, typical_run(profile))));
  add("sweep", text_of(sweep_json(profile)));
  add("setup_s", text_of(profile.setup_seconds));
  add("setup", text_of(setup));
  add("names", text_of(names));
  add("event_kinds", text_of(kEventKindNames));
  add("event_columns", text_of(kEventColumns));
  std::string runs = "[";
  for (const ProfileRun& run : profile.runs)
    runs += (runs.size() == 1 ? "\n" : ",\n") + run_json(profile, run);
  add("runs", runs + "]");
  return out + "}\n";
}

}  // namespace tyto
