#include "device/vnpu/machine/machine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"

namespace tyto::vxrt {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHeapStep = 32 << 10;

uint64_t in_pages(uint64_t bytes) {
  return round_up(bytes, kPage);
}

[[noreturn]] void fail_system(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

Machine::~Machine() {
  {
    Lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Machine::reset(const Hardware& hardware) {
  Lock lock(mutex_);
  ++power_cycles_;  // lets go of a hanging run
  for (Context* context : live_) context->lost = true;
  paused_ = false;
  work_.notify_all();
  done_.wait(lock, [&] { return counters_.in_flight == 0; });
  if (pool_ && hardware.threads != hardware_.threads) pool_.reset();
  hardware_ = hardware;
  fault_ = {};
  contexts_.clear();
  last_context_ = 0;
  last_form_.reset();
  last_active_ns_ = now_ns();
  Counters fresh;
  fresh.live_contexts = counters_.live_contexts;
  fresh.live_runs = counters_.live_runs;
  fresh.live_buffers = counters_.live_buffers;
  fresh.pinned_bytes = counters_.pinned_bytes;
  fresh.heap_used_bytes = counters_.heap_used_bytes;
  counters_ = std::move(fresh);
}

void Machine::count_offence(const std::string& what) {
  if (counters_.offences++ == 0) counters_.first_offence = what;
}

void Machine::offend(const std::string& what) {
  Lock lock(mutex_);
  count_offence(what);
}

void Machine::check_offences() {
  Lock lock(mutex_);
  if (counters_.offences > 0)
    fail_system(EFAULT,
                fmt::format("{} ({} such offences)", counters_.first_offence, counters_.offences));
}

void Machine::count_clone() {
  Lock lock(mutex_);
  ++counters_.clones;
}

void Machine::inject(const Fault& fault) {
  Lock lock(mutex_);
  fault_ = fault;
}

void Machine::set_paused(bool paused) {
  Lock lock(mutex_);
  paused_ = paused;
  work_.notify_all();
}

Hardware Machine::hardware() {
  Lock lock(mutex_);
  return hardware_;
}

Limits Machine::limits() {
  Lock lock(mutex_);
  return hardware_.limits;
}

uint64_t Machine::busy_ns() {
  Lock lock(mutex_);
  uint64_t total = 0;
  for (const auto& [id, context] : contexts_) total += context.busy_ns;
  return total;
}

Counters Machine::counters() {
  Lock lock(mutex_);
  Counters result = counters_;
  for (const auto& [id, context] : contexts_) {
    result.contexts.push_back(context);
    result.contexts.back().context = id;
    result.total.submissions += context.submissions;
    result.total.completions += context.completions;
    result.total.errors += context.errors;
    result.total.launches += context.launches;
    result.total.busy_ns += context.busy_ns;
  }
  return result;
}

void Machine::check_allocation_fault() {
  if (fault_.kind != FaultKind::out_of_memory || --fault_.at > 0) return;
  fault_ = {};
  fail_system(ENOMEM, "injected fault: out of memory");
}

void Machine::pin(uint64_t bytes) {
  Lock lock(mutex_);
  check_allocation_fault();
  const uint64_t room = hardware_.limits.memlock_bytes -
                        std::min(hardware_.limits.memlock_bytes, counters_.pinned_bytes);
  if (bytes > UINT64_MAX - kPage || in_pages(bytes) > room)
    fail_system(ENOMEM,
                fmt::format("Lock limit exceeded: {} bytes pinned, {} more asked for, limit {}",
                            counters_.pinned_bytes, bytes, hardware_.limits.memlock_bytes));
  counters_.pinned_bytes += in_pages(bytes);
  ++counters_.live_buffers;
}

void Machine::unpin(uint64_t bytes) {
  Lock lock(mutex_);
  counters_.pinned_bytes -= in_pages(bytes);
  --counters_.live_buffers;
}

void Machine::take_heap(uint64_t bytes) {
  Lock lock(mutex_);
  check_allocation_fault();
  const uint64_t most = hardware_.limits.heap_bytes;
  if (bytes > most || counters_.heap_used_bytes + round_up(bytes, kHeapStep) > most)
    fail_system(ENOSPC,
                fmt::format("DRM_IOCTL_AMDXDNA_CREATE_BO: device heap: {} bytes used, {} more "
                            "asked for, at most {}",
                            counters_.heap_used_bytes, bytes, most));
  counters_.heap_used_bytes += round_up(bytes, kHeapStep);
}

void Machine::return_heap(uint64_t bytes) {
  Lock lock(mutex_);
  counters_.heap_used_bytes -= round_up(bytes, kHeapStep);
}

void Machine::open(Context& context, std::shared_ptr<LoadedImage> image) {
  Lock lock(mutex_);
  if (live_.size() >= hardware_.limits.contexts)
    fail_system(EINVAL, fmt::format("CREATE_HWCTX failed: all {} contexts are in use",
                                    hardware_.limits.contexts));
  if (image->image.columns > hardware_.limits.columns)
    fail_system(ENOSPC, fmt::format("{} columns asked for, the device has {}", image->image.columns,
                                    hardware_.limits.columns));
  context.id = next_context_++;
  context.image = std::move(image);
  last_active_ns_ = now_ns();  // the driver wakes the device for this
  live_.push_back(&context);
  counters_.live_contexts = static_cast<uint32_t>(live_.size());
}

void Machine::close(Context& context) {
  Lock lock(mutex_);
  std::erase(live_, &context);
  counters_.live_contexts = static_cast<uint32_t>(live_.size());
}

void Machine::count_run(int change) {
  Lock lock(mutex_);
  counters_.live_runs = static_cast<uint32_t>(static_cast<int>(counters_.live_runs) + change);
}

void Machine::count_sync(bool to_device, uint64_t bytes) {
  Lock lock(mutex_);
  (to_device ? counters_.bytes_to_device : counters_.bytes_from_device) += bytes;
  ++counters_.syncs;
}

uint64_t Machine::now_ns() const {
  if (hardware_.idle_clock) return hardware_.idle_clock();
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void Machine::submit(Job& job) {
  Lock lock(mutex_);
  Context& context = *job.context;
  done_.wait(lock, [&] { return context.in_flight < hardware_.limits.runs_in_flight; });
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  job.state = ERT_CMD_STATE_SUBMITTED;
  job.abort_requested = false;
  job.in_flight = true;
  queue_.push_back(&job);
  ++counters_of(context).submissions;
  ++counters_.in_flight;
  counters_.most_in_flight = std::max(counters_.most_in_flight, ++context.in_flight);
  work_.notify_all();
}

bool Machine::wait(const Job& job, int64_t timeout_ms) {
  Lock lock(mutex_);
  const auto is_done = [&] { return !job.in_flight; };
  if (timeout_ms <= 0) {
    done_.wait(lock, is_done);
    return true;
  }
  return done_.wait_for(lock, std::chrono::milliseconds(timeout_ms), is_done);
}

void Machine::abort(Job& job) {
  Lock lock(mutex_);
  if (!job.in_flight) return;
  job.abort_requested = true;
  if (std::erase(queue_, &job) > 0) {
    end(job, ERT_CMD_STATE_ABORT, "aborted");
    finish(job);
    done_.notify_all();
  } else {
    work_.notify_all();
    done_.wait(lock, [&] { return !job.in_flight; });
  }
}

void Machine::give_up(std::unique_ptr<Job> job) {
  Lock lock(mutex_);
  count_offence(job->instance->instance.name +
                ": a run was destroyed before a wait had seen its end, for which XRT ends the "
                "process");
  if (job->in_flight) given_up_.push_back(std::move(job));
  lock.unlock();  // a job that has ended gives buffers back
}

// Without the mutex, which giving buffers back takes.
void Machine::free_given_up(Lock& lock) {
  std::vector<std::unique_ptr<Job>> ended;
  for (std::unique_ptr<Job>& job : given_up_)
    if (!job->in_flight) ended.push_back(std::move(job));
  if (ended.empty()) return;
  std::erase(given_up_, nullptr);
  lock.unlock();
  ended.clear();
  lock.lock();
}

bool Machine::is_in_flight(const Job& job) {
  Lock lock(mutex_);
  return job.in_flight;
}

ert_cmd_state Machine::state(const Job& job) {
  Lock lock(mutex_);
  return job.state;
}

void Machine::end(Job& job, ert_cmd_state state, const std::string& reason) {
  job.state = state;
  if (state != ERT_CMD_STATE_COMPLETED) counters_.last_error = reason;
}

void Machine::finish(Job& job) {
  ContextCounters& counts = counters_of(*job.context);
  ++(job.state == ERT_CMD_STATE_COMPLETED ? counts.completions : counts.errors);
  --job.context->in_flight;
  --counters_.in_flight;
  job.in_flight = false;
}

}  // namespace tyto::vxrt
