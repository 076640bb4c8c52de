#include "serve/metrics.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/utf8.h"

namespace tyto {
namespace {

using prometheus::Counter;
using prometheus::Histogram;
using Counters = prometheus::Family<Counter>;

// From a token of a small model to a long prompt on a slow machine.
const Histogram::BucketBoundaries kSeconds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                              0.5,   1,     2,     5,    10,   20,   30,  60};

constexpr std::array<std::string_view, 7> kErrors = {
    "input error",         "usage error", "unsupported", "device error",
    "requirement not met", "busy",        "deadline"};

// Texts as values of a label: each is a time series of its own for as long as Prometheus keeps
// data, so there are neither long nor many ones.
class BoundedTexts {
 public:
  std::string bounded(const std::string& text) {
    constexpr size_t kMostBytes = 120, kMostTexts = 64;
    std::string label = printable_line(text, kMostBytes);
    const std::lock_guard lock(mutex_);
    if (!known_.contains(label)) {
      if (known_.size() >= kMostTexts) return "other";
      known_.insert(label);
    }
    return label;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> known_;
};

// A histogram of what was measured, and one of simulations.
class WallTimes {
 public:
  WallTimes(prometheus::Registry& registry, const char* name, const char* help) {
    auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
    real_ = &family.Add({{"executed", "real"}}, kSeconds);
    virtual_ = &family.Add({{"executed", "virtual"}}, kSeconds);
  }

  void add(double seconds, bool is_virtual) { (is_virtual ? virtual_ : real_)->Observe(seconds); }

 private:
  Histogram* real_;
  Histogram* virtual_;
};

void add(Counters& family, const prometheus::Labels& labels, double count) {
  family.Add(labels).Increment(count);
}

prometheus::MetricFamily family_of(const Gauge& gauge) {
  return {gauge.name,
          gauge.help,
          gauge.only_grows ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
          {}};
}

prometheus::ClientMetric sample_of(const Gauge& gauge) {
  prometheus::ClientMetric sample;
  for (const auto& [name, value] : gauge.labels) sample.label.push_back({name, value});
  (gauge.only_grows ? sample.counter.value : sample.gauge.value) = gauge.value;
  return sample;
}

}  // namespace

struct ServeMetrics::State {
  prometheus::Registry registry;

  Counters& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }

  WallTimes first_token{registry, "tyto_time_to_first_token_seconds",
                        "Wall time from a request's arrival to its first token."};
  WallTimes between_tokens{registry, "tyto_inter_token_seconds",
                           "Wall time between two tokens of an answer."};
  WallTimes queued{registry, "tyto_queue_seconds",
                   "Wall time that a request waited before its prompt was begun."};
  Counters& prompt_tokens =
      counters("tyto_prompt_tokens_total",
               "Tokens of prompts: run, or taken from what an earlier request had run.");
  Counters& generated_tokens = counters("tyto_generated_tokens_total", "Tokens of answers.");
  Counters& drafted_tokens = counters("tyto_drafted_tokens_total",
                                      "Drafted tokens: those that the model accepted, or not.");
  Counters& decode_calls =
      counters("tyto_decode_calls_total", "Decoding calls of the model, in requests with drafts.");
  Counters& requests = counters("tyto_requests_total", "Requests that ended, by how they did.");
  Counters& refused =
      counters("tyto_refused_total", "Requests that were refused before they were queued.");
  Counters& fallbacks =
      counters("tyto_fallbacks_total", "Requests in which work fell back to another device.");
  Counters& recoveries = counters(
      "tyto_recoveries_total", "How often work of a request was run again after a device failed.");
  Counters& energy = counters("tyto_energy_joules_total",
                              "Energy by power rail since the server started, idle time included.");

  BoundedTexts fallback_reasons;
  BoundedTexts refusals;
};

ServeMetrics::ServeMetrics() : state_(std::make_unique<State>()) {}
ServeMetrics::~ServeMetrics() = default;

void ServeMetrics::first_token(double seconds, bool is_virtual) {
  state_->first_token.add(seconds, is_virtual);
}

