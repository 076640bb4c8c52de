#include "trace/receipt.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"
#include "base/utf8.h"

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

namespace {

[[noreturn]] void fail(const Requirement& requirement, const std::string& what) {
  throw Error(ErrorCode::require, "--require " + to_text(requirement), what);
}

// What the others did; there are two or three, so that their order does not matter.
std::string shares(const std::vector<DeviceCounters>& executed, double flops) {
  return joined(executed, ", ", [&](const DeviceCounters& device) {
    return fmt::format("{} {:.0f} %", device.device,
                       flops > 0 ? 100 * static_cast<double>(device.flops) / flops : 0);
  });
}

void check_phase(const Requirement& requirement, Phase phase,
                 const std::vector<DeviceCounters>& executed) {
  double flops = 0;
  const DeviceCounters* wanted = nullptr;
  for (const DeviceCounters& device : executed) {
    flops += static_cast<double>(device.flops);
    if (device.device == requirement.device) wanted = &device;
  }
  if (wanted == nullptr || wanted->completions == 0)
    fail(requirement, fmt::format("it completed no work in {}", name(phase)));
  if (wanted->is_virtual) fail(requirement, "the device is virtual, its time modelled");
  if (wanted->completions != wanted->submissions)
    fail(requirement, fmt::format("it completed {} of {} submissions in {}", wanted->completions,
                                  wanted->submissions, name(phase)));
  if (static_cast<double>(wanted->flops) * 2 <= flops)
    fail(requirement, fmt::format("it did not do most of {}: {} of the arithmetic", name(phase),
                                  shares(executed, flops)));
}

}  // namespace

std::string_view name(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

Requirement parse_requirement(const std::string& text) {
  const size_t colon = text.find(':');
  Requirement result{.device = text.substr(0, colon), .phase = {}};
  if (colon == std::string::npos) return result;
  const std::string phase = text.substr(colon + 1);
  if (phase == "prefill")
    result.phase = Phase::prefill;
  else if (phase == "decode")
    result.phase = Phase::decode;
  if (!result.phase || result.device.empty())
    throw Error(ErrorCode::usage, "--require " + text, "expected DEVICE or DEVICE:phase",
                "the phases are prefill and decode");
  return result;
}

std::string to_text(const Requirement& requirement) {
  if (!requirement.phase) return requirement.device;
  return requirement.device + ":" + std::string(name(*requirement.phase));
}

void check_requirement(const Requirement& requirement, const PhaseCounters& executed) {
  if (requirement.empty()) return;
  bool any = false;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const auto& devices = phase == Phase::prefill ? executed.prefill : executed.decode;
    if (requirement.phase ? *requirement.phase != phase : devices.empty()) continue;
    if (devices.empty()) fail(requirement, fmt::format("no {} ran", name(phase)));
    check_phase(requirement, phase, devices);
    any = true;
  }
  if (!any) fail(requirement, "nothing ran");
}

std::string device_names(const std::vector<DeviceCounters>& counted) {
  std::vector<DeviceCounters> executed;
  for (const bool is_host : {false, true})
    for (const DeviceCounters& device : counted)
      if (device.has_executed() && device.is_host == is_host) executed.push_back(device);
  if (executed.empty()) return "no device";
  return joined(executed, "+", [](const DeviceCounters& device) {
    return device.device + (device.is_virtual ? " (modelled)" : "");
  });
}

uint64_t failed_dispatches(const Receipt& receipt) {
  uint64_t failed = 0;
  for (const DeviceCounters& device : receipt.devices) failed += device.failed();
  return failed;
}

std::string execution_text(const Receipt& receipt) {
  std::string text = device_names(receipt.devices);
  const uint64_t failed = failed_dispatches(receipt);
  if (failed > 0) text += fmt::format("; {} dispatch{} failed", failed, failed == 1 ? "" : "es");
  if (receipt.recoveries == 1) text += "; run again once";
  if (receipt.recoveries > 1) text += fmt::format("; run again {} times", receipt.recoveries);
  return text;
}

double prefill_tokens_per_second(const Receipt& receipt) {
  return receipt.prefill_seconds > 0 ? receipt.prompt_tokens / receipt.prefill_seconds : 0;
}

static void add_new(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  for (const std::string& line : more)
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
}

