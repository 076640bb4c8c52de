#include "bench/bench_peak.h"

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace tyto {
namespace {

void raise(double& peak, double reached, const std::string& what, std::string& source) {
  if (reached <= peak) return;
  peak = reached;
  source += "; " + what + " raised to what a row reached";
}

}  // namespace

void settle_peak(BenchEngine& bench, std::span<BenchRow> rows) {
  if (!bench.facts.peak) return;
  const DeviceLimits after = bench.engine->measure_cpu_peak();
  DeviceLimits peak = *bench.facts.peak;
  peak.gb_s = std::max(peak.gb_s, after.gb_s);
  peak.gflops = std::max(peak.gflops, after.gflops);
  peak.source += ", before and after the test";
  double bytes = 0, arithmetic = 0;
  for (const BenchRow& row : rows) {
    const WorkRate work = work_rate(row);
    bytes = std::max(bytes, work.gb_per_s);
    arithmetic = std::max(arithmetic, work.gflop_per_s);
  }
  raise(peak.gb_s, bytes, "reads", peak.source);
  raise(peak.gflops, arithmetic, "arithmetic", peak.source);
  for (BenchRow& row : rows) row.facts.peak = peak;
  bench.facts.peak = after;
}

}  // namespace tyto
