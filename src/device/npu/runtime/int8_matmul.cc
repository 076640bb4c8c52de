// A projection on int8 GEMM images: weights quantised once into buffers, activations per call. An
// image multiplies one tile, so a product is as many dispatches as it has tiles.
#include <algorithm>

#include "device/npu/runtime/npu_core.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

size_t slot_for(const NpuCore& core, const Program& program) {
  const Launch& launch = program.launches.front();
  const SlotChoice choice =
      choose_slot(core.kernels.gemm_slots, program.slots[launch.args[1].slot].cols,
                  program.slots[launch.args[0].slot].rows);
  if (!choice.slot) throw Error(ErrorCode::unsupported, program.name, choice.reason);
  return *choice.slot;
}

class Int8Matmul : public Executable {
 public:
  Int8Matmul(NpuCore& core, const Program& program, std::span<const TensorView> weights)
      : core_(core),
        program_(with_weights(program, DType::i8)),
        launch_(program_.launches.front()),
        slot_index_(slot_for(core, program_)),
        slot_(core.kernels.gemm_slots[slot_index_]),
        dispatcher_(core, core.open(kInt8Gemm, static_cast<uint32_t>(slot_index_)), program_),
        buffers_(program.slots.size()) {
    const Slot& weight = program_.slots[launch_.args[1].slot];
    most_ = gemm_extent(slot_, program_.slots[launch_.args[0].slot].rows, weight.rows, weight.cols);
    weights_ = guarded(dispatcher_.where(), [&] {
      return core_.int8_weight({weight.name, weights[launch_.args[1].slot]});
    });
    TYTO_ASSERT(weights_ && weights_->extent.padded_k == slot_.k &&
                weights_->extent.padded_n >= most_.padded_n);
  }

  ~Int8Matmul() override {
    for (KernelRun* run : ring_)
      for (const Arguments& tile : tiles_) run->release(tile);
  }

  void bind(uint16_t slot, const Buffer& buffer) override {
    buffers_[slot] = std::static_pointer_cast<NpuBuffer>(buffer.handle);
    TYTO_ASSERT(buffers_[slot] != nullptr);
    if (++bound_ == bound_slots(program_)) guarded(dispatcher_.where(), [&] { set_up(); });
  }

  void submit(const Call& call) override {
    call_ = call;
    dispatcher_.begin();
    const GemmExtent extent = gemm_extent(slot_, call.rows, most_.outputs, most_.k);
    const auto* x = reinterpret_cast<const float*>(buffers_[launch_.args[0].slot]->host);
    ActivationCodes& rows = *activations_;
    quantize_gemm_activations({x, call.rows * most_.k}, extent,
                              {rows.codes, call.rows * extent.padded_k},
                              {activation_scales_.data(), call.rows});
    const uint64_t changed = std::max<uint64_t>(call.rows, rows.rows_used);
    std::fill(rows.codes + call.rows * extent.padded_k, rows.codes + changed * extent.padded_k,
              int8_t{0});
    rows.rows_used = call.rows;
    guarded(dispatcher_.where(),
            [&] { rows.bo.sync(XCL_BO_SYNC_BO_TO_DEVICE, changed * extent.padded_k, 0); });
    dispatcher_.uploaded(changed * extent.padded_k);
  }

  // Tile by tile of tokens.
  Completion wait(std::chrono::milliseconds timeout) override {
    downloaded_bytes_ = 0;
    for (uint32_t first = 0; first < call_.rows; first += slot_.m_tile) {
      take_rows(first);
      const auto finish = [&](size_t i) {
        const bool is_last = first + slot_.m_tile >= call_.rows && i + 1 == tiles_.size();
        dispatcher_.finish(run_of(i), timeout, call_, is_last ? cost(program_, call_) : Cost{}, 1);
      };
      for (size_t i = 0; i < tiles_.size(); ++i) {
        if (i >= ring_.size()) finish(i - ring_.size());
        dispatcher_.start(run_of(i), tiles_[i]);
      }
      for (size_t i = tiles_.size() - ring_.size(); i < tiles_.size(); ++i) finish(i);
      collect(first);
    }
    dispatcher_.downloading();
    return dispatcher_.end(downloaded_bytes_);
  }

 private:
  static constexpr int kFirstArgument = 3;
  // Runs of one image, which all products over its K share: the driver takes no more than four of a
  // context at a time.
  static constexpr size_t kInFlight = 4;

  KernelRun& run_of(size_t tile) { return *ring_[tile % ring_.size()]; }

  void take_rows(uint32_t first) {
    if (taken_ == first) return;
    const size_t tile_bytes = size_t{slot_.m_tile} * slot_.k;
    guarded(dispatcher_.where(), [&] {
      const xrt::bo rows(activations_->bo, tile_bytes, first / slot_.m_tile * tile_bytes);
      for (Arguments& tile : tiles_) tile.set(kFirstArgument, rows);
    });
    taken_ = first;
  }

