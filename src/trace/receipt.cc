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

// A simulation's own time is nobody's.
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

}  // namespace tyto
