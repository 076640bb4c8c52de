// The device's own thread: takes runs off the queue, decides how each run ends, and computes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/vnpu/machine/device_time.h"
#include "device/vnpu/machine/machine.h"
#include "program/kernels.h"

namespace tyto::vxrt {
namespace {

// The call of an xclbin that has no stream of its own; nothing when the words are not one.
std::optional<Call> call_from_words(std::span<const uint32_t> words) {
  if (words.size() < 4 || words[0] != kInstructionMagic) return std::nullopt;
  return call_of(words[1], words[2], words[3]);
}

// Sets the job's call; returns what is wrong with its instructions.
std::optional<std::string> read_call(Job& job) {
  const Instance& instance = job.instance->instance;
  if (job.image->image.form == ImageForm::elf) return std::nullopt;
  if (instance.takes_call) {
    const std::optional<Call> call = call_from_words(job.words);
    if (!call) return "the instruction words are not this image's";
    job.call = *call;
    return std::nullopt;
  }
  const ReadWords read = read_words(*instance.stream, job.words);
  if (!read.problem.empty()) return read.problem;
  if (instance.stream->window != 0) job.call.only.position = read.live - 1;
  return std::nullopt;
}

uint64_t run_ns(const Instance& instance, const Call& call, const Hardware& hardware) {
  if (hardware.time_model) return hardware.time_model(instance.program, call);
  return static_cast<uint64_t>(instance_ms(instance, call, speed_of(hardware)) * 1e6);
}

uint64_t scaled(uint64_t ns, double factor) {
  return static_cast<uint64_t>(std::min(static_cast<double>(ns) * factor, 9e18));
}

// All bits set in the rows that the call wrote, and in whole caches.
void overwrite_outputs(const Job& job) {
  const Instance& instance = job.instance->instance;
  for (uint16_t index : job.instance->written) {
    const Slot& slot = instance.program.slots[index];
    const SlotPlace& place = instance.places[index];
    const uint64_t rows =
        slot.kind == SlotKind::kv ? slot.rows : std::min<uint64_t>(job.call.rows, slot.rows);
    const uint64_t width = row_bytes(slot.dtype, 1);
    std::byte* data = job.arguments[static_cast<size_t>(place.argument)].data;
    for_each_stretch(place.pattern, rows * slot.cols, [&](const Stretch& stretch) {
      for (uint64_t i = 0; i < stretch.count; ++i)
        std::memset(data + (stretch.at + i * stretch.stride) * width, 0xff, width);
    });
  }
}

// One value of the first row that the call wrote, another one for another `at`. Which of the
// written slots goes by the number too; caches are left alone.
void flip_one_bit(const Job& job, uint64_t at) {
  const Instance& instance = job.instance->instance;
  std::vector<uint16_t> slots;
  for (uint16_t index : job.instance->written)
    if (instance.program.slots[index].kind != SlotKind::kv) slots.push_back(index);
  if (slots.empty()) return;
  const uint16_t index = slots[at % slots.size()];
  const Slot& slot = instance.program.slots[index];
  const SlotPlace& place = instance.places[index];
  const uint64_t width = row_bytes(slot.dtype, 1);
  const uint64_t chosen = at * 7919 % slot.cols;  // a prime, so that neighbours lie apart
  std::byte* data = job.arguments[static_cast<size_t>(place.argument)].data;
  uint64_t value = 0;
  for_each_stretch(place.pattern, slot.cols, [&](const Stretch& stretch) {
    if (chosen >= value && chosen < value + stretch.count) {
      std::byte* at_value = data + (stretch.at + (chosen - value) * stretch.stride) * width;
      // Worth four in the exponent of a bf16 or an f32: bits 9 of 16 and 25 of 32. An i32 has no
      // exponent, and the same bit is as far off.
      at_value[width - 1] ^= std::byte{0x02};
    }
    value += stretch.count;
  });
}

// Where each slot's pattern begins to count: in its argument, in weights repacked for it, or in
// private scratch.
std::vector<std::byte*> slot_buffers(Job& job, ThreadPool& pool) {
  LoadedInstance& loaded = *job.instance;
  const auto& slots = loaded.instance.program.slots;
  std::vector<std::byte*> buffers(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotPlace& place = loaded.instance.places[i];
    if (place.argument < 0) {
      if (loaded.scratch[i].empty()) loaded.scratch[i].resize(slots[i].bytes());
      buffers[i] = loaded.scratch[i].data();
      continue;
    }
    const Binding& bound = job.arguments[static_cast<size_t>(place.argument)];
    buffers[i] = loaded.repacked[i]
                     ? bound.memory->weights(slots[i], place, bound.data, bound.offset, pool)
                     : bound.data;
  }
  return buffers;
}

void touch_outputs(const Job& job) {
  const Instance& instance = job.instance->instance;
  for (uint16_t index : job.instance->written) {
    const Slot& slot = instance.program.slots[index];
    const SlotPlace& place = instance.places[index];
    const Binding& bound = job.arguments[static_cast<size_t>(place.argument)];
    bound.memory->touch(bound.offset + row_bytes(slot.dtype, place.pattern.offset),
                        bound.offset + reach(slot, place));
  }
}

}  // namespace

void Machine::work() {
  Lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || (!paused_ && !queue_.empty()); });
    if (stopping_) break;
    Job& job = *queue_.front();
    queue_.erase(queue_.begin());
    run_job(job, lock);
    finish(job);  // from here on it may be restarted or freed
    done_.notify_all();
    free_given_up(lock);
  }
  // The process is ending: what is queued never runs.
  while (!queue_.empty()) abort_queued(queue_.front()->context, "the device is gone");
  done_.notify_all();
  free_given_up(lock);
}

