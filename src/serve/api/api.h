// The server's API: every path and what answers it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "serve/api/slow_view.h"
#include "serve/engine_thread.h"
#include "serve/http/exchange.h"
#include "serve/http/server.h"
#include "serve/metrics.h"

namespace tyto::api {

// JSON that others make; empty: there is none.
struct Views {
  std::unique_ptr<SlowView> doctor = {};
  std::function<std::string()> plan = {};
};

struct Api {
  EngineThread& engine;  // outlives every reply
  ServeMetrics& metrics;
  std::string version;  // of Tyto
  std::function<http::ServerCounts()> connections = {};
  Views views = {};
};

http::Handler make_handler(Api api);

}  // namespace tyto::api
