#include "engine/receipt.h"

#include <algorithm>

namespace tyto {

namespace {

// In the order in which the devices were asked for, whoever came first.
void add_in_order(std::vector<DeviceCounters>& sum, const std::vector<DeviceCounters>& more,
                  const std::vector<DeviceCounters>& devices) {
  std::vector<DeviceCounters> result;
  add(sum, more);
  for (const DeviceCounters& device : devices)
    for (const DeviceCounters& counted : sum)
      if (counted.device == device.device) {
        result.push_back(counted);
        result.back().pinned_bytes = device.pinned_bytes;
      }
  sum = std::move(result);
}

}  // namespace

void add_execution(Receipt& receipt, const Sequence& sequence, const Pipeline& pipeline,
                   const Trace& trace) {
  const std::vector<DeviceCounters> devices = trace.snapshot();
  add_in_order(receipt.phases.prefill, sequence.executed.prefill, devices);
  add_in_order(receipt.phases.decode, sequence.executed.decode, devices);
  add_in_order(receipt.devices, sequence.executed.prefill, devices);
  add_in_order(receipt.devices, sequence.executed.decode, devices);
  add_fallbacks(receipt, sequence, trace);
  receipt.recoveries += static_cast<uint32_t>(sequence.recoveries.size());
  receipt.handed_over += sequence.handed_over;
  receipt.loaded_code = trace.loaded_code();
  receipt.kv_peak_bytes = std::max(receipt.kv_peak_bytes, pipeline.kv_peak_bytes());
}

void add_fallbacks(Receipt& receipt, const Sequence& sequence, const Trace& trace) {
  const auto add_once = [](std::vector<std::string>& lines, const std::string& line) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  for (const std::string& line : trace.fallbacks()) add_once(receipt.fallbacks, line);
  for (const std::string& line : sequence.recoveries) add_once(receipt.fallbacks, line);
  for (const std::string& line : trace.on_host()) add_once(receipt.on_host, line);
}

}  // namespace tyto