void ServeMetrics::between_tokens(double seconds, bool is_virtual) {
  state_->between_tokens.add(seconds, is_virtual);
}

void ServeMetrics::queued(double seconds, bool is_virtual) {
  state_->queued.add(seconds, is_virtual);
}

void ServeMetrics::finished(const std::string& model, const Outcome& outcome) {
  const Receipt& receipt = outcome.answer.receipt;
  const std::string_view reason = outcome.error ? kErrors[static_cast<size_t>(outcome.error->code)]
                                                : name(outcome.answer.reason);
  State& state = *state_;
  add(state.requests, {{"model", model}, {"reason", std::string(reason)}}, 1);
  add(state.prompt_tokens, {{"model", model}, {"cached", "false"}}, receipt.prompt_tokens);
  add(state.prompt_tokens, {{"model", model}, {"cached", "true"}}, receipt.cached_tokens);
  add(state.generated_tokens, {{"model", model}}, receipt.generated_tokens);
  add(state.recoveries, {{"model", model}}, receipt.recoveries);
  if (const auto& guessed = receipt.speculation) {
    const auto accepted = static_cast<double>(guessed->accepted);
    const double wrong = static_cast<double>(guessed->drafted) - accepted;
    add(state.drafted_tokens, {{"model", model}, {"accepted", "true"}}, accepted);
    add(state.drafted_tokens, {{"model", model}, {"accepted", "false"}}, wrong);
    add(state.decode_calls, {{"model", model}}, static_cast<double>(guessed->calls));
  }
  for (const std::string& fallback : receipt.fallbacks)
    add(state.fallbacks, {{"reason", state.fallback_reasons.bounded(fallback)}}, 1);
}

void ServeMetrics::energy(const EnergyWindow& window) {
  for (const RailEnergy& rail : window.rails)
    if (rail.joules) add(state_->energy, {{"rail", rail.rail.label()}}, *rail.joules);
}

void ServeMetrics::refused(const std::string& why) {
  add(state_->refused, {{"reason", state_->refusals.bounded(why)}}, 1);
}

