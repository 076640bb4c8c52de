// A whole token in one dispatch: packed weights, norms, caches and logits. The length of the
// context is told in a run's scratchpad (one ELF for every length), or in instruction words that
// are patched for it (xclbins, one for each window).
#include <algorithm>
#include <cstring>

#include "device/npu/formats/air_binding.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/runtime/npu_core.h"
#include "trace/trace.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

// As many bits per weight: 4, and a scale and a minimum of 16 bits for every 32.
constexpr DType kPackedType = DType::q4_1;

constexpr const char* kWeights = "packed weights";

// XRT's argument indices.
constexpr size_t kX = 3, kNorms = 5, kLogits = 6, kCache = 7;

// One build: its context, how it is told the length, and what its run is given.
struct Window {
  uint32_t positions = 0;
  Dispatcher dispatcher;
  std::optional<DecodeParameters> parameters;  // an ELF's
  std::optional<DecodeWords> words;            // an xclbin's
  xrt::bo instructions;
  KernelRun& run;  // owned by the context
  Arguments arguments = {};
  std::shared_ptr<KvSlab> slab = {};  // among the arguments, shared with its Buffers
};

class FusedDecode : public Executable {
 public:
  FusedDecode(NpuCore& core, const Program& program, std::span<const TensorView> weights)
      : core_(core),
        program_(with_weights(program, kPackedType)),
        where_(core.name() + ": " + program.name),
        layout_(q4nx_layout(core.kernels.dims, core.kernels.windows.back(),
                            core.kernels.weight_buffer_bytes)),
        transfers_(program_),
        views_(weights.begin(), weights.end()),
        buffers_(program.slots.size()) {}

