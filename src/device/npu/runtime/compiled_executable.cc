// A program without a counterpart among MLIR-AIR's: its arguments are its slots, then the Call.
#include <algorithm>

#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

// The program as the device has it: bf16 weights, and heads rotated by halves like everywhere else
// on it.
Program with_bf16_weights(const Program& original) {
  Program program = with_weights(original, DType::bf16);
  for (Launch& launch : program.launches) launch.shape.rope_pairs = false;
  return program;
}

// Matrices in eight bits, the scales of their rows in slots behind the original ones. Rows stay in
// the order they are quantised in, so heads are rotated as the program says.
Program with_int8_weights(const Program& original) {
  Program program = with_weights(original, DType::bf16);
  for (Launch& launch : program.launches) {
    if (launch.kernel != Kernel::matmul) continue;
    Slot& weight = program.slots[launch.args[1].slot];
    weight.dtype = DType::i8;
    const auto scales = static_cast<uint16_t>(program.slots.size());
    launch.kernel = Kernel::matmul_q8;
    launch.args.insert(launch.args.begin() + 2, {scales, true, false});
    program.slots.push_back(
        {weight.name + ".scales", SlotKind::weight, DType::f32, 1, weight.rows});
  }
  return program;
}

// Where a weight's rows go: as stored, but for the projections of heads that a checkpoint rotates
// by pairs.
Pattern place_of(const Program& program, uint16_t slot) {
  for (const Launch& launch : program.launches) {
    const auto [part, facet] = launch.role;
    const bool is_rotated = (part == Role::q || part == Role::k) && facet != Facet::lora_a;
    if (launch.kernel != Kernel::matmul || launch.args[1].slot != slot || !is_rotated) continue;
    const Slot& weight = program.slots[slot];
    if (launch.shape.rope_pairs)
      return halves_from_pairs(weight.rows, weight.cols, launch.shape.head_dim, false);
  }
  return {};
}

class CompiledExecutable : public Executable {
 public:
  CompiledExecutable(NpuCore& core, const Program& program, std::span<const TensorView> weights)
      : core_(core),
        original_(program),
        program_(core.fuses_int8() ? with_int8_weights(program) : with_bf16_weights(program)),
        set_(core.program_set()),
        dispatcher_(core, nullptr, program_),
        transfers_(program_),
        guard_(core.env.pool),
        views_(weights.begin(), weights.end()),
        buffers_(program.slots.size()) {
    const auto [entry, is_new] =
        set_->by_hash.try_emplace(program_hash(program_), set_->programs.size());
    if (is_new) set_->programs.push_back(program_);
    index_ = entry->second;
    guarded(dispatcher_.where(), [&] {
      for (uint16_t i = 0; i < program.slots.size(); ++i)
        if (program.slots[i].kind == SlotKind::weight) place_weight(i, weights);
    });
  }

  ~CompiledExecutable() override {
    if (run_ != nullptr) run_->release(arguments_);
  }

  void bind(uint16_t slot, const Buffer& buffer) override {
    buffers_[slot] = std::static_pointer_cast<NpuBuffer>(buffer.handle);
    TYTO_ASSERT(buffers_[slot] != nullptr);
    transfers_.bind(slot, buffers_[slot]);
    arguments_.set(slot, buffers_[slot]->bo);
  }

  void submit(const Call& call) override {
    if (run_ == nullptr) guarded(dispatcher_.where(), [&] { find_run(); });
    dispatcher_.begin();
    dispatcher_.uploaded(
        guarded(dispatcher_.where(), [&] { return transfers_.upload(call.rows); }));
    const size_t first = program_.slots.size();
    arguments_.set(first, call.rows);
    arguments_.set(first + 1, call.only.position);
    arguments_.set(first + 2, call.only.first_row);
    call_ = call;
    work_ = cost(program_, call);
    dispatcher_.start(*run_, arguments_);
  }

  Completion wait(std::chrono::milliseconds timeout) override {
    dispatcher_.finish(*run_, timeout, call_, work_, program_.launches.size());
    dispatcher_.downloading();
    if (core_.settings.guard) dispatcher_.checked(guard_.check(call_.rows, dispatcher_));
    return dispatcher_.end(
        guarded(dispatcher_.where(), [&] { return transfers_.download(call_.rows); }));
  }

