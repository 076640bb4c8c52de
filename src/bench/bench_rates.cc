#include "bench/bench_run.h"

namespace tyto {

std::vector<double> BenchRow::tokens_per_second() const {
  std::vector<double> result;
  for (double each : seconds) result.push_back(each > 0 ? test.tokens() / each : 0);
  return result;
}

PhaseSpeed phase_speed(const BenchRow& row, Phase phase) {
  const bool prefill = phase == Phase::prefill;
  const Receipt& receipt = row.receipt;
  if (row.refused() || row.seconds.empty()) return {};
  const double measured = prefill ? receipt.prefill_seconds : receipt.decode_seconds;
  const double modelled =
      receipt.modelled ? (prefill ? receipt.modelled->prefill : receipt.modelled->decode) : 0;
  const auto runs = static_cast<double>(row.seconds.size());
  return {
      (row.modelled ? modelled : measured) / runs,
      static_cast<double>(row.test.sequences) * (prefill ? row.test.prompt : row.test.generate)};
}

double dispatches_per_token(const BenchRow& row) {
  double submissions = 0;
  for (const DeviceCounters& device : row.receipt.devices)
    if (!device.is_host || row.receipt.devices.size() == 1)
      submissions += static_cast<double>(device.submissions);
  return submissions / row.all_tokens();
}

double calls_per_token(const BenchRow& row) {
  return static_cast<double>(row.receipt.speculation->calls) /
         (row.test.generate * static_cast<double>(row.seconds.size()));
}

WorkRate work_rate(const BenchRow& row) {
  double bytes = 0, flops = 0, busy_ns = 0;
  for (const DeviceCounters& device : row.receipt.devices) {
    if (row.modelled && !device.is_virtual) continue;
    bytes += static_cast<double>(device.bytes);
    flops += static_cast<double>(device.flops);
    busy_ns += static_cast<double>(device.busy_ns);
  }
  WorkRate rate{.bytes_per_token = bytes / row.all_tokens(),
                .flops_per_token = flops / row.all_tokens()};
  if (busy_ns > 0 && !row.refused()) {
    rate.gb_per_s = bytes / busy_ns;
    rate.gflop_per_s = flops / busy_ns;
  }
  return rate;
}

std::vector<double> speed_ratios(const BenchRow& row, const BenchRow& other) {
  std::vector<double> ratios;
  if (row.refused() || other.refused()) return ratios;
  for (size_t i = 0; i < row.seconds.size(); ++i)
    ratios.push_back(other.seconds[i] / row.seconds[i]);
  return ratios;
}

}  // namespace tyto
