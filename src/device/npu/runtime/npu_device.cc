#include "device/npu/npu_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/npu/device_lock.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

bool has_attention(const Program& program) {
  return std::any_of(program.launches.begin(), program.launches.end(),
                     [](const Launch& launch) { return launch.kernel == Kernel::attention; });
}

uint64_t call_rows(const Program& program, const Launch& launch) {
  return program.slots[launch.args[0].slot].rows;
}

bool has_layernorm(const Program& program) {
  return std::any_of(program.launches.begin(), program.launches.end(),
                     [](const Launch& launch) { return launch.kernel == Kernel::layernorm; });
}

bool has_adapted_head(const Program& program) {
  return std::any_of(program.launches.begin(), program.launches.end(), [](const Launch& launch) {
    return launch.role == (Role::lm_head | Facet::lora_sum);
  });
}

class NpuDevice : public Device {
 public:
  NpuDevice(const DeviceEnv& env, NpuKernels kernels)
      : lock_(kernels.lock, kernels.info.name), core_(env, std::move(kernels)) {
    DeviceInfo& described = core_.kernels.info;
    if (!described.fixed) described.fixed.emplace();
    FixedShapes& fixed = *described.fixed;
    fixed.segments = 1;
    fixed.rotates_halves = true;
    const bool compiles_attention = env.fusion == Fusion::token &&
                                    core_.settings.weights == NpuWeights::bf16 &&
                                    core_.kernels.compile;
    fixed.kv_in_one_piece = fixed.kv || compiles_attention;
    if (core_.settings.weights == NpuWeights::int8 && !core_.fuses_int8())
      for (const GemmSlot& slot : core_.kernels.gemm_slots)
        fixed.gemms.push_back({slot.k, slot.columns});
    if (core_.settings.weights != NpuWeights::int8)
      for (const AirProgram& program : core_.model.programs)
        fixed.blocks.push_back({program.name, program.phase == AirPhase::prompt, program.steps});
    if (env.model.layers == 0) return;
    const uint32_t kv_positions = fixed.kv             ? core_.kernels.windows.back()
                                  : compiles_attention ? env.model.context
                                                       : 0;
    check_memory(npu_memory(core_.kernels.dims, core_.settings.weights, env.fusion, kv_positions,
                            env.sequences),
                 core_.kernels.pinned_limit, core_.name());
  }

