// The tables that follow the network: dataflow, layers, operators.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "report/summary_parts.h"

namespace tyto {
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

constexpr std::array<std::string_view, 7> kOperatorNames = {
    "", "attention", "feed-forward", "projections", "LM head", "norms and rope", "embedding, adds"};

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
  double around = 0;  // of dispatches, outside their launches
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

}  // namespace tyto
