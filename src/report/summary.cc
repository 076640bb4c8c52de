#include "report/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "base/utf8.h"

namespace tyto {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// [token]
std::vector<Attribution> attribution_by_token(const Profile& profile, const Records& records) {
  std::vector<Attribution> tokens(records.tokens.size());
  std::vector<double> inside(tokens.size());  // seconds inside Pipeline::run
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

// The tables that follow the network: dataflow, layers, operators.

namespace {

constexpr const char* kBetween = "scheduling";

// Steps outside the layers under the names people know them by.
std::string step_label(const std::string& label) {
  if (label == "gather_rows" || label == "final_norm") return "final norm";
  if (label == "lm_head" || label == "head") return "LM head";
  if (label == "rope_table") return "embed";
  return label;
}

// A dispatch, or its share that belongs to one row of the network.
struct Piece {
  std::string label;
  uint16_t layer = kNoLayer;
  double share = 1;
  double launches = 0;
  bool is_whole = true;
};

// A program inside one layer is a row itself. One that spans more (a head, a whole token) is shared
// out over the blocks of its launches, in proportion to their time.
std::vector<Piece> pieces_of(const PhaseView& view, const DispatchRecord& dispatch) {
  const EventName& program = view.name(dispatch.name);
  const double launches = dispatch.launches;
  if (program.layer != kNoLayer || dispatch.launch_events.empty())
    return {{program.layer == kNoLayer ? step_label(program.label) : program.label, program.layer,
             1, launches, true}};
  std::vector<Piece> pieces;
  double total = 0;
  for (const Event* launch : dispatch.launch_events) {
    const EventName& name = view.name(launch->name);
    const std::string label = name.layer == kNoLayer ? step_label(name.label) : name.block;
    auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& other) {
      return other.label == label && other.layer == name.layer;
    });
    if (piece == pieces.end())
      piece = pieces.insert(pieces.end(), Piece{label, name.layer, 0, 0, false});
    const double took = ms(launch->end_ns - launch->start_ns);
    piece->share += took;
    piece->launches += std::max<uint16_t>(1, launch->launches);
    total += took;
  }
  for (Piece& piece : pieces) {
    piece.share = total > 0 ? piece.share / total : 1.0 / static_cast<double>(pieces.size());
    piece.is_whole = pieces.size() == 1;
  }
  return pieces;
}

class FlowBuilder {
 public:
  explicit FlowBuilder(const PhaseView& view)
      : view_(view), layers_(std::max(1u, view.profile.facts.layers)) {}

  void add(const DispatchRecord& dispatch) {
    for (const Piece& piece : pieces_of(view_, dispatch)) {
      const bool in_layer = piece.layer != kNoLayer;
      const bool before = layer_.empty() || contains(before_, piece.label, dispatch.device);
      std::vector<Entry>& rows = in_layer ? layer_ : before ? before_ : after_;
      Entry& entry = find(rows, piece.label, dispatch.device, in_layer);
      entry.row.is_dispatch = piece.is_whole;
      if (!piece.is_whole)
        entry.row.note = "inside one dispatch, " + view_.name(dispatch.name).label;
      entry.calls += 1;
      entry.row.launches += piece.launches;
      entry.row.write_ms += piece.share * dispatch.write;
      entry.row.run_ms += piece.share * (dispatch.run() - dispatch.once);
      entry.row.read_ms += piece.share * dispatch.read;
      in_layers_ += in_layer ? piece.share * dispatch.usual() : 0;
    }
    if (dispatch.once > 0) {
      Entry& entry = find(before_, "first call", dispatch.device, false);
      entry.row.run_ms += dispatch.once;
      entry.row.note = "once, beyond what the same call takes later, such as waking the device";
    }
  }

  void add(const HostRecord& host) {
    const std::string& label = view_.name(host.name).label;
    const bool comes_first = label == "chat template" || label == "tokenize";
    std::vector<Entry>& rows = comes_first ? prompt_ : last_;
    const auto known = std::find_if(rows.begin(), rows.end(),
                                    [&](const Entry& e) { return e.row.label == label; });
    Entry& entry = known != rows.end() ? *known : rows.emplace_back();
    entry.row.label = label;
    entry.row.tag = kHostTag;
    entry.row.run_ms += host.ms;
  }