void add(Receipt& total, const Receipt& run) {
  total.prompt_tokens += run.prompt_tokens;
  total.cached_tokens += run.cached_tokens;
  total.generated_tokens += run.generated_tokens;
  total.prefill_seconds += run.prefill_seconds;
  total.decode_seconds += run.decode_seconds;
  add(total.devices, run.devices);
  add(total.phases.prefill, run.phases.prefill);
  add(total.phases.decode, run.phases.decode);
  add_new(total.fallbacks, run.fallbacks);
  add_new(total.on_host, run.on_host);
  total.recoveries += run.recoveries;
  total.handed_over += run.handed_over;
  total.loaded_code = run.loaded_code;  // by the engine so far
  total.kv_peak_bytes = std::max(total.kv_peak_bytes, run.kv_peak_bytes);
  if (run.speculation) {
    if (!total.speculation) total.speculation.emplace().source = run.speculation->source;
    total.speculation->calls += run.speculation->calls;
    total.speculation->drafted += run.speculation->drafted;
    total.speculation->accepted += run.speculation->accepted;
    total.speculation->drafting_seconds += run.speculation->drafting_seconds;
  }
  if (!run.modelled) return;
  if (!total.modelled) total.modelled.emplace();
  total.modelled->prefill += run.modelled->prefill;
  total.modelled->decode += run.modelled->decode;
}

uint32_t decoded_tokens(const Receipt& receipt) {
  const bool one_was_given = receipt.first_from_prefill && receipt.generated_tokens > 0;
  return receipt.generated_tokens - (one_was_given ? 1 : 0);
}

double decode_tokens_per_second(const Receipt& receipt) {
  return receipt.decode_seconds > 0 ? decoded_tokens(receipt) / receipt.decode_seconds : 0;
}

bool has_virtual_device(const Receipt& receipt) {
  return std::any_of(
      receipt.devices.begin(), receipt.devices.end(),
      [](const DeviceCounters& device) { return device.is_virtual && device.has_executed(); });
}

std::optional<double> dispatches_per_token(const Receipt& receipt) {
  if (decoded_tokens(receipt) == 0) return std::nullopt;
  double submissions = 0;
  for (const DeviceCounters& device : receipt.phases.decode)
    if (!device.is_host || receipt.phases.decode.size() == 1)
      submissions += static_cast<double>(device.submissions);
  return submissions / decoded_tokens(receipt);
}

std::optional<double> calls_per_token(const Receipt& receipt) {
  if (!receipt.speculation || decoded_tokens(receipt) == 0) return std::nullopt;
  return static_cast<double>(receipt.speculation->calls) / decoded_tokens(receipt);
}

Plausibility judge(const Receipt& receipt, const std::vector<NamedLimits>& limits) {
  if (has_virtual_device(receipt) && !receipt.modelled)
    return {.unchecked = {"the wall time is a simulation's"}};
  std::vector<Plausibility> parts;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const bool prefill = phase == Phase::prefill;
    const double tokens = prefill ? receipt.prompt_tokens : decoded_tokens(receipt);
    const double measured = prefill ? receipt.prefill_seconds : receipt.decode_seconds;
    const double modelled =
        receipt.modelled ? (prefill ? receipt.modelled->prefill : receipt.modelled->decode) : 0;
    const double seconds = receipt.modelled ? modelled : measured;
    if (tokens <= 0 || seconds <= 0) continue;
    for (const DeviceCounters& device : prefill ? receipt.phases.prefill : receipt.phases.decode)
      for (const NamedLimits& of : limits)
        if (of.device == device.device)
          parts.push_back(
              judge({.device = device.device,
                     .phase = std::string(name(phase)),
                     .tokens_per_second = tokens / seconds,
                     .bytes_per_token = static_cast<double>(device.bytes) / tokens,
                     .flops_per_token = static_cast<double>(device.flops) / tokens,
                     .dispatches_per_token = static_cast<double>(device.submissions) / tokens},
                    of.limits));
  }
  return combine(parts);
}

namespace {

std::string counted(uint64_t count, const char* what, const char* plural = "s") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : plural);
}

// "prompt 39 tokens (21 from the cache)"; the rate is that of the tokens that were run.
std::string prompt_of(const Receipt& receipt) {
  const uint64_t whole = uint64_t{receipt.prompt_tokens} + receipt.cached_tokens;
  std::string text = "prompt " + counted(whole, "token");
  if (receipt.cached_tokens > 0) text += fmt::format(" ({} from the cache)", receipt.cached_tokens);
  return text;
}

std::string refusal_of_speed(const Receipt& receipt) {
  return "speed refused: " + joined(receipt.plausibility.reasons, "; ");
}

