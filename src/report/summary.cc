#include "report/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "report/summary_parts.h"

namespace tyto {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// [token]
std::vector<Attribution> attribution_by_token(const Profile& profile, const Records& records) {
  std::vector<Attribution> tokens(records.tokens.size());
  std::vector<double> inside(tokens.size());  // of Pipeline::run
  for (const DispatchRecord& dispatch : records.dispatches) {
    if (dispatch.token >= tokens.size()) continue;
    Attribution& token = tokens[dispatch.token];
    const bool is_host = profile.facts.devices[dispatch.device].is_host;
    (is_host ? token.host : token.device) += dispatch.run();
    ++(is_host ? token.host_ops : token.dispatches);
    token.copies += dispatch.write + dispatch.read;
    inside[dispatch.token] += dispatch.run() + dispatch.write + dispatch.read;
  }
  for (const HostRecord& host : records.host) {
    if (host.token >= tokens.size()) continue;
    tokens[host.token].host += host.ms;
    ++tokens[host.token].host_ops;
    if (host.in_run) inside[host.token] += host.ms;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i].wall = records.tokens[i].wall;
    tokens[i].scheduling = records.tokens[i].runs - inside[i];
    const double rest = tokens[i].wall - tokens[i].device - tokens[i].host - tokens[i].copies -
                        tokens[i].scheduling;
    tokens[i].unattributed = std::max(0.0, rest);
    // The pipeline returns a little after the token was chosen: that is part of the next token.
    tokens[i].scheduling += std::min(0.0, rest);
  }
  return tokens;
}

Attribution sum(const PhaseView& view, const std::vector<Attribution>& tokens) {
  Attribution all;
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    if (!view.has(i)) continue;
    all.wall += tokens[i].wall;
    all.device += tokens[i].device;
    all.host += tokens[i].host;
    all.copies += tokens[i].copies;
    all.scheduling += tokens[i].scheduling;
    all.unattributed += tokens[i].unattributed;
    all.dispatches += tokens[i].dispatches;
    all.host_ops += tokens[i].host_ops;
  }
  return all;
}

struct CallSamples {
  std::vector<double> run, write, read;
  double launches = 0, written = 0, read_back = 0, bytes = 0, flops = 0;
};

CallRow call_row(const std::string& program, const DeviceFacts& device, CallSamples samples) {
  const auto count = static_cast<double>(samples.run.size());
  CallRow row{.program = program, .tag = device.tag, .modelled = device.is_virtual};
  row.launches = samples.launches / count;
  row.bytes_written = samples.written / count;
  row.bytes_read = samples.read_back / count;
  row.run = stat_of(std::move(samples.run));
  row.write = stat_of(std::move(samples.write));
  row.read = stat_of(std::move(samples.read));
  row.gb_s = ratio(samples.bytes / 1e6, row.run.total);
  row.gflops = ratio(samples.flops / 1e6, row.run.total);
  row.peak_bandwidth_share = ratio(row.gb_s, device.peak.gb_s);
  row.peak_flops_share = ratio(row.gflops, device.peak.gflops);
  return row;
}

std::vector<CallRow> calls_of(const PhaseView& view) {
  std::vector<std::pair<std::string, uint8_t>> order;
  std::map<std::pair<std::string, uint8_t>, CallSamples> samples;
  for (const DispatchRecord& dispatch : view.records.dispatches) {
    if (!view.has(dispatch.token) || view.device(dispatch.device).is_host) continue;
    const std::pair key{view.name(dispatch.name).label, dispatch.device};
    if (!samples.contains(key)) order.push_back(key);
    CallSamples& call = samples[key];
    call.run.push_back(dispatch.run());
    call.write.push_back(dispatch.write);
    call.read.push_back(dispatch.read);
    call.launches += dispatch.launches;
    call.written += static_cast<double>(dispatch.bytes_written);
    call.read_back += static_cast<double>(dispatch.bytes_read);
    call.bytes += static_cast<double>(dispatch.bytes);
    call.flops += static_cast<double>(dispatch.flops);
  }
  std::vector<CallRow> rows;
  for (const auto& key : order)
    rows.push_back(call_row(key.first, view.device(key.second), samples[key]));
  return rows;
}

