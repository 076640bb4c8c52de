// Timing a stretch of code into a Trace. While no recording is on, each of these is one branch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "trace/trace.h"

namespace tyto {

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

// What a dispatch is called and who counts it; made at set-up.
struct DispatchLabel {
  uint16_t name = 0;
  uint8_t device = 0;
  // False: its memory is the host's, so nothing is written or read back, and submit() computes.
  bool copies = true;
  const DeviceCounters* counters = nullptr;
};

// The parts of one dispatch, each ending where the next begins. What was declared, and how long a
// virtual device would have taken, is what its counters grew by.
class DispatchSpan {
 public:
  DispatchSpan(Trace& trace, const DispatchLabel& label, uint32_t position, uint32_t rows)
      : trace_(trace.recording() ? &trace : nullptr),
        counters_(label.counters),
        copies_(label.copies) {
    if (trace_ == nullptr) return;
    event_ = {.dispatch = trace.next_dispatch(),
              .token = trace.token(),
              .position = position,
              .rows = rows,
              .name = label.name,
              .device = label.device};
    before_ = read();
    event_.end_ns = now_ns();
    trace.set_dispatch_start(event_.end_ns);
  }

  void uploaded(uint64_t bytes) { copied(EventKind::upload, bytes); }
  void submitted() {
    if (trace_ == nullptr) return;
    next(EventKind::submit);
    submit_ = event_;
  }
  void completed() {
    if (trace_ == nullptr) return;
    if (copies_)
      next(EventKind::wait);
    else
      next(EventKind::wait, event_.end_ns);  // a device in the host's memory was done on return
    const Counts after = read();
    submit_.launches = static_cast<uint16_t>(after.launches - before_.launches);
    submit_.bytes = after.bytes - before_.bytes;
    submit_.flops = after.flops - before_.flops;
    trace_->push(submit_);
    if (counters_->is_virtual) event_.modelled_ns = after.busy_ns - before_.busy_ns;
    trace_->push(event_);
    event_.modelled_ns = 0;
  }
  void downloaded(uint64_t bytes) { copied(EventKind::download, bytes); }

 private:
  struct Counts {
    uint64_t launches, bytes, flops, busy_ns;
  };
  Counts read() const {
    return {counters_->launches, counters_->bytes, counters_->flops, counters_->busy_ns};
  }
  void next(EventKind kind) { next(kind, now_ns()); }
  void next(EventKind kind, uint64_t end_ns) {
    event_.kind = kind;
    event_.start_ns = event_.end_ns;
    event_.end_ns = end_ns;
  }
  void copied(EventKind kind, uint64_t bytes) {
    if (trace_ == nullptr || !copies_ || bytes == 0) return;
    next(kind);
    event_.bytes = bytes;
    trace_->push(event_);
    event_.bytes = 0;
  }

  Trace* trace_;
  const DeviceCounters* counters_;
  bool copies_;
  Event event_;
  Event submit_;
  Counts before_ = {};
};

}  // namespace tyto
