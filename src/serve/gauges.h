// What /metrics says of the moment: requests, memory, prefixes, devices and connections.
#pragma once

#include <vector>

#include "serve/engine_thread.h"
#include "serve/http/server.h"
#include "serve/metrics.h"

namespace tyto {

std::vector<Gauge> gauges_of(const std::vector<SlotStatus>& slots,
                             const std::vector<ModelStatus>& models,
                             const http::ServerCounts& connections);

}  // namespace tyto