  Flow take(const Attribution& wall, double layers_wall) {
    Flow flow;
    const double passes = std::max(1u, view_.tokens());
    flow.layers = view_.profile.facts.layers;
    flow.total_ms = wall.wall / passes;
    flow.layer_ms = layers_wall / passes / layers_;
    const double between = std::max(0.0, layers_wall - in_layers_);
    if (view_.prefill)
      prompt_.push_back({{.label = "pad", .tag = "-", .note = "programs take any length"}});
    if (between > 1e-6)  // less is rounding: programs that span layers have nothing between
      layer_.push_back({{.label = kBetween, .tag = "-", .in_layer = true, .run_ms = between}});
    last_.push_back({{.label = kBetween, .tag = "-", .run_ms = wall.scheduling - between}});
    last_.push_back({{.label = "unattributed", .tag = "-", .run_ms = wall.unattributed}});
    for (std::vector<Entry>* part : {&prompt_, &before_, &layer_, &after_, &last_})
      for (Entry& entry : *part) flow.rows.push_back(finished(entry, passes, wall.wall));
    return flow;
  }

 private:
  struct Entry {
    FlowRow row;
    double calls = 0;
    uint8_t device = 0;
  };

  static bool contains(const std::vector<Entry>& rows, const std::string& label, uint8_t device) {
    return std::any_of(rows.begin(), rows.end(), [&](const Entry& entry) {
      return entry.row.label == label && entry.device == device;
    });
  }

  Entry& find(std::vector<Entry>& rows, const std::string& label, uint8_t device, bool in_layer) {
    for (Entry& entry : rows)
      if (entry.row.label == label && entry.device == device) return entry;
    const DeviceFacts& facts = view_.device(device);
    return rows.emplace_back(Entry{
        {.label = label, .tag = facts.tag, .modelled = facts.is_virtual, .in_layer = in_layer},
        0,
        device});
  }

  // From sums over the phase to one pass, and to one layer where the row is of the layers.
  FlowRow finished(Entry& entry, double passes, double wall) const {
    FlowRow& row = entry.row;
    const double sum = row.write_ms + row.run_ms + row.read_ms;
    row.total_ms = sum / passes;
    row.share = wall > 0 ? sum / wall : 0;
    const double divisor = passes * (row.in_layer ? layers_ : 1);
    row.ms = sum / divisor;
    row.write_ms /= divisor;
    row.run_ms /= divisor;
    row.read_ms /= divisor;
    if (entry.calls > 0) row.launches /= entry.calls;
    return row;
  }

  const PhaseView& view_;
  uint32_t layers_;
  double in_layers_ = 0;
  std::vector<Entry> prompt_, before_, layer_, after_, last_;
};

// A stretch of dispatches of one layer, one after the other.
struct Stretch {
  uint16_t layer = kNoLayer;
  uint32_t token = 0;
  double start = 0, end = 0, parts = 0;
};

class LayerBuilder {
 public:
  explicit LayerBuilder(const PhaseView& view) : view_(view) {}

  void add(const DispatchRecord& dispatch) {
    for (const Piece& piece : pieces_of(view_, dispatch)) {
      if (piece.layer == kNoLayer) continue;
      const double took = piece.share * dispatch.usual();
      sums_[{piece.layer, part(piece.label)}] += took;
      by_token_[{piece.layer, dispatch.token}] += took;
    }
    const uint16_t layer = view_.name(dispatch.name).layer;
    if (layer != stretch_.layer || dispatch.token != stretch_.token) {
      close();
      stretch_ = {layer, dispatch.token, dispatch.start, dispatch.end, 0};
    }
    stretch_.end = dispatch.end;
    stretch_.parts += dispatch.run() + dispatch.write + dispatch.read;
  }

  LayerTimes take() {
    close();
    LayerTimes times;
    times.parts = parts_;
    times.parts.push_back(kBetween);
    for (const auto& [key, took] : sums_) {
      if (key.first >= times.total.size())
        times.total.resize(key.first + 1u, std::vector<double>(times.parts.size()));
      times.total[key.first][key.second] = took;
    }
    times.per_token.resize(times.total.size());
    for (const auto& [layer, took] : between_)
      if (layer < times.total.size()) times.total[layer].back() = took;
    for (const auto& [key, took] : by_token_) times.per_token[key.first].push_back(took);
    return times;
  }

 private:
  size_t part(const std::string& label) {
    const auto at = std::find(parts_.begin(), parts_.end(), label);
    if (at != parts_.end()) return static_cast<size_t>(at - parts_.begin());
    parts_.push_back(label);
    return parts_.size() - 1;
  }