std::string ServeMetrics::text(const std::vector<Gauge>& now) const {
  std::vector<prometheus::MetricFamily> families = state_->registry.Collect();
  const size_t own = families.size();
  for (const Gauge& gauge : now) {
    if (families.size() == own || families.back().name != gauge.name)
      families.push_back(family_of(gauge));
    families.back().metric.push_back(sample_of(gauge));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

namespace {

// A row of /metrics, and where its value is.
template <class Of>
struct Row {
  const char* name;
  const char* help;
  double (*value)(const Of&);
  bool only_grows = false;
};

constexpr Row<ModelStatus> kOfModels[] = {
    {"tyto_model_loaded", "1 while the model is in memory.",
     [](const ModelStatus& m) { return m.is_loaded ? 1.0 : 0.0; }},
    {"tyto_slots", "Requests that can run at the same time.",
     [](const ModelStatus& m) { return double(m.slots); }},
    {"tyto_kv_pages", "Pages that the KV cache has.",
     [](const ModelStatus& m) { return double(m.kv_pages); }},
    {"tyto_kv_pages_in_use", "Pages of the KV cache that hold something.",
     [](const ModelStatus& m) { return double(m.kv_pages_in_use); }},
    {"tyto_kv_window_pages", "Pages that layers with an attention window have for themselves.",
     [](const ModelStatus& m) { return double(m.kv_window_pages); }},
    {"tyto_kv_window_pages_in_use", "Pages of those layers that hold something.",
     [](const ModelStatus& m) { return double(m.kv_window_pages_in_use); }},
    {"tyto_states", "States that recurrent layers have room for.",
     [](const ModelStatus& m) { return double(m.states); }},
    {"tyto_states_in_use", "States that sequences have, or that are kept for later prompts.",
     [](const ModelStatus& m) { return double(m.states_in_use); }},
    {"tyto_state_bytes", "Bytes of one state.",
     [](const ModelStatus& m) { return double(m.state_bytes); }},
    {"tyto_prefix_pages", "Pages of the KV cache that are kept for prompts to come.",
     [](const ModelStatus& m) { return double(m.prefix_pages); }},
    {"tyto_prefix_lookups_total", "Prompts that were looked up in the prefix cache.",
     [](const ModelStatus& m) { return double(m.prefixes.lookups); }, true},
    {"tyto_prefix_hits_total", "Prompts whose beginning was in the prefix cache.",
     [](const ModelStatus& m) { return double(m.prefixes.hits); }, true},
    {"tyto_prefix_tokens_total", "Tokens that the prefix cache had.",
     [](const ModelStatus& m) { return double(m.prefixes.tokens_found); }, true},
    {"tyto_prefix_evictions_total", "Pages that the prefix cache gave back for others.",
     [](const ModelStatus& m) { return double(m.prefixes.evictions); }, true},
};

// The devices' own counts, not those of receipts: there a submission that several requests shared
// counts for each of them.
constexpr Row<DeviceCounters> kOfDevices[] = {
    {"tyto_device_submissions_total", "Submissions to a device since the model was loaded.",
     [](const DeviceCounters& d) { return double(d.submissions); }, true},
    {"tyto_device_completions_total", "Submissions that the device completed.",
     [](const DeviceCounters& d) { return double(d.completions); }, true},
    {"tyto_device_failures_total", "Submissions that the device did not complete.",
     [](const DeviceCounters& d) { return double(d.failed()); }, true},
    {"tyto_device_busy_seconds_total",
     "Time between submission and completion; a virtual device's is modelled.",
     [](const DeviceCounters& d) { return double(d.busy_ns) * 1e-9; }, true},
};

constexpr Row<http::ServerCounts> kOfConnections[] = {
    {"tyto_connections", "Connections that are open.",
     [](const http::ServerCounts& c) { return double(c.connections); }},
    {"tyto_connections_accepted_total", "Connections that were accepted.",
     [](const http::ServerCounts& c) { return double(c.accepted); }, true},
    {"tyto_connections_refused_total", "Connections that were closed because there were too many.",
     [](const http::ServerCounts& c) { return double(c.refused); }, true},
    {"tyto_http_requests_total", "HTTP requests of every kind.",
     [](const http::ServerCounts& c) { return double(c.requests); }, true},
};

using Labels = std::vector<std::pair<std::string, std::string>>;

template <class Of>
Gauge gauge(const Row<Of>& row, Labels labels, const Of& of) {
  return {row.name, row.help, std::move(labels), row.value(of), row.only_grows};
}

Gauge requests(const char* name, const char* help, const std::string& model, bool are_running,
               const std::vector<SlotStatus>& slots) {
  const auto counts = [&](const SlotStatus& slot) {
    return slot.model == model && slot.request.is_running == are_running;
  };
  return {
      name, help, {{"model", model}}, double(std::count_if(slots.begin(), slots.end(), counts))};
}

}  // namespace

std::vector<Gauge> gauges_of(const std::vector<SlotStatus>& slots,
                             const std::vector<ModelStatus>& models,
                             const http::ServerCounts& connections) {
  std::vector<Gauge> result;
  for (const ModelStatus& model : models)
    result.push_back(requests("tyto_requests_running", "Requests that are being answered.",
                              model.name, true, slots));
  for (const ModelStatus& model : models)
    result.push_back(requests("tyto_requests_waiting", "Requests that wait for their turn.",
                              model.name, false, slots));
  for (const Row<ModelStatus>& row : kOfModels)
    for (const ModelStatus& model : models)
      result.push_back(gauge(row, {{"model", model.name}}, model));
  for (const Row<DeviceCounters>& row : kOfDevices)
    for (const ModelStatus& model : models)
      for (const DeviceCounters& device : model.counters)
        result.push_back(gauge(row,
                               {{"model", model.name},
                                {"device", device.device},
                                {"virtual", device.is_virtual ? "true" : "false"}},
                               device));
  for (const Row<http::ServerCounts>& row : kOfConnections)
    result.push_back(gauge(row, {}, connections));
  return result;
}

}  // namespace tyto
