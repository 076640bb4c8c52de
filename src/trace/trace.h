// What really happened, recorded where it happened: devices count every submission and completion,
// the engine times its steps while a recording is on. Reports only read.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/counters.h"
#include "trace/event.h"

namespace tyto {

// A stretch of work before the first request.
struct SetupSpan {
  std::string phase;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// What a device loaded, by content.
struct LoadedCode {
  std::string device;
  std::string program;
  std::string form;  // "elf", "xclbin", or "program" where the device interprets it
  std::string hash;
  bool operator==(const LoadedCode&) const = default;
};

// One per engine; written by the thread that drives the devices.
class Trace {
 public:
  // The counters of a device, made on first use. The reference stays valid.
  DeviceCounters& device(std::string_view name, bool is_virtual = false, bool is_host = false);
  // In snapshot().
  uint8_t device_index(std::string_view name, bool is_virtual = false, bool is_host = false);
  // A step that could not run where it was asked to, and why. Kept once per distinct text.
  void fallback(const std::string& what_and_why);
  // What a device leaves to the host by design: "embedding". Kept once per distinct text.
  void leave_to_host(const std::string& what);
  void loaded(const LoadedCode& code);  // once per distinct code
  void setup(const std::string& phase, uint64_t start_ns, uint64_t end_ns);
  // A number for a name, the same for an equal name. For set-up: it may allocate.
  uint16_t name(const EventName& name);

  std::vector<DeviceCounters> snapshot() const { return {devices_.begin(), devices_.end()}; }
  const std::vector<std::string>& fallbacks() const { return fallbacks_; }
  const std::vector<std::string>& on_host() const { return on_host_; }
  const std::vector<LoadedCode>& loaded_code() const { return loaded_; }
  const std::vector<SetupSpan>& setup_spans() const { return setup_; }
  const std::vector<EventName>& names() const { return names_; }

  // Recording. Off until start(); while it is off push() is never called and a span costs one
  // branch. All memory is taken and touched here. A second start() forgets the first's events.
  void start(size_t capacity);
  void stop() { recording_ = false; }
  bool recording() const { return recording_; }
  // Keeps what came first: when there is no room the event is counted as lost.
  void push(const Event& event) {
    if (size_ == capacity_) {
      ++lost_;
      return;
    }
    events_[size_++] = event;
  }
  std::span<const Event> events() const { return {events_.get(), size_}; }
  uint64_t lost() const { return lost_; }

  // Where the request stands; events carry these.
  // Token 0 begins. That of the first request after start() began there: reading its prompt is part
  // of it.
  void begin_request();
  uint64_t token_chosen();  // the current token ends, the next begins: now, which is returned
  uint32_t token() const { return token_; }
  uint32_t dispatch() const { return dispatch_; }
  uint32_t next_dispatch() { return ++dispatch_; }

 private:
  std::deque<DeviceCounters> devices_;  // deque: references survive growth
  std::vector<std::string> fallbacks_;
  std::vector<std::string> on_host_;
  std::vector<LoadedCode> loaded_;
  std::vector<SetupSpan> setup_;
  std::vector<EventName> names_;
  std::unordered_map<std::string, std::vector<uint16_t>> numbers_;  // by label

  bool recording_ = false;
  bool is_before_request_ = false;  // since start()
  std::unique_ptr<Event[]> events_;
  size_t capacity_ = 0;
  size_t size_ = 0;
  uint64_t lost_ = 0;
  uint32_t token_ = 0;
  uint32_t dispatch_ = kNoDispatch;
  uint64_t token_start_ns_ = 0;
};

}  // namespace tyto