  void close() {
    if (stretch_.layer == kNoLayer) return;
    const double gap = std::max(0.0, stretch_.end - stretch_.start - stretch_.parts);
    between_[stretch_.layer] += gap;
    by_token_[{stretch_.layer, stretch_.token}] += gap;
    stretch_.layer = kNoLayer;
  }

  const PhaseView& view_;
  std::vector<std::string> parts_;
  std::map<std::pair<uint16_t, size_t>, double> sums_;
  std::map<std::pair<uint16_t, uint32_t>, double> by_token_;
  std::map<uint16_t, double> between_;
  Stretch stretch_;
};

constexpr std::array<std::string_view, 8> kOperatorNames = {
    "",        "attention",      "feed-forward",    "projections",
    "LM head", "norms and rope", "embedding, adds", "recurrence"};

}  // namespace

LayerTimes layer_times(const PhaseView& view) {
  LayerBuilder builder(view);
  for (const DispatchRecord& dispatch : view.records.dispatches)
    if (view.has(dispatch.token)) builder.add(dispatch);
  return builder.take();
}

Flow flow_of(const PhaseView& view, const Attribution& wall) {
  FlowBuilder builder(view);
  for (const DispatchRecord& dispatch : view.records.dispatches)
    if (view.has(dispatch.token)) builder.add(dispatch);
  for (const HostRecord& host : view.records.host)
    if (view.has(host.token)) builder.add(host);
  double layers_wall = 0;
  for (const std::vector<double>& layer : layer_times(view).total)
    for (const double part : layer) layers_wall += part;
  return builder.take(wall, layers_wall);
}

std::vector<OperatorRow> operators_of(const PhaseView& view, double wall) {
  std::array<OperatorRow, kOperatorNames.size()> rows;
  std::array<double, kOperatorNames.size()> bytes = {}, flops = {};
  double around = 0;  // in dispatches, outside their launches
  uint64_t dispatches = 0;
  for (const DispatchRecord& dispatch : view.records.dispatches) {
    if (!view.has(dispatch.token)) continue;
    around += dispatch.run();
    ++dispatches;
    for (const Event* launch : dispatch.launch_events) {
      const auto op = static_cast<size_t>(view.name(launch->name).op);
      const double took = ms(launch->end_ns - launch->start_ns);
      rows[op].total += took;
      rows[op].modelled |= dispatch.modelled;
      rows[op].calls += std::max<uint64_t>(1, launch->launches);
      bytes[op] += static_cast<double>(launch->bytes);
      flops[op] += static_cast<double>(launch->flops);
      around -= took;
    }
  }
  std::vector<OperatorRow> result;
  for (size_t op = 1; op < rows.size(); ++op) {
    OperatorRow& row = rows[op];
    if (row.calls == 0) continue;
    row.label = kOperatorNames[op];
    row.gb_s = row.total > 0 ? bytes[op] / 1e6 / row.total : 0;
    row.gflops = row.total > 0 ? flops[op] / 1e6 / row.total : 0;
    result.push_back(row);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const OperatorRow& a, const OperatorRow& b) { return a.total > b.total; });
  if (dispatches > 0)
    result.push_back({.label = "calls themselves",
                      .modelled = is_modelled(view.profile),
                      .calls = dispatches,
                      .total = std::max(0.0, around)});
  for (OperatorRow& row : result) {
    row.avg = row.calls > 0 ? row.total / static_cast<double>(row.calls) : 0;
    row.share = wall > 0 ? row.total / wall : 0;
  }
  return result;
}

