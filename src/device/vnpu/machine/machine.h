// The device behind the XRT names: memory accounting, contexts, the queue of runs and the thread
// that works it off. One per process (machine.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "cost/cost_model.h"
#include "device/cpu/interpreter.h"
#include "device/cpu/operations.h"
#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/control.h"
#include "device/vnpu/machine/device_memory.h"
#include "device/vnpu/xrt/include/xrt/detail/ert.h"
#include "program/pattern.h"
#include "program/program.h"
#include "tensor/dtype.h"

namespace tyto::vxrt {

// An image with what executes it.
// Only the device's thread touches `interpreter` and `scratch`.
struct LoadedInstance {
  explicit LoadedInstance(const Instance& loaded);

  const Instance& instance;
  std::vector<uint64_t> reach;  // [arguments] bytes its launches touch; 0: none
  // [arguments] that hold the argument's address: one for each column and launch that touches it.
  std::vector<uint64_t> descriptors;
  std::vector<uint16_t> written;  // slots in arguments that some launch writes
  std::vector<bool> repacked;     // [slots] weights that are not taken where they are
  cpu::Interpreter interpreter;
  std::vector<std::vector<std::byte>> scratch;  // [slots] that are in no argument; on first use
};

struct LoadedImage {
  explicit LoadedImage(Image loaded);

  LoadedInstance* find(const std::string& name) const;  // none: no such instance

  const Image image;
  std::vector<std::unique_ptr<LoadedInstance>> instances;  // [image.instances]
};

// Why no list of buffer descriptors can walk this pattern; nothing when one can.
std::optional<std::string> dma_problem(const Pattern& pattern, DType dtype);

struct Context {
  uint64_t id = 0;
  std::shared_ptr<LoadedImage> image;  // shared with the elf or xclbin
  bool lost = false;
  bool has_run = false;
  uint32_t in_flight = 0;
  uint32_t core_word =
      0;  // the length in the cores' memory, from run to run; the device's thread's
};

// What one run hands to the device. Filled while idle; the machine's while in flight. Its owner
// calls abort() before it goes, or gives it up.
struct Job {
  Context* context = nullptr;
  const LoadedImage* image = nullptr;
  LoadedInstance* instance = nullptr;
  std::vector<Binding> arguments;  // [instance.arguments]; empty ones for what nothing touches
  Call call;
  std::span<const uint32_t> words;                   // the instructions, or an ELF's scratchpad
  std::string bad_argument;                          // not empty: ends as ERROR
  std::vector<std::unique_ptr<GuardMemory>> guards;  // for arguments that reach too far
  std::vector<std::shared_ptr<const void>> keeps;  // buffers and kernel, shared with their handles

  // Under the machine's mutex.
  ert_cmd_state state = ERT_CMD_STATE_NEW;
  bool in_flight = false;
  bool abort_requested = false;
};

class Machine {
 public:
  static Machine& get();

  void reset(const Hardware& hardware);
  void inject(const Fault& fault);
  void set_paused(bool paused);
  Counters counters();
  uint64_t busy_ns();
  Hardware hardware();
  Limits limits();
  void set_hostile(bool hostile) { hostile_ = hostile; }
  bool is_hostile() const { return hostile_; }

  // Counts what a program should not have done; see Counters.
  void offend(const std::string& what);
  // EFAULT after the first offence.
  void check_offences();
  void count_clone();

  // Throw std::system_error: ENOMEM of pages, ENOSPC of the heap, whose buffers begin at multiples
  // of 32 KiB.
  void pin(uint64_t bytes);
  void unpin(uint64_t bytes);
  void take_heap(uint64_t bytes);
  void return_heap(uint64_t bytes);

  // EINVAL: all contexts are in use; ENOSPC: more columns than there are.
  void open(Context& context, std::shared_ptr<LoadedImage> image);
  void close(Context& context);

  void count_run(int change);  // that was made or destroyed
  // Patching is the host's work before the context's next run, at kPatchNs for a descriptor.
  void count_patches(const Context& context, uint64_t descriptors);
  void count_sync(bool to_device, uint64_t bytes);

  // Waits while the context has all the runs in flight that it may have.
  void submit(Job& job);
  // False when it was still in flight after `timeout_ms`; 0 waits for ever.
  bool wait(const Job& job, int64_t timeout_ms);
  // Takes it off the queue, or waits for the end of what has begun.
  void abort(Job& job);
  // Its run is gone: it goes on, and how it ends is not reported.
  void give_up(std::unique_ptr<Job> job);
  bool is_in_flight(const Job& job);
  ert_cmd_state state(const Job& job);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Outcome {
    std::string failure = {};  // empty when it completed
    uint64_t ns = 0;           // modelled
    bool is_too_long = false;  // for hang detection
  };

  Machine() = default;
  ~Machine();
  void work();
  void run_job(Job& job, Lock& lock);
  void hang(Job& job, Lock& lock);
  Outcome compute(Job& job, double slowdown, const Fault& fault);
  void end(Job& job, ert_cmd_state state, const std::string& reason = {});
  void abort_queued(const Context* context, const std::string& reason);
  void free_given_up(Lock& lock);
  void finish(Job& job);
  void count_offence(const std::string& what);
  Fault take_run_fault();
  uint64_t now_ns() const;
  uint64_t begin_ns(Context& context);
  bool follows_other_form(const Job& job);
  void check_allocation_fault();
  ContextCounters& counters_of(const Context& context) { return contexts_[context.id]; }

  std::mutex mutex_;              // guards everything below, and Job and Context while in flight
  std::condition_variable work_;  // for the device's thread
  std::condition_variable done_;  // for callers
  std::vector<Job*> queue_;       // each owned by its run; a vector keeps its memory
  std::vector<std::unique_ptr<Job>> given_up_;  // by their runs, in flight
  std::thread thread_;                          // started with the first run
  bool stopping_ = false;
  bool paused_ = false;
  std::atomic<bool> hostile_ = false;
  uint64_t power_cycles_ = 0;

  Hardware hardware_;
  Fault fault_;
  std::map<uint64_t, ContextCounters> contexts_;
  Counters counters_;
  std::vector<Context*> live_;
  uint64_t next_context_ = 1;
  uint64_t last_context_ = 0;
  std::optional<ImageForm> last_form_;
  uint64_t last_active_ns_ = 0;  // by the idle clock

  std::optional<ThreadPool> pool_;  // the device thread's own
};

// How long the modelled device takes, beyond what one kernel does: whole images, the machine they
// run on, and what comes between runs.

// The machine against what the laws were measured on.
Speed speed_of(const Hardware& hardware);

// One run of an instance: the fused decode and the integer GEMM by laws of their own, everything
// else as a stitched program.
double instance_ms(const Instance& instance, const Call& call, Speed speed);

// Making another context's image the one on the array.
double switch_ms(const Image& image);

constexpr double kMixedFormsSlowdown = 1.4;  // for a run that follows one of the other form
// Two fences and the flush of a cache line for each descriptor; an estimate, not measured.
constexpr uint64_t kPatchNs = 200;
constexpr uint64_t kSuspendAfterNs = 5'000'000'000;
constexpr uint64_t kWakeNs = 150'000'000;

}  // namespace tyto::vxrt
