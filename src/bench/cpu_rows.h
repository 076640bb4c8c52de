// The processor's rows of a plan, measured on this machine in a few seconds.
#pragma once

#include <functional>
#include <vector>

#include "base/progress.h"
#include "bench/bench_run.h"
#include "plan/what_if.h"

namespace tyto {

// One row of a model that has weights, as its file has them. Of a shape, rows of the types that
// most people download. The setup names the model;
// `announce` is called before something is measured.
std::vector<PlanRow> cpu_rows(const PlanRequest& request, const BenchSetup& setup,
                              const Progress& progress, const std::function<void()>& announce);

}  // namespace tyto
