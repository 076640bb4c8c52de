#include "evidence/recheck.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/joined.h"

namespace tyto {
namespace {

struct NamedCounter {
  const char* name;
  uint64_t DeviceCounters::* value;
};
constexpr NamedCounter kCounters[] = {{"submissions", &DeviceCounters::submissions},
                                      {"completions", &DeviceCounters::completions},
                                      {"launches", &DeviceCounters::launches},
                                      {"ns of work", &DeviceCounters::busy_ns},
                                      {"ns of preparing", &DeviceCounters::preparing_ns},
                                      {"bytes", &DeviceCounters::bytes},
                                      {"FLOP", &DeviceCounters::flops},
                                      {"row sums", &DeviceCounters::row_sums}};

const DeviceCounters* find(const std::vector<DeviceCounters>& all, const std::string& device) {
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const DeviceCounters& each) { return each.device == device; });
  return found == all.end() ? nullptr : &*found;
}

void compare_with_phases(const Receipt& receipt, std::vector<std::string>& out) {
  std::vector<DeviceCounters> sums = receipt.phases.prefill;
  add(sums, receipt.phases.decode);
  for (const DeviceCounters& device : receipt.devices) {
    const DeviceCounters* sum = find(sums, device.device);
    for (const auto& [name, value] : kCounters)
      if (const uint64_t parts = sum == nullptr ? 0 : sum->*value; device.*value != parts)
        out.push_back(fmt::format("{}: {} {} in all, but {} in prefill and decode together",
                                  device.device, device.*value, name, parts));
  }
  for (const DeviceCounters& sum : sums)
    if (find(receipt.devices, sum.device) == nullptr)
      out.push_back(fmt::format("{}: works in a phase, but is not among the devices", sum.device));
}

void compare_with_time(const DeviceCounters& device, Phase phase, double seconds,
                       std::vector<std::string>& out) {
  const double busy = static_cast<double>(device.busy_ns) * 1e-9;
  constexpr double kBusyRounding = 1e-6;
  if (!device.is_virtual && busy > seconds * (1 + 1e-9) + kBusyRounding)
    out.push_back(fmt::format("{}: busy for {:.6f} s in a {} of {:.6f} s", device.device, busy,
                              name(phase), seconds));
}

// A limit is looser where more would be possible: a larger rate, a shorter dispatch. 0 is unknown.
double tighter_rate(double stated, double published) {
  return stated > 0 ? std::min(stated, published) : published;
}

void tighten(NamedLimits& stated, const DeviceLimits& published, std::vector<std::string>& said) {
  DeviceLimits& limits = stated.limits;
  const auto say = [&](bool is_looser, double value, double bound, const char* unit) {
    if (is_looser)
      said.push_back(fmt::format("{}: the limit of {:.6g} {} is not believed, {:.6g} is published",
                                 stated.device, value, unit, bound));
  };
  say(limits.gb_s > published.gb_s, limits.gb_s, published.gb_s, "GB/s");
  say(limits.gflops > published.gflops, limits.gflops, published.gflops, "GFLOP/s");
  say(limits.dispatch_us > 0 && limits.dispatch_us < published.dispatch_us, limits.dispatch_us,
      published.dispatch_us, "us a dispatch");
  limits.gb_s = tighter_rate(limits.gb_s, published.gb_s);
  limits.gflops = tighter_rate(limits.gflops, published.gflops);
  limits.dispatch_us = std::max(limits.dispatch_us, published.dispatch_us);
}

// A call settles a token of its own, and each guess that it proves right.
void compare_with_tokens(const SpeculationCounters& guessed, uint64_t tokens,
                         std::vector<std::string>& out) {
  if (guessed.accepted > guessed.drafted)
    out.push_back(
        fmt::format("{} of {} drafted tokens were accepted", guessed.accepted, guessed.drafted));
  if (guessed.calls + guessed.accepted != tokens)
    out.push_back(fmt::format("{} calls and {} right guesses make {} tokens", guessed.calls,
                              guessed.accepted, tokens));
}

// What is left to the host is work of the host's.
void compare_with_host(const Receipt& receipt, std::vector<std::string>& out) {
  const bool did_host = std::any_of(
      receipt.devices.begin(), receipt.devices.end(),
      [](const DeviceCounters& device) { return device.is_host && device.has_executed(); });
  if (!receipt.on_host.empty() && !receipt.devices.empty() && !did_host)
    out.push_back(fmt::format("{} left to the host, which did nothing", receipt.on_host.front()));
}

}  // namespace

std::vector<std::string> contradictions(const Receipt& receipt) {
  std::vector<std::string> out;
  compare_with_phases(receipt, out);
  compare_with_host(receipt, out);
  if (receipt.speculation) compare_with_tokens(*receipt.speculation, decoded_tokens(receipt), out);
  for (const DeviceCounters& device : receipt.devices) {
    if (device.completions > device.submissions)
      out.push_back(fmt::format("{}: {} completions of {} submissions", device.device,
                                device.completions, device.submissions));
    if (must_be_virtual(device.device) && !device.is_virtual)
      out.push_back(device.device + ": is a virtual device, which is not said");
  }
  for (const DeviceCounters& device : receipt.phases.prefill)
    compare_with_time(device, Phase::prefill, receipt.prefill_seconds, out);
  for (const DeviceCounters& device : receipt.phases.decode)
    compare_with_time(device, Phase::decode, receipt.decode_seconds, out);
  return out;
}

Plausibility judge_again(const Receipt& receipt, const std::vector<NamedLimits>& stated) {
  std::vector<NamedLimits> limits;
  std::vector<std::string> said;
  for (const DeviceCounters& device : receipt.devices) {
    const auto own = std::find_if(stated.begin(), stated.end(), [&](const NamedLimits& of) {
      return of.device == device.device;
    });
    NamedLimits of{device.device, own == stated.end() ? DeviceLimits{} : own->limits};
    const auto published = published_limits(device.device, of.limits.source);
    if (published) tighten(of, *published, said);
    if (published || own != stated.end()) limits.push_back(std::move(of));
  }
  Plausibility result = judge(receipt, limits);
  result.unchecked.insert(result.unchecked.end(), said.begin(), said.end());
  return result;
}

std::string contradiction(const Plausibility& stated, const Plausibility& again) {
  if (again.verdict == Verdict::refused && stated.verdict != Verdict::refused)
    return fmt::format("says {}, but {}", name(stated.verdict), joined(again.reasons, "; "));
  if (again.verdict == Verdict::unchecked && stated.verdict == Verdict::plausible)
    return fmt::format(
        "says plausible, but nothing could be compared: {}",
        again.unchecked.empty() ? "no limits are known" : joined(again.unchecked, "; "));
  return "";
}

}  // namespace tyto
