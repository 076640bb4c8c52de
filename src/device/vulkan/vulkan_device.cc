#include "device/vulkan/vulkan_device.h"

#include "base/environment.h"
#include "base/error.h"
#include "device/vulkan/gpu.h"
#include "device/vulkan/kernel_calls.h"
#include "device/vulkan/kernel_shapes.h"
#include "device/vulkan/vulkan_executable.h"
#include "program/kernels.h"

namespace tyto {
namespace {

std::string described(const vulkan::GpuFacts& gpu) {
  return fmt::format("{}, {}, {}", gpu.name, name(gpu.kind), gpu.driver);
}

// Few rows are multiplied in f32; many rows in 16 bits, where the GPU has cooperative matrices.
std::string numerics(const vulkan::GpuFacts& gpu) {
  if (!gpu.multiplies_bf16 && !gpu.multiplies_f16) return "f32";
  return fmt::format("f32, many rows in {}{}{}", gpu.multiplies_bf16 ? "bf16" : "",
                     gpu.multiplies_bf16 && gpu.multiplies_f16 ? " or " : "",
                     gpu.multiplies_f16 ? "f16" : "");
}

std::vector<std::string> gpus_here() {
  std::vector<std::string> lines;
  for (const vulkan::GpuFacts& gpu : vulkan::list_gpus()) lines.push_back(described(gpu));
  return lines;
}

constexpr DeviceSetting kSettings[] = {
    {.name = "gpu",
     .value = "NAME",
     .meaning = "GPU to use: part of its name, or its number in `tyto devices`",
     .found = gpus_here,
     .changes_results = true}};

std::string wanted_gpu(const DeviceEnv& env) {
  const auto given = env.settings.find("gpu");
  return given == env.settings.end() ? "" : given->second;
}

// Nothing is kept where there is no folder for it.
std::filesystem::path pipeline_file() {
  try {
    return cache_folder() / "vulkan" / "pipelines.bin";
  } catch (const Error&) {
    return {};
  }
}

class VulkanDevice : public Device {
 public:
  explicit VulkanDevice(const DeviceEnv& env)
      : env_(env), gpu_(std::make_shared<vulkan::Gpu>(wanted_gpu(env), pipeline_file())) {
    const vulkan::GpuFacts& facts = gpu_->context->facts;
    if (facts.kind == vulkan::GpuKind::software)
      env_.trace.fallback(fmt::format("vulkan is {}: {}", facts.name, name(facts.kind)));
  }

  DeviceInfo info() const override {
    const vulkan::GpuFacts& facts = gpu_->context->facts;
    return {.name = "vulkan",
            .description = described(facts),
            .driver = facts.driver,
            .is_software = facts.kind == vulkan::GpuKind::software,
            .numerics = numerics(facts),
            .rounds_to_bf16 = facts.multiplies_bf16,
            .rows_at_once = facts.kind == vulkan::GpuKind::software ? 256u : 2048u,
            .fusion = Fusion::token,
            .candidates = 64,
            .compiles_forms = true};
  }

  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    return vulkan::why_not(program, launch);
  }

  Buffer alloc(const Slot& slot, uint32_t) override {
    return vulkan::new_slot_buffer(usable_gpu(), slot);
  }

  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    vulkan::sync_slot(buffer, direction, offset, bytes);
  }

  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    check(program);
    for (const Launch& launch : program.launches)
      if (const auto reason = why_not(program, launch))
        throw Error(ErrorCode::device, "vulkan: " + program.name,
                    fmt::format("{} cannot run here: {}", launch.name, reason->reason));
    tell_of_expanded(program);
    env_.trace.loaded(
        {"vulkan", dispatch_name(program).label, "program", to_hex(program_hash(program))});
    return std::make_unique<vulkan::VulkanExecutable>(usable_gpu(), program, weights, env_.trace);
  }

 private:
  // A GPU that was lost is opened again when it is next needed.
  const std::shared_ptr<vulkan::Gpu>& usable_gpu() {
    if (gpu_->context->is_lost)
      gpu_ = std::make_shared<vulkan::Gpu>(wanted_gpu(env_), pipeline_file());
    return gpu_;
  }

  // A weight in more bytes than its file has is nothing to keep to oneself.
  void tell_of_expanded(const Program& program) {
    for (const Launch& launch : program.launches)
      for (size_t i = 0; i < launch.args.size(); ++i) {
        const Slot& slot = program.slots[launch.args[i].slot];
        if (slot.kind != SlotKind::weight || arg_spec(launch, i).kind != ArgKind::matrix) continue;
        const std::string_view form = vulkan::name(vulkan::weight_form(slot.dtype));
        const std::string_view type = tyto::info(slot.dtype).name;
        if (form != type)
          env_.trace.fallback(fmt::format("{} weights as {} on vulkan: it has no kernels for {}",
                                          type, form, type));
      }
  }

  DeviceEnv env_;
  std::shared_ptr<vulkan::Gpu> gpu_;  // shared with buffers and executables
};

}  // namespace

std::span<const DeviceSetting> vulkan_setting_rows() {
  return kSettings;
}

std::unique_ptr<Device> open_vulkan_device(const DeviceEnv& env) {
  return std::make_unique<VulkanDevice>(env);
}

}  // namespace tyto
