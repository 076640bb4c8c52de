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
#include <utility>
#include <vector>

#include "trace/counters.h"

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

// Timing a stretch of code into a Trace. While no recording is on, each of these is one branch.

// Set-up, before the first request; always timed.
class SetupTimer {
 public:
  SetupTimer(Trace& trace, std::string phase)
      : trace_(trace), phase_(std::move(phase)), start_ns_(now_ns()) {}
  ~SetupTimer() { trace_.setup(phase_, start_ns_, now_ns()); }
  SetupTimer(const SetupTimer&) = delete;
  SetupTimer& operator=(const SetupTimer&) = delete;

 private:
  Trace& trace_;
  std::string phase_;
  uint64_t start_ns_;
};

// A host operation, or a whole Pipeline::run (which says where it begins and how much it carries).
class Span {
 public:
  Span(Trace& trace, EventKind kind, uint16_t name, uint32_t position = 0, uint32_t rows = 0)
      : trace_(trace.recording() ? &trace : nullptr) {
    if (trace_ == nullptr) return;
    event_ = {
        .token = trace.token(), .position = position, .rows = rows, .name = name, .kind = kind};
    event_.start_ns = now_ns();
  }
  ~Span() {
    if (trace_ == nullptr) return;
    event_.end_ns = now_ns();
    trace_->push(event_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  Event event_;
};

// What a dispatch is called and where it runs; made at set-up.
struct DispatchLabel {
  uint16_t name = 0;
  uint8_t device = 0;
  // False: its memory is the host's, so nothing is written or read back, and submit() computes.
  bool copies = true;
  bool is_virtual = false;
};

// One dispatch. Begun before it is submitted, so that the launches that its device records belong
// to it; its parts are pushed when it has completed.
class DispatchSpan {
 public:
  DispatchSpan(Trace& trace, const DispatchLabel& label, uint32_t position, uint32_t rows)
      : trace_(trace.recording() ? &trace : nullptr), label_(label) {
    if (trace_ == nullptr) return;
    event_ = {.dispatch = trace.next_dispatch(),
              .token = trace.token(),
              .position = position,
              .rows = rows,
              .name = label.name,
              .device = label.device};
  }

  void completed(const Completion& done) {
    if (trace_ == nullptr) return;
    if (label_.copies && done.uploaded_bytes > 0)
      push(EventKind::upload, done.start_ns, done.uploaded_ns, {.bytes = done.uploaded_bytes});
    push(EventKind::submit, done.uploaded_ns, done.submitted_ns,
         {.bytes = done.bytes,
          .flops = done.flops,
          .launches = static_cast<uint16_t>(done.launches)});
    push(EventKind::wait, done.submitted_ns, done.completed_ns,
         {.modelled_ns = label_.is_virtual ? done.device_ns : 0,
          .launches = static_cast<uint16_t>(done.submissions)});
    if (label_.copies && done.downloaded_bytes > 0)
      push(EventKind::download, done.completed_ns, done.end_ns, {.bytes = done.downloaded_bytes});
  }

 private:
  // `own` holds what only this part has.
  void push(EventKind kind, uint64_t start_ns, uint64_t end_ns, const Event& own) {
    Event event = event_;
    event.kind = kind;
    event.start_ns = start_ns;
    event.end_ns = end_ns;
    event.modelled_ns = own.modelled_ns;
    event.bytes = own.bytes;
    event.flops = own.flops;
    event.launches = own.launches;
    trace_->push(event);
  }

  Trace* trace_;
  DispatchLabel label_;
  Event event_ = {};
};

}  // namespace tyto