  DeviceInfo info() const override { return core_.kernels.info; }

  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    if (launch.kernel == Kernel::embed) return Refusal("the host does table look-ups", "embedding");
    if (launch.kernel == Kernel::rope_table)
      return Refusal("the host writes the rotation row of each position", "rotation table");
    if (launch.kernel == Kernel::top_k)
      return Refusal("the host looks through the logits", "choice of the best logits");
    if (launch.kernel == Kernel::soft_cap)
      return Refusal("the host bounds the logits", "bound of the logits");
    if (const std::string attention = beyond_causal_attention(program, launch); !attention.empty())
      return "its kernels' attention has no " + attention;
    if (state_arg(launch) != kNoArg)
      return Refusal("the host computes what keeps a state from token to token",
                     "recurrent layers");
    if (launch.kernel == Kernel::swiglu && launch.shape.activation != Activation::silu)
      return "its kernels' gates go through SiLU";
    if (launch.kernel == Kernel::route || launch.kernel == Kernel::expert_matmul ||
        launch.kernel == Kernel::mix_experts || launch.kernel == Kernel::add_gated ||
        launch.role == Role::expert_swiglu)
      return Refusal("the host reads the experts that a token takes, and no others", "experts");
    const std::string& beyond = core_.env.model.beyond_images;
    if (core_.settings.weights == NpuWeights::q4nx && !beyond.empty())
      return "the single-dispatch decode has no " + beyond;
    // Steps between those that the host would do share buffers with a prompt's, which the device
    // must not write while the host's cache holds them.
    if (has_layernorm(program)) return "its kernels are for models with RMSNorm";
    if (core_.fuses_int8()) return why_not_fused_int8(program, launch);
    if (core_.settings.weights == NpuWeights::int8) return why_not_int8(program, launch);
    const Fusion fusion = core_.env.fusion;
    const bool is_one_row = call_rows(program, launch) == 1;
    if (is_one_row && fusion == Fusion::token && has_attention(program))
      return why_not_token(program);
    if (is_one_row && fusion == Fusion::op) return why_not_op(launch);
    return why_not_block(program, launch);
  }

  Buffer alloc(const Slot& slot, uint32_t sequence) override {
    auto buffer = std::make_shared<NpuBuffer>();
    if (slot.kind == SlotKind::kv && uses_slab())
      place_in_slab(slot, sequence, *buffer);
    else
      place_alone(slot, *buffer);
    std::byte* const data = buffer->host;
    return {.data = data, .size = slot.bytes(), .handle = std::move(buffer)};
  }

  void sync(const Buffer& handle, Sync direction, size_t offset, size_t bytes) override {
    // Int8 products take their operands from the host's copy and leave their results there.
    if (core_.settings.weights == NpuWeights::int8 && !core_.fuses_int8()) return;
    const auto buffer = std::static_pointer_cast<NpuBuffer>(handle.handle);
    guarded(sync_where_, [&] {
      if (buffer->slab) lay_out_for_host(*buffer->slab, direction);
      buffer->sync(direction, offset, bytes);
      if (buffer->slab && direction == Sync::to_device)
        buffer->slab->given(buffer->offset + offset, bytes);
    });
  }

  std::shared_ptr<void> prepare(const std::string& name, const TensorView& weight) override {
    if (core_.settings.weights != NpuWeights::int8) return nullptr;
    return guarded(core_.name() + ": " + name, [&] { return core_.int8_weight({name, weight}); });
  }

  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return guarded(core_.name() + ": " + program.name, [&]() -> std::unique_ptr<Executable> {
      if (core_.fuses_int8()) return make_compiled_executable(core_, program, weights);
      if (core_.settings.weights == NpuWeights::int8)
        return make_int8_matmul(core_, program, weights);
      if (has_image(program)) return make_air_executable(core_, program, weights);
      if (core_.settings.weights == NpuWeights::q4nx && has_attention(program))
        return make_fused_decode(core_, program, weights);
      return make_compiled_executable(core_, program, weights);
    });
  }

 private:
  // Whether there is an image of one of MLIR-AIR's programs. A token's are for --fusion block.
  bool has_image(const Program& program) const {
    const Launch& first = program.launches.front();
    const AirProgram* air = air_program_for(core_.model, program, first);
    return air != nullptr && is_whole(program, *air) && !air_problem(*air, program, first) &&
           (air->phase != AirPhase::token || core_.env.fusion == Fusion::block);
  }

  std::optional<Refusal> why_not_int8(const Program& program, const Launch& launch) const {
    if (launch.kernel != Kernel::matmul)
      return Refusal("with int8 weights it has kernels for GEMMs only", "all but GEMMs");
    if (launch.args.size() > 3) return "its kernels add no bias to a projection";
    const SlotChoice choice =
        choose_slot(core_.kernels.gemm_slots, program.slots[launch.args[1].slot].cols, 1);
    if (!choice.slot) return Refusal(choice.reason);
    return std::nullopt;
  }

  std::optional<Refusal> why_not_fused_int8(const Program& program, const Launch& launch) const {
    if (!core_.kernels.compile) return "there are no int8 kernels for whole blocks, only for GEMMs";
    constexpr Kernel kBetweenProjections[] = {Kernel::rmsnorm, Kernel::rope, Kernel::add,
                                              Kernel::swiglu};
    if (std::ranges::find(kBetweenProjections, launch.kernel) != std::end(kBetweenProjections))
      return std::nullopt;
    if (launch.kernel != Kernel::matmul)
      return Refusal(
          "with int8 weights it has kernels for projections and what lies between them only",
          "all but projections and what lies between them");
    const uint64_t k = program.slots[launch.args[1].slot].cols;
    if (launch.args.size() > 3) return "its kernels add no bias to a projection";
    if (k % 4 != 0)
      return fmt::format("K = {} is not a multiple of 4, the bytes that DMA moves at a time", k);
    if (k > kMaxGemmK)
      return fmt::format("K = {} is more than {}, beyond which int32 sums overflow", k, kMaxGemmK);
    return std::nullopt;
  }

  std::optional<Refusal> why_not_token(const Program& program) const {
    // A prompt's head is the host's then, and the device must not write what the host's cache
    // holds.
    if (has_adapted_head(program))
      return "the single dispatch of a token leaves no room for LoRA adapters of the head";
    if (core_.settings.weights == NpuWeights::bf16) {
      if (core_.kernels.compile) return std::nullopt;
      return "the single-dispatch decode takes q4nx weights (--weights)";
    }
    if (!core_.kernels.windows.empty()) return std::nullopt;
    return core_.kernels.why_no_image(kFusedDecode, 0);
  }

  Refusal why_not_cache() const {
    if (core_.env.fusion == Fusion::token)
      return {"the host does a prompt's cache, and the attention to what is in it",
              "a prompt's KV cache and the attention to it"};
    return {"the host does the cache and the attention of one query unless --fusion token",
            "KV cache and attention of one query (unless --fusion token)"};
  }

  std::optional<Refusal> why_not_op(const Launch& launch) const {
    if (launch.kernel == Kernel::kv_append || launch.kernel == Kernel::attention)
      return why_not_cache();
    if (launch.kernel == Kernel::gather_rows)
      return Refusal("the host picks rows", "choice of rows");
    if (!core_.kernels.compile) return "there are bf16 kernels for blocks only, not for operators";
    return std::nullopt;
  }

  std::optional<Refusal> why_not_block(const Program& program, const Launch& launch) const {
    if (launch.kernel == Kernel::kv_append || launch.kernel == Kernel::attention)
      return why_not_cache();
    if (launch.kernel == Kernel::gather_rows || launch.role == Role::final_norm)
      return Refusal("the host does the final norm of one row", "final norm");
    const AirProgram* air = air_program_for(core_.model, program, launch);
    if (air == nullptr)
      return Refusal("the host does it between the images that this model has",
                     launch.kernel == Kernel::matmul ? "" : "steps between this model's images");
    if (const auto problem = air_problem(*air, program, launch)) return problem;
    return core_.kernels.why_no_image(air->name, prefill_rows(call_rows(program, launch)));
  }

  // What the host gives is laid out for the largest window already; laying it out again would first
  // fetch the device's rows over the host's.
  static void lay_out_for_host(KvSlab& slab, Sync direction) {
    if (direction == Sync::from_device) return slab.lay_out(slab.most);
    if (slab.window != slab.most) slab.used = slab.most;
    slab.window = slab.most;
  }

  bool uses_slab() const {
    return core_.settings.weights == NpuWeights::q4nx && core_.env.fusion == Fusion::token;
  }

  // The fused decode has one argument for the caches of all layers of a sequence.
  void place_in_slab(const Slot& slot, uint32_t sequence, NpuBuffer& buffer) {
    std::weak_ptr<KvSlab>& known = slabs_[sequence];
    buffer.slab = known.lock();
    if (!buffer.slab) known = buffer.slab = make_kv_slab(core_);
    const bool is_value = slot.role == Role::v_cache;
    buffer.bo = buffer.slab->bo;
    buffer.offset = (size_t{2} * slot.layer + is_value) * slot.bytes();
    buffer.host = buffer.bo.map<std::byte*>() + buffer.offset;
    TYTO_ASSERT(buffer.offset + slot.bytes() <= buffer.bo.size());
  }

  // Logits get room for what kernels write around them: the head's last partition is computed
  // whole, and the fused decode stages other values in front.
  void place_alone(const Slot& slot, NpuBuffer& buffer) {
    size_t bytes = slot.bytes();
    if (slot.role == Role::logits) {
      const uint64_t whole = std::max(slot.cols, air_head(core_.kernels.dims).all_rows());
      bytes = slot.rows * row_bytes(slot.dtype, whole);
      if (uses_slab()) {
        const Q4nxLayout layout = q4nx_layout(core_.kernels.dims, core_.kernels.windows.back());
        buffer.offset = layout.logits_offset * 2;
        bytes = buffer.offset + std::max<size_t>(bytes, layout.logits_elements * 2);
      }
    }
    buffer.bo = core_.allocate(bytes, "buffer " + slot.name);
    core_.count_as_pinned_by(buffer.pinned, bytes);
    auto* memory = buffer.bo.map<std::byte*>();
    std::memset(memory, 0, bytes);
    guarded(core_.name(), [&] { buffer.bo.sync(XCL_BO_SYNC_BO_TO_DEVICE); });
    buffer.host = memory + buffer.offset;
  }

  DeviceLock lock_;
  NpuCore core_;
  const std::string sync_where_ = core_.name() + ": sync";
  std::map<uint32_t, std::weak_ptr<KvSlab>> slabs_;  // by sequence; their Buffers own them
};

}  // namespace

std::unique_ptr<Device> open_npu(const DeviceEnv& env, NpuKernels kernels) {
  return std::make_unique<NpuDevice>(env, std::move(kernels));
}

}  // namespace tyto::TYTO_XRT_PROVIDER