 private:
  void place_weight(uint16_t slot, std::span<const TensorView> weights) {
    if (core_.fuses_int8())
      place_int8(slot, weights[slot]);
    else
      place_bf16(slot, weights);
  }

  void place_int8(uint16_t slot, const TensorView& tensor) {
    int8_.push_back(core_.int8_weight({program_.slots[slot].name, tensor}));
    TYTO_ASSERT(int8_.back() != nullptr);
    arguments_.set(slot, int8_.back()->codes);
    for (const Launch& launch : program_.launches)
      if (launch.kernel == Kernel::matmul_q8 && launch.args[1].slot == slot)
        arguments_.set(launch.args[2].slot, int8_.back()->device_scales);
  }

  void place_bf16(uint16_t slot, std::span<const TensorView> weights) {
    const Slot& bound = program_.slots[slot];
    AirArgument argument;
    argument.name = bound.name;
    argument.role = AirRole::weight;
    argument.layout = AirLayout::as_stored;
    argument.dtype = bound.dtype;
    argument.rows = bound.rows;
    argument.cols = bound.cols;
    arguments_.set(
        slot, core_.weight(argument, {{slot, 0, bound.rows, place_of(original_, slot)}}, weights));
  }

  // Layers of the same form are one program, and share its run.
  void find_run() {
    dispatcher_.use(core_.compiled(*set_));
    NpuContext& context = dispatcher_.context();
    const xrt::ext::kernel kernel(context.context, fmt::format("main:program_{}", index_));
    run_ = &context.runs.try_emplace(index_, kernel).first->second;
    if (core_.settings.guard) guard_products();
  }

  // Those whose operand and result no later launch of the program overwrites; a bias is not part of
  // the sum.
  void guard_products() {
    for (size_t i = 0; i < program_.launches.size(); ++i) {
      const Launch& launch = program_.launches[i];
      if (launch.kernel != Kernel::matmul) continue;
      const uint16_t x = launch.args[0].slot, weight = launch.args[1].slot, y = launch.args[2].slot;
      const auto overwrites = [&](const Launch& later) {
        return std::any_of(later.args.begin(), later.args.end(), [&](const Arg& arg) {
          return arg.writes && (arg.slot == x || arg.slot == y);
        });
      };
      const bool is_visible =
          launch.args.size() == 3 &&
          std::none_of(program_.launches.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                       program_.launches.end(), overwrites);
      if (!is_visible) {
        core_.env.trace.fallback(
            fmt::format("{} is not checked on {}: its dispatch goes on with the result",
                        tyto::name(launch.role), core_.name()));
        continue;
      }
      const TensorView& view = views_[weight];
      guard_.add(tyto::name(launch.role), core_.weight_sum(view, 0, view.rows), rows_in(x),
                 rows_in(y));
    }
  }

  GuardedRows rows_in(uint16_t slot) const {
    const Slot& of = program_.slots[slot];
    return {buffers_[slot]->bo, buffers_[slot]->offset, of.dtype, of.cols, of.cols};
  }

  NpuCore& core_;
  const Program original_;
  const Program program_;
  std::shared_ptr<ProgramSet> set_;  // shared with the set's other executables
  size_t index_ = 0;
  Dispatcher dispatcher_;
  KernelRun* run_ = nullptr;  // the context's; none until it is compiled
  Arguments arguments_;
  Transfers transfers_;
  ProductGuard guard_;
  const std::vector<TensorView> views_;              // [slots], of weights
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  std::vector<std::shared_ptr<Int8Weight>> int8_;    // shared with other programs over them
  Call call_;
  Cost work_;
};

}  // namespace

std::unique_ptr<Executable> make_compiled_executable(NpuCore& core, const Program& program,
                                                     std::span<const TensorView> weights) {
  return std::make_unique<CompiledExecutable>(core, program, weights);
}

}  // namespace tyto::TYTO_XRT_PROVIDER
