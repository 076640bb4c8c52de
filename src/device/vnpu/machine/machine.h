// The device behind the XRT names: memory accounting, contexts, the command queue and the thread
// that works it off. One per process (control.h).
#pragma once

#include <xrt/detail/ert.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "device/vnpu/machine/control.h"
#include "device/vnpu/machine/loaded_image.h"

namespace tyto::vxrt {

struct Context {
  uint64_t id = 0;
  std::shared_ptr<LoadedImage> image;  // shared with the elf or xclbin; none until configured
  bool lost = false;
  uint32_t in_flight = 0;
};

// The buffer given for an argument: the device's copy of its bytes.
struct Binding {
  std::byte* data = nullptr;
  DeviceMemory* memory = nullptr;  // of the whole buffer
  uint64_t offset = 0;             // in it
};

// What one run hands to the device. Filled while idle; the machine's while in flight.
struct Job {
  const LoadedImage* image = nullptr;
  LoadedInstance* instance = nullptr;
  std::vector<Binding> arguments;  // [instance.arguments]; empty ones for what nothing touches
  Call call;
  std::span<const uint32_t> words;  // xclbin form: the instructions
  std::string bad_argument;         // not empty: ends as ERROR

  ert_cmd_state state = ERT_CMD_STATE_NEW;  // under the machine's mutex, as is `reason`
  std::string reason;
};

// What a run list's chain or a run is submitted as. Its owner calls abort() before it goes.
struct Command {
  std::vector<Job*> jobs;
  Context* context = nullptr;
  bool* failed = nullptr;  // shared by the chains of one list: after a failure the rest is aborted
  bool abort_requested = false;
  bool in_flight = false;
};

// Counts up; the n-th wait is for the n-th signal. Under the machine's mutex.
struct Fence {
  uint64_t signals = 0;  // that have happened
  uint64_t waits = 0;    // that were asked for
};

// One place in a context's queue: a command, or a fence to signal or to wait for.
struct QueueEntry {
  Context* context = nullptr;
  Command* command = nullptr;    // owned by its run or list
  std::shared_ptr<Fence> fence;  // shared with the caller's handle
  uint64_t awaited = 0;          // signals of the fence; 0: it is signalled here
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

  // Both throw std::system_error with ENOMEM; sizes are rounded up to pages.
  void pin(uint64_t bytes);
  void unpin(uint64_t bytes);
  void take_heap(uint64_t bytes);
  void return_heap(uint64_t bytes);

  void open(Context& context);                                           // EINVAL beyond the limit
  void configure(Context& context, std::shared_ptr<LoadedImage> image);  // ENOSPC: columns
  void close(Context& context);

  void count_sync(bool to_device, uint64_t bytes);

  // Settings by their names in xrt.ini. EINVAL once the setting has been used.
  void set_ini(const std::string& key, const std::string& value);

  // After the context's commands so far, and before its next ones.
  void submit_signal(Context& context, std::shared_ptr<Fence> fence);
  void submit_wait(Context& context, std::shared_ptr<Fence> fence);
  void signal(Fence& fence);                        // from the host
  bool wait_for(Fence& fence, int64_t timeout_ms);  // false: not in time; 0 waits for ever

  // Waits while the context has all the commands in flight that it may have.
  void submit(Command& command);
  // False when it was still in flight after `timeout_ms`; 0 waits for ever.
  bool wait(const Command& command, int64_t timeout_ms);
  // Takes it off the queue, or waits for the end of what has begun and skips the rest.
  void abort(Command& command);
  bool is_in_flight(const Command& command);
  ert_cmd_state state(const Job& job, std::string* reason = nullptr);
  void set_state(Job& job, ert_cmd_state state);

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
  bool has_work() const { return next_entry() < queue_.size(); }
  size_t next_entry() const;
  void run_command(Command& command, Lock& lock);
  void run_job(Command& command, Job& job, Lock& lock);
  void hang(Command& command, Job& job, Lock& lock);
  Outcome compute(Job& job, double slowdown, bool corrupt);
  void end(Job& job, ert_cmd_state state, std::string reason);
  void abort_queued(const Context* context, const std::string& reason);
  void finish(Command& command);
  Fault take_run_fault();
  uint64_t now_ns() const;
  uint64_t begin_ns(Context& context);
  bool follows_other_form(const Job& job);
  std::string use_ini(const std::string& key);
  void check_allocation_fault();
  ContextCounters& counters_of(const Context& context) { return contexts_[context.id]; }

  std::mutex mutex_;  // guards everything below, and Job, Command and Context while in flight
  std::condition_variable work_;  // for the device's thread
  std::condition_variable done_;  // for callers
  std::vector<QueueEntry> queue_;
  std::thread thread_;  // started with the first command
  bool stopping_ = false;
  bool paused_ = false;
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
  std::map<std::string, std::string> ini_;
  std::set<std::string> used_ini_;

  std::optional<ThreadPool> pool_;  // the device thread's own
};

}  // namespace tyto::vxrt
