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
