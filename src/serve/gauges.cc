#include "serve/gauges.h"

#include <algorithm>
#include <string>

namespace tyto {
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
