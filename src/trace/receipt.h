// The receipt of one request: which devices executed it, by their own completion counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace tyto {

struct Receipt {
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  double prefill_seconds = 0;           // up to the first token's logits
  double decode_seconds = 0;            // for the tokens after the first
  std::vector<DeviceCounters> devices;  // this request's window only, devices with completions
  std::vector<std::string> fallbacks;
};

// What each device did between two snapshots of one Trace; devices that did nothing are left out.
std::vector<DeviceCounters> window(const std::vector<DeviceCounters>& before,
                                   const std::vector<DeviceCounters>& after);

// "cpu+vnpu (modelled)": the devices that completed work, not those that were asked for.
std::string device_names(const std::vector<DeviceCounters>& executed);

double prefill_tokens_per_second(const Receipt& receipt);
double decode_tokens_per_second(const Receipt& receipt);

// One line: counts, rates, executed devices with submissions, GB/s. Where a virtual device took
// part there are no rates: the wall time is a simulation's and the device's own is marked as
// modelled.
std::string receipt_line(const Receipt& receipt);

}  // namespace tyto