namespace {

void add_part(DispatchRecord& record, const Event& event) {
  const double took = ms(event.end_ns - event.start_ns);
  record.start = std::min(record.start, ms(event.start_ns));
  record.end = std::max(record.end, ms(event.end_ns));
  switch (event.kind) {
    case EventKind::upload:
      record.write += took;
      record.bytes_written += event.bytes;
      break;
    case EventKind::submit:
      record.submit += took;
      record.bytes += event.bytes;
      record.flops += event.flops;
      record.launches += event.launches;
      break;
    case EventKind::wait:
      record.wait += took;
      break;
    case EventKind::download:
      record.read += took;
      record.bytes_read += event.bytes;
      break;
    case EventKind::token:
    case EventKind::run:
    case EventKind::host:
    case EventKind::launch:
      break;
  }
}

struct Interval {
  double start, end;
};

// The host work inside Pipeline::run is part of its wall; the rest is beside it.
void mark_inside(std::vector<HostRecord>& host, std::vector<Interval> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  for (HostRecord& record : host) {
    const auto after = std::upper_bound(runs.begin(), runs.end(), record.start,
                                        [](double at, const Interval& r) { return at < r.start; });
    record.in_run = after != runs.begin() && record.start < (after - 1)->end;
  }
}

// A device's first call may take far longer than the same call in later layers. What is more than
// their median is told by itself, or a mean would spread it over all layers.
void find_one_off(const Profile& profile, Records& records, uint8_t device) {
  constexpr double kLeastMs = 10, kLeastRatio = 10;
  constexpr size_t kLeastOthers = 2;
  DispatchRecord* first = nullptr;
  std::vector<double> others;
  for (DispatchRecord& each : records.dispatches) {
    if (each.device != device) continue;
    if (first == nullptr)
      first = &each;
    else if (profile.names[each.name].label == profile.names[first->name].label &&
             each.token == first->token)
      others.push_back(each.run());
  }
  if (others.size() < kLeastOthers) return;
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  const double excess = first->run() - *middle;
  if (excess >= kLeastMs && first->run() >= kLeastRatio * *middle) first->once = excess;
}

}  // namespace

Records records_of(const Profile& profile, const ProfileRun& run) {
  Records records;
  std::vector<int64_t> index;  // [dispatch]; -1: not seen yet
  std::vector<Interval> runs;
  const auto dispatch_of = [&](const Event& event) -> DispatchRecord& {
    if (event.dispatch >= index.size()) index.resize(event.dispatch + 1, -1);
    if (index[event.dispatch] < 0) {
      index[event.dispatch] = static_cast<int64_t>(records.dispatches.size());
      records.dispatches.push_back({.token = event.token,
                                    .device = event.device,
                                    .modelled = profile.facts.devices[event.device].is_virtual,
                                    .start = ms(event.start_ns),
                                    .end = ms(event.end_ns)});
    }
    return records.dispatches[static_cast<size_t>(index[event.dispatch])];
  };
  const auto token_of = [&](const Event& event) -> TokenRecord& {
    if (event.token >= records.tokens.size()) records.tokens.resize(event.token + 1);
    return records.tokens[event.token];
  };
  for (const Event& event : run.events) {
    const double took = ms(event.end_ns - event.start_ns);
    if (event.kind == EventKind::token) {
      token_of(event).wall = took;
      token_of(event).complete = true;
    } else if (event.kind == EventKind::run) {
      token_of(event).runs += took;
      token_of(event).context = event.position;
      runs.push_back({ms(event.start_ns), ms(event.end_ns)});
    } else if (event.kind == EventKind::host) {
      records.host.push_back({event.token, event.name, ms(event.start_ns), took, false});
    } else if (event.kind == EventKind::launch) {
      dispatch_of(event).launch_events.push_back(&event);
    } else {
      DispatchRecord& record = dispatch_of(event);
      record.name = event.name;
      add_part(record, event);
    }
  }
  mark_inside(records.host, std::move(runs));
  for (size_t device = 0; device < profile.facts.devices.size(); ++device)
    if (!profile.facts.devices[device].is_host)
      find_one_off(profile, records, static_cast<uint8_t>(device));
  return records;
}