std::string rates(const Receipt& receipt) {
  const std::string prompt = prompt_of(receipt);
  const std::string generated = "generated " + counted(receipt.generated_tokens, "token");
  if (receipt.plausibility.verdict == Verdict::refused)
    return fmt::format("{} · {} · {}", prompt, generated, refusal_of_speed(receipt));
  if (has_virtual_device(
          receipt))  // how long the simulation took must not pass for a device's speed
    return fmt::format("{} · {} · simulated in {:.2f} s (says nothing about a real NPU)", prompt,
                       generated, receipt.prefill_seconds + receipt.decode_seconds);
  std::string text =
      fmt::format("{}, {:.1f} tok/s · {}", prompt, prefill_tokens_per_second(receipt), generated);
  if (decode_tokens_per_second(receipt) > 0)
    text += fmt::format(", {:.1f} tok/s", decode_tokens_per_second(receipt));
  return text;
}

std::string work_of(const DeviceCounters& device) {
  const double seconds = static_cast<double>(device.busy_ns) * 1e-9;
  const double rate = seconds > 0 ? static_cast<double>(device.bytes) * 1e-9 / seconds : 0.0;
  std::string text = fmt::format("{} ({} of {} completed, {}, ", device.device, device.completions,
                                 counted(device.submissions, "submission"),
                                 counted(device.launches, "launch", "es"));
  if (device.row_sums > 0) text += fmt::format("{} row sums checked, ", device.row_sums);
  if (device.preparing_ns > 0)
    text += fmt::format("kernels prepared in {:.1f} ms, ",
                        static_cast<double>(device.preparing_ns) * 1e-6);
  return text + (device.is_virtual
                     ? fmt::format("modelled: {:.1f} ms, {:.1f} GB/s)", seconds * 1e3, rate)
                     : fmt::format("{:.1f} GB/s)", rate));
}

std::string executed_on(const Receipt& receipt) {
  std::string line, others;
  for (const DeviceCounters& device : receipt.devices) {
    if (device.has_executed())
      line += (line.empty() ? "executed on " : ", ") + work_of(device);
    else
      others += fmt::format(" · not on {}: it completed none of {}", device.device,
                            counted(device.submissions, "submission"));
  }
  return (line.empty() ? "executed on no device" : line) + others;
}

// A simulation's own time says nothing of a device.
std::string handed_over(const Receipt& receipt) {
  const HandOvers& handed = receipt.handed_over;
  if (handed.times == 0) return "";
  std::string text =
      fmt::format(" · KV of {} handed over, {:.1f} MB", counted(handed.positions, "position"),
                  static_cast<double>(handed.bytes) * 1e-6);
  if (!has_virtual_device(receipt))
    text += fmt::format(" in {:.1f} ms", static_cast<double>(handed.ns) * 1e-6);
  return text;
}

std::string calls_text(double calls) {
  const std::string number = fmt::format("{:.3g}", calls);
  return number + (number == "1" ? " call per token" : " calls per token");
}

std::string speculated(const Receipt& receipt) {
  if (!receipt.speculation) return "";
  const SpeculationCounters& counters = *receipt.speculation;
  std::string text =
      fmt::format(" · {} of {} drafted by {} accepted", counters.accepted,
                  counted(counters.drafted, "token"), printable_name(counters.source));
  if (const auto calls = calls_per_token(receipt)) text += ", " + calls_text(*calls);
  return text;
}

std::string fallbacks_of(const Receipt& receipt) {
  const size_t count = receipt.fallbacks.size();
  std::string line = "no fallbacks";
  if (count > 0)
    line = (count == 1 ? "fallback: " : "fallbacks: ") + joined(receipt.fallbacks, "; ");
  if (!receipt.on_host.empty())
    line += " · on the host by design: " + joined(receipt.on_host, ", ");
  return line;
}

// Two digits that mean something, or all before the point.
std::string short_rate(double tokens_per_second) {
  return tokens_per_second < 10 ? fmt::format("{:.2g} tok/s", tokens_per_second)
                                : fmt::format("{:.0f} tok/s", tokens_per_second);
}

// With the dot in front of it; nothing where there is none to tell.
std::string short_rate_of(const Receipt& receipt) {
  if (receipt.plausibility.verdict == Verdict::refused) return " · speed refused";
  if (has_virtual_device(receipt) || decode_tokens_per_second(receipt) <= 0) return "";
  return " · " + short_rate(decode_tokens_per_second(receipt));
}

