#include "device/vnpu/machine/machine.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/round_up.h"
#include "cost/cost_model.h"
#include "program/kernels.h"

namespace tyto::vxrt {
namespace {

// Repacked weights are handed to the interpreter in one piece.
std::vector<Pattern> patterns_of(const Instance& instance) {
  std::vector<Pattern> patterns;
  for (size_t i = 0; i < instance.places.size(); ++i)
    patterns.push_back(is_repacked(instance, i) ? Pattern{} : instance.places[i].pattern);
  return patterns;
}

}  // namespace

LoadedInstance::LoadedInstance(const Instance& loaded)
    : instance(loaded),
      reach(loaded.arguments.size()),
      descriptors(loaded.arguments.size()),
      repacked(loaded.places.size()),
      interpreter(loaded.program, patterns_of(loaded)),
      scratch(loaded.places.size()) {
  const auto& slots = loaded.program.slots;
  std::vector<bool> is_written(slots.size());
  for (const Launch& launch : loaded.program.launches)
    for (const Arg& arg : launch.args)
      if (arg.writes) is_written[arg.slot] = true;
  for (size_t i = 0; i < slots.size(); ++i) {
    repacked[i] = is_repacked(loaded, i);
    const int32_t argument = loaded.places[i].argument;
    if (argument < 0) continue;
    uint64_t& bytes = reach[static_cast<size_t>(argument)];
    bytes = std::max(bytes, vxrt::reach(slots[i], loaded.places[i]));
    if (is_written[i]) written.push_back(static_cast<uint16_t>(i));
  }
  for (const Launch& launch : loaded.program.launches)
    for (const Arg& arg : launch.args)
      if (const int32_t argument = loaded.places[arg.slot].argument; argument >= 0)
        descriptors[static_cast<size_t>(argument)] += kColumns;
}

LoadedImage::LoadedImage(Image loaded) : image(std::move(loaded)) {
  for (const Instance& instance : image.instances)
    instances.push_back(std::make_unique<LoadedInstance>(instance));
}

LoadedInstance* LoadedImage::find(const std::string& name) const {
  for (const auto& loaded : instances)
    if (loaded->instance.name == name) return loaded.get();
  return nullptr;
}

// The device's own thread: takes runs off the queue, decides how each run ends, and computes.

namespace {

// The call of an xclbin that has no stream of its own; nothing when the words are not one.
std::optional<Call> call_from_words(std::span<const uint32_t> words) {
  if (words.size() < 4 || words[0] != kInstructionMagic) return std::nullopt;
  return call_of(words[1], words[2], words[3]);
}

// Sets the job's call; returns what is wrong with its instructions.
std::optional<std::string> read_call(Job& job) {
  const Instance& instance = job.instance->instance;
  if (instance.scratchpad) {
    const ReadWords read = read_scratchpad(*instance.scratchpad, job.words, job.context->core_word);
    if (!read.problem.empty()) return read.problem;
    job.call.only.position = read.live - 1;
    return std::nullopt;
  }
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
enum class Among : uint8_t { written, outputs };
void flip_one_bit(const Job& job, uint64_t at, Among among) {
  const Instance& instance = job.instance->instance;
  std::vector<uint16_t> slots;
  for (uint16_t index : job.instance->written)
    if (among == Among::outputs ? instance.program.slots[index].kind == SlotKind::output
                                : instance.program.slots[index].kind != SlotKind::kv)
      slots.push_back(index);
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
  if (kind == FaultKind::none || kind == FaultKind::slow || kind == FaultKind::out_of_memory ||
      kind == FaultKind::first_wrong)
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

  const bool is_first = !std::exchange(context.has_run, true);
  const Fault fault = is_first && fault_.kind == FaultKind::first_wrong ? fault_ : take_run_fault();
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
    case FaultKind::none:
    case FaultKind::out_of_memory:
    case FaultKind::slow:
    case FaultKind::flip:
    case FaultKind::first_wrong:
    case FaultKind::corrupt:
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
// off the run stays until it is aborted or the power goes.
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
  const bool has_cache = loaded.instance.stream || loaded.instance.scratchpad;
  const cpu::Numerics numerics = hardware_.numerics == cpu::Numerics::bfp16 && has_cache
                                     ? cpu::Numerics::bfp16_cache
                                     : hardware_.numerics;
  if (hardware_.computes) loaded.interpreter.run(buffers, job.call, *pool_, numerics);
  if (fault.kind == FaultKind::corrupt) overwrite_outputs(job);
  if (fault.kind == FaultKind::flip) flip_one_bit(job, fault.number, Among::written);
  if (fault.kind == FaultKind::first_wrong) flip_one_bit(job, 0, Among::outputs);
  touch_outputs(job);
  for (const auto& guard : job.guards) guard->give_back();
  return {.ns = ns};
} catch (const std::exception& error) {
  return {.failure = error.what()};
}

namespace {

constexpr uint64_t kWordBytes = 4;  // granularity of every transfer
constexpr uint64_t kMostStride = 1'048'576;
constexpr uint64_t kMostWraps[] = {63, 1023, 1023, 1023};  // outermost first
constexpr uint64_t kMostDescriptors = 255;                 // repeats of a task

// The largest wrap below the limit that divides a dimension: what the compiler cuts it by. A prime
// above the limit is walked one by one.
uint64_t largest_wrap(uint64_t size, uint64_t most) {
  for (uint64_t wrap = std::min(size, most); wrap > 1; --wrap)
    if (size % wrap == 0) return wrap;
  return 1;
}

// Descriptors after the compiler has cut every dimension to wraps that fit and given what does not
// fit into four dimensions a descriptor per step.
uint64_t descriptors(const Pattern& pattern) {
  uint64_t count = 1;
  size_t used = 0;  // dimensions of one descriptor, from the innermost
  for (size_t d = pattern.dims.size(); d-- > 0;) {
    uint64_t size = pattern.dims[d].size;
    if (pattern.dims[d].stride > kMostStride) {  // cannot be stepped: an offset for each
      count *= size;
      continue;
    }
    while (size > 1 && used < std::size(kMostWraps)) {
      const uint64_t wrap = largest_wrap(size, kMostWraps[std::size(kMostWraps) - 1 - used]);
      if (wrap == 1) break;
      size /= wrap;
      ++used;
    }
    count *= size;
    if (count > kMostDescriptors) return count;
  }
  return count;
}

}  // namespace

// The compiler merges dimensions that continue each other, cuts wraps above {64, 1024, 1024, 1024}
// into two dimensions, and unrolls outer dimensions, or strides beyond 2^20, into descriptors of
// their own; none of that is a problem. A contiguous stretch has a length register of its own and
// no limit at all. What is left: words of four bytes, and a number of descriptors that a task's
// repeat count holds.
std::optional<std::string> dma_problem(const Pattern& pattern, DType dtype) {
  const Pattern walked = simplified(pattern);
  const uint64_t bytes = row_bytes(dtype, info(dtype).block_values) / info(dtype).block_values;
  if (info(dtype).block_values == 1 && walked.offset * bytes % kWordBytes != 0)
    return fmt::format("begins at value {}, inside a word of {} bytes", walked.offset, kWordBytes);
  if (walked.is_contiguous()) return std::nullopt;
  const Pattern::Dim& inner = walked.dims.back();
  if (bytes < kWordBytes) {
    if (inner.stride != 1)
      return fmt::format("takes every {}th value of {} bytes: a DMA moves words of {}",
                         inner.stride, bytes, kWordBytes);
    if (inner.size * bytes % kWordBytes != 0)
      return fmt::format("has runs of {} values, not whole words of {} bytes", inner.size,
                         kWordBytes);
    for (size_t d = 0; d + 1 < walked.dims.size(); ++d)
      if (walked.dims[d].stride * bytes % kWordBytes != 0)
        return fmt::format("has a stride of {} values, not whole words of {} bytes",
                           walked.dims[d].stride, kWordBytes);
  }
  if (const uint64_t count = descriptors(walked); count > kMostDescriptors)
    return fmt::format("needs more than {} descriptors", kMostDescriptors);
  return std::nullopt;
}

namespace {

struct FaultName {
  std::string_view name;
  FaultKind kind;
};

constexpr FaultName kFaults[] = {
    {"timeout", FaultKind::timeout}, {"error", FaultKind::error},
    {"hang", FaultKind::hang},       {"oom", FaultKind::out_of_memory},
    {"corrupt", FaultKind::corrupt}, {"context-lost", FaultKind::context_lost},
    {"flip", FaultKind::flip},       {"first-wrong", FaultKind::first_wrong},
};

[[noreturn]] void fail_fault(std::string_view text) {
  throw Error(
      ErrorCode::usage, "fault", fmt::format("'{}' is not known", text),
      "timeout@n, error@n, hang, oom, context-lost, slow×k, corrupt@n, flip@n or first-wrong");
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

}  // namespace

Fault parse_fault(std::string_view text) {
  for (std::string_view times : {"slow×", "slowx"}) {
    if (!text.starts_with(times)) continue;
    Fault fault{.kind = FaultKind::slow};
    if (!parse_whole(text.substr(times.size()), fault.factor) || !(fault.factor > 0) ||
        fault.factor > 1e9)
      fail_fault(text);
    return fault;
  }
  const size_t at = text.find('@');
  for (const FaultName& entry : kFaults) {
    if (text.substr(0, at) != entry.name) continue;
    Fault fault{.kind = entry.kind};
    if (at != text.npos && (!parse_whole(text.substr(at + 1), fault.at) || fault.at == 0))
      fail_fault(text);
    fault.number = fault.at;
    return fault;
  }
  fail_fault(text);
}

void reset(const Hardware& hardware) {
  npu_machine(hardware.machine);  // throws for an unknown one
  Machine::get().reset(hardware);
}

void inject(const Fault& fault) {
  TYTO_ASSERT(fault.at > 0);
  Machine::get().inject(fault);
}

void set_hostile(bool hostile) {
  Machine::get().set_hostile(hostile);
}

void pause() {
  Machine::get().set_paused(true);
}

void resume() {
  Machine::get().set_paused(false);
}

Hardware hardware() {
  return Machine::get().hardware();
}

uint64_t busy_ns() {
  return Machine::get().busy_ns();
}

Counters counters() {
  return Machine::get().counters();
}

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

void Machine::count_patches(const Context& context, uint64_t descriptors) {
  Lock lock(mutex_);
  counters_.patched_descriptors += descriptors;
  counters_of(context).busy_ns += descriptors * kPatchNs;
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

namespace {

// An xclbin's design is loaded as a whole. With this many locks a column, the law gives the 2.4 ms
// that were measured for one of 8 columns.
constexpr unsigned kLocksPerColumn = 41;

double fused_ms(const Instance& instance, Speed speed) {
  std::map<int32_t, uint64_t> weights;  // bytes by argument
  for (size_t i = 0; i < instance.places.size(); ++i) {
    const SlotPlace& place = instance.places[i];
    if (place.encoding != Encoding::q4nx) continue;
    uint64_t& bytes = weights[place.argument];
    bytes = std::max(bytes, reach(instance.program.slots[i], place));
  }
  uint64_t weight_bytes = 0, layers = 0, head_dim = 0;
  for (const auto& [argument, bytes] : weights) weight_bytes += bytes;
  for (const Launch& launch : instance.program.launches)
    if (launch.kernel == Kernel::attention) {
      ++layers;
      head_dim = launch.shape.head_dim;
    }
  const uint64_t window =
      instance.stream ? instance.stream->window : uint64_t{instance.scratchpad->positions};
  return fused_decode_ms(weight_bytes, layers, head_dim, window, speed);
}

bool is_integer(const Program& program) {
  return std::any_of(program.launches.begin(), program.launches.end(),
                     [](const Launch& launch) { return launch.kernel == Kernel::matmul_i8; });
}

}  // namespace

Speed speed_of(const Hardware& hardware) {
  return relative_speed(npu_machine(hardware.machine), npu_machine("strix"));
}

double instance_ms(const Instance& instance, const Call& call, Speed speed) {
  const bool has_window = instance.stream && instance.stream->window != 0;
  if (has_window || instance.scratchpad) return fused_ms(instance, speed);
  // No law for integer GEMMs has been fitted: a GEMV's, whose time is that of its bytes.
  if (is_integer(instance.program))
    return byte_law_ms(cost_parameters().gemv,
                       static_cast<double>(cost(instance.program, call).bytes), speed);
  double kernels = 0;
  for (const Launch& launch : instance.program.launches)
    kernels += launch_ms(instance.program, launch, call, speed);
  return elf_ms(instance.counted_launches(), kernels);
}

// An ELF brings the configuration of each launch in its control code, so that the launches' own
// law holds its cost.
double switch_ms(const Image& image) {
  return context_switch_ms(image.form == ImageForm::elf ? 0 : kLocksPerColumn * image.columns);
}

}  // namespace tyto::vxrt
