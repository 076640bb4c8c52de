// The xclbin images: the single-dispatch decode and the integer GEMM.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "device/vnpu/images/instance_builder.h"
#include "device/vnpu/images/tile_needs.h"

namespace tyto::vxrt {
namespace {

using SlotIndex = InstanceBuilder::SlotIndex;

// XRT's argument indices.
constexpr size_t kFusedX = 3, kNorms = 5, kY = 6, kKv = 7;

// The stream: a header, equally many words for each layer, and some for each chunk of the head. A
// real one has about 70,000 words for 16 layers, and L in it at places that are not published.
constexpr uint32_t kHeaderWords = 64, kLayerWords = 1024, kChunkWords = 256;
constexpr uint32_t kAttentionCores = 8, kFirstCoreWord = 96, kCoreWords = 40;
constexpr uint32_t kAppendKWord = 700, kAppendVWord = 860;
constexpr uint32_t kDecodeSeed = 0x51434445, kGemmSeed = 0x47384947;

struct Slots {  // that every layer uses
  SlotIndex x, normed, q, k, v, attended, layer_out, gate, up, product;
};

struct Fused {
  InstanceBuilder& to;
  const AirDims& dims;
  const Q4nxLayout& layout;
  float eps;
};

// What the cores stage in y before the logits: a round of q, k and v, and one of a layer's output.
Slots shared_slots(const Fused& f) {
  const AirDims& d = f.dims;
  const auto in_y = [&](const char* name, uint64_t cols, uint64_t offset) {
    return f.to.part(name, SlotKind::scratch, kY, 1, cols, {offset, {}});
  };
  Slots s;
  s.x = f.to.whole(kFusedX, 1, d.emb);
  s.normed = f.to.scratch("normed", DType::bf16, 1, d.emb);
  s.q = in_y("q", d.q_dim(), 0);
  s.k = in_y("k", d.kv_dim(), d.q_dim());
  s.v = in_y("v", d.kv_dim(), d.q_dim() + d.kv_dim());
  s.attended = f.to.scratch("attended", DType::bf16, 1, d.q_dim());
  s.layer_out = in_y("layer_out", d.emb, f.layout.qkv.rows);
  s.gate = f.to.scratch("gate", DType::bf16, 1, d.hidden);
  s.up = f.to.scratch("up", DType::bf16, 1, d.hidden);
  s.product = f.to.scratch("product", DType::bf16, 1, d.hidden);
  return s;
}

// Rows [first, first + rows) of a phase that begins at `offset` in its buffer of weights.
SlotIndex weight(const Fused& f, const std::string& name, const Q4nxWeightBuffer& buffer,
                 const Q4nxPhase& phase, uint64_t offset, uint64_t first, uint64_t rows,
                 uint64_t cols) {
  return f.to.q4nx(name, buffer.argument, rows, cols, offset,
                   {phase.rows, phase.cols, first, rows, rows});
}

void product(const Fused& f, Role role, uint64_t cols, SlotIndex x, SlotIndex w, SlotIndex y) {
  f.to.launch(Kernel::matmul, role, {x, w, y}, q4nx_needs(cols));
}

void rmsnorm(const Fused& f, Role role, uint64_t offset, SlotIndex x, SlotIndex y) {
  LaunchShape shape;
  shape.eps = f.eps;
  const SlotIndex norm = f.to.part(std::string(name(role)) + "_w", SlotKind::weight, kNorms, 1,
                                   f.dims.emb, {offset, {}});
  f.to.launch(Kernel::rmsnorm, role, {x, norm, y}, rmsnorm_needs(f.dims.emb), shape);
}

void add(const Fused& f, Role role, SlotIndex x, SlotIndex y) {
  f.to.launch(Kernel::add, role, {x, y, x}, element_needs(std::min(f.dims.emb, 2048u), 6));
}

// One region per group of heads, K's before V's; in a region a position holds its group's heads.
SlotIndex cache(const Fused& f, const std::string& name, uint32_t layer, bool is_value) {
  const Q4nxLayout& l = f.layout;
  const uint64_t dim = f.dims.head_dim, position = l.kv_group_heads * dim;
  const uint64_t region = l.window * position;
  const uint64_t offset = layer * 2 * l.kv_groups * region + (is_value ? l.kv_groups * region : 0);
  return f.to.part(
      name, SlotKind::kv, kKv, uint64_t{f.dims.kv_heads} * l.window, dim,
      {offset, {{l.kv_groups, region}, {l.kv_group_heads, dim}, {l.window, position}, {dim, 1}}});
}

// What precedes the rotation of q, k and v: their biases, or a norm of each head of q and k. The
// layer's rotation row has both behind cos|sin.
void before_rotation(const Fused& f, uint64_t row, const Slots& s) {
  const AirDims& d = f.dims;
  const auto in_row = [&](Role role, uint64_t offset, uint64_t width) {
    return f.to.part(std::string(name(role)), SlotKind::weight, kNorms, 1, width,
                     {row + d.head_dim + offset, {}});
  };
  const auto bias = [&](Role role, SlotIndex x, uint64_t offset, uint64_t width) {
    f.to.launch(Kernel::add, role, {x, in_row(role, offset, width), x},
                element_needs(std::min<uint64_t>(width, 2048), 6));
  };
  const auto norm = [&](Role role, SlotIndex x, uint64_t offset, uint32_t heads) {
    LaunchShape shape;
    shape.heads = heads;
    shape.head_dim = d.head_dim;
    shape.eps = f.eps;
    f.to.launch(Kernel::rmsnorm, role, {x, in_row(role, offset, d.head_dim), x},
                rmsnorm_needs(d.head_dim), shape);
  };
  if (d.qkv_bias != 0) {
    bias(Role::q_bias, s.q, 0, d.q_dim());
    bias(Role::k_bias, s.k, d.q_dim(), d.kv_dim());
    bias(Role::v_bias, s.v, d.q_dim() + d.kv_dim(), d.kv_dim());
  }
  if (d.qk_norm != 0) {
    norm(Role::q_norm, s.q, 0, d.heads);
    norm(Role::k_norm, s.k, d.head_dim, d.kv_heads);
  }
}

void attention(const Fused& f, uint32_t layer, const Slots& s) {
  const AirDims& d = f.dims;
  LaunchShape shape;
  shape.heads = d.heads;
  shape.kv_heads = d.kv_heads;
  shape.head_dim = d.head_dim;
  shape.context = f.layout.window;
  LaunchShape k_shape = shape;
  k_shape.heads = d.kv_heads;
  const LaunchNeeds needs =
      decode_attention_needs(f.layout.kv_group_heads * d.head_dim, d.head_dim);
  const uint64_t own_row = f.layout.rope_rows == 1 ? 0 : layer * f.layout.rope_row_elements;
  const uint64_t row = f.layout.rope_offset + own_row;
  const SlotIndex rope = f.to.part("rope", SlotKind::input, kNorms, 1, d.head_dim, {row, {}});
  before_rotation(f, row, s);
  f.to.launch(Kernel::rope, Role::q_rope, {s.q, rope, s.q}, needs, shape);
  f.to.launch(Kernel::rope, Role::k_rope, {s.k, rope, s.k}, needs, k_shape);
  const SlotIndex k_cache = cache(f, "k_cache", layer, false);
  const SlotIndex v_cache = cache(f, "v_cache", layer, true);
  f.to.append(s.k, s.v, k_cache, v_cache, needs, shape);
  f.to.launch(Kernel::attention, Role::attention, {s.q, k_cache, v_cache, s.attended}, needs,
              shape);
}

void decode_layer(const Fused& f, uint32_t layer, const Slots& s) {
  const AirDims& d = f.dims;
  const Q4nxLayout& l = f.layout;
  const Q4nxWeightBuffer& buffer = buffer_of(l, layer);
  const uint64_t slab = (layer - buffer.first_layer) * l.layer_elements;
  const uint64_t norms = layer * 2 * uint64_t{d.emb};
  const uint64_t q_dim = d.q_dim(), kv_dim = d.kv_dim();
  f.to.set_layer(static_cast<uint16_t>(layer));
  const auto rows = [&](const char* what, const Q4nxPhase& phase, uint64_t first, uint64_t count,
                        uint64_t cols) {
    return weight(f, what, buffer, phase, slab + phase.offset, first, count, cols);
  };
  const auto chunks = [&](const char* what, uint64_t first) {
    return f.to.q4nx(what, buffer.argument, d.hidden, d.emb, slab + l.gate_up.offset,
                     {l.gate_up.rows, l.gate_up.cols, first, l.glu_rows, 2 * l.glu_rows});
  };
  rmsnorm(f, Role::attn_norm, norms, s.x, s.normed);
  product(f, Role::q, d.emb, s.normed, rows("wq", l.qkv, 0, q_dim, d.emb), s.q);
  product(f, Role::k, d.emb, s.normed, rows("wk", l.qkv, q_dim, kv_dim, d.emb), s.k);
  product(f, Role::v, d.emb, s.normed, rows("wv", l.qkv, q_dim + kv_dim, kv_dim, d.emb), s.v);
  attention(f, layer, s);
  product(f, Role::o, q_dim, s.attended, rows("wo", l.o, 0, d.emb, q_dim), s.layer_out);
  add(f, Role::attn_residual, s.x, s.layer_out);
  rmsnorm(f, Role::ffn_norm, norms + d.emb, s.x, s.normed);
  product(f, Role::up, d.emb, s.normed, chunks("w_up", 0), s.up);
  product(f, Role::gate, d.emb, s.normed, chunks("w_gate", l.glu_rows), s.gate);
  f.to.launch(Kernel::swiglu, Role::swiglu, {s.gate, s.up, s.product},
              element_needs(std::min(d.hidden, 4096u), 6));
  product(f, Role::down, d.hidden, s.product, rows("w_down", l.down, 0, d.emb, d.hidden),
          s.layer_out);
  add(f, Role::ffn_residual, s.x, s.layer_out);
}

// Every chunk is packed as a phase of its own, and a wave of its own.
void head(const Fused& f, const Slots& s) {
  const Q4nxLayout& l = f.layout;
  f.to.set_layer(kNoLayer);
  rmsnorm(f, Role::final_norm, l.final_norm_offset, s.x, s.normed);
  const uint64_t cols = (f.dims.emb + kQ4nxBlockCols - 1) / kQ4nxBlockCols * kQ4nxBlockCols;
  const Q4nxPhase phase{0, l.head_chunk_rows, cols};
  for (uint64_t chunk = 0; chunk < l.head_chunks; ++chunk) {
    const SlotIndex logits = f.to.part("logits", SlotKind::output, kY, 1, l.head_chunk_rows,
                                       {l.logits_offset + chunk * l.head_chunk_rows, {}});
    const SlotIndex w =
        weight(f, "head", l.weight_buffers.back(), phase, l.head_offset + chunk * phase.elements(),
               0, l.head_chunk_rows, f.dims.emb);
    product(f, Role::lm_head, f.dims.emb, s.normed, w, logits);
  }
}

InstructionStream decode_stream(const AirDims& dims, const Q4nxLayout& layout) {
  InstructionStream stream;
  stream.words = kHeaderWords + dims.layers * kLayerWords +
                 static_cast<uint32_t>(layout.head_chunks) * kChunkWords;
  stream.window = layout.window;
  stream.seed = kDecodeSeed + layout.window;
  const uint64_t position = uint64_t{layout.kv_group_heads} * dims.head_dim * 2;  // bytes
  const uint64_t side = position * layout.window * layout.kv_groups;              // K or V
  if (2 * side * dims.layers > UINT32_MAX)
    fail_unsupported(std::string(kFusedDecode), "a cache of {} bytes is beyond a DMA's reach",
                     2 * side * dims.layers);
  for (uint32_t layer = 0; layer < dims.layers; ++layer) {
    const uint32_t at = kHeaderWords + layer * kLayerWords;
    for (uint32_t core = 0; core < kAttentionCores; ++core)
      stream.patches.push_back({at + kFirstCoreWord + core * kCoreWords, 0, 1});
    const auto k = static_cast<uint32_t>(2 * side * layer), step = static_cast<uint32_t>(position);
    stream.patches.push_back({at + kAppendKWord, k - step, step});
    stream.patches.push_back({at + kAppendVWord, k + static_cast<uint32_t>(side) - step, step});
  }
  return stream;
}

InstructionStream gemm_stream(uint32_t k, uint32_t n, uint32_t m) {
  InstructionStream stream;
  stream.words = 512;
  stream.seed = kGemmSeed ^ (k * 2654435761u + n * 40503u + m);
  return stream;
}

}  // namespace

Image fused_decode_image(const AirDims& dims, uint32_t window, uint64_t buffer_bytes, float eps) {
  const AirProgram abi = fused_decode_program(dims, window, buffer_bytes);
  const Q4nxLayout layout = q4nx_layout(dims, window, buffer_bytes);
  InstanceBuilder builder(abi, kXclbinFirstArgument);
  const Fused fused{builder, dims, layout, eps};
  const Slots slots = shared_slots(fused);
  for (uint32_t layer = 0; layer < dims.layers; ++layer) decode_layer(fused, layer, slots);
  head(fused, slots);
  Image image;
  image.form = ImageForm::xclbin;
  image.instances.push_back(
      builder.take(1, dims.layers + static_cast<uint32_t>(layout.head_chunks)));
  image.instances[0].stream = decode_stream(dims, layout);
  check_image(image, abi.name);
  return image;
}

std::vector<uint32_t> decode_words(const AirDims& dims, uint32_t window, uint32_t live) {
  TYTO_ASSERT(live >= 1 && live <= window);
  return instruction_words(decode_stream(dims, q4nx_layout(dims, window)), live);
}

Image gemm_i8_image(uint32_t k, uint32_t n, uint32_t m, uint32_t columns) {
  if (columns == 0 || columns > kColumns)
    fail_unsupported("gemm_i8", "{} columns of {}", columns, kColumns);
  const GemmTiles tiles = {64, 256, 64, 64, 1, 4, columns};
  Instance instance;
  instance.name = fmt::format("gemm_i8_{}x{}x{}", m, k, n);
  Program& program = instance.program;
  program.name = instance.name;
  program.slots = {{"a", SlotKind::input, DType::i8, m, k},
                   {"b", SlotKind::weight, DType::i8, n, k},
                   {"c", SlotKind::output, DType::i32, m, n}};
  program.launches = {
      {Kernel::matmul_i8, "gemm", {{0, true, false}, {1, true, false}, {2, false, true}}}};
  for (int32_t i = 0; i < 3; ++i) {
    instance.arguments.push_back({program.slots[static_cast<size_t>(i)].bytes(), false});
    instance.places.push_back({i});
  }
  instance.needs = {gemm_needs(tiles.within(m, k, n))};
  instance.takes_call = false;
  instance.fixed_call = call_of(m);
  instance.stream = gemm_stream(k, n, m);
  Image image;
  image.form = ImageForm::xclbin;
  image.columns = columns;
  image.instances.push_back(std::move(instance));
  check_image(image, image.instances[0].name);
  return image;
}

std::vector<uint32_t> gemm_i8_words(uint32_t k, uint32_t n, uint32_t m) {
  return instruction_words(gemm_stream(k, n, m), 0);
}

}  // namespace tyto::vxrt