// A simulation has no rate but the modelled one, which stands behind the device that it is of.
std::string modelled_rate_of(const Receipt& receipt) {
  const bool is_known = receipt.modelled && receipt.modelled->decode > 0 &&
                        decoded_tokens(receipt) > 0 && has_virtual_device(receipt) &&
                        receipt.plausibility.verdict != Verdict::refused;
  if (!is_known) return "";
  return fmt::format(", {} modelled",
                     short_rate(decoded_tokens(receipt) / receipt.modelled->decode));
}

}  // namespace

std::string executed_line(const Receipt& receipt) {
  return executed_on(receipt) + handed_over(receipt) + " · " + fallbacks_of(receipt);
}

std::string receipt_line(const Receipt& receipt) {
  std::string line = rates(receipt);
  if (receipt.kv_peak_bytes > 0)
    line += fmt::format(" · KV cache up to {:.1f} MB",
                        static_cast<double>(receipt.kv_peak_bytes) * 1e-6);
  line += " · " + executed_on(receipt) + handed_over(receipt);
  if (const auto dispatches = dispatches_per_token(receipt))
    line += fmt::format(" · {:.4g} {} per token", *dispatches,
                        *dispatches == 1 ? "dispatch" : "dispatches");
  line += speculated(receipt);
  return line + " · " + fallbacks_of(receipt);
}

std::string short_receipt_line(const Receipt& receipt) {
  std::string line = counted(receipt.generated_tokens, "token") + short_rate_of(receipt) + " · " +
                     device_names(receipt.devices) + modelled_rate_of(receipt);
  if (const auto calls = calls_per_token(receipt)) line += " · " + calls_text(*calls);
  return line;
}

std::vector<std::string> trouble_lines(const Receipt& receipt) {
  std::vector<std::string> lines;
  if (receipt.plausibility.verdict == Verdict::refused) lines.push_back(refusal_of_speed(receipt));
  for (const DeviceCounters& device : receipt.devices)
    if (device.failed() > 0)
      lines.push_back(fmt::format("{}: {} of {} failed", device.device, device.failed(),
                                  counted(device.submissions, "dispatch", "es")));
  for (const std::string& fallback : receipt.fallbacks) lines.push_back("fallback: " + fallback);
  return lines;
}

std::string joules_per_token(const RailEnergy& energy, double tokens) {
  if (!energy.joules) return "n/a (" + energy.reason + ")";
  if (tokens <= 0) return "n/a (no tokens)";
  return fmt::format("{:.3g} J/token", *energy.joules / tokens);
}

std::vector<std::string> energy_lines(const Receipt& receipt) {
  const double decoded = decoded_tokens(receipt);
  std::vector<std::string> lines;
  for (size_t i = 0; i < receipt.prefill_energy.rails.size(); ++i) {
    const RailEnergy& prefill = receipt.prefill_energy.rails[i];
    const RailEnergy& decode = receipt.decode_energy.rails[i];
    std::string line = prefill.rail.label() + ": ";
    if (!prefill.joules && !decode.joules && prefill.reason == decode.reason) {
      line += "n/a (" + prefill.reason + ")";
    } else {
      line += fmt::format("prefill {}, decode {}", joules_per_token(prefill, receipt.prompt_tokens),
                          joules_per_token(decode, decoded));
      if (decode.watts()) line += fmt::format(" at {:.3g} W", *decode.watts());
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> energy_reasons(const EnergyWindow& window) {
  std::vector<std::string> reasons;
  for (const RailEnergy& energy : window.rails)
    if (!energy.joules) reasons.push_back(energy.rail.label() + ": n/a (" + energy.reason + ")");
  return reasons;
}

void drop_simulated_energy(Receipt& receipt) {
  const bool simulated =
      std::any_of(receipt.devices.begin(), receipt.devices.end(),
                  [](const DeviceCounters& device) { return device.is_virtual; });
  if (!simulated) return;
  for (EnergyWindow* window : {&receipt.prefill_energy, &receipt.decode_energy})
    for (RailEnergy& energy : window->rails) {
      if (!energy.joules) continue;
      energy.joules.reset();
      energy.reason = "a virtual device took part: the energy is the simulation's";
    }
}

Energy energy_of(const Receipt& receipt) {
  Energy energy{.reason = "no power rail was found"};
  const auto& prefill = receipt.prefill_energy.rails;
  const auto& decode = receipt.decode_energy.rails;
  for (size_t i = 0; i < std::min(prefill.size(), decode.size()); ++i) {
    if (prefill[i].joules && decode[i].joules)
      return {prefill[i].joules, decode[i].joules, prefill[i].rail.name, ""};
    if (i == 0) energy.reason = prefill[i].joules ? decode[i].reason : prefill[i].reason;
  }
  return energy;
}

}  // namespace tyto
