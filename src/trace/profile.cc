#include "trace/profile.h"

#include <algorithm>

namespace tyto {
namespace {

// From recorded time to a profile's: begins at 0, and a virtual device's dispatches last as
// modelled.
class ProfileClock {
 public:
  ProfileClock(std::span<const Event> events, const std::vector<DeviceCounters>& devices) {
    uint64_t begin = UINT64_MAX;
    for (const Event& event : events)
      if (event.kind != EventKind::launch) begin = std::min(begin, event.start_ns);
    pieces_.push_back({begin, 0, 0});
    for (const Event& event : events) {
      // The simulation begins while its submission still runs, and takes cores from it; the model's
      // time covers both.
      const bool is_simulated = event.kind == EventKind::submit || event.kind == EventKind::wait;
      if (!is_simulated || !devices[event.device].is_virtual) continue;
      const uint64_t start = (*this)(event.start_ns);
      pieces_.push_back({event.start_ns, start, event.end_ns - event.start_ns});
      pieces_.push_back({event.end_ns, start + event.modelled_ns, 0});
      simulated_ns_ += event.end_ns - event.start_ns;
    }
  }

  uint64_t operator()(uint64_t recorded_ns) const {
    auto after = std::upper_bound(pieces_.begin(), pieces_.end(), recorded_ns,
                                  [](uint64_t at, const Piece& p) { return at < p.recorded_ns; });
    if (after == pieces_.begin()) return 0;
    const Piece& piece = *(after - 1);
    const uint64_t inside = recorded_ns - piece.recorded_ns;
    if (piece.simulated_ns == 0) return piece.shown_ns + inside;
    const uint64_t modelled = after->shown_ns - piece.shown_ns;
    return piece.shown_ns +
           static_cast<uint64_t>(static_cast<double>(modelled) * static_cast<double>(inside) /
                                 static_cast<double>(piece.simulated_ns));
  }

  double simulated_seconds() const { return static_cast<double>(simulated_ns_) * 1e-9; }

 private:
  struct Piece {
    uint64_t recorded_ns;
    uint64_t shown_ns;
    uint64_t simulated_ns;  // length of a wait that is replaced; 0: time passes as it did
  };
  std::vector<Piece> pieces_;
  uint64_t simulated_ns_ = 0;
};

// Where each dispatch's wait begins: modelled launches count from there. [dispatch]
std::vector<uint64_t> wait_starts(std::span<const Event> events) {
  std::vector<uint64_t> result;
  for (const Event& event : events) {
    if (event.kind != EventKind::wait) continue;
    if (event.dispatch >= result.size()) result.resize(event.dispatch + 1);
    result[event.dispatch] = event.start_ns;
  }
  return result;
}

}  // namespace

ModelledSeconds recorded_seconds(const std::vector<Event>& events) {
  ModelledSeconds result;
  uint64_t first_run = UINT64_MAX, first_token = 0, last_token = 0;
  for (const Event& event : events) {
    if (event.kind == EventKind::run) first_run = std::min(first_run, event.start_ns);
    if (event.kind != EventKind::token) continue;
    if (event.token == 0) first_token = event.end_ns;
    last_token = std::max(last_token, event.end_ns);
  }
  if (first_token > first_run) result.prefill = static_cast<double>(first_token - first_run) * 1e-9;
  if (last_token > first_token)
    result.decode = static_cast<double>(last_token - first_token) * 1e-9;
  return result;
}

ProfileRun collect_run(const Trace& trace, const Receipt& receipt) {
  const auto devices = trace.snapshot();
  const ProfileClock clock(trace.events(), devices);
  const std::vector<uint64_t> waits = wait_starts(trace.events());
  ProfileRun run;
  run.events.assign(trace.events().begin(), trace.events().end());
  for (Event& event : run.events) {
    const bool is_relative = event.kind == EventKind::launch && devices[event.device].is_virtual;
    if (is_relative) {
      // A wait that did not fit in the recording leaves its launches without a place.
      const uint64_t start = event.dispatch < waits.size() ? clock(waits[event.dispatch]) : 0;
      event.start_ns += start;
      event.end_ns += start;
    } else {
      event.start_ns = clock(event.start_ns);
      event.end_ns = clock(event.end_ns);
    }
  }
  run.lost = trace.lost();
  run.receipt = receipt;
  run.simulated_seconds = clock.simulated_seconds();
  if (has_virtual_device(receipt)) run.receipt.modelled = recorded_seconds(run.events);
  return run;
}

uint64_t setup_begin(const Profile& profile) {
  uint64_t begin = UINT64_MAX;
  for (const SetupSpan& span : profile.setup) begin = std::min(begin, span.start_ns);
  return profile.setup.empty() ? 0 : begin;
}

bool is_modelled(const Profile& profile) {
  return std::any_of(profile.facts.devices.begin(), profile.facts.devices.end(),
                     [](const DeviceFacts& device) { return device.is_virtual; });
}

}  // namespace tyto