  ~FusedDecode() override {
    for (auto& [positions, window] : windows_) window.run.release(window.arguments);
  }

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
      slab_->clear_from(call.only.position);
      slab_->live = slab_->used = length;
      give_slab(window);
      write_rope_rows();
      tell(window, length);
      current_ = &window;
    });
    call_ = call;
    work_ = cost(program_, call);
    current_->dispatcher.start(current_->run, current_->arguments);
  }

  Completion wait(std::chrono::milliseconds timeout) override {
    uint64_t downloaded = finish(timeout);
    NpuContext& context = current_->dispatcher.context();
    if (core_.settings.check_first && !context.is_proven) {
      downloaded += prove(timeout);
      context.is_proven = true;
    }
    return current_->dispatcher.end(downloaded);
  }

 private:
  uint64_t finish(std::chrono::milliseconds timeout) {
    current_->dispatcher.finish(current_->run, timeout, call_, work_, launches_);
    current_->dispatcher.downloading();
    return guarded(where_, [&] { return transfers_.download(call_.rows); });
  }

  // The first dispatch of a context is now and then wrong. It is made again until two in a row have
  // the same result, which is the one that counts.
  uint64_t prove(std::chrono::milliseconds timeout) {
    constexpr int kRepeats = 2;
    SetupTimer timer(core_.env.trace, core_.kernels.info.is_virtual
                                          ? "first dispatch repeated by the virtual NPU"
                                          : "first dispatch repeated to check it");
    uint64_t downloaded = 0;
    std::vector<std::byte> before = logits();
    for (int repeat = 1; repeat <= kRepeats; ++repeat) {
      start_again();
      downloaded += finish(timeout);
      std::vector<std::byte> now = logits();
      const bool is_same = now == before;
      if (is_same && repeat > 1)
        core_.env.trace.fallback(
            fmt::format("the first dispatch of {} for {} positions was wrong on {}: two repeats "
                        "had another result, which was used",
                        core_.kernels.runs_decode_elf() ? "the decode's ELF" : "the decode",
                        current_->positions, core_.name()));
      if (is_same) return downloaded;
      before = std::move(now);
    }
    current_->dispatcher.fail();
    throw Error(ErrorCode::device, where_,
                "three dispatches of one token had three results: what it computes cannot be "
                "trusted",
                "see --on-device-error; `tyto doctor` looks at the driver's versions");
  }

  // What was overwritten is given again; the position goes where it went.
  void start_again() {
    guarded(where_, [&] {
      transfers_.upload(call_.rows);
      tell(*current_, call_.only.position + 1);
    });
    current_->dispatcher.start(current_->run, current_->arguments);
  }

  std::vector<std::byte> logits() {
    const NpuBuffer& buffer = *activation(Role::logits);
    const uint64_t bytes = program_.slots[slot_of(Role::logits, kNoLayer, false)].bytes();
    return {buffer.host, buffer.host + bytes};
  }

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
    for (const Q4nxWeightBuffer& buffer : layout_.weight_buffers) pack_weights(buffer);
    pack_norms();
    const AirDims& dims = core_.kernels.dims;
    launches_ = dims.layers + layout_.head_chunks;
    usable_ = core_.kernels.windows;
    open_window(usable_.back());  // without it no context of full length ends
  }

  Window& open_window(uint32_t positions) {
    const bool is_elf = core_.kernels.runs_decode_elf();
    auto context = core_.open(is_elf ? kFusedDecodeElf : kFusedDecode, positions);
    Window window{
        positions,     Dispatcher(core_, context, program_), context->image.parameters, {}, {},
        context->run()};
    if (!is_elf) take_words(window, *context);
    bind_arguments(window);
    return windows_.emplace(positions, std::move(window)).first->second;
  }

  void take_words(Window& window, NpuContext& context) {
    constexpr uint32_t kOpcode = 3;
    const NpuImage& image = context.image;
    window.words =
        DecodeWords::from_builds({image.kernel, image.words, image.length},
                                 {image.kernel, image.reference_words, image.reference_length});
    window.instructions = xrt::bo(core_.device, image.words.size() * 4, xrt::bo::flags::cacheable,
                                  context.kernel.group_id(1));
    window.arguments.set(0, kOpcode);
    window.arguments.set(1, window.instructions);
    window.arguments.set(2, static_cast<uint32_t>(window.instructions.size() / 4));
  }

  void bind_arguments(Window& window) {
    give(window, kX, activation(Role::x)->bo);
    for (size_t i = 0; i < weights_.size(); ++i)
      give(window, layout_.weight_buffers[i].argument, weights_[i]);
    give(window, kNorms, norms_);
    give(window, kLogits, activation(Role::logits)->bo);
  }

  // `argument` is an xclbin's, whose first three an ELF has not.
  static void give(Window& window, size_t argument, const xrt::bo& buffer) {
    if (window.parameters) return window.arguments.set(argument - kX, buffer);
    window.dispatcher.context().check_group(static_cast<int>(argument), buffer);
    window.arguments.set(argument, buffer);
  }

  // Sequences take turns: each has a slab of its own.
  void give_slab(Window& window) {
    if (window.slab == slab_) return;
    give(window, kCache, slab_->bo);
    window.slab = slab_;
  }

  void pack_weights(const Q4nxWeightBuffer& buffer) {
    xrt::bo& weights = weights_.emplace_back(core_.allocate(buffer.elements * 2, kWeights));
    core_.count_as_pinned_by(pinned_, weights.size());
    {
      SetupTimer timer(core_.env.trace, kLayoutPhase);
      const std::span<std::byte> memory(weights.map<std::byte*>(), buffer.elements * 2);
      for (uint32_t i = 0; i < buffer.layers; ++i) {
        const size_t bytes = layout_.layer_elements * 2;
        pack_layer(static_cast<uint16_t>(buffer.first_layer + i), memory.subspan(i * bytes, bytes));
      }
      if (buffer.has_head) {
        const uint16_t slot = program_.launches.back().args[1].slot;
        pack_q4nx_head(layout_, {program_.slots[slot].name, views_[slot]},
                       memory.subspan(layout_.head_offset * 2), core_.env.pool);
      }
    }
    core_.upload(weights, kWeights);
  }

  void pack_layer(uint16_t layer, std::span<std::byte> memory) {
    std::vector<uint16_t> q_rows, k_rows;
    const Q4nxLayerSources sources{in_halves(weight(Role::q, layer), q_rows),
                                   in_halves(weight(Role::k, layer), k_rows),
                                   weight(Role::v, layer),
                                   weight(Role::o, layer),
                                   weight(Role::gate, layer),
                                   weight(Role::up, layer),
                                   weight(Role::down, layer)};
    pack_q4nx_layer(layout_, sources, memory, core_.env.pool);
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

  // Both norms of every layer, its rotation row where it has one of its own, the final norm.
  void pack_norms() {
    norms_ = core_.allocate(layout_.norm_elements * 2, "norms");
    core_.count_as_pinned_by(pinned_, norms_.size());
    const AirDims& dims = core_.kernels.dims;
    for (uint16_t layer = 0; layer < dims.layers; ++layer) {
      place_norm(weight(Role::attn_norm, layer), uint64_t{layer} * 2 * dims.emb);
      place_norm(weight(Role::ffn_norm, layer), (uint64_t{layer} * 2 + 1) * dims.emb);
      const uint64_t row = rope_row_offset(layout_, layer);
      if (layout_.head_norms_at != 0) {
        const uint64_t at = row + layout_.head_norms_at;
        place_over_heads(weight(Role::q | Facet::norm, layer), at);
        place_over_heads(weight(Role::k | Facet::norm, layer), at + dims.head_dim);
      }
      if (layout_.biases_at != 0) {
        const uint64_t at = row + layout_.biases_at;
        place_over_heads(weight(Role::q | Facet::bias, layer), at);
        place_over_heads(weight(Role::k | Facet::bias, layer), at + dims.q_dim());
        place_norm(weight(Role::v | Facet::bias, layer), at + dims.q_dim() + dims.kv_dim());
      }
    }
    place_norm(weight(Role::final_norm), layout_.final_norm_offset);
    norms_.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    rope_row_ = activation(Role::rope_table);
  }

  void place_norm(const WeightSource& vector, uint64_t offset) {
    const std::span<uint16_t> memory(norms_.map<uint16_t*>(), layout_.norm_elements);
    place_rows(vector.tensor, 0, 1, {offset, {}}, memory, core_.env.pool);
  }

  // A vector over q's or k's heads, in the order the kernels rotate them.
  void place_over_heads(const WeightSource& vector, uint64_t offset) {
    place_norm(vector, offset);
    const LaunchShape& shape = program_.launches.front().shape;
    if (!shape.rope_pairs) return;
    uint16_t* const values = norms_.map<uint16_t*>() + offset;
    const std::vector<uint16_t> pairs(values, values + vector.tensor.cols);
    const size_t half = shape.head_dim / 2;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const size_t head = i / shape.head_dim, in_head = i % shape.head_dim;
      values[head * shape.head_dim + in_head % 2 * half + in_head / 2] = pairs[i];
    }
  }

  // The position's cos|sin, to wherever a layer looks for it.
  void write_rope_rows() {
    const size_t bytes = size_t{layout_.dims.head_dim} * 2;
    std::byte* const norms = norms_.map<std::byte*>();
    for (uint32_t row = 0; row < layout_.rope_rows; ++row) {
      const size_t at = rope_row_offset(layout_, row) * 2;
      if (std::memcmp(norms + at, rope_row_->host, bytes) == 0) continue;
      std::memcpy(norms + at, rope_row_->host, bytes);
      norms_.sync(XCL_BO_SYNC_BO_TO_DEVICE, bytes, at);
    }
  }

  // A window takes one of the device's contexts when it is first needed. Where XRT refuses, the
  // smallest window is given up: longer ones hold its contexts too, more slowly.
  Window& window_for(uint32_t length) {
    while (true) {
      const auto needed = std::lower_bound(usable_.begin(), usable_.end(), length);
      if (needed == usable_.end())
        throw Error(ErrorCode::device, where_,
                    fmt::format("position {} is past the largest window", length));
      const auto open = windows_.find(*needed);
      if (open != windows_.end()) return open->second;
      try {
        return open_window(*needed);
      } catch (const Error& error) {
        give_up_smallest(error.what());
      }
    }
  }

  // The largest was open from the start, so that there is always another.
  void give_up_smallest(const std::string& why) {
    TYTO_ASSERT(usable_.size() > 1);
    const uint32_t smallest = usable_.front();
    core_.env.trace.fallback(
        fmt::format("the decode for {} positions not on {}: {}", smallest, core_.name(), why));
    usable_.erase(usable_.begin());
    const auto open = windows_.find(smallest);
    if (open == windows_.end()) return;
    open->second.run.release(open->second.arguments);
    windows_.erase(open);
  }

  void tell(Window& window, uint32_t length) {
    if (window.parameters) {
      window.run.tell(*window.parameters, length);
      return window.arguments.set(window.parameters->scalar, length);
    }
    const std::span<uint32_t> words(window.instructions.map<uint32_t*>(),
                                    window.instructions.size() / 4);
    for (const WordRange& changed : window.words->patch(length, words))
      window.instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE, changed.count * 4, changed.first * 4);
  }

  NpuCore& core_;
  const Program program_;
  const std::string where_;
  const Q4nxLayout layout_;
  std::shared_ptr<KvSlab> slab_;  // the next call's sequence's, shared with its Buffers
  Transfers transfers_;
  const std::vector<TensorView> views_;              // [slots], of weights
  std::vector<std::shared_ptr<NpuBuffer>> buffers_;  // [slots], shared with the pipeline's Buffers
  size_t bound_ = 0;
  std::vector<xrt::bo> weights_;  // as layout_.weight_buffers
  xrt::bo norms_;
  PinnedBytes pinned_;
  std::shared_ptr<NpuBuffer> rope_row_;  // shared with the pipeline's Buffer
  std::vector<uint32_t> usable_;         // windows that there are, ascending
  std::map<uint32_t, Window> windows_;   // those that are open
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
  used = window;  // what was there for other positions
}

void KvSlab::given(size_t offset, size_t bytes) {
  if (bytes == 0) return;
  const Q4nxLayout layout = q4nx_layout(dims, most);
  const size_t region = layout.kv_region_elements * 2, row = kv_position_bytes(layout);
  const size_t last = offset + bytes - 1;
  const bool is_in_one = offset / region == last / region;
  used = std::max(used, is_in_one ? static_cast<uint32_t>(last % region / row) + 1 : most);
}

// A line of the host's cache may hold rows in front of these: it is fetched first.
void KvSlab::clear_from(uint32_t position) {
  if (position >= used) return;
  const Q4nxLayout layout = q4nx_layout(dims, window);
  const uint64_t region = layout.kv_region_elements * 2, row = kv_position_bytes(layout);
  const uint64_t bytes = (std::min(used, window) - position) * row;
  for (uint64_t at = position * row; at < layout.kv_elements * 2; at += region) {
    bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, bytes, at);
    std::memset(bo.map<std::byte*>() + at, 0, bytes);
    bo.sync(XCL_BO_SYNC_BO_TO_DEVICE, bytes, at);
  }
  used = position;
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
