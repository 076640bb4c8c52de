// The virtual NPU as hardware: its limits, clock, faults and driver counters. The state behind
// these functions is process-wide because it stands for the one device in the machine; everything
// else about it is reached through XRT's names. All functions may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/operations.h"
#include "program/program.h"

namespace tyto::vxrt {

// A client's device heap: 64 MiB; drivers since April 2026 let it grow in steps to 512 MiB.
constexpr uint64_t kHeapBytes = uint64_t{64} << 20, kGrownHeapBytes = uint64_t{512} << 20;

// Where the one device that there is lies on the PCI bus.
inline constexpr const char* kAddress = "0000:00:00.1";

struct Limits {
  uint32_t columns = 8;
  uint32_t contexts = 16;
  uint64_t heap_bytes = kHeapBytes;              // control code of runs, instruction buffers
  uint64_t run_heap_bytes = 0;                   // one ELF run's; 0: as many as its file has
  uint64_t memlock_bytes = UINT64_MAX;           // all other buffers, in pages
  uint64_t slot_span_bytes = uint64_t{4} << 30;  // reach of one DMA offset
  uint32_t argument_buffers = 512;               // per run
  uint32_t runs_in_flight = 4;                   // per context; one more waits to be submitted
  uint64_t hang_ns = 2'000'000'000;              // modelled time; 0 turns detection off
};

using TimeModel = std::function<uint64_t(const Program& program, const Call& call)>;  // ns

struct Hardware {
  Limits limits = {};
  std::string machine = "strix";  // strix, strix-halo, krackan
  unsigned threads = 0;           // that compute; 0 is one per core
  cpu::Numerics numerics = cpu::Numerics::bf16;
  // Memory groups that an xclbin's arguments are connected to.
  uint32_t host_group = 0, instruction_group = 1;
  // 5 s after a run the device is asleep, and the next run pays for waking it. Time passes by
  // this clock, in ns; empty: the host's.
  std::function<uint64_t()> idle_clock = {};
  TimeModel time_model = {};  // for one run; empty: the cost model decides
  bool computes = true;       // false: runs complete in their time, and write nothing
};

// Power cycle: what is in flight ends as ABORT, contexts that still exist are lost, counters and
// faults are cleared, resumes. Buffers keep their contents and stay accounted for. Throws a usage
// Error for an unknown machine.
void reset(const Hardware& hardware = {});
Hardware hardware();  // as it is now

// What a real device does and a convenient one does not. Buffers and runs that are made from now on
// are hostile: a sync moves whole cache lines, and those that the host has written since the last
// one overwrite the device's; an argument that reaches beyond its buffer is not refused but reads
// and writes what lies there; a buffer in another memory group than its argument's is cloned; a
// run belongs to its caller only after a wait has seen its end; and pages of a file are pinned only
// where the driver would. Stays over a reset.
void set_hostile(bool hostile);

// Faults happen once, to the `at`-th run (`out_of_memory`: allocation) from now on; `slow` and
// `first_wrong` stay.
enum class FaultKind : uint8_t {
  none,
  timeout,        // the run ends as TIMEOUT
  error,          // the run ends as ERROR
  hang,           // no progress: TIMEOUT and the context's other runs ABORT, once detected
  out_of_memory,  // ENOMEM
  context_lost,   // the run ends as ABORT, and so does all that follows in its context
  slow,           // modelled times are `factor` times as long
  flip,           // completes, with one bit of one exponent changed: a finite value, 16 times off
  first_wrong,    // a flip in an output of the first run of every context
  corrupt,        // completes, with all bits set in everything it wrote: NaN in every float type
};

struct Fault {
  FaultKind kind = FaultKind::none;
  uint64_t at = 1;  // counts down
  double factor = 1;
  uint64_t number = 1;  // `at` as it was given
};

// "timeout@3", "error@1", "hang", "hang@2", "oom", "context-lost", "slow×4" (or "slowx4"),
// "corrupt@2", "flip@7", "first-wrong"; anything else is a usage Error.
Fault parse_fault(std::string_view text);
void inject(const Fault& fault);  // replaces the one before

// While paused the device takes no run from its queue.
void pause();
void resume();

struct ContextCounters {
  uint64_t context = 0;      // counts up from 1 as contexts are created
  uint64_t submissions = 0;  // runs submitted
  uint64_t completions = 0;  // runs that ended as COMPLETED
  uint64_t errors = 0;       // runs that ended otherwise
  uint64_t launches = 0;     // inside those that completed
  uint64_t busy_ns = 0;      // modelled; switching to the context and waking up included
  bool operator==(const ContextCounters&) const = default;
};

struct Counters {
  ContextCounters total;                  // its `context` is 0
  std::vector<ContextCounters> contexts;  // that were submitted to, by number
  uint64_t bytes_to_device = 0;           // synced
  uint64_t bytes_from_device = 0;
  uint64_t syncs = 0;
  uint64_t context_switches = 0;  // runs that followed another context's
  uint64_t switch_ns = 0;         // modelled
  uint64_t wakes = 0;             // runs that found the device asleep

  uint64_t patched_descriptors = 0;  // addresses that took another buffer's place in an ELF's run

  uint32_t live_contexts = 0;
  uint32_t live_runs = 0;
  uint32_t live_buffers = 0;  // sub-buffers not counted
  uint64_t pinned_bytes = 0;
  uint64_t heap_used_bytes = 0;
  // What real hardware takes without a word and a program should never do: bytes touched beyond a
  // buffer, the device's bytes overwritten by old cache lines, a run destroyed in flight. Hostile
  // runs neither start nor end well after the first.
  uint64_t offences = 0;
  std::string first_offence;
  uint64_t clones = 0;          // buffers in a group that their argument is not connected to
  uint32_t in_flight = 0;       // runs, all contexts
  uint32_t most_in_flight = 0;  // in one context
  std::string last_error;       // why the last run that ended badly did
};

Counters counters();
uint64_t busy_ns();  // counters().total.busy_ns, without the rest

}  // namespace tyto::vxrt
