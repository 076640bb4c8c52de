// Sums of what devices did.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace tyto {

// What one submission to a device took, as the device counted it.

struct Completion {
  // When the parts ended, each beginning where the one before ended: bytes to the device, handing
  // over, computing, bytes back. Where the memory is the host's, nothing moves, and a device that
  // computes inside submit() is done when it is submitted.
  uint64_t start_ns = 0;
  uint64_t uploaded_ns = 0;
  uint64_t submitted_ns = 0;
  uint64_t completed_ns = 0;
  uint64_t end_ns = 0;

  uint64_t device_ns = 0;      // the device was busy; modelled where the device is virtual
  uint64_t submitting_ns = 0;  // the host's, inside the driver's submission
  uint64_t waited_ns = 0;      // the host's, for completions
  uint64_t preparing_ns = 0;   // the host made commands and kernels, before the start
  uint64_t submissions = 1;    // more where one call of a program is several of the hardware's
  uint64_t launches = 0;       // kernels inside
  uint64_t bytes = 0;          // declared by the launches
  uint64_t flops = 0;
  uint64_t row_sums = 0;  // products compared on the host
  uint64_t uploaded_bytes = 0;
  uint64_t downloaded_bytes = 0;
};

// The part of a completion that `rows` of a call's `of` rows account for, from row `first` on. The
// shares of all rows add up to the whole, but for submissions and launches, in which each took
// part.
Completion share_of(const Completion& whole, uint64_t first, uint64_t rows, uint64_t of);

struct DeviceCounters {
  std::string device;
  bool is_virtual = false;  // its time is modelled, not measured
  bool is_host = false;     // its work is function calls of this process, not dispatches
  uint64_t submissions = 0;
  uint64_t completions = 0;
  uint64_t launches = 0;       // kernels inside the completed submissions
  uint64_t busy_ns = 0;        // between submission and completion
  uint64_t submitting_ns = 0;  // the host's, inside the driver's submission
  uint64_t waited_ns = 0;      // the host's, for completions or for a virtual device's simulation
  uint64_t preparing_ns = 0;   // the host compiled kernels and recorded commands
  uint64_t bytes = 0;          // declared by the completed launches
  uint64_t flops = 0;
  uint64_t row_sums = 0;      // products compared on the host
  uint64_t pinned_bytes = 0;  // pinned at present

  // To have been asked is not to have executed.
  bool has_executed() const { return completions > 0; }
  uint64_t failed() const { return submissions - completions; }

  void add(const Completion& completion);
  DeviceCounters& operator+=(
      const DeviceCounters& other);  // all but pinned_bytes, which is a level
  DeviceCounters& operator-=(const DeviceCounters& other);
};

// Keys and values that went from the device for prompts to the one for tokens, or back.
struct HandOvers {
  uint64_t times = 0;
  uint64_t positions = 0;
  uint64_t bytes = 0;  // as the receiving device keeps them
  uint64_t ns = 0;     // the host's, reading, converting, writing

  HandOvers& operator+=(const HandOvers& other);
};

// The entry of `like`'s device, made where there is none yet.
DeviceCounters& entry_of(std::vector<DeviceCounters>& all, const DeviceCounters& like);
void add(std::vector<DeviceCounters>& sum, const std::vector<DeviceCounters>& more);
// What devices did between two snapshots of one Trace, for one who had them to himself; those that
// did nothing are left out.
std::vector<DeviceCounters> difference(std::vector<DeviceCounters> after,
                                       const std::vector<DeviceCounters>& before);

// What a recording holds: plain values, timed with one monotonic clock, named by small numbers.

enum class EventKind : uint8_t {
  token,     // from the choice of the token before (or the request's begin) to the choice of this
  run,       // one Pipeline::run
  host,      // work of the engine itself: tokenize, sample, ...
  upload,    // a dispatch: host to device
  submit,    // a dispatch: handing it over; a synchronous device computes here
  wait,      // a dispatch: until the device reported completion
  download,  // a dispatch: device to host
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
  recurrence,  // what layers with a state have in the place of attention
};

constexpr uint32_t kNoDispatch = 0;
constexpr uint16_t kNoLayer = 0xffff;

// 64 bytes, so that recording is one line of cache.
struct Event {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t modelled_ns = 0;  // a virtual device's wait or launch: what the device would take
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
  std::string block = {};  // a launch's: the block it is stitched into at --fusion block
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
