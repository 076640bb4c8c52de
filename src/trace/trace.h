// What really happened, counted where it happened: devices write here on every submission and
// completion, reports only read.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct DeviceCounters {
  std::string device;
  bool is_virtual = false;  // its time is modelled, not measured
  uint64_t submissions = 0;
  uint64_t completions = 0;
  uint64_t launches = 0;  // kernels inside the completed submissions
  uint64_t busy_ns = 0;   // between submission and completion
  uint64_t bytes = 0;     // declared by the completed launches
  uint64_t flops = 0;
};

// One per engine; written by the thread that drives the devices.
class Trace {
 public:
  // The counters of a device, made on first use. The reference stays valid.
  DeviceCounters& device(std::string_view name, bool is_virtual = false);
  // A step that could not run where it was asked to, and why. Kept once per distinct text.
  void fallback(const std::string& what_and_why);

  std::vector<DeviceCounters> snapshot() const { return {devices_.begin(), devices_.end()}; }
  const std::vector<std::string>& fallbacks() const { return fallbacks_; }

 private:
  std::deque<DeviceCounters> devices_;  // deque: references survive growth
  std::vector<std::string> fallbacks_;
};

}  // namespace tyto
