#include "trace/plausibility.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tyto {
namespace {

// Machines with an XDNA2: the memory's width and clock. Arithmetic is that of the fastest one sold,
// 55 int8 TOPS; an empty command took the driver 50 us at least wherever it was measured.
struct NpuMachineLimits {
  std::string_view machine;
  double gb_s;
};
constexpr NpuMachineLimits kNpuMachines[] = {{"strix", 120}, {"krackan", 120}, {"strix-halo", 256}};
constexpr double kNpuGflops = 55e3;
constexpr double kNpuDispatchUs = 50;

// The devices that receipts call an XDNA2.
struct NpuName {
  std::string_view device;
  bool is_virtual;
};
constexpr NpuName kNpuNames[] = {{"npu", false}, {"vnpu", true}};

const NpuName* npu_named(std::string_view device) {
  const auto found = std::ranges::find(kNpuNames, device, &NpuName::device);
  return found == std::end(kNpuNames) ? nullptr : found;
}

struct Check {
  const char* limit_name;
  double implied;
  double limit;
  std::string contradiction;
  std::string held;
};

std::string subject(const Claim& claim) {
  return claim.device + (claim.phase.empty() ? "" : " " + claim.phase);
}

Check bandwidth(const Claim& claim, const DeviceLimits& limits) {
  const double implied = claim.bytes_per_token * claim.tokens_per_second / 1e9;
  return {"memory bandwidth", implied, limits.gb_s,
          fmt::format("{}: {:.2f} tok/s of {:.2f} GB each is {:.0f} GB/s; the memory has {:.0f} "
                      "GB/s",
                      subject(claim), claim.tokens_per_second, claim.bytes_per_token / 1e9, implied,
                      limits.gb_s),
          fmt::format("{}: {:.3g} GB/s of at most {:.0f}", subject(claim), implied, limits.gb_s)};
}

// The limit and the implied value are dispatches per second, so that more is worse, as for the
// rest.
Check dispatches(const Claim& claim, const DeviceLimits& limits) {
  const double floor_ms = claim.dispatches_per_token * limits.dispatch_us / 1e3;
  const double most = floor_ms > 0 ? 1e3 / floor_ms : 0;
  const double per_second = limits.dispatch_us > 0 ? 1e6 / limits.dispatch_us : 0;
  return {"dispatch time", claim.dispatches_per_token * claim.tokens_per_second, per_second,
          fmt::format("{}: {:.4g} dispatches per token of at least {:.0f} us each take {:.1f} ms, "
                      "so at most {:.1f} tok/s before any work; claimed {:.2f}",
                      subject(claim), claim.dispatches_per_token, limits.dispatch_us, floor_ms,
                      most, claim.tokens_per_second),
          fmt::format("{}: {:.4g} dispatches per token of at least {:.0f} us allow {:.0f} tok/s",
                      subject(claim), claim.dispatches_per_token, limits.dispatch_us, most)};
}

Check arithmetic(const Claim& claim, const DeviceLimits& limits) {
  const double implied = claim.flops_per_token * claim.tokens_per_second / 1e9;
  return {
      "arithmetic", implied, limits.gflops,
      fmt::format("{}: {:.2f} tok/s of {:.2f} GFLOP each is {:.0f} GFLOP/s; the device has {:.0f}",
                  subject(claim), claim.tokens_per_second, claim.flops_per_token / 1e9, implied,
                  limits.gflops),
      fmt::format("{}: {:.3g} GFLOP/s of at most {:.0f}", subject(claim), implied, limits.gflops)};
}

}  // namespace

std::optional<DeviceLimits> published_limits(std::string_view device, std::string_view source) {
  if (npu_named(device) == nullptr) return std::nullopt;
  DeviceLimits limits{.gflops = kNpuGflops, .dispatch_us = kNpuDispatchUs};
  limits.source = "what is published of machines with an XDNA2";
  const std::string_view machine = source.substr(0, source.find(':'));
  for (const NpuMachineLimits& known : kNpuMachines) {
    if (known.machine == machine) {
      limits.gb_s = known.gb_s;
      break;
    }
    limits.gb_s = std::max(limits.gb_s, known.gb_s);
  }
  return limits;
}

bool must_be_virtual(std::string_view device) {
  const NpuName* const known = npu_named(device);
  return known != nullptr && known->is_virtual;
}

std::string_view name(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"unchecked", "plausible", "refused"};
  return kNames[static_cast<size_t>(verdict)];
}

Plausibility judge(const Claim& claim, const DeviceLimits& limits) {
  Plausibility result;
  for (const Check& check :
       {bandwidth(claim, limits), dispatches(claim, limits), arithmetic(claim, limits)}) {
    if (check.implied <= 0) continue;  // nothing is claimed about it
    if (check.limit <= 0)
      result.unchecked.push_back(
          fmt::format("{}: no limit of its {} is known", claim.device, check.limit_name));
    else if (check.implied > check.limit)
      result.reasons.push_back(check.contradiction);
    else
      result.checks.push_back(check.held);
  }
  if (!result.reasons.empty())
    result.verdict = Verdict::refused;
  else if (!result.checks.empty())
    result.verdict = Verdict::plausible;
  return result;
}

Plausibility combine(const std::vector<Plausibility>& parts) {
  Plausibility all;
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    for (const std::string& line : from)
      if (std::find(to.begin(), to.end(), line) == to.end()) to.push_back(line);
  };
  for (const Plausibility& part : parts) {
    append(all.reasons, part.reasons);
    append(all.checks, part.checks);
    append(all.unchecked, part.unchecked);
    if (part.verdict > all.verdict) all.verdict = part.verdict;
  }
  return all;
}

}  // namespace tyto