Fault Machine::take_run_fault() {
  const FaultKind kind = fault_.kind;
  if (kind == FaultKind::none || kind == FaultKind::slow || kind == FaultKind::out_of_memory)
    return {};
  if (--fault_.at > 0) return {};
  return std::exchange(fault_, {});
}

// Taking turns slows both forms down; one phase after the other does not.
bool Machine::follows_other_form(const Job& job) {
  const ImageForm form = job.image->image.form;
  return std::exchange(last_form_, form).value_or(form) != form;
}

// Modelled time before a run gets the array.
uint64_t Machine::begin_ns(Context& context) {
  uint64_t ns = 0;
  const bool has_run = last_context_ != 0;
  if (has_run && last_context_ != context.id) {
    ns = static_cast<uint64_t>(switch_ms(context.image->image) * 1e6);
    ++counters_.context_switches;
    counters_.switch_ns += ns;
  }
  last_context_ = context.id;
  // Before the first run only the set-up has passed, whose length here says nothing about a real
  // machine's.
  if (has_run && now_ns() - last_active_ns_ > kSuspendAfterNs) {
    ns += kWakeNs;
    ++counters_.wakes;
  }
  last_active_ns_ = now_ns();
  return ns;
}

void Machine::run_job(Job& job, Lock& lock) {
  Context& context = *job.context;
  if (context.lost) return end(job, ERT_CMD_STATE_ABORT, "the context is lost");
  if (job.abort_requested) return end(job, ERT_CMD_STATE_ABORT, "aborted");
  job.state = ERT_CMD_STATE_RUNNING;
  counters_of(context).busy_ns += begin_ns(context);

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
      return hang(job, lock);
    default:
      break;
  }
  const double slowdown = (fault_.kind == FaultKind::slow ? fault_.factor : 1) *
                          (follows_other_form(job) ? kMixedFormsSlowdown : 1);
  lock.unlock();
  const Outcome outcome = compute(job, slowdown, fault);
  lock.lock();
  last_active_ns_ = now_ns();
  for (const auto& guard : job.guards)
    if (guard->was_reached()) count_offence(job.instance->instance.name + ": " + guard->report());
  if (outcome.is_too_long) return hang(job, lock);
  ContextCounters& counts = counters_of(context);
  counts.busy_ns += outcome.ns;
  if (!outcome.failure.empty()) return end(job, ERT_CMD_STATE_ERROR, outcome.failure);
  counts.launches += job.instance->instance.counted_launches();
  end(job, ERT_CMD_STATE_COMPLETED);
}

// Hang detection stops and restarts the context, so its other runs go down too. With detection
// off the run stays until somebody aborts it or the power goes.
void Machine::hang(Job& job, Lock& lock) {
  if (hardware_.limits.hang_ns == 0) {
    const uint64_t cycle = power_cycles_;
    work_.wait(lock, [&] { return stopping_ || job.abort_requested || power_cycles_ != cycle; });
    return end(job, ERT_CMD_STATE_ABORT, "aborted while it made no progress");
  }
  counters_of(*job.context).busy_ns += hardware_.limits.hang_ns;
  abort_queued(job.context, "the context was restarted after a hang");
  end(job, ERT_CMD_STATE_TIMEOUT,
      fmt::format("no progress for {} ms of modelled time", hardware_.limits.hang_ns / 1'000'000));
}

// Runs of one context that have not begun.
void Machine::abort_queued(const Context* context, const std::string& reason) {
  std::erase_if(queue_, [&](Job* job) {
    if (job->context != context) return false;
    end(*job, ERT_CMD_STATE_ABORT, reason);
    finish(*job);
    return true;
  });
}

// Without the lock: hardware_ changes only when nothing is in flight, and the rest is the job's.
Machine::Outcome Machine::compute(Job& job, double slowdown, const Fault& fault) try {
  if (!job.bad_argument.empty()) return {.failure = job.bad_argument};
  if (auto problem = read_call(job)) return {.failure = *problem};
  // A binary of another generation loads, and computes nothing, without an error.
  if (job.image->image.platform != kPlatformAie2p) return {};
  LoadedInstance& loaded = *job.instance;
  if (!pool_) pool_.emplace(hardware_.threads);
  for (const auto& guard : job.guards) guard->fill();
  const std::vector<std::byte*> buffers = slot_buffers(job, *pool_);
  if (auto reason = loaded.interpreter.why_not(buffers, job.call)) return {.failure = *reason};
  const uint64_t ns = scaled(run_ns(loaded.instance, job.call, hardware_), slowdown);
  const uint64_t hang_ns = hardware_.limits.hang_ns;
  if (hang_ns != 0 && ns > hang_ns) return {.is_too_long = true};
  if (hardware_.computes) loaded.interpreter.run(buffers, job.call, *pool_, hardware_.numerics);
  if (fault.kind == FaultKind::corrupt) overwrite_outputs(job);
  if (fault.kind == FaultKind::flip) flip_one_bit(job, fault.number);
  touch_outputs(job);
  for (const auto& guard : job.guards) guard->give_back();
  return {.ns = ns};
} catch (const std::exception& error) {
  return {.failure = error.what()};
}

}  // namespace tyto::vxrt
