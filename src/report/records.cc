#include "report/records.h"

#include <algorithm>

namespace tyto {
namespace {

void add_part(DispatchRecord& record, const Event& event) {
  const double took = ms(event.end_ns - event.start_ns);
  record.start = std::min(record.start, ms(event.start_ns));
  record.end = std::max(record.end, ms(event.end_ns));
  switch (event.kind) {
    case EventKind::upload:
      record.write += took;
      record.bytes_written += event.bytes;
      break;
    case EventKind::submit:
      record.submit += took;
      record.bytes += event.bytes;
      record.flops += event.flops;
      record.launches += event.launches;
      break;
    case EventKind::wait:
      record.wait += took;
      break;
    case EventKind::download:
      record.read += took;
      record.bytes_read += event.bytes;
      break;
    default:
      break;
  }
}

struct Interval {
  double start, end;
};

// The host work inside Pipeline::run is part of its wall; the rest is beside it.
void mark_inside(std::vector<HostRecord>& host, std::vector<Interval> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  for (HostRecord& record : host) {
    const auto after = std::upper_bound(runs.begin(), runs.end(), record.start,
                                        [](double at, const Interval& r) { return at < r.start; });
    record.in_run = after != runs.begin() && record.start < (after - 1)->end;
  }
}

// A device's first call may take far longer than the same call in later layers. What is more than
// their median is told by itself, or a mean would spread it over all layers.
void find_one_off(const Profile& profile, Records& records, uint8_t device) {
  constexpr double kLeastMs = 10, kLeastRatio = 10;
  constexpr size_t kLeastOthers = 2;
  DispatchRecord* first = nullptr;
  std::vector<double> others;
  for (DispatchRecord& each : records.dispatches) {
    if (each.device != device) continue;
    if (first == nullptr)
      first = &each;
    else if (profile.names[each.name].label == profile.names[first->name].label &&
             each.token == first->token)
      others.push_back(each.run());
  }
  if (others.size() < kLeastOthers) return;
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::nth_element(others.begin(), middle, others.end());
  const double excess = first->run() - *middle;
  if (excess >= kLeastMs && first->run() >= kLeastRatio * *middle) first->once = excess;
}

}  // namespace

Records records_of(const Profile& profile, const ProfileRun& run) {
  Records records;
  std::vector<int64_t> index;  // [dispatch]; -1: not seen yet
  std::vector<Interval> runs;
  const auto dispatch_of = [&](const Event& event) -> DispatchRecord& {
    if (event.dispatch >= index.size()) index.resize(event.dispatch + 1, -1);
    if (index[event.dispatch] < 0) {
      index[event.dispatch] = static_cast<int64_t>(records.dispatches.size());
      records.dispatches.push_back({.token = event.token,
                                    .device = event.device,
                                    .modelled = profile.facts.devices[event.device].is_virtual,
                                    .start = ms(event.start_ns),
                                    .end = ms(event.end_ns)});
    }
    return records.dispatches[static_cast<size_t>(index[event.dispatch])];
  };
  const auto token_of = [&](const Event& event) -> TokenRecord& {
    if (event.token >= records.tokens.size()) records.tokens.resize(event.token + 1);
    return records.tokens[event.token];
  };
  for (const Event& event : run.events) {
    const double took = ms(event.end_ns - event.start_ns);
    if (event.kind == EventKind::token) {
      token_of(event).wall = took;
      token_of(event).complete = true;
    } else if (event.kind == EventKind::run) {
      token_of(event).runs += took;
      token_of(event).context = event.position;
      runs.push_back({ms(event.start_ns), ms(event.end_ns)});
    } else if (event.kind == EventKind::host) {
      records.host.push_back({event.token, event.name, ms(event.start_ns), took, false});
    } else if (event.kind == EventKind::launch) {
      dispatch_of(event).launch_events.push_back(&event);
    } else {
      DispatchRecord& record = dispatch_of(event);
      record.name = event.name;
      add_part(record, event);
    }
  }
  mark_inside(records.host, std::move(runs));
  for (size_t device = 0; device < profile.facts.devices.size(); ++device)
    if (!profile.facts.devices[device].is_host)
      find_one_off(profile, records, static_cast<uint8_t>(device));
  return records;
}

}  // namespace tyto
