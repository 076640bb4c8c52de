#include "trace/trace.h"

#include <algorithm>
#include <new>

#include "base/error.h"

namespace tyto {

DeviceCounters& Trace::device(std::string_view name, bool is_virtual, bool is_host) {
  return devices_[device_index(name, is_virtual, is_host)];
}

uint8_t Trace::device_index(std::string_view name, bool is_virtual, bool is_host) {
  for (size_t i = 0; i < devices_.size(); ++i)
    if (devices_[i].device == name) return static_cast<uint8_t>(i);
  devices_.push_back({.device = std::string(name), .is_virtual = is_virtual, .is_host = is_host});
  TYTO_ASSERT(devices_.size() <= 256);
  return static_cast<uint8_t>(devices_.size() - 1);
}

namespace {

void add_once(std::vector<std::string>& lines, const std::string& line) {
  if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
}

}  // namespace

void Trace::fallback(const std::string& what_and_why) {
  add_once(fallbacks_, what_and_why);
}

void Trace::leave_to_host(const std::string& what) {
  add_once(on_host_, what);
}

void Trace::loaded(const LoadedCode& code) {
  const bool known = std::any_of(loaded_.begin(), loaded_.end(), [&](const LoadedCode& other) {
    return other.device == code.device && other.hash == code.hash;
  });
  if (!known) loaded_.push_back(code);
}

// A SetupTimer calls it where it ends, so nothing is thrown.
void Trace::setup(const std::string& phase, uint64_t start_ns, uint64_t end_ns) try {
  setup_.push_back({phase, start_ns, end_ns});
} catch (const std::bad_alloc&) {
  // The profile lacks this phase.
}

uint16_t Trace::name(const EventName& name) {
  std::vector<uint16_t>& same_label = numbers_[name.label];
  for (uint16_t number : same_label)
    if (names_[number] == name) return number;
  TYTO_ASSERT(names_.size() < 0xffff);
  same_label.push_back(static_cast<uint16_t>(names_.size()));
  names_.push_back(name);
  return same_label.back();
}

void Trace::start(size_t capacity) {
  if (capacity > capacity_) {
    events_.reset();
    events_ = std::make_unique<Event[]>(capacity);  // writes, and so commits, every page
    capacity_ = capacity;
  }
  size_ = 0;
  lost_ = 0;
  recording_ = true;
  begin_request();
  is_before_request_ = true;
}

void Trace::begin_request() {
  token_ = 0;
  dispatch_ = kNoDispatch;
  if (recording_ && !is_before_request_) token_start_ns_ = now_ns();
  is_before_request_ = false;
}

uint64_t Trace::token_chosen() {
  const uint64_t now = now_ns();
  if (!recording_) return now;
  push({.start_ns = token_start_ns_, .end_ns = now, .token = token_, .kind = EventKind::token});
  token_start_ns_ = now;
  ++token_;
  return now;
}

}  // namespace tyto
