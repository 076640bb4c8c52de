#include "device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/interpreter.h"
#include "device/cpu/packed_weights.h"
#include "program/kernel_spec.h"
#include "program/launch_names.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

// Where the caches lie when another device has them too: heads in groups, a group's heads side by
// side at each position.
std::vector<Pattern> cache_patterns(const Program& program) {
  std::vector<Pattern> patterns(program.slots.size());
  for (const Launch& launch : program.launches) {
    const LaunchShape& shape = launch.shape;
    const bool has_cache = launch.kernel == Kernel::attention || launch.kernel == Kernel::kv_append;
    if (!has_cache || shape.kv_group <= 1) continue;
    const uint64_t dim = shape.head_dim, row = dim * shape.kv_group;
    const Pattern pattern{0,
                          {{shape.kv_heads / shape.kv_group, row * shape.context},
                           {shape.kv_group, dim},
                           {shape.context, row},
                           {dim, 1}}};
    const size_t first = launch.kernel == Kernel::attention ? 1 : 2;
    for (size_t arg : {first, first + 1}) patterns[launch.args[arg].slot] = pattern;
  }
  return patterns;
}

// Runs a submission inside submit(): the caller's thread is the first worker of the pool, so there
// is nothing to overlap with and wait() finds the work done.
class CpuExecutable : public Executable {
 public:
  CpuExecutable(Program program, const DeviceEnv& env, const cpu::InnerLoops& loops,
                std::shared_ptr<cpu::PackedStore> store)
      : program_(std::move(program)),
        env_(env),
        has_packed_kernels_(loops.packed != nullptr),
        store_(std::move(store)),
        interpreter_(program_, cache_patterns(program_), loops),
        buffers_(program_.slots.size()),
        memory_(program_.slots.size()),
        launch_names_(launch_names(env.trace, program_)),
        launch_ends_ns_(program_.launches.size()) {}

  void bind(uint16_t slot, const Buffer& buffer) override {
    TYTO_ASSERT(slot < buffers_.size());
    buffers_[slot] = buffer;
    memory_[slot] = buffer.data;
    if (is_packable(slot)) {
      const Slot& shape = program_.slots[slot];
      packed_.push_back(
          store_->pack({shape.dtype, shape.rows, shape.cols, buffer.bytes()}, env_.pool));
      interpreter_.use_packed(slot, packed_.back()->matrix);
    }
  }

  void submit(const Call& call) override {
    DeviceCounters& counters = env_.trace.device("cpu");
    ++counters.submissions;
    const auto start = Clock::now();
    if (env_.trace.recording())
      run_recorded(call);
    else
      interpreter_.run(memory_, call, env_.pool);
    const Cost declared = cost(program_, call);
    counters.busy_ns += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
    counters.bytes += declared.bytes;
    counters.flops += declared.flops;
    counters.launches += program_.launches.size();
    ++counters.completions;
  }

  void wait(std::chrono::milliseconds) override {}

 private:
  void run_recorded(const Call& call) {
    interpreter_.run(memory_, call, env_.pool, cpu::Numerics::bf16, launch_ends_ns_);
    record_launches(env_.trace, program_, launch_names_, call, env_.trace.device_index("cpu"),
                    env_.trace.dispatch_start(), launch_ends_ns_);
  }

  // A weight that some matmul multiplies by. (An embedding is read row by row, as it is.)
  bool is_packable(uint16_t slot) const {
    const Slot& shape = program_.slots[slot];
    return has_packed_kernels_ && shape.kind == SlotKind::weight && cpu::can_pack(shape.dtype) &&
           std::any_of(program_.launches.begin(), program_.launches.end(),
                       [&](const Launch& launch) {
                         return launch.kernel == Kernel::matmul && launch.args[1].slot == slot;
                       });
  }

  Program program_;
  DeviceEnv env_;
  bool has_packed_kernels_;
  std::shared_ptr<cpu::PackedStore> store_;  // the device's, which its other executables use too
  std::vector<std::shared_ptr<const cpu::PackedWeights>> packed_;  // shared with them as well
  cpu::Interpreter interpreter_;
  std::vector<Buffer> buffers_;     // [program_.slots]; keeps them alive
  std::vector<std::byte*> memory_;  // [program_.slots]
  std::vector<uint16_t> launch_names_;
  std::vector<uint64_t> launch_ends_ns_;
};

// Zero pages from the kernel, committed as they are touched: a KV cache for the model's whole
// context costs only what a conversation fills.
Buffer zeroed(size_t bytes) {
  void* memory = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "cpu", fmt::format("cannot reserve {} bytes", bytes),
                "lower the context with -c");
  return {.data = static_cast<std::byte*>(memory),
          .size = bytes,
          .handle = std::shared_ptr<void>(
              memory, [bytes](void* p) { ::munmap(p, std::max<size_t>(bytes, 1)); })};
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

// A bound for any x86 core so far: two 512-bit units at 6 GHz that multiply and add 64 int8 values
// each. What the memory can do is not to be had without privileges, and small models run from the
// caches, so there is no bound for it.
DeviceLimits cpu_limits(unsigned threads) {
  return {.gflops = 2.0 * 64 * 2 * 6 * threads,
          .source = fmt::format("{} threads of two 512-bit int8 units at 6 GHz", threads)};
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceEnv& env) : env_(env), loops_(cpu::chosen_inner_loops(env.isa)) {}

  DeviceInfo info() const override {
    return {.name = "cpu",
            .description = fmt::format("{}, {} threads, {} kernels", processor_name(),
                                       env_.pool.threads(), loops_.name),
            .shares_host_memory = true,
            .rounds_to_bf16 = loops_.floats->rounds_to_bf16,
            .limits = cpu_limits(env_.pool.threads())};
  }

  std::optional<std::string> why_not(const Program& program, const Launch& launch) const override {
    const bool has_cache = launch.kernel == Kernel::attention || launch.kernel == Kernel::kv_append;
    if (has_cache) {
      const DType type = program.slots[launch.args[2].slot].dtype;
      if (launch.shape.head_dim % tyto::info(type).block_values != 0)
        return fmt::format("head_dim {} is not a multiple of {}, the block of {}",
                           launch.shape.head_dim, tyto::info(type).block_values,
                           tyto::info(type).name);
    }
    if (launch.kernel == Kernel::attention && launch.shape.head_dim > cpu::kMaxHeadDim)
      return fmt::format("head_dim {} is over {}", launch.shape.head_dim, cpu::kMaxHeadDim);
    return std::nullopt;
  }

  Buffer alloc(const Slot& slot, const TensorView* contents) override {
    if (contents == nullptr) return zeroed(slot.bytes());
    return {.data = const_cast<std::byte*>(contents->bytes.data()),
            .size = contents->bytes.size(),
            .writable = false};
  }

  void sync(const Buffer&, Sync, size_t, size_t) override {}  // one memory

  std::unique_ptr<Executable> load(const Program& program) override {
    cpu::check_launches(program, "cpu: " + program.name);
    env_.trace.loaded(
        {"cpu", event_name(program.name).label, "program", to_hex(program_hash(program))});
    return std::make_unique<CpuExecutable>(program, env_, loops_, store_);
  }

 private:
  DeviceEnv env_;
  const cpu::InnerLoops& loops_;
  // Shared with the executables, each of which packs what it binds.
  std::shared_ptr<cpu::PackedStore> store_ = std::make_shared<cpu::PackedStore>();
};

}  // namespace

std::unique_ptr<Device> open_cpu_device(const DeviceEnv& env) {
  return std::make_unique<CpuDevice>(env);
}

}  // namespace tyto
