#include "device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <chrono>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/interpreter.h"
#include "program/kernel_spec.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

// Runs a submission inside submit(): the caller's thread is the first worker of the pool, so there
// is nothing to overlap with and wait() finds the work done.
class CpuExecutable : public Executable {
 public:
  CpuExecutable(Program program, const DeviceEnv& env)
      : program_(std::move(program)),
        env_(env),
        interpreter_(program_),
        buffers_(program_.slots.size()),
        memory_(program_.slots.size()) {}

  void bind(uint16_t slot, const Buffer& buffer) override {
    TYTO_ASSERT(slot < buffers_.size());
    buffers_[slot] = buffer;
    memory_[slot] = buffer.data;
  }

  void submit(const Call& call) override {
    DeviceCounters& counters = env_.trace.device("cpu");
    ++counters.submissions;
    const auto start = Clock::now();
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
  Program program_;
  DeviceEnv env_;
  cpu::Interpreter interpreter_;
  std::vector<Buffer> buffers_;     // [program_.slots]; keeps them alive
  std::vector<std::byte*> memory_;  // [program_.slots]
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

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceEnv& env) : env_(env) {}

  DeviceInfo info() const override {
    return {.name = "cpu",
            .description = fmt::format("{}, {} threads, {} kernels", processor_name(),
                                       env_.pool.threads(), cpu::best_inner_loops().name)};
  }

  std::optional<std::string> why_not(const Program&, const Launch& launch) const override {
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
    return std::make_unique<CpuExecutable>(program, env_);
  }

 private:
  DeviceEnv env_;
};

}  // namespace

std::unique_ptr<Device> open_cpu_device(const DeviceEnv& env) {
  return std::make_unique<CpuDevice>(env);
}

}  // namespace tyto
