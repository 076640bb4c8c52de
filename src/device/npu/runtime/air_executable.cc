// One of MLIR-AIR's ELFs, called by its own argument list.
#include <algorithm>

#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

class AirExecutable : public Executable {
 public:
  AirExecutable(NpuCore& core, const Program& program, std::span<const TensorView> weights)
      : core_(core),
        program_(with_weights(program, DType::bf16)),
        weights_(weights.begin(), weights.end()),
        binding_(bind_to_air(program, core.model_for(program.slots[0].rows))),
        dispatcher_(core, core.open(binding_.program.name, prefill_rows(program.slots[0].rows)),
                    program_),
        place_(core.join(dispatcher_.context(), program.slots[0].rows == 1)),
        transfers_(program_),
        guard_(core.env.pool),
        turned_(core.env.pool),
        buffers_(program.slots.size()) {
    // The kernel works on all the rows it was compiled for, however long the prompt is.
    call_ = call_of(static_cast<uint32_t>(program.slots[0].rows));
    work_ = cost(program_, call_);
    guarded(dispatcher_.where(), [&] { dispatcher_.context().run(); });  // refused now or never
  }

  // The device may be gone; the context is shared.
  ~AirExecutable() override {
    NpuContext& context = dispatcher_.context();
    context.release(arguments_);
    --context.executables;
  }

  void bind(uint16_t slot, const Buffer& buffer) override {
    buffers_[slot] = std::static_pointer_cast<NpuBuffer>(buffer.handle);
    TYTO_ASSERT(buffers_[slot] != nullptr);
    transfers_.bind(slot, buffers_[slot]);
    if (++bound_ == bound_slots(program_)) guarded(dispatcher_.where(), [&] { set_arguments(); });
  }

  void submit(const Call& call) override {
    rows_ = call.rows;
    dispatcher_.begin();
    dispatcher_.uploaded(guarded(dispatcher_.where(), [&] {
      const uint64_t uploaded = transfers_.upload_padded(rows_);
      return uploaded + turned_.give(rows_);
    }));
    guarded(dispatcher_.where(), [&] {
      for (const auto& table : tables_) table->refresh(rows_);
    });
    run_ = &guarded(dispatcher_.where(),
                    [&]() -> KernelRun& { return core_.run_for(dispatcher_.context(), place_); });
    dispatcher_.start(*run_, arguments_);
  }

  Completion wait(std::chrono::milliseconds timeout) override {
    dispatcher_.finish(*run_, timeout, call_, work_, binding_.program.launches);
    dispatcher_.downloading();
    if (core_.settings.guard) dispatcher_.checked(guard_.check(rows_, dispatcher_));
    return dispatcher_.end(guarded(dispatcher_.where(), [&] {
      const uint64_t turned = turned_.take(rows_);
      return turned + transfers_.download(rows_);
    }));
  }

 private:
  void set_arguments() {
    std::vector<xrt::bo> memory = own_memory();
    for (size_t i = 0; i < binding_.parts.size(); ++i) {
      const AirArgument& argument = binding_.program.arguments[i];
      if (argument.layout == AirLayout::heads_first)
        turned_.add(argument, buffers_[binding_.parts[i].front().slot], memory[i]);
      else if (argument.role != AirRole::scratch)
        memory[i] = buffer_for(argument, binding_.parts[i]);
      arguments_.set(i, memory[i]);
    }
    if (core_.settings.guard) guard_products(memory);
  }

  // What the kernel keeps to itself is said to be unchecked.
  void guard_products(const std::vector<xrt::bo>& memory) {
    const auto rows_in = [&](size_t argument, uint64_t cols) {
      const AirArgument& of = binding_.program.arguments[argument];
      return GuardedRows{memory[argument], 0, of.dtype, of.cols, cols};
    };
    const std::vector<AirProduct> products = air_products(binding_);
    for (const AirProduct& product : products) {
      const TensorView& weight = weights_[product.weight];
      guard_.add(tyto::name(product.role),
                 core_.weight_sum(weight, product.first_row, product.rows),
                 rows_in(product.operand, weight.cols), rows_in(product.result, product.rows));
    }
    for (const Launch& launch : program_.launches)
      if (launch.kernel == Kernel::matmul &&
          std::none_of(products.begin(), products.end(),
                       [&](const AirProduct& product) { return product.role == launch.role; }))
        core_.env.trace.fallback(
            fmt::format("{} is not checked on {}: {} keeps it inside its cores",
                        tyto::name(launch.role), core_.name(), binding_.program.name));
  }

  // [arguments], those that hold no slot: scratch, and what the host turns.
  std::vector<xrt::bo> own_memory() {
    const std::vector<AirArgument>& arguments = binding_.program.arguments;
    std::vector<xrt::bo> memory(arguments.size());
    std::vector<size_t> order;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i].role == AirRole::scratch || arguments[i].layout == AirLayout::heads_first)
        order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return arguments[a].bytes() > arguments[b].bytes();
    });
    std::set<size_t> taken;
    for (size_t i : order) memory[i] = core_.scratch(arguments[i].bytes(), taken);
    return memory;
  }

  xrt::bo buffer_for(const AirArgument& argument, const std::vector<AirPart>& parts) {
    if (argument.role == AirRole::dead) return core_.dead_page();
    TYTO_ASSERT(!parts.empty());
    if (argument.role == AirRole::weight && argument.layout != AirLayout::rope_per_head)
      return core_.weight(argument, parts, weights_);
    const std::shared_ptr<NpuBuffer>& first = buffers_[parts.front().slot];
    if (argument.layout == AirLayout::rope_per_head) {
      const Slot& slot = program_.slots[parts.front().slot];
      const size_t row_bytes = tyto::row_bytes(slot.dtype, slot.cols);
      tables_.push_back(
          core_.expansion(first, argument.rows, row_bytes, argument.cols / slot.cols));
      return tables_.back()->bo;
    }
    const size_t offset =
        first->offset + tyto::row_bytes(argument.dtype, parts.front().place.offset);
    if (offset + argument.bytes() > first->bo.size())
      throw Error(ErrorCode::device, dispatcher_.where(),
                  fmt::format("argument {} needs {} bytes, its buffer has {}", argument.name,
                              argument.bytes(), first->bo.size() - offset));
    if (offset == 0) return first->bo;
    return {first->bo, argument.bytes(), offset};
  }

  NpuCore& core_;
  const Program program_;
  const std::vector<TensorView> weights_;  // [slots]
  const AirBinding binding_;
  Dispatcher dispatcher_;
  const size_t place_;        // among the context's executables
  KernelRun* run_ = nullptr;  // that it is in flight in, owned by the context
  Arguments arguments_;
  Transfers transfers_;
  ProductGuard guard_;
  TurnedHeads turned_;
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  std::vector<std::shared_ptr<Expansion>> tables_;   // shared with the other layers' executables
  size_t bound_ = 0;
  uint32_t rows_ = 0;  // the rows of the call in flight
  Call call_;
  Cost work_;
};

}  // namespace

std::unique_ptr<Executable> make_air_executable(NpuCore& core, const Program& program,
                                                std::span<const TensorView> weights) {
  return std::make_unique<AirExecutable>(core, program, weights);
}

}  // namespace tyto::TYTO_XRT_PROVIDER