namespace {

constexpr size_t kShownText = 160;       // columns of a prompt or an answer
constexpr double kWorthTelling = 0.005;  // a smaller share would read "0 %"

struct Meaning {
  std::string_view name;
  std::string_view text;
};
constexpr std::string_view kInput =
    "norm, query, key and value projections, and their rotation by position (RoPE)";
constexpr Meaning kMeanings[] = {
    {"rms_qkv_rope", kInput},
    {"rms_gemms_rope", kInput},
    {"rms_gemv_rope", kInput},
    {"rms_qkv_bias_rope", kInput},
    {"rms_qkv_bias_rope_gemv", kInput},
    {"rms_qkv_qknorm_rope", kInput},
    {"rms_qkv_qknorm_rope_gemv", kInput},
    {"flash_attn", "attention of a prompt"},
    {"prompt_attention", "attention of a prompt"},
    {"o_ffn", "attention's output projection, then the whole feed-forward"},
    {"o_ffn_qwen", "attention's output projection, then the whole feed-forward"},
    {"o_gemv_ffn", "attention's output projection, then the whole feed-forward"},
    {"o_ffn_head", "attention's output projection, then the feed-forward up to its last product"},
    {"o_res_norm", "attention's output projection, the residual and the norm"},
    {"o_gemv", "attention's output projection"},
    {"gate_up", "the feed-forward's first two products"},
    {"gate", "the feed-forward's gate"},
    {"gate_gemv", "the feed-forward's gate"},
    {"up", "the feed-forward's up projection"},
    {"up_gemv", "the feed-forward's up projection"},
    {"swiglu", "the feed-forward's activation"},
    {"down_add", "the feed-forward's last product and the residual"},
    {"down_gemv", "the feed-forward's last product"},
    {"lm_head_gemv", "the logits, a score for each token of the vocabulary"},
    {"LM head", "the logits, a score for each token of the vocabulary"},
    {"fused_decode", "a whole token in one dispatch"},
};

// The share of the memory's peak over all dispatches; 0 where no peak is known.
double bandwidth_share(const PhaseSummary& phase) {
  double time = 0, weighted = 0;
  for (const CallRow& row : phase.calls) {
    if (row.peak_bandwidth_share <= 0) continue;
    time += row.run.total;
    weighted += row.peak_bandwidth_share * row.run.total;
  }
  return time > 0 ? weighted / time : 0;
}

const OperatorRow* largest_operator(const PhaseSummary& phase) {
  const auto largest = std::ranges::max_element(phase.operators, {}, &OperatorRow::share);
  return largest == phase.operators.end() ? nullptr : &*largest;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const std::string line = shortened_at_end(printable_line(only_text(text)), kShownText);
  return line.empty() ? "(empty)" : line;
}

}  // namespace

std::string conclusion(const ProfileRun& run, const Summary& summary) {
  if (run.receipt.plausibility.verdict == Verdict::refused)
    return "The speed is refused because it cannot be true: see the receipt.";
  const bool decodes = summary.decode.tokens > 0;
  const PhaseSummary& phase = decodes ? summary.decode : summary.prefill;
  const Flow& flow = phase.flow;
  if (flow.total_ms <= 0) return "";
  std::vector<std::string> parts = {fmt::format("{:.0f} % of {} is spent in the layers",
                                                100 * flow.layer_ms * flow.layers / flow.total_ms,
                                                decodes ? "a decoded token" : "the prompt")};
  if (const OperatorRow* largest = largest_operator(phase);
      largest != nullptr && largest->share > kWorthTelling)
    parts.push_back(fmt::format("{} take{} most, {:.0f} %", largest->label,
                                largest->label.ends_with('s') ? "" : "s", 100 * largest->share));
  if (const double share = bandwidth_share(phase); share > 1)
    parts.push_back(fmt::format("reads are {:.1f} times as fast as memory, so from caches", share));
  else if (share > kWorthTelling)
    parts.push_back(fmt::format("memory is read at {:.0f} % of its peak", 100 * share));
  if (phase.wall.unattributed_share() > 0.01)
    parts.push_back(fmt::format("{:.0f} % is not attributed to anything",
                                100 * phase.wall.unattributed_share()));
  return joined(parts, "; ") + (summary.modelled ? " (the device's time is modelled)." : ".");
}

std::vector<std::string> request_lines(const Profile& profile, const ProfileRun& run) {
  std::vector<std::string> lines;
  if (!profile.facts.prompt.empty()) lines.push_back("Prompt: " + one_line(profile.facts.prompt));
  if (!run.answer.empty()) lines.push_back("Answer: " + one_line(run.answer));
  return lines;
}

std::vector<std::string> name_lines(const Summary& summary) {
  std::vector<std::pair<std::string_view, std::vector<std::string_view>>> told;  // text, and names
  const auto tell = [&](const Meaning& meaning) {
    for (auto& [text, names] : told) {
      if (text != meaning.text) continue;
      if (std::ranges::find(names, meaning.name) == names.end()) names.push_back(meaning.name);
      return;
    }
    told.push_back({meaning.text, {meaning.name}});
  };
  for (const PhaseSummary* phase : {&summary.prefill, &summary.decode})
    for (const FlowRow& row : phase->flow.rows)
      for (const Meaning& meaning : kMeanings)
        if (row.label == meaning.name) tell(meaning);
  std::vector<std::string> lines;
  for (const auto& [text, names] : told)
    lines.push_back(fmt::format("{}: {}", joined(names), text));
  return lines;
}

}  // namespace tyto
