#include "device/cpu/cpu_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/machine.h"
#include "base/spelling.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/interpreter.h"
#include "device/cpu/weight_cache.h"
#include "program/kernels.h"

namespace tyto {
namespace {

// Where the caches lie when another device has them too: heads in groups, a group's heads side by
// side at each position.
std::vector<Pattern> cache_patterns(const Program& program) {
  std::vector<Pattern> patterns(program.slots.size());
  for (const Launch& launch : program.launches) {
    const LaunchShape& shape = launch.shape;
    const size_t first = cache_arg(launch);
    if (first == kNoArg || shape.kv_group <= 1) continue;
    const uint64_t dim = shape.head_dim, row = dim * shape.kv_group;
    const Pattern pattern{0,
                          {{shape.kv_heads / shape.kv_group, row * shape.context},
                           {shape.kv_group, dim},
                           {shape.context, row},
                           {dim, 1}}};
    for (size_t arg : {first, first + 1}) patterns[launch.args[arg].slot] = pattern;
  }
  return patterns;
}

// Runs a submission inside submit(): the caller's thread is the first worker of the pool, so there
// is nothing to overlap with and wait() finds the work done.
class CpuExecutable : public Executable {
 public:
  CpuExecutable(Program program, std::span<const TensorView> weights, const DeviceEnv& env,
                const cpu::InnerLoops& loops, cpu::PackedStore& store)
      : program_(std::move(program)),
        env_(env),
        cost_(program_),
        interpreter_(program_, cache_patterns(program_), loops),
        buffers_(program_.slots.size()),
        memory_(program_.slots.size()),
        launch_names_(launch_names(env.trace, program_, interpreter_.groups())),
        group_ends_ns_(interpreter_.groups().size()) {
    for (uint16_t i = 0; i < program_.slots.size(); ++i) {
      if (program_.slots[i].kind != SlotKind::weight) continue;
      memory_[i] =
          const_cast<std::byte*>(weights[i].bytes.data());  // check_launches: never written
      if (loops.packed == nullptr || !is_multiplied_by(i)) continue;
      const DType type = program_.slots[i].dtype;
      if (has_straddling_panels(i)) {
        env_.trace.fallback(fmt::format(
            "experts of {} row by row on cpu: their rows do not fill whole panels of {}",
            info(type).name, cpu::packed_layout(type).panel_rows));
      } else if (cpu::can_pack(type)) {
        packed_.push_back(store.pack(weights[i], env_.pool));
        interpreter_.use_packed(i, packed_.back()->matrix);
      } else {
        env_.trace.fallback(
            fmt::format("{0} weights row by row in f32 on cpu: it has no packed kernels for {0}",
                        info(type).name));
      }
    }
  }

  void bind(uint16_t slot, const Buffer& buffer) override {
    TYTO_ASSERT(slot < buffers_.size() && program_.slots[slot].kind != SlotKind::weight);
    buffers_[slot] = buffer;
    memory_[slot] = buffer.data;
  }

  void submit(const Call& call) override {
    done_ = {};
    done_.start_ns = done_.uploaded_ns = now_ns();
    const bool is_recorded = env_.trace.recording();
    interpreter_.run(memory_, call, env_.pool, cpu::Numerics::bf16,
                     is_recorded ? std::span(group_ends_ns_) : std::span<uint64_t>());
    if (is_recorded)
      record_launches(env_.trace, program_, interpreter_.groups(), launch_names_, call,
                      env_.trace.device_index("cpu"), done_.start_ns, group_ends_ns_,
                      interpreter_.unread_bytes());
    const Cost declared = cost_.of(call);
    done_.bytes = declared.bytes;
    for (const uint64_t unread : interpreter_.unread_bytes()) done_.bytes -= unread;
    done_.flops = declared.flops;
    done_.launches = program_.launches.size();
    done_.submitted_ns = done_.completed_ns = done_.end_ns = now_ns();
    done_.device_ns = done_.submitted_ns - done_.start_ns;
  }

  Completion wait(std::chrono::milliseconds) override { return done_; }

 private:
  // By some product. (An embedding is read row by row, as it is.)
  bool is_multiplied_by(uint16_t slot) const {
    return std::any_of(program_.launches.begin(), program_.launches.end(),
                       [&](const Launch& launch) {
                         const bool is_product = launch.kernel == Kernel::matmul ||
                                                 launch.kernel == Kernel::route ||
                                                 launch.kernel == Kernel::expert_matmul;
                         return is_product && launch.args[1].slot == slot;
                       });
  }

  // Panels that would hold rows of two experts.
  bool has_straddling_panels(uint16_t slot) const {
    const size_t panel_rows = cpu::packed_layout(program_.slots[slot].dtype).panel_rows;
    return std::any_of(
        program_.launches.begin(), program_.launches.end(), [&](const Launch& launch) {
          return launch.kernel == Kernel::expert_matmul && launch.args[1].slot == slot &&
                 program_.slots[slot].rows / launch.shape.experts % panel_rows != 0;
        });
  }

