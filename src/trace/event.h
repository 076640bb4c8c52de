// What a recording holds: plain values, timed with one monotonic clock, named by small numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tyto {

enum class EventKind : uint8_t {
  token,     // from the choice of the token before (or the request's begin) to the choice of this
  run,       // one Pipeline::run
  host,      // work of the engine itself: tokenize, sample, ...
  upload,    // of a dispatch: host to device
  submit,    // of a dispatch: handing it over; a synchronous device computes here
  wait,      // of a dispatch: until the device reported completion
  download,  // of a dispatch: device to host
  launch,    // one kernel inside a dispatch, or several that ran as one
};

// Which part of the network a launch belongs to, for the operator breakdown.
enum class Operator : uint8_t {
  none,  // not a launch
  attention,
  feed_forward,
  projection,
  head,
  norm_rope,
  other,
};

constexpr uint32_t kNoDispatch = 0;
constexpr uint16_t kNoLayer = 0xffff;

// 64 bytes, so that recording is one line of cache.
struct Event {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t modelled_ns = 0;  // of a virtual device's wait or launch: what the device would take
  uint64_t bytes = 0;        // launch: declared; upload, download: moved; submit: declared by all
  uint64_t flops = 0;
  uint32_t dispatch = kNoDispatch;  // counts up from 1; ties the parts of a dispatch together
  uint32_t token = 0;               // 0: the prompt and the first token; then 1, 2, ...
  uint32_t position = 0;            // run, dispatch: tokens in the KV cache before it
  uint32_t rows = 0;                // run, dispatch: tokens it carries
  uint16_t name = 0;
  uint16_t launches = 0;  // submit, launch: kernels inside; wait: submissions of the hardware
  uint8_t device = 0;     // dispatch and launch
  EventKind kind = EventKind::host;
};
static_assert(sizeof(Event) == 64);

// A name as the reports use it.
struct EventName {
  std::string label;
  uint16_t layer = kNoLayer;
  std::string block = {};  // of a launch: the block it is stitched into at --fusion block
  Operator op = Operator::none;
  bool operator==(const EventName&) const = default;
};

inline uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

inline double seconds_between(uint64_t from_ns, uint64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

}  // namespace tyto