  void set_up() {
    activations_ = core_.activation_codes(slot_.k, most_.padded_m);
    std::set<size_t> taken;
    sums_ = core_.scratch(size_t{slot_.m_tile} * most_.padded_n * 4, taken);
    activation_scales_.resize(most_.tokens);
    NpuContext& context = dispatcher_.context();
    const xrt::bo instructions = core_.instructions(context);
    context.check_group(kFirstArgument, activations_->bo);
    context.check_group(kFirstArgument + 1, weights_->codes);
    context.check_group(kFirstArgument + 2, sums_);
    tiles_.resize(most_.padded_n / slot_.n_tile);
    const size_t weight_tile = size_t{slot_.n_tile} * slot_.k;
    for (size_t i = 0; i < tiles_.size(); ++i) {
      constexpr uint32_t kOpcode = 3;
      Arguments& tile = tiles_[i];
      tile.set(0, kOpcode);
      tile.set(1, instructions);
      tile.set(2, static_cast<uint32_t>(context.image.words.size()));
      tile.set(kFirstArgument + 1, xrt::bo(weights_->codes, weight_tile, i * weight_tile));
      tile.set(kFirstArgument + 2, xrt::bo(sums_, sum_tile_bytes(), i * sum_tile_bytes()));
    }
    for (size_t i = 0; i < std::min(kInFlight, tiles_.size()); ++i)
      ring_.push_back(&context.run(i));
  }

  size_t sum_tile_bytes() const { return size_t{slot_.m_tile} * slot_.n_tile * 4; }

  void collect(uint32_t first) {
    const uint32_t tokens = std::min<uint32_t>(slot_.m_tile, call_.rows - first);
    guarded(dispatcher_.where(), [&] {
      for (size_t tile = 0; tile < tiles_.size(); ++tile)
        sums_.sync(XCL_BO_SYNC_BO_FROM_DEVICE, size_t{tokens} * slot_.n_tile * 4,
                   tile * sum_tile_bytes());
    });
    downloaded_bytes_ += tiles_.size() * size_t{tokens} * slot_.n_tile * 4;
    auto* y = reinterpret_cast<float*>(buffers_[launch_.args[2].slot]->host);
    const auto* sums = sums_.map<const int32_t*>();
    for (size_t tile = 0; tile < tiles_.size(); ++tile) {
      // Integers hold no sign of having gone wrong, as a NaN is among floats.
      check_rows(first, core_.settings.guard ? tokens : 1, tile,
                 sums + tile * sum_tile_bytes() / 4);
      const uint64_t output = tile * slot_.n_tile;
      const uint64_t outputs = std::min<uint64_t>(slot_.n_tile, most_.outputs - output);
      dequantize_gemm({sums + tile * sum_tile_bytes() / 4, sum_tile_bytes() / 4}, slot_.n_tile,
                      {activation_scales_.data() + first, tokens},
                      {weights_->scales.data() + output, outputs},
                      {y + first * most_.outputs + output, (tokens - 1) * most_.outputs + outputs},
                      most_.outputs);
    }
  }

  // A row of a tile adds up to the row's codes times the sum of the tile's weights, exactly. The
  // first row is always looked at, which is all of a token's; with --guard on every one.
  void check_rows(uint32_t first, uint32_t tokens, size_t tile, const int32_t* sums) {
    const std::span<const int32_t> weight_sum(
        weights_->tile_sums.at(slot_.n_tile).data() + tile * slot_.k, slot_.k);
    for (uint32_t token = 0; token < tokens; ++token) {
      const int8_t* x = activations_->codes + size_t{first + token} * slot_.k;
      int64_t expected = 0, found = 0;
      for (uint32_t i = 0; i < slot_.k; ++i) expected += int64_t{x[i]} * weight_sum[i];
      for (uint32_t i = 0; i < slot_.n_tile; ++i) found += sums[size_t{token} * slot_.n_tile + i];
      if (found == expected) continue;
      dispatcher_.fail();
      throw Error(ErrorCode::device, dispatcher_.where(),
                  fmt::format("row {} of tile {} adds up to {} instead of {}", first + token, tile,
                              found, expected),
                  "see --on-device-error");
    }
    dispatcher_.checked(tokens);
  }

  NpuCore& core_;
  const Program program_;
  const Launch& launch_;
  const size_t slot_index_;
  const GemmSlot& slot_;
  Dispatcher dispatcher_;
  GemmExtent most_;                                  // for the largest call
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  size_t bound_ = 0;
  std::shared_ptr<Int8Weight> weights_;           // shared with the executable of other call sizes
  std::shared_ptr<ActivationCodes> activations_;  // shared by all over the same K
  xrt::bo sums_;
  std::vector<float> activation_scales_;
  std::vector<Arguments> tiles_;  // the outputs'
  std::vector<KernelRun*> ring_;  // owned by the context
  uint32_t taken_ = UINT32_MAX;   // token whose tile they multiply
  Call call_;
  uint64_t downloaded_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> make_int8_matmul(NpuCore& core, const Program& program,
                                             std::span<const TensorView> weights) {
  return std::make_unique<Int8Matmul>(core, program, weights);
}

}  // namespace tyto::TYTO_XRT_PROVIDER
