// One of MLIR-AIR's ELFs, called by its own argument list.
#include <algorithm>

#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

class AirExecutable : public Executable {
 public:
  AirExecutable(NpuCore& core, const Program& program)
      : core_(core),
        program_(with_weights(program, DType::bf16)),
        binding_(bind_to_air(program, core.kernels.dims)),
        dispatcher_(core, core.open(binding_.program.name, 0), program_),
        run_(guarded(dispatcher_.where(), [&] { return xrt::run(dispatcher_.context().kernel); })),
        buffers_(program.slots.size()) {
    // The kernel works on all the rows it was compiled for, however long the prompt is.
    call_ = {.tokens = static_cast<uint32_t>(program.slots[0].rows)};
    work_ = cost(program_, call_);
  }

  void bind(uint16_t slot, const Buffer& buffer) override {
    buffers_[slot] = std::static_pointer_cast<NpuBuffer>(buffer.handle);
    TYTO_ASSERT(buffers_[slot] != nullptr);
    if (++bound_ == buffers_.size()) guarded(dispatcher_.where(), [&] { set_arguments(); });
  }

  void submit(const Call& call) override {
    guarded(dispatcher_.where(), [&] {
      for (const auto& table : tables_) table->refresh(call.tokens);
    });
    dispatcher_.start(run_);
  }

  void wait(std::chrono::milliseconds timeout) override {
    dispatcher_.finish(run_, timeout, call_, work_, binding_.program.launches);
  }

 private:
  void set_arguments() {
    std::map<size_t, size_t> ordinals;  // by size
    for (size_t i = 0; i < binding_.parts.size(); ++i) {
      const AirArgument& argument = binding_.program.arguments[i];
      run_.set_arg(static_cast<int>(i), buffer_for(argument, binding_.parts[i], ordinals));
    }
  }

  xrt::bo buffer_for(const AirArgument& argument, const std::vector<AirPart>& parts,
                     std::map<size_t, size_t>& ordinals) {
    if (argument.role == AirRole::dead) return core_.scratch(kDeadBytes, 0);
    if (argument.role == AirRole::scratch)
      return core_.scratch(argument.bytes(), ordinals[argument.bytes()]++);
    TYTO_ASSERT(!parts.empty());
    const std::shared_ptr<NpuBuffer>& first = buffers_[parts.front().slot];
    if (argument.layout == AirLayout::rope_per_head) {
      const Slot& slot = program_.slots[parts.front().slot];
      const size_t row_bytes = tyto::row_bytes(slot.dtype, slot.cols);
      tables_.push_back(
          core_.expansion(first, argument.rows, row_bytes, argument.cols / slot.cols));
      return tables_.back()->bo;
    }
    if (argument.role == AirRole::weight) return core_.weight(argument, parts, buffers_);
    const size_t offset =
        first->offset + tyto::row_bytes(argument.dtype, parts.front().place.offset);
    if (offset + argument.bytes() > first->bo.size())
      throw Error(ErrorCode::device, dispatcher_.where(),
                  fmt::format("argument {} needs {} bytes, its buffer has {}", argument.name,
                              argument.bytes(), first->bo.size() - offset));
    if (offset == 0) return first->bo;
    return {first->bo, argument.bytes(), offset};
  }

  // A dead argument is never touched; whether XRT takes none at all is not known.
  static constexpr size_t kDeadBytes = 4096;

  NpuCore& core_;
  const Program program_;
  const AirBinding binding_;
  Dispatcher dispatcher_;
  xrt::run run_;  // one per executable: making a run copies the image's control code
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  std::vector<std::shared_ptr<Expansion>> tables_;   // shared with the other layers' executables
  size_t bound_ = 0;
  Call call_;
  Cost work_;
};

}  // namespace

std::unique_ptr<Executable> make_air_executable(NpuCore& core, const Program& program) {
  return std::make_unique<AirExecutable>(core, program);
}

}  // namespace tyto::TYTO_XRT_PROVIDER