std::vector<HostRow> host_rows(const PhaseView& view) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<double>> samples;
  const auto add = [&](const std::string& label, double took) {
    if (!samples.contains(label)) order.push_back(label);
    samples[label].push_back(took);
  };
  for (const HostRecord& host : view.records.host)
    if (view.has(host.token) && !host.in_run) add(view.name(host.name).label, host.ms);
  for (const DispatchRecord& dispatch : view.records.dispatches)
    if (view.has(dispatch.token) && view.device(dispatch.device).is_host)
      add(view.name(dispatch.name).label, dispatch.run());
  for (const HostRecord& host : view.records.host)
    if (view.has(host.token) && host.in_run) add(view.name(host.name).label, host.ms);
  std::vector<HostRow> rows;
  for (const std::string& label : order) rows.push_back({label, stat_of(samples[label])});
  return rows;
}

PhaseSummary phase_of(const PhaseView& view, const std::vector<Attribution>& tokens) {
  PhaseSummary phase;
  phase.wall = sum(view, tokens);
  phase.calls = calls_of(view);
  phase.host = host_rows(view);
  phase.flow = flow_of(view, phase.wall);
  phase.operators = operators_of(view, phase.wall.wall);
  for (const DispatchRecord& dispatch : view.records.dispatches) {
    if (!view.has(dispatch.token) || view.device(dispatch.device).is_host) continue;
    const auto bucket =
        std::lower_bound(kHistogramEdgesMs.begin(), kHistogramEdgesMs.end(), dispatch.run());
    ++phase.histogram[static_cast<size_t>(bucket - kHistogramEdgesMs.begin())];
  }
  return phase;
}

void add_layers(Summary& summary, const PhaseView& prefill, const PhaseView& decode) {
  const LayerTimes first = layer_times(prefill);
  const LayerTimes later = layer_times(decode);
  summary.layer_parts = first.parts.size() >= later.parts.size() ? first.parts : later.parts;
  const size_t parts = summary.layer_parts.size();
  const double tokens = std::max<double>(1, decode.tokens());
  for (size_t i = 0; i < std::max(first.total.size(), later.total.size()); ++i) {
    LayerRow row{.layer = static_cast<uint32_t>(i)};
    row.prefill_parts.resize(parts);
    row.decode_parts.resize(parts);
    for (size_t part = 0; part < parts; ++part) {
      const auto value = [&](const LayerTimes& times) {  // the parts of both have the same names
        const auto at =
            std::find(times.parts.begin(), times.parts.end(), summary.layer_parts[part]);
        return i < times.total.size() && at != times.parts.end()
                   ? times.total[i][static_cast<size_t>(at - times.parts.begin())]
                   : 0;
      };
      row.prefill_parts[part] = value(first);
      row.decode_parts[part] = value(later) / tokens;
      row.prefill_ms += row.prefill_parts[part];
    }
    if (i < later.per_token.size()) row.decode = stat_of(later.per_token[i]);
    summary.layers.push_back(std::move(row));
  }
}

Trend trend_of(const std::vector<TokenRow>& tokens) {
  Trend trend;
  if (tokens.empty()) return trend;
  const auto wall = [&](size_t i) { return tokens[i].wall.wall; };
  trend.first = wall(0);
  trend.middle = wall(tokens.size() / 2);
  trend.last = wall(tokens.size() - 1);
  trend.min = trend.max = trend.first;
  double mean_x = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    trend.min = std::min(trend.min, wall(i));
    trend.max = std::max(trend.max, wall(i));
    trend.avg += wall(i) / static_cast<double>(tokens.size());
    mean_x += tokens[i].context / static_cast<double>(tokens.size());
  }
  trend.drift_percent = 100 * ratio(trend.last - trend.first, trend.first);
  double products = 0, squares = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    products += (tokens[i].context - mean_x) * (wall(i) - trend.avg);
    squares += (tokens[i].context - mean_x) * (tokens[i].context - mean_x);
  }
  const double slope = ratio(products, squares);
  double residuals = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double rest = wall(i) - trend.avg - slope * (tokens[i].context - mean_x);
    residuals += rest * rest;
  }
  trend.slope_us_per_position = slope * 1e3;
  if (tokens.size() > 2)
    trend.slope_error_us =
        1e3 * std::sqrt(ratio(residuals / static_cast<double>(tokens.size() - 2), squares));
  return trend;
}

