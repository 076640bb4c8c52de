// The device behind the XRT names: memory accounting, contexts, the command queue and the thread
// that works it off. One per process (control.h).
#pragma once

#include <xrt/detail/ert.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/interpreter.h"
#include "device/vxrt/control.h"
#include "device/vxrt/image.h"

namespace tyto::vxrt {

// An image with what executes it. Only the device's thread touches `interpreter` and `scratch`.
struct LoadedImage {
  explicit LoadedImage(Image loaded);

  Image image;
  cpu::Interpreter interpreter;
  std::vector<uint16_t> written;  // slots of arguments that some launch writes
  std::vector<std::vector<std::byte>>
      scratch;  // [slots], of slots that are no argument; on first use
};

struct Context {
  uint64_t id = 0;
  std::shared_ptr<LoadedImage> image;  // shared with the elf or xclbin; none until configured
  bool lost = false;
  uint32_t in_flight = 0;
};

// What one run hands to the device. Filled while idle; the machine's while in flight.
struct Job {
  LoadedImage* image = nullptr;
  std::vector<std::byte*> buffers;  // [slots], the device's copies; none for private scratch
  Call call;
  const std::byte* instructions = nullptr;  // xclbin form: where the call is read from
  std::string bad_argument;                 // not empty: ends as ERROR

  ert_cmd_state state = ERT_CMD_STATE_NEW;  // under the machine's mutex, as is `reason`
  std::string reason;
};

// One entry of the queue: a run, or a chain of a run list. Its owner calls abort() before it goes.
struct Command {
  std::vector<Job*> jobs;
  Context* context = nullptr;
  bool* failed = nullptr;  // shared by the chains of one list: after a failure the rest is aborted
  bool abort_requested = false;
  bool in_flight = false;
};

class Machine {
 public:
  static Machine& get();

  void reset(const Hardware& hardware);
  void inject(const Fault& fault);
  void set_paused(bool paused);
  Counters counters();
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
  void run_command(Command& command, Lock& lock);
  void run_job(Command& command, Job& job, Lock& lock);
  void hang(Command& command, Job& job, Lock& lock);
  Outcome compute(Job& job, double slowdown, bool corrupt);
  void end(Job& job, ert_cmd_state state, std::string reason);
  void abort_queued(const Context* context, const std::string& reason);
  void finish(Command& command);
  Fault take_run_fault();
  void check_allocation_fault();
  ContextCounters& counters_of(const Context& context) { return contexts_[context.id]; }

  std::mutex mutex_;  // guards everything below, and Job, Command and Context while in flight
  std::condition_variable work_;  // for the device's thread
  std::condition_variable done_;  // for callers
  std::vector<Command*> queue_;
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

  std::optional<ThreadPool> pool_;  // the device thread's own
};

}  // namespace tyto::vxrt
