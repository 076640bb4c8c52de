// A whole token in one dispatch: packed weights, norms, caches and logits in five buffers, driven
// by instruction words that are patched for the length of the context.
#include <algorithm>
#include <cstring>

#include "device/npu/formats/decode_words.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/weight_placing.h"
#include "device/npu/runtime/kv_slab.h"
#include "trace/span.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

// As many bits per weight: 4, and a scale and a minimum of 16 bits for every 32.
constexpr DType kPackedType = DType::q4_1;

// One build: its context, its instruction words, and a run with everything bound.
struct Window {
  uint32_t positions = 0;
  Dispatcher dispatcher;
  DecodeWords words;
  xrt::bo instructions;
  xrt::run run;
  std::shared_ptr<KvSlab> slab = {};  // that the run was given, shared with its Buffers
};

class FusedDecode : public Executable {
 public:
  FusedDecode(NpuCore& core, const Program& program, std::span<const TensorView> weights)
      : core_(core),
        program_(with_weights(program, kPackedType)),
        where_(core.name() + ": " + program.name),
        layout_(q4nx_layout(core.kernels.dims, core.kernels.windows.back())),
        transfers_(program_),
        views_(weights.begin(), weights.end()),
        buffers_(program.slots.size()) {}

  void bind(uint16_t slot, const Buffer& buffer) override {
    const bool is_first = buffers_[slot] == nullptr;
    buffers_[slot] = std::static_pointer_cast<NpuBuffer>(buffer.handle);
    TYTO_ASSERT(buffers_[slot] != nullptr);
    if (buffers_[slot]->slab) slab_ = buffers_[slot]->slab;
    if (!is_first) return;
    transfers_.bind(slot, buffers_[slot]);
    if (++bound_ == bound_slots(program_)) guarded(where_, [&] { set_up(); });
  }

  void submit(const Call& call) override {
    const uint32_t length = call.only.position + 1;
    guarded(where_, [&] {
      Window& window = window_for(length);
      window.dispatcher.begin();
      window.dispatcher.uploaded(transfers_.upload(call.rows));
      slab_->live = call.only.position;
      slab_->lay_out(window.positions);
      slab_->live = length;
      give_slab(window);
      rope_row_->refresh(1);
      patch(window, length);
      current_ = &window;
    });
    call_ = call;
    work_ = cost(program_, call);
    current_->dispatcher.start(current_->run);
  }

  Completion wait(std::chrono::milliseconds timeout) override {
    current_->dispatcher.finish(current_->run, timeout, call_, work_, launches_);
    current_->dispatcher.downloading();
    return current_->dispatcher.end(
        guarded(where_, [&] { return transfers_.download(call_.rows); }));
  }

 private:
  size_t slot_of(Role role, uint16_t layer, bool is_weight) const {
    for (size_t i = 0; i < program_.slots.size(); ++i) {
      const Slot& slot = program_.slots[i];
      const bool is_other = (slot.kind == SlotKind::weight) != is_weight;
      if (slot.role == role && slot.layer == layer && !is_other) return i;
    }
    throw Error(ErrorCode::device, where_,
                fmt::format("has no slot for {}", layer_name(name(role), layer)));
  }
  const std::shared_ptr<NpuBuffer>& activation(Role role) {
    return buffers_[slot_of(role, kNoLayer, false)];
  }
  WeightSource weight(Role role, uint16_t layer = kNoLayer) {
    const size_t slot = slot_of(role, layer, true);
    return {program_.slots[slot].name, views_[slot]};
  }

  void set_up() {
    weights_ = core_.allocate(layout_.weight_elements * 2, "packed weights");
    core_.count_as_pinned_by(pinned_, weights_.size());
    {
      SetupTimer timer(core_.env.trace, kLayoutPhase);
      pack_weights();
    }
    core_.upload(weights_, "packed weights");
    pack_norms();
    const AirDims& dims = core_.kernels.dims;
    launches_ = dims.layers + layout_.head_chunks;
    for (uint32_t positions : core_.kernels.windows) {
      auto context = core_.open(kFusedDecode, positions);
      const NpuImage& image = context->image;
      Window window{
          positions,
          Dispatcher(core_, context, program_),
          DecodeWords::from_builds({image.kernel, image.words, image.length},
                                   {image.kernel, image.reference_words, image.reference_length}),
          {},
          xrt::run(context->kernel)};
      window.instructions = xrt::bo(core_.device, image.words.size() * 4, xrt::bo::flags::cacheable,
                                    context->kernel.group_id(1));
      bind_arguments(window);
      windows_.push_back(std::move(window));
    }
  }

  void bind_arguments(Window& window) {
    constexpr uint32_t kOpcode = 3;
    xrt::run& run = window.run;
    run.set_arg(0, kOpcode);
    run.set_arg(1, window.instructions);
    run.set_arg(2, static_cast<uint32_t>(window.instructions.size() / 4));
    run.set_arg(3, activation(Role::x)->bo);
    run.set_arg(4, weights_);
    run.set_arg(5, norms_);
    run.set_arg(6, activation(Role::logits)->bo);
  }

  // Sequences take turns: each has a slab of its own.
  void give_slab(Window& window) {
    if (window.slab == slab_) return;
    window.run.set_arg(7, slab_->bo);
    window.slab = slab_;
  }

