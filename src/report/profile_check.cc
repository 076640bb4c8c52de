#include "report/profile_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tyto {
namespace {

// What the events of a phase say that a device did.
struct Recorded {
  uint64_t dispatches = 0;
  uint64_t completions = 0;  // 0: a file from before recordings had them
  uint64_t bytes = 0;
  uint64_t flops = 0;
  uint64_t modelled_ns = 0;
};

Recorded recorded(const ProfileRun& run, const Facts& facts, const std::string& device,
                  Phase phase) {
  Recorded sum;
  for (const Event& event : run.events) {
    const bool is_dispatch = event.kind == EventKind::submit || event.kind == EventKind::wait;
    if (!is_dispatch || (event.token == 0) != (phase == Phase::prefill)) continue;
    if (facts.devices[event.device].name != device) continue;
    if (event.kind == EventKind::wait) {
      sum.completions += event.launches;
      sum.modelled_ns += event.modelled_ns;
      continue;
    }
    ++sum.dispatches;
    sum.bytes += event.bytes;
    sum.flops += event.flops;
  }
  return sum;
}

class Comparison {
 public:
  Comparison(const ProfileRun& run, const Facts& facts)
      : run_(run), facts_(facts), receipt_(run.receipt), is_whole_(run.lost == 0) {}

  std::optional<std::string> result() {
    for (const DeviceFacts& device : facts_.devices) {
      compare(device.name, Phase::prefill, receipt_.phases.prefill);
      compare(device.name, Phase::decode, receipt_.phases.decode);
    }
    compare_tokens();
    if (is_whole_) compare_times();
    return found_;
  }

 private:
  void compare(const std::string& device, Phase phase, const std::vector<DeviceCounters>& counted) {
    const auto entry =
        std::find_if(counted.begin(), counted.end(),
                     [&](const DeviceCounters& each) { return each.device == device; });
    const DeviceCounters counters = entry == counted.end() ? DeviceCounters{} : *entry;
    const Recorded sum = recorded(run_, facts_, device, phase);
    const std::string where = fmt::format("{} {}", device, name(phase));
    compare(where, "bytes", sum.bytes, counters.bytes);
    compare(where, "FLOP", sum.flops, counters.flops);
    if (sum.completions > 0 || sum.dispatches == 0)
      compare(where, "completed submissions", sum.completions, counters.completions);
    else if (sum.dispatches > counters.completions)
      say(where, "dispatches", sum.dispatches, counters.completions);
    if (counters.is_virtual) compare(where, "modelled ns", sum.modelled_ns, counters.busy_ns);
  }

  void compare(const std::string& where, const char* what, uint64_t events, uint64_t counted) {
    if (is_whole_ ? events != counted : events > counted) say(where, what, events, counted);
  }

  void compare_tokens() {
    uint64_t prompt = 0, generated = 0;
    for (const Event& event : run_.events) {
      if (event.kind == EventKind::run && event.token == 0) prompt += event.rows;
      if (event.kind == EventKind::token) ++generated;
    }
    compare("prompt", "tokens", prompt, receipt_.prompt_tokens);
    compare("answer", "tokens", generated, receipt_.generated_tokens);
  }

  // A simulation's own seconds are nobody's speed; its modelled ones are worked out of the events.
  void compare_times() {
    const ModelledSeconds events = recorded_seconds(run_.events);
    const ModelledSeconds stated = receipt_.modelled.value_or(
        ModelledSeconds{receipt_.prefill_seconds, receipt_.decode_seconds});
    if (has_virtual_device(receipt_) && !receipt_.modelled) return;
    // A measured prefill also has what comes before the pipeline's first run.
    const double before = receipt_.modelled ? 0 : token_seconds() - events.prefill;
    compare_seconds(Phase::prefill, events.prefill, events.prefill + before, stated.prefill);
    compare_seconds(Phase::decode, events.decode, events.decode, stated.decode);
  }

  double token_seconds() const {  // of the prompt's, from the request on
    for (const Event& event : run_.events)
      if (event.kind == EventKind::token && event.token == 0)
        return static_cast<double>(event.end_ns - event.start_ns) * 1e-9;
    return 0;
  }

  // The recording and the receipt read the clock one after the other in older files.
  void compare_seconds(Phase phase, double least, double most, double stated) {
    const double room = receipt_.modelled ? 1e-9 : 1e-3 + 0.01 * most;
    if (found_ || (stated >= least - room && stated <= most + room)) return;
    found_ = fmt::format("{}: {:.6f} s by the recording, {:.6f} s by the receipt", name(phase),
                         stated < least ? least : most, stated);
  }

  void say(const std::string& where, const char* what, uint64_t events, uint64_t counted) {
    if (!found_)
      found_ = fmt::format("{}: {} {} in the recording, {} in the receipt", where, events, what,
                           counted);
  }

  const ProfileRun& run_;
  const Facts& facts_;
  const Receipt& receipt_;
  bool is_whole_;
  std::optional<std::string> found_;
};

}  // namespace

std::optional<std::string> disagreement(const ProfileRun& run, const Facts& facts) {
  for (const DeviceCounters& counted : run.receipt.devices)
    if (std::none_of(facts.devices.begin(), facts.devices.end(),
                     [&](const DeviceFacts& known) { return known.name == counted.device; }))
      return fmt::format("{}: is no device of this profile", counted.device);
  return Comparison(run, facts).result();
}

std::optional<std::string> disagreement(const SweepRow& row) {
  const Receipt& receipt = row.receipt;
  const double prefill = receipt.modelled ? receipt.modelled->prefill : receipt.prefill_seconds;
  const double decode = receipt.modelled ? receipt.modelled->decode : receipt.decode_seconds;
  const double decoded = decoded_tokens(receipt);
  const auto differs = [](const std::vector<double>& samples, double stated) {
    return !samples.empty() && std::fabs(samples.back() - stated) > 1e-9 * std::fabs(stated);
  };
  if (differs(row.prefill_s, prefill))
    return fmt::format("prefill: {:.6f} s in the row, {:.6f} s in its receipt",
                       row.prefill_s.back(), prefill);
  const double tpot_ms = decoded > 0 ? decode * 1e3 / decoded : 0;
  if (differs(row.tpot_ms, tpot_ms))
    return fmt::format("decode: {:.6f} ms a token in the row, {:.6f} ms in its receipt",
                       row.tpot_ms.back(), tpot_ms);
  return std::nullopt;
}

}  // namespace tyto
