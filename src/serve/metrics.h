// What a server has done since it started, in Prometheus's text format; docs/metrics.md has the
// list. Any thread may call it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "power/energy_meter.h"
#include "serve/engine_thread.h"
#include "serve/http/server.h"

namespace tyto {

// A value of the moment, which is kept elsewhere.
struct Gauge {
  std::string name, help;
  std::vector<std::pair<std::string, std::string>> labels = {};
  double value = 0;
  bool only_grows = false;  // a count: Prometheus calls it a counter
};

class ServeMetrics {
 public:
  ServeMetrics();
  ~ServeMetrics();

  // Wall time. Where a virtual device took part it is a simulation's, and is kept apart.
  void first_token(double seconds, bool is_virtual = false);  // since the request came
  void between_tokens(double seconds, bool is_virtual = false);
  void queued(double seconds, bool is_virtual = false);  // until its prompt was begun

  void finished(const std::string& model, const Outcome& outcome);
  void energy(const EnergyWindow& window);  // the machine's, one window after the other
  void refused(const std::string& why);     // before it became a request of the engine

  // With `now`, whose entries of one name stand together.
  std::string text(const std::vector<Gauge>& now) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What /metrics says of the moment: requests, memory, prefixes, devices and connections.

std::vector<Gauge> gauges_of(const std::vector<SlotStatus>& slots,
                             const std::vector<ModelStatus>& models,
                             const http::ServerCounts& connections);

}  // namespace tyto