std::vector<SetupRow> setup_rows(const Profile& profile) {
  std::vector<SetupRow> rows;
  double accounted = 0;
  for (const SetupSpan& span : profile.setup) {
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const SetupRow& other) { return other.phase == span.phase; });
    if (row == rows.end()) row = rows.insert(rows.end(), SetupRow{.phase = span.phase});
    const double seconds = ms(span.end_ns - span.start_ns) / 1e3;
    ++row->count;
    row->seconds += seconds;
    accounted += seconds;
  }
  rows.push_back({"everything else", 1, std::max(0.0, profile.setup_seconds - accounted), 0});
  for (SetupRow& row : rows) row.share = ratio(row.seconds, profile.setup_seconds);
  return rows;
}

}  // namespace

Stat stat_of(std::vector<double> values) {
  Stat stat;
  stat.count = values.size();
  if (values.empty()) return stat;
  std::sort(values.begin(), values.end());
  // The smallest value that is not below this share of all.
  const auto quantile = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
  };
  stat.total = std::accumulate(values.begin(), values.end(), 0.0);
  stat.avg = stat.total / static_cast<double>(values.size());
  stat.min = values.front();
  stat.p50 = quantile(0.5);
  stat.p95 = quantile(0.95);
  stat.max = values.back();
  return stat;
}

uint32_t PhaseView::tokens() const {
  uint32_t count = 0;
  for (uint32_t i = 0; i < records.tokens.size(); ++i) count += has(i) ? 1 : 0;
  return count;
}

Summary summarise(const Profile& profile, const ProfileRun& run) {
  const Records records = records_of(profile, run);
  const PhaseView prefill{profile, records, true}, decode{profile, records, false};
  const std::vector<Attribution> tokens = attribution_by_token(profile, records);
  Summary summary;
  summary.modelled = is_modelled(profile);
  summary.prefill = phase_of(prefill, tokens);
  summary.decode = phase_of(decode, tokens);
  summary.prefill.tokens = run.receipt.prompt_tokens;
  summary.decode.tokens = decode.tokens();
  for (uint32_t i = 1; i < tokens.size(); ++i)
    if (decode.has(i)) summary.tokens.push_back({i, records.tokens[i].context, tokens[i]});
  add_layers(summary, prefill, decode);
  summary.trend = trend_of(summary.tokens);
  summary.setup = setup_rows(profile);

  Headline& headline = summary.headline;
  headline.ttft_ms = summary.prefill.wall.wall;
  headline.tpot_ms = ratio(summary.decode.wall.wall, summary.decode.tokens);
  headline.decode_tok_s = ratio(1e3, headline.tpot_ms);
  headline.prefill_tok_s = ratio(run.receipt.prompt_tokens * 1e3, headline.ttft_ms);
  headline.setup_s = profile.setup_seconds;
  headline.prompt_tokens = run.receipt.prompt_tokens;
  headline.generated_tokens = run.receipt.generated_tokens;
  return summary;
}

const ProfileRun& typical_run(const Profile& profile) {
  TYTO_ASSERT(!profile.runs.empty());
  std::vector<std::pair<uint64_t, size_t>> walls;
  for (size_t i = 0; i < profile.runs.size(); ++i) {
    uint64_t last = 0;
    for (const Event& event : profile.runs[i].events)
      if (event.kind == EventKind::token) last = std::max(last, event.end_ns);
    walls.emplace_back(last, i);
  }
  std::sort(walls.begin(), walls.end());
  return profile.runs[walls[(walls.size() - 1) / 2].second];
}

}  // namespace tyto
