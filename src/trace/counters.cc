#include "trace/counters.h"

namespace tyto {
namespace {

// Every field that is a sum; adding one here is all that a new one needs.
constexpr uint64_t DeviceCounters::* kSums[] = {
    &DeviceCounters::submissions,  &DeviceCounters::completions,   &DeviceCounters::launches,
    &DeviceCounters::busy_ns,      &DeviceCounters::submitting_ns, &DeviceCounters::waited_ns,
    &DeviceCounters::preparing_ns, &DeviceCounters::bytes,         &DeviceCounters::flops,
    &DeviceCounters::row_sums};

// The share of an amount by rows: differences of rounded parts, so that the shares add up.
uint64_t part(uint64_t amount, uint64_t first, uint64_t rows, uint64_t of) {
  const auto up_to = [&](uint64_t row) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(amount) * row / of);
  };
  return up_to(first + rows) - up_to(first);
}

}  // namespace

Completion share_of(const Completion& whole, uint64_t first, uint64_t rows, uint64_t of) {
  Completion share = whole;
  for (uint64_t Completion::* field :
       {&Completion::device_ns, &Completion::submitting_ns, &Completion::waited_ns,
        &Completion::preparing_ns, &Completion::bytes, &Completion::flops, &Completion::row_sums,
        &Completion::uploaded_bytes, &Completion::downloaded_bytes})
    share.*field = part(whole.*field, first, rows, of);
  return share;
}

void DeviceCounters::add(const Completion& completion) {
  submissions += completion.submissions;
  completions += completion.submissions;
  launches += completion.launches;
  busy_ns += completion.device_ns;
  submitting_ns += completion.submitting_ns;
  waited_ns += completion.waited_ns;
  preparing_ns += completion.preparing_ns;
  bytes += completion.bytes;
  flops += completion.flops;
  row_sums += completion.row_sums;
}

DeviceCounters& DeviceCounters::operator+=(const DeviceCounters& other) {
  for (const auto field : kSums) this->*field += other.*field;
  return *this;
}

DeviceCounters& DeviceCounters::operator-=(const DeviceCounters& other) {
  for (const auto field : kSums) this->*field -= other.*field;
  return *this;
}

HandOvers& HandOvers::operator+=(const HandOvers& other) {
  times += other.times;
  positions += other.positions;
  bytes += other.bytes;
  ns += other.ns;
  return *this;
}

DeviceCounters& entry_of(std::vector<DeviceCounters>& all, const DeviceCounters& like) {
  for (DeviceCounters& entry : all)
    if (entry.device == like.device) return entry;
  return all.emplace_back(DeviceCounters{
      .device = like.device, .is_virtual = like.is_virtual, .is_host = like.is_host});
}

std::vector<DeviceCounters> difference(std::vector<DeviceCounters> after,
                                       const std::vector<DeviceCounters>& before) {
  for (DeviceCounters& device : after)
    for (const DeviceCounters& earlier : before)
      if (earlier.device == device.device) device -= earlier;
  std::erase_if(after, [](const DeviceCounters& device) { return device.submissions == 0; });
  return after;
}

void add(std::vector<DeviceCounters>& sum, const std::vector<DeviceCounters>& more) {
  for (const DeviceCounters& device : more) {
    DeviceCounters& entry = entry_of(sum, device);
    entry += device;
    entry.pinned_bytes = device.pinned_bytes;
  }
}

}  // namespace tyto