  Program program_;
  DeviceEnv env_;
  CallCost cost_;
  std::vector<std::shared_ptr<const cpu::PackedWeights>> packed_;  // shared with other executables
  cpu::Interpreter interpreter_;
  std::vector<Buffer> buffers_;     // [program_.slots]; keeps them alive
  std::vector<std::byte*> memory_;  // [program_.slots]
  std::vector<uint16_t> launch_names_;
  std::vector<uint64_t> group_ends_ns_;
  Completion done_;
};

// Zero pages from the kernel, committed as they are touched: a KV cache for the model's whole
// context costs only what a conversation fills, in steps of 2 MB where it may grow long. Reading a
// long one is bound by memory, and small pages cost about a tenth of it.
Buffer zeroed(size_t bytes) {
  constexpr size_t kLong = size_t{16} << 20;
  void* memory = ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "cpu", fmt::format("cannot reserve {} bytes", bytes),
                "lower the context with -c");
  if (bytes >= kLong) (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // refused: small ones do
  return {.data = static_cast<std::byte*>(memory),
          .size = bytes,
          .handle = std::shared_ptr<void>(
              memory, [bytes](void* p) { ::munmap(p, std::max<size_t>(bytes, 1)); })};
}

const std::string& known_processor_name() {
  static const std::string kUnknown = "unknown processor";
  const std::string& name = processor_name();
  return name.empty() ? kUnknown : name;
}

// A bound for any x86 core so far: two 512-bit units at 6 GHz that multiply and add 64 int8 values
// each. The memory's bandwidth cannot be read without privileges, and small models run from the
// caches, so there is no bound for it.
DeviceLimits cpu_limits(unsigned threads) {
  return {.gflops = 2.0 * 64 * 2 * 6 * threads,
          .source = fmt::format("{} threads of two 512-bit int8 units at 6 GHz", threads)};
}

constexpr std::string_view kWeightCache[] = {"on", "off"};
constexpr DeviceSetting kSettings[] = {
    {.name = "isa",
     .value = "NAME",
     .meaning = "instruction set of the CPU kernels (default: the best of this processor)",
     .changes_results = true},
    {"weight-cache", "", kWeightCache,
     "use the weights that `tyto cache add` has packed (default: on)"}};

std::string isa_of(const DeviceEnv& env) {
  const auto given = env.settings.find("isa");
  return given == env.settings.end() ? "" : given->second;
}

// What may be looked for in the cache of packed weights.
std::span<const MappedFile> cached_sources(const DeviceEnv& env) {
  const auto given = env.settings.find("weight-cache");
  const bool is_off = given != env.settings.end() && given->second == "off";
  return is_off ? std::span<const MappedFile>() : env.weight_files;
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceEnv& env)
      : env_(env),
        loops_(cpu::chosen_inner_loops(isa_of(env))),
        store_(cached_sources(env), env.trace) {}

  DeviceInfo info() const override {
    return {.name = "cpu",
            .description = fmt::format("{}, {}, {} kernels", known_processor_name(),
                                       counted(env_.pool.threads(), "thread"), loops_.name),
            .shares_host_memory = true,
            .rounds_to_bf16 = loops_.floats->rounds_to_bf16,
            .limits = cpu_limits(env_.pool.threads()),
            .rows_agree = true};
  }

  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    if (const size_t cache = cache_arg(launch); cache != kNoArg) {
      const DType type = program.slots[launch.args[cache].slot].dtype;
      if (launch.shape.head_dim % tyto::info(type).block_values != 0)
        return fmt::format("head_dim {} is not a multiple of {}, the block of {}",
                           launch.shape.head_dim, tyto::info(type).block_values,
                           tyto::info(type).name);
    }
    if (launch.kernel == Kernel::attention && launch.shape.head_dim > cpu::kMaxHeadDim)
      return fmt::format("head_dim {} is over {}", launch.shape.head_dim, cpu::kMaxHeadDim);
    return std::nullopt;
  }

  Buffer alloc(const Slot& slot, uint32_t) override { return zeroed(slot.bytes()); }

  void sync(const Buffer&, Sync, size_t, size_t) override {}  // one memory

  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    cpu::check_launches(program, "cpu: " + program.name);
    env_.trace.loaded(
        {"cpu", dispatch_name(program).label, "program", to_hex(program_hash(program))});
    return std::make_unique<CpuExecutable>(program, weights, env_, loops_, store_);
  }

 private:
  DeviceEnv env_;
  const cpu::InnerLoops& loops_;
  cpu::PackedStore store_;
};

}  // namespace

std::span<const DeviceSetting> cpu_setting_rows() {
  return kSettings;
}

std::unique_ptr<Device> open_cpu_device(const DeviceEnv& env) {
  return std::make_unique<CpuDevice>(env);
}

}  // namespace tyto
