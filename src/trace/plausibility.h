// Whether a speed can be true at all: what it implies against what the device could do at best.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// Bounds of a device that nothing can beat; 0 where none is known.
struct DeviceLimits {
  double gb_s = 0;         // memory bandwidth
  double gflops = 0;       // arithmetic, two per multiply-accumulate
  double dispatch_us = 0;  // least time of one submission
  std::string source = {};
};

// What is published of a device, and so holds whatever a file says of it. An NPU's machine is the
// first word of its limits' source ("strix-halo: memory bus"); of one that is not known the best of
// all counts. None for devices of which nothing is published.
std::optional<DeviceLimits> published_limits(std::string_view device, std::string_view source);

// Whether a receipt that names this device has to say that it is a virtual one.
bool must_be_virtual(std::string_view device);

// A rate, and what one token (or, for a prefill, one prompt token) costs the device.
struct Claim {
  std::string device;
  std::string phase;  // "prefill", "decode"
  double tokens_per_second = 0;
  double bytes_per_token = 0;
  double flops_per_token = 0;
  double dispatches_per_token = 0;
};

enum class Verdict : uint8_t { unchecked, plausible, refused };
std::string_view name(Verdict verdict);

struct Plausibility {
  Verdict verdict = Verdict::unchecked;
  std::vector<std::string> reasons = {};    // what contradicts the rate
  std::vector<std::string> checks = {};     // what was compared and held
  std::vector<std::string> unchecked = {};  // what could not be compared, and why
};

Plausibility judge(const Claim& claim, const DeviceLimits& limits);
// Refused if any part is, plausible if anything was checked.
Plausibility combine(const std::vector<Plausibility>& parts);

}  // namespace tyto
