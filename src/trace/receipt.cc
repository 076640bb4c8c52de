#include "trace/receipt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/joined.h"
#include "base/printable.h"

namespace tyto {

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

std::string refusal(const Receipt& receipt) {
  return fmt::format("prompt {} tokens · generated {} tokens · speed refused: {}",
                     receipt.prompt_tokens, receipt.generated_tokens,
                     joined(receipt.plausibility.reasons, "; "));
}

std::string rates(const Receipt& receipt) {
  if (receipt.plausibility.verdict == Verdict::refused) return refusal(receipt);
  if (has_virtual_device(
          receipt))  // how long the simulation took must not pass for a device's speed
    return fmt::format(
        "prompt {} tokens · generated {} tokens · simulated in {:.2f} s, which is no NPU's speed",
        receipt.prompt_tokens, receipt.generated_tokens,
        receipt.prefill_seconds + receipt.decode_seconds);
  std::string text =
      fmt::format("prompt {} tokens, {:.1f} tok/s · generated {} tokens", receipt.prompt_tokens,
                  prefill_tokens_per_second(receipt), receipt.generated_tokens);
  if (decode_tokens_per_second(receipt) > 0)
    text += fmt::format(", {:.1f} tok/s", decode_tokens_per_second(receipt));
  return text;
}

std::string work_of(const DeviceCounters& device) {
  const double seconds = static_cast<double>(device.busy_ns) * 1e-9;
  const double rate = seconds > 0 ? static_cast<double>(device.bytes) * 1e-9 / seconds : 0.0;
  std::string text = fmt::format("{} ({} of {} submissions completed, {} launches, ", device.device,
                                 device.completions, device.submissions, device.launches);
  if (device.row_sums > 0) text += fmt::format("{} row sums checked, ", device.row_sums);
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
      others += fmt::format(" · not on {}: it completed none of {} submissions", device.device,
                            device.submissions);
  }
  return (line.empty() ? "executed on no device" : line) + others;
}

// A simulation's own time is nobody's.
std::string handed_over(const Receipt& receipt) {
  const HandOvers& handed = receipt.handed_over;
  if (handed.times == 0) return "";
  std::string text = fmt::format(" · KV of {} positions handed over, {:.1f} MB", handed.positions,
                                 static_cast<double>(handed.bytes) * 1e-6);
  if (!has_virtual_device(receipt))
    text += fmt::format(" in {:.1f} ms", static_cast<double>(handed.ns) * 1e-6);
  return text;
}

std::string speculated(const Receipt& receipt) {
  if (!receipt.speculation) return "";
  const SpeculationCounters& counted = *receipt.speculation;
  std::string text = fmt::format(" · {} of {} guesses of {} came true", counted.accepted,
                                 counted.drafted, printable_name(counted.source));
  if (const auto calls = calls_per_token(receipt))
    text += fmt::format(", {:.3g} calls per token", *calls);
  return text;
}

std::string fallbacks_of(const Receipt& receipt) {
  std::string line;
  for (const std::string& fallback : receipt.fallbacks)
    line += (line.empty() ? "fallbacks: " : "; ") + fallback;
  return line.empty() ? "no fallbacks" : line;
}

}  // namespace

std::string executed_line(const Receipt& receipt) {
  return executed_on(receipt) + handed_over(receipt) + " · " + fallbacks_of(receipt);
}

std::string receipt_line(const Receipt& receipt) {
  std::string line = rates(receipt);
  if (receipt.cached_tokens > 0)
    line += fmt::format(" · {} of the prompt were in the cache", receipt.cached_tokens);
  if (receipt.kv_peak_bytes > 0)
    line += fmt::format(" · KV cache up to {:.1f} MB",
                        static_cast<double>(receipt.kv_peak_bytes) * 1e-6);
  line += " · " + executed_on(receipt) + handed_over(receipt);
  if (const auto dispatches = dispatches_per_token(receipt))
    line += fmt::format(" · {:.4g} dispatches per token", *dispatches);
  line += speculated(receipt);
  return line + " · " + fallbacks_of(receipt);
}

std::string short_receipt_line(const Receipt& receipt) {
  const auto counted = [](size_t count, const char* what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
  };
  std::string line = counted(receipt.generated_tokens, "token");
  if (receipt.plausibility.verdict == Verdict::refused)
    line += ", speed refused";
  else if (!has_virtual_device(receipt) && decode_tokens_per_second(receipt) > 0)
    line += fmt::format(", {:.1f} tok/s", decode_tokens_per_second(receipt));
  line += " · executed on " + device_names(receipt.devices);
  if (const auto calls = calls_per_token(receipt))
    line += fmt::format(" · {:.3g} calls per token", *calls);
  if (!receipt.fallbacks.empty()) line += " · " + counted(receipt.fallbacks.size(), "fallback");
  return line;
}

}  // namespace tyto
