// Sums of what devices did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/completion.h"

namespace tyto {

struct DeviceCounters {
  std::string device;
  bool is_virtual = false;  // its time is modelled, not measured
  bool is_host = false;     // its work is function calls of this process, not dispatches
  uint64_t submissions = 0;
  uint64_t completions = 0;
  uint64_t launches = 0;       // kernels inside the completed submissions
  uint64_t busy_ns = 0;        // between submission and completion
  uint64_t submitting_ns = 0;  // of the host, inside the driver's submission
  uint64_t waited_ns = 0;  // of the host, for completions; a virtual device's simulation included
  uint64_t preparing_ns = 0;  // the host compiled kernels and recorded commands
  uint64_t bytes = 0;         // declared by the completed launches
  uint64_t flops = 0;
  uint64_t row_sums = 0;      // of products, compared on the host
  uint64_t pinned_bytes = 0;  // of memory, now

  // To have been asked is not to have executed.
  bool has_executed() const { return completions > 0; }
  uint64_t failed() const { return submissions - completions; }

  void add(const Completion& completion);
  DeviceCounters& operator+=(
      const DeviceCounters& other);  // all but pinned_bytes, which is a level
  DeviceCounters& operator-=(const DeviceCounters& other);
};

// Keys and values that went from the device for prompts to the one for tokens, or back.
struct HandOvers {
  uint64_t times = 0;
  uint64_t positions = 0;
  uint64_t bytes = 0;  // as the receiving device keeps them
  uint64_t ns = 0;     // of the host: reading, converting, writing

  HandOvers& operator+=(const HandOvers& other);
};

// The entry of `like`'s device, made where there is none yet.
DeviceCounters& entry_of(std::vector<DeviceCounters>& all, const DeviceCounters& like);
void add(std::vector<DeviceCounters>& sum, const std::vector<DeviceCounters>& more);
// What devices did between two snapshots of one Trace, for one who had them to himself; those that
// did nothing are left out.
std::vector<DeviceCounters> difference(std::vector<DeviceCounters> after,
                                       const std::vector<DeviceCounters>& before);

}  // namespace tyto