  void pack_weights() {
    const std::span<std::byte> memory(weights_.map<std::byte*>(), weights_.size());
    const AirDims& dims = core_.kernels.dims;
    for (uint32_t layer = 0; layer < dims.layers; ++layer) {
      const auto source = [&](Role role) { return weight(role, static_cast<uint16_t>(layer)); };
      std::vector<uint16_t> q_rows, k_rows;
      const Q4nxLayerSources sources{in_halves(source(Role::q), q_rows),
                                     in_halves(source(Role::k), k_rows),
                                     source(Role::v),
                                     source(Role::o),
                                     source(Role::gate),
                                     source(Role::up),
                                     source(Role::down)};
      const size_t bytes = layout_.layer_elements * 2;
      pack_q4nx_layer(layout_, sources, memory.subspan(layer * bytes, bytes), core_.env.pool);
    }
    const Launch& head = program_.launches.back();
    const uint16_t slot = head.args[1].slot;
    pack_q4nx_head(layout_, {program_.slots[slot].name, views_[slot]},
                   memory.subspan(layout_.head_offset * 2), core_.env.pool);
  }

  // The rows of a rotated projection, in the order the kernels rotate them.
  WeightSource in_halves(const WeightSource& source, std::vector<uint16_t>& rows) {
    const LaunchShape& shape = program_.launches.front().shape;
    if (!shape.rope_pairs) return source;
    const TensorView& tensor = source.tensor;
    rows.resize(tensor.values());
    place_rows(tensor, 0, tensor.rows,
               halves_from_pairs(tensor.rows, tensor.cols, shape.head_dim, false), rows,
               core_.env.pool);
    return {source.name, {DType::bf16, tensor.rows, tensor.cols, std::as_bytes(std::span(rows))}};
  }

  // Both norms of every layer, the rotation row of the position, the final norm.
  void pack_norms() {
    norms_ = core_.allocate(layout_.norm_elements * 2, "norms");
    core_.count_as_pinned_by(pinned_, norms_.size());
    const std::span<uint16_t> memory(norms_.map<uint16_t*>(), layout_.norm_elements);
    const AirDims& dims = core_.kernels.dims;
    const auto place = [&](const WeightSource& norm, uint64_t offset) {
      place_rows(norm.tensor, 0, 1, {offset, {}}, memory, core_.env.pool);
    };
    for (uint16_t layer = 0; layer < dims.layers; ++layer) {
      place(weight(Role::attn_norm, layer), uint64_t{layer} * 2 * dims.emb);
      place(weight(Role::ffn_norm, layer), (uint64_t{layer} * 2 + 1) * dims.emb);
    }
    place(weight(Role::final_norm), layout_.final_norm_offset);
    norms_.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    rope_row_ = std::make_shared<Expansion>();
    rope_row_->source = activation(Role::rope_table);
    rope_row_->row_bytes = size_t{dims.head_dim} * 2;
    rope_row_->bo = xrt::bo(norms_, rope_row_->row_bytes, layout_.rope_offset * 2);
    rope_row_->host = norms_.map<std::byte*>() + layout_.rope_offset * 2;
    rope_row_->rows.resize(rope_row_->row_bytes);
  }

  Window& window_for(uint32_t length) {
    const auto found = std::find_if(windows_.begin(), windows_.end(),
                                    [&](const Window& w) { return w.positions >= length; });
    if (found == windows_.end())
      throw Error(ErrorCode::device, where_,
                  fmt::format("position {} is past the largest window", length));
    return *found;
  }

  void patch(Window& window, uint32_t length) {
    const std::span<uint32_t> words(window.instructions.map<uint32_t*>(),
                                    window.instructions.size() / 4);
    const WordRange changed = window.words.patch(length, words);
    if (changed.count > 0)
      window.instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE, changed.count * 4, changed.first * 4);
  }

  NpuCore& core_;
  const Program program_;
  const std::string where_;
  const Q4nxLayout layout_;
  std::shared_ptr<KvSlab> slab_;  // of the next call's sequence, shared with its Buffers
  Transfers transfers_;
  const std::vector<TensorView> views_;              // [slots], of weights
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  size_t bound_ = 0;
  xrt::bo weights_, norms_;
  PinnedBytes pinned_;
  std::shared_ptr<Expansion> rope_row_;
  std::vector<Window> windows_;  // ascending
  Window* current_ = nullptr;
  Call call_;
  Cost work_;
  uint64_t launches_ = 0;
};

}  // namespace

std::shared_ptr<KvSlab> make_kv_slab(NpuCore& core) {
  auto slab = std::make_shared<KvSlab>();
  slab->dims = core.kernels.dims;
  slab->most = slab->window = core.kernels.windows.back();
  slab->bo = core.allocate(q4nx_layout(slab->dims, slab->most).kv_elements * 2, "KV cache");
  core.count_as_pinned_by(slab->pinned, slab->bo.size());
  std::memset(slab->bo.map<std::byte*>(), 0, slab->bo.size());
  guarded(core.name(), [&] { slab->bo.sync(XCL_BO_SYNC_BO_TO_DEVICE); });
  return slab;
}

void KvSlab::lay_out(uint32_t other_window) {
  if (other_window == window) return;
  sync_live(XCL_BO_SYNC_BO_FROM_DEVICE);
  const std::span<std::byte> cache(bo.map<std::byte*>(), bo.size());
  repack_kv(q4nx_layout(dims, window), cache, q4nx_layout(dims, other_window), cache, live);
  window = other_window;
  sync_live(XCL_BO_SYNC_BO_TO_DEVICE);
}

void KvSlab::sync_live(xclBOSyncDirection direction) {
  const Q4nxLayout layout = q4nx_layout(dims, window);
  const uint64_t region = layout.kv_region_elements * 2, bytes = live * kv_position_bytes(layout);
  for (uint64_t at = 0; at < layout.kv_elements * 2 && bytes > 0; at += region)
    bo.sync(direction, bytes, at);
}

std::unique_ptr<Executable> make_fused_decode(NpuCore& core, const Program& program,
                                              std::span<const TensorView> weights) {
  return std::make_unique<FusedDecode>(core, program, weights);
}

}  // namespace tyto::TYTO_XRT_PROVIDER
