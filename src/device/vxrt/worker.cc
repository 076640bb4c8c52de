// The device's own thread: takes commands off the queue, decides how each run ends, and computes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/vxrt/machine.h"
#include "program/kernel_spec.h"

namespace tyto::vxrt {
namespace {

// The call in an xclbin's instruction words; nothing when they are not ours.
std::optional<Call> call_from_words(const std::byte* words) {
  uint32_t values[4];
  std::memcpy(values, words, sizeof values);
  if (values[0] != kInstructionMagic) return std::nullopt;
  return Call{values[1], values[2], values[3]};
}

uint64_t scaled(uint64_t ns, double factor) {
  return static_cast<uint64_t>(std::min(static_cast<double>(ns) * factor, 9e18));
}

// All bits set in the rows that the call wrote, and in whole caches.
void overwrite_outputs(const Job& job) {
  for (uint16_t index : job.image->written) {
    const Slot& slot = job.image->image.program.slots[index];
    const uint64_t rows =
        slot.kind == SlotKind::kv ? slot.rows : std::min<uint64_t>(job.call.tokens, slot.rows);
    std::memset(job.buffers[index], 0xff, rows * row_bytes(slot.dtype, slot.cols));
  }
}

}  // namespace

void Machine::work() {
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || (!paused_ && !queue_.empty()); });
    if (stopping_) break;
    Command* command = queue_.front();
    queue_.erase(queue_.begin());
    run_command(*command, lock);
    finish(*command);  // from here on it may be restarted or freed
    done_.notify_all();
  }
  // The process is ending: what is queued never runs.
  while (!queue_.empty()) abort_queued(queue_.front()->context, "the device is gone");
  done_.notify_all();
}

void Machine::run_command(Command& command, Lock& lock) {
  for (Job* job : command.jobs) {
    if (*command.failed) {
      end(*job, ERT_CMD_STATE_ABORT, "an earlier run of the list failed");
      continue;
    }
    run_job(command, *job, lock);
    if (job->state != ERT_CMD_STATE_COMPLETED) *command.failed = true;
  }
}

Fault Machine::take_run_fault() {
  const FaultKind kind = fault_.kind;
  if (kind == FaultKind::none || kind == FaultKind::slow || kind == FaultKind::out_of_memory)
    return {};
  if (--fault_.at > 0) return {};
  return std::exchange(fault_, {});
}

void Machine::run_job(Command& command, Job& job, Lock& lock) {
  Context& context = *command.context;
  if (context.lost) return end(job, ERT_CMD_STATE_ABORT, "the context is lost");
  if (command.abort_requested) return end(job, ERT_CMD_STATE_ABORT, "aborted");
  job.state = ERT_CMD_STATE_RUNNING;
  if (last_context_ != 0 && last_context_ != context.id) ++counters_.context_switches;
  last_context_ = context.id;

  const Fault fault = take_run_fault();
  switch (fault.kind) {
    case FaultKind::timeout:
      counters_of(context).busy_ns += hardware_.limits.hang_ns;
      return end(job, ERT_CMD_STATE_TIMEOUT, "injected fault: timeout");
    case FaultKind::error:
      return end(job, ERT_CMD_STATE_ERROR, "injected fault: error");
    case FaultKind::context_lost:
      context.lost = true;
      return end(job, ERT_CMD_STATE_ABORT, "injected fault: context lost");
    case FaultKind::hang:
      return hang(command, job, lock);
    default:
      break;
  }
  const double slowdown = fault_.kind == FaultKind::slow ? fault_.factor : 1;
  lock.unlock();
  const Outcome outcome = compute(job, slowdown, fault.kind == FaultKind::corrupt);
  lock.lock();
  if (outcome.is_too_long) return hang(command, job, lock);
  ContextCounters& counts = counters_of(context);
  counts.busy_ns += outcome.ns;
  if (!outcome.failure.empty()) return end(job, ERT_CMD_STATE_ERROR, outcome.failure);
  ++counts.runs;
  counts.launches += job.image->image.program.launches.size();
  end(job, ERT_CMD_STATE_COMPLETED, "");
}

// Hang detection stops and restarts the context, so its other commands go down too. With detection
// off the run stays until somebody aborts it or the power goes.
void Machine::hang(Command& command, Job& job, Lock& lock) {
  if (hardware_.limits.hang_ns == 0) {
    const uint64_t cycle = power_cycles_;
    work_.wait(lock,
               [&] { return stopping_ || command.abort_requested || power_cycles_ != cycle; });
    return end(job, ERT_CMD_STATE_ABORT, "aborted while it made no progress");
  }
  counters_of(*command.context).busy_ns += hardware_.limits.hang_ns;
  abort_queued(command.context, "the context was restarted after a hang");
  end(job, ERT_CMD_STATE_TIMEOUT,
      fmt::format("no progress for {} ms of modelled time", hardware_.limits.hang_ns / 1'000'000));
}

// Commands of one context that have not begun.
void Machine::abort_queued(const Context* context, const std::string& reason) {
  for (size_t i = 0; i < queue_.size();) {
    if (queue_[i]->context != context) {
      ++i;
      continue;
    }
    Command& command = *queue_[i];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    for (Job* job : command.jobs) end(*job, ERT_CMD_STATE_ABORT, reason);
    *command.failed = true;
    finish(command);
  }
}

// Without the lock: hardware_ changes only when nothing is in flight, and the rest is the job's.
Machine::Outcome Machine::compute(Job& job, double slowdown, bool corrupt) try {
  if (!job.bad_argument.empty()) return {.failure = job.bad_argument};
  if (job.instructions != nullptr) {
    const std::optional<Call> call = call_from_words(job.instructions);
    if (!call) return {.failure = "the instruction words are not this image's"};
    job.call = *call;
  }
  LoadedImage& loaded = *job.image;
  // A binary of another generation loads, and computes nothing, without an error.
  if (loaded.image.platform != kPlatformAie2p) return {};
  const auto& slots = loaded.image.program.slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (job.buffers[i] != nullptr) continue;
    if (loaded.scratch[i].empty()) loaded.scratch[i].resize(slots[i].bytes());
    job.buffers[i] = loaded.scratch[i].data();
  }
  if (auto reason = loaded.interpreter.why_not(job.buffers, job.call)) return {.failure = *reason};
  const TimeModel clock =
      hardware_.time_model ? hardware_.time_model : calibrated_time(hardware_.machine);
  const uint64_t ns = scaled(clock(loaded.image.program, job.call).ns, slowdown);
  const uint64_t hang_ns = hardware_.limits.hang_ns;
  if (hang_ns != 0 && ns > hang_ns) return {.is_too_long = true};
  if (!pool_) pool_.emplace(hardware_.threads);
  loaded.interpreter.run(job.buffers, job.call, *pool_);
  if (corrupt) overwrite_outputs(job);
  return {.ns = ns};
} catch (const std::exception& error) {
  return {.failure = error.what()};
}

}  // namespace tyto::vxrt
