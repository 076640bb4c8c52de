#include "device/vnpu/images/air_images.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/npu/formats/q4nx.h"
#include "tensor/float16.h"

namespace tyto::vxrt {
namespace {

SlotKind kind_of(AirRole role) {
  switch (role) {
    case AirRole::input:
      return SlotKind::input;
    case AirRole::output:
      return SlotKind::output;
    case AirRole::inout:
      return SlotKind::inout;
    case AirRole::weight:
      return SlotKind::weight;
    case AirRole::kv:
      return SlotKind::kv;
    case AirRole::scratch:
    case AirRole::dead:
    case AirRole::opcode:
    case AirRole::instructions:
    case AirRole::word_count:
    case AirRole::length:
      break;
  }
  return SlotKind::scratch;
}

}  // namespace

InstanceBuilder::InstanceBuilder(const AirProgram& abi, size_t first) : abi_(abi), first_(first) {
  const size_t colon = abi.entry.find(':');
  instance_.name = colon == std::string::npos ? abi.name : abi.entry.substr(colon + 1);
  instance_.program.name = abi.name;
  for (size_t i = first; i < abi.arguments.size(); ++i)
    instance_.arguments.push_back(
        {abi.arguments[i].bytes(), abi.arguments[i].role == AirRole::dead});
}

InstanceBuilder::SlotIndex InstanceBuilder::add(const Slot& slot, const SlotPlace& place) {
  instance_.program.slots.push_back(slot);
  instance_.places.push_back(place);
  return static_cast<SlotIndex>(instance_.program.slots.size() - 1);
}

InstanceBuilder::SlotIndex InstanceBuilder::part(const std::string& name, SlotKind kind,
                                                 size_t argument, uint64_t rows, uint64_t cols,
                                                 const Pattern& pattern) {
  return add({name, kind, abi_.arguments[argument].dtype, rows, cols},
             {static_cast<int32_t>(argument - first_), pattern});
}

// The tables of air_models.h were written from the same facts: where the two differ, one is wrong.
InstanceBuilder::SlotIndex InstanceBuilder::whole(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.role != AirRole::dead && known.elements() == rows * cols);
  return part(known.name, kind_of(known.role), argument, rows, cols, {});
}

InstanceBuilder::SlotIndex InstanceBuilder::turned(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.rows == cols && known.cols == rows);
  return part(known.name, SlotKind::weight, argument, rows, cols, transposed(rows, cols));
}

InstanceBuilder::SlotIndex InstanceBuilder::q4nx(const std::string& name, size_t argument,
                                                 uint64_t rows, uint64_t cols, uint64_t offset,
                                                 const Q4nxPlace& place) {
  return add({name, SlotKind::weight, DType::bf16, rows, cols},
             {static_cast<int32_t>(argument - first_), {offset, {}}, Encoding::q4nx, place});
}

InstanceBuilder::SlotIndex InstanceBuilder::scratch(const std::string& name, DType dtype,
                                                    uint64_t rows, uint64_t cols) {
  return add({name, SlotKind::scratch, dtype, rows, cols}, {});
}

void InstanceBuilder::launch(Kernel kernel, Role role, std::vector<SlotIndex> slots,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  Launch launch{kernel, layer_name(name(role), layer_), {}, shape, role, layer_};
  for (SlotIndex slot : slots) launch.args.push_back({slot, true, false});
  launch.args.back() = {slots.back(), false, true};
  instance_.program.launches.push_back(std::move(launch));
  instance_.needs.push_back(needs);
}

void InstanceBuilder::append(SlotIndex k, SlotIndex v, SlotIndex k_cache, SlotIndex v_cache,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  launch(Kernel::kv_append, Role::kv_append, {k, v, k_cache, v_cache}, needs, shape);
  instance_.program.launches.back().args[2] = {k_cache, false, true};
}

Instance InstanceBuilder::take(uint32_t tokens, uint32_t launches) {
  TYTO_ASSERT(launches == abi_.launches);
  instance_.takes_call = false;
  instance_.fixed_call = call_of(tokens);
  instance_.launches = launches;
  return std::move(instance_);
}

namespace {

constexpr uint64_t kRowsUsed = 4;
constexpr uint64_t kBuffers = 2;  // one is filled while the other is worked on
constexpr uint64_t kStack = 1024;
constexpr uint64_t kFusedStack = 10240;
constexpr uint64_t kBf16 = 2, kF32 = 4;
constexpr uint64_t kHeadsAtOnce = 2, kStages = 4;  // in the attention of the prefill
constexpr uint64_t kDecodePositions = 16;          // positions that a core takes at a time

LaunchNeeds needs(uint64_t l1, uint64_t l2) {
  const auto clamped = [](uint64_t bytes) {
    return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  };
  return {clamped(l1), clamped(l2)};
}

uint64_t tile_limit(uint64_t tile, uint64_t size) {
  return std::max<uint64_t>(1, std::min(tile, size));
}

}  // namespace

GemmTiles GemmTiles::within(uint64_t rows, uint64_t k, uint64_t cols) const {
  GemmTiles result = *this;
  result.m = static_cast<uint32_t>(tile_limit(m, rows / columns));
  result.k_l2 = static_cast<uint32_t>(tile_limit(k_l2, k));
  result.k_l1 = static_cast<uint32_t>(tile_limit(k_l1, k));
  result.n = static_cast<uint32_t>(tile_limit(n, cols / kRowsUsed));
  return result;
}

// C has one buffer: it is added to until K is through.
LaunchNeeds gemm_needs(const GemmTiles& tiles) {
  const uint64_t m = tiles.m, n = tiles.n;
  const uint64_t l1 = kBuffers * (m + n) * tiles.k_l1 * tiles.in_bytes + m * n * tiles.out_bytes;
  const uint64_t all_m = m * tiles.columns, all_n = n * kRowsUsed;
  const uint64_t l2 =
      kBuffers * (all_m + all_n) * tiles.k_l2 * tiles.in_bytes + all_m * all_n * tiles.out_bytes;
  return needs(kStack + l1, l2);
}

LaunchNeeds gemv_needs(const GemvTiles& tiles) {
  const uint64_t fixed = kStack + tiles.k * kBf16 + kBuffers * tiles.tile_m * kBf16;
  uint64_t rows = tiles.m_input;
  uint64_t buffers = kBuffers;
  while (rows > 1 && fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) rows /= 2;
  if (fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) buffers = 1;
  return needs(fixed + buffers * rows * tiles.k * kBf16,
               kBuffers * tiles.tile_m * tiles.k * kBf16 * kColumns);
}

// Queries, keys, values and the output of one core, the scores between them, and the running
// maximum and sum of each row.
LaunchNeeds attention_needs(const AttentionTiles& tiles, uint32_t head_dim) {
  const uint64_t rows = tiles.kv_rows, wide = rows * head_dim * kBf16;
  const uint64_t l1 = 4 * wide + rows * rows * kBf16 + 2 * rows * kF32;
  const uint64_t l2 = kHeadsAtOnce * (2 * tiles.q_rows + 2 * kStages * rows) * head_dim * kBf16;
  return needs(kStack + l1, l2);
}

LaunchNeeds element_needs(uint64_t values, uint32_t bytes) {
  return needs(kStack + kBuffers * values * bytes, 0);
}

LaunchNeeds rmsnorm_needs(uint64_t width) {
  return needs(kStack + (2 * kBuffers + 1) * width * kBf16, 0);
}

LaunchNeeds q4nx_needs(uint64_t cols) {
  constexpr uint64_t kBlock = kQ4nxBlockElements * 2;
  const uint64_t l1 = kBuffers * kBlock + cols * kBf16 + kQ4nxBlockRows * kF32;
  return needs(kFusedStack + l1, kBuffers * kBlock * kColumns * kRowsUsed);
}

LaunchNeeds decode_attention_needs(uint64_t position_values, uint32_t head_dim) {
  const uint64_t l1 = kBuffers * 2 * kDecodePositions * head_dim * kBf16 + 4 * head_dim * kF32;
  return needs(kFusedStack + l1,
               kBuffers * 2 * kDecodePositions * position_values * kBf16 * kColumns);
}

namespace {

// GEMM tiles of the registry's best builds: cores' rows, K in L2, K in L1, cores' columns.
constexpr GemmTiles kFusedCastTiles = {64, 512, 32, 128};    // Q and O: f32, then a cast launch
constexpr GemmTiles kFfnTiles = {64, 256, 32, 128};          // gate, up, down: f32 and a cast
constexpr GemmTiles kDrainTiles = {32, 256, 32, 128, 2, 2};  // bf16 at once
constexpr GemmTiles kDirectTiles = {64, 128, 32, 64, 2, 2};  // gate and up that are too wide
constexpr uint64_t kCastChunk = 2048, kAddChunk = 2048, kSwigluChunk = 4096;
constexpr uint32_t kGemvTileRows = 8, kGemvInputRows = 4;

constexpr uint32_t kCastBytes = 4 + 2, kBinaryBytes = 3 * 2;  // per value of all operands

bool is_feed_forward(Role role) {
  return role == Role::gate || role == Role::up || role == Role::down;
}

std::optional<size_t> argument_named(const AirProgram& program, std::string_view name) {
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

SlotIndex ImageWriter::columns(size_t argument, uint64_t used) {
  return to.part(abi.arguments[argument].name + "_used", SlotKind::scratch, argument, rows(), used,
                 rows_apart(0, rows(), used, cols(argument)));
}

SlotIndex ImageWriter::repeated(size_t argument, uint64_t width) {
  return to.part(abi.arguments[argument].name, SlotKind::weight, argument, rows(), width,
                 {0, {{rows(), 0}, {width, 1}}});
}

void ImageWriter::rmsnorm(Role role, SlotIndex x, SlotIndex weight, SlotIndex y, uint64_t width,
                          bool bf16_sums) {
  LaunchShape shape;
  shape.eps = eps;
  shape.bf16_sums = bf16_sums;
  to.launch(Kernel::rmsnorm, role, {x, weight, y}, rmsnorm_needs(width), shape);
  ++launches;
}

void ImageWriter::rope(Role role, uint32_t heads, SlotIndex x, SlotIndex table, SlotIndex y) {
  LaunchShape shape;
  shape.heads = heads;
  shape.head_dim = dims.head_dim;
  to.launch(Kernel::rope, role, {x, table, y}, element_needs(dims.head_dim, kBinaryBytes), shape);
  ++launches;
}

void ImageWriter::add(Role role, SlotIndex x, SlotIndex y, SlotIndex z) {
  to.launch(Kernel::add, role, {x, y, z}, element_needs(kAddChunk, kBinaryBytes));
  ++launches;
}

void ImageWriter::swiglu(SlotIndex gate, SlotIndex up, SlotIndex y) {
  to.launch(Kernel::swiglu, Role::swiglu, {gate, up, y}, element_needs(kSwigluChunk, kBinaryBytes));
  ++launches;
}

SlotIndex ImageWriter::gemm(Role role, SlotIndex x, uint64_t k, size_t weight, size_t result,
                            std::string_view wide) {
  const uint64_t n = cols(result);
  const SlotIndex w = to.turned(weight, n, k), y = to.whole(result, dims.seq, n);
  const auto wide_argument = argument_named(abi, wide);
  const GemmTiles& tiles = wide_argument ? is_feed_forward(role) ? kFfnTiles : kFusedCastTiles
                           : is_feed_forward(role) ? kDirectTiles
                                                   : kDrainTiles;
  const LaunchNeeds needs = gemm_needs(tiles.within(dims.seq, k, n));
  ++launches;
  if (!wide_argument) {
    to.launch(Kernel::matmul, role, {x, w, y}, needs);
    return y;
  }
  const SlotIndex f32 = to.whole(*wide_argument, dims.seq, n);
  to.launch(Kernel::matmul, role, {x, w, f32}, needs);
  to.launch(Kernel::cast, role, {f32, y}, element_needs(kCastChunk, kCastBytes));
  ++launches;
  return y;
}

void ImageWriter::gemv(Role role, uint64_t k, SlotIndex x, SlotIndex weight, SlotIndex y) {
  to.launch(Kernel::matmul, role, {x, weight, y}, gemv_needs({kGemvTileRows, kGemvInputRows, k}));
  ++launches;
}

Image air_image(const AirDims& dims, std::string_view program, float eps) {
  const AirProgram abi = air_program(program, dims);
  for (const auto writers : {attention_images(), prompt_images(), token_images()})
    for (const NamedWriter& writer : writers) {
      if (writer.program != program) continue;
      InstanceBuilder builder(abi, 0);
      ImageWriter to{builder, abi, dims, eps};
      writer.write(to);
      Image image;
      image.instances.push_back(builder.take(static_cast<uint32_t>(to.rows()), to.launches));
      check_image(image, abi.name);
      return image;
    }
  fail_unsupported(std::string(program), "no image is known for this program");
}

// The images in front of the attention, and the attention of a prompt.

namespace {

constexpr size_t kX = 0, kNorm = 1, kNormed = 2, kV = 8;  // arguments of every variant

// q and k, in this order: weight, result, and its f32 in a prompt.
struct Projection {
  Role role;
  size_t weight, result;
  std::string_view wide;
};
constexpr Projection kProjections[] = {
    {Role::q, 3, 4, "q_f32"}, {Role::k, 5, 6, "k_f32"}, {Role::v, 7, kV, "v_f32"}};

void project(ImageWriter& to, SlotIndex normed, const Projection& product) {
  if (to.abi.phase == AirPhase::prompt) {
    to.gemm(product.role, normed, to.dims.emb, product.weight, product.result, product.wide);
    return;
  }
  const uint64_t n = to.cols(product.result);
  to.gemv(product.role, to.dims.emb, normed, to.to.whole(product.weight, n, to.dims.emb),
          to.to.whole(product.result, 1, n));
}

// From the first of the two tables on: q's, k's, q's result, k's result.
void rotate(ImageWriter& to, size_t q, size_t k, size_t tables) {
  const uint64_t rows = to.rows(), q_dim = to.dims.q_dim(), kv_dim = to.dims.kv_dim();
  InstanceBuilder& b = to.to;
  to.rope(Role::q_rope, to.dims.heads, b.whole(q, rows, q_dim), b.whole(tables, rows, q_dim),
          b.whole(tables + 2, rows, q_dim));
  to.rope(Role::k_rope, to.dims.kv_heads, b.whole(k, rows, kv_dim),
          b.whole(tables + 1, rows, kv_dim), b.whole(tables + 3, rows, kv_dim));
}

// Biases in 9 to 11, what comes of them in 12 to 14. What lies beyond a row's width is dropped
// here.
void add_biases(ImageWriter& to) {
  const uint64_t widths[] = {to.dims.q_dim(), to.dims.kv_dim(), to.dims.kv_dim()};
  constexpr Role kRoles[] = {Role::q | Facet::bias, Role::k | Facet::bias, Role::v | Facet::bias};
  for (size_t i = 0; i < 3; ++i)
    to.add(kRoles[i], to.columns(kProjections[i].result, widths[i]), to.repeated(9 + i, widths[i]),
           to.to.whole(12 + i, to.rows(), widths[i]));
}

// Weights of one head in 9 and 10, what comes of them in 11 and 12.
void norm_heads(ImageWriter& to) {
  const uint64_t widths[] = {to.dims.q_dim(), to.dims.kv_dim()};
  constexpr Role kRoles[] = {Role::q | Facet::norm, Role::k | Facet::norm};
  for (size_t i = 0; i < 2; ++i)
    to.rmsnorm(kRoles[i], to.to.whole(kProjections[i].result, to.rows(), widths[i]),
               to.to.whole(9 + i, 1, to.dims.head_dim), to.to.whole(11 + i, to.rows(), widths[i]),
               to.dims.head_dim);
}

// Rows of an argument that has them head by head: runs of columns, each with all its rows.
SlotIndex by_head(ImageWriter& to, size_t argument, SlotKind kind, uint64_t cols, uint64_t run) {
  const uint64_t seq = to.dims.seq;
  return to.to.part(to.abi.arguments[argument].name, kind, argument, seq, cols,
                    {0, {{seq, run}, {cols / run, seq * run}, {run, 1}}});
}

constexpr AttentionTiles kAttentionTiles = {256, 64};

void flash_attn(ImageWriter& to) {
  const AirDims& d = to.dims;
  const uint64_t seq = d.seq, q_dim = d.q_dim(), kv_dim = d.kv_dim(), half = d.head_dim / 2;
  const bool is_turned = to.abi.arguments[0].layout == AirLayout::heads_first;
  InstanceBuilder& b = to.to;
  const SlotIndex q = is_turned ? by_head(to, 0, SlotKind::input, q_dim, d.head_dim)
                                : b.whole(0, seq, q_dim),
                  k = is_turned ? by_head(to, 1, SlotKind::input, kv_dim, d.head_dim)
                                : b.whole(1, seq, kv_dim),
                  v = is_turned ? by_head(to, 2, SlotKind::input, kv_dim, half)
                                : b.whole(2, seq, kv_dim),
                  out = is_turned ? by_head(to, 3, SlotKind::output, q_dim, half)
                                  : b.whole(3, seq, q_dim);
  LaunchShape shape;
  shape.heads = d.heads;
  shape.kv_heads = d.kv_heads;
  shape.head_dim = d.head_dim;
  // Wider heads leave room for fewer rows.
  AttentionTiles tiles = kAttentionTiles;
  while (tiles.kv_rows > 8 && attention_needs(tiles, d.head_dim).l1_bytes > kL1Bytes)
    tiles.kv_rows /= 2;
  b.launch(Kernel::prompt_attention, Role::attention, {q, k, v, out},
           attention_needs(tiles, d.head_dim), shape);
  ++to.launches;
}

// Both phases have one list: norm, projections, then biases or norms per head, then rotation.
void attention_input(ImageWriter& to) {
  const uint64_t rows = to.rows(), emb = to.dims.emb;
  const SlotIndex normed = to.to.whole(kNormed, rows, emb);
  // A token's norm adds its squares in bf16.
  to.rmsnorm(Role::attn_norm, to.to.whole(kX, rows, emb), to.to.whole(kNorm, 1, emb), normed, emb,
             to.abi.phase == AirPhase::token);
  for (const Projection& product : kProjections) project(to, normed, product);
  if (to.dims.qkv_bias != 0) {
    add_biases(to);
    rotate(to, 12, 13, 15);
  } else if (to.dims.qk_norm != 0) {
    norm_heads(to);
    rotate(to, 11, 12, 13);
  } else {
    rotate(to, kProjections[0].result, kProjections[1].result, 9);
  }
}

}  // namespace

std::span<const NamedWriter> attention_images() {
  static constexpr NamedWriter kWriters[] = {
      {"rms_gemms_rope", attention_input},
      {"rms_qkv_bias_rope", attention_input},
      {"rms_qkv_qknorm_rope", attention_input},
      {"flash_attn", flash_attn},
      {"rms_gemv_rope", attention_input},
      {"rms_qkv_bias_rope_gemv", attention_input},
      {"rms_qkv_qknorm_rope_gemv", attention_input},
  };
  return kWriters;
}

// The xclbin images: the single-dispatch decode and the integer GEMM.

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
  const SlotIndex norm =
      f.to.part(name(role) + "_w", SlotKind::weight, kNorms, 1, f.dims.emb, {offset, {}});
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
    return f.to.part(name(role), SlotKind::weight, kNorms, 1, width,
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
    bias(Role::q | Facet::bias, s.q, 0, d.q_dim());
    bias(Role::k | Facet::bias, s.k, d.q_dim(), d.kv_dim());
    bias(Role::v | Facet::bias, s.v, d.q_dim() + d.kv_dim(), d.kv_dim());
  }
  if (d.qk_norm != 0) {
    norm(Role::q | Facet::norm, s.q, 0, d.heads);
    norm(Role::k | Facet::norm, s.k, d.head_dim, d.kv_heads);
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

namespace {

Instance fused_decode_instance(const AirProgram& abi, const Q4nxLayout& layout, float eps) {
  const AirDims& dims = layout.dims;
  InstanceBuilder builder(abi, kXclbinFirstArgument);
  const Fused fused{builder, dims, layout, eps};
  const Slots slots = shared_slots(fused);
  for (uint32_t layer = 0; layer < dims.layers; ++layer) decode_layer(fused, layer, slots);
  head(fused, slots);
  return builder.take(1, dims.layers + static_cast<uint32_t>(layout.head_chunks));
}

}  // namespace

Image fused_decode_elf_image(const AirDims& dims, uint32_t positions, uint64_t buffer_bytes,
                             bool adds_up, float eps) {
  const Q4nxLayout layout = q4nx_layout(dims, positions, buffer_bytes);
  Image image;
  image.instances.push_back(
      fused_decode_instance(fused_decode_program(dims, positions, buffer_bytes), layout, eps));
  Instance& instance = image.instances[0];
  instance.name = "q4nx_decode";
  instance.arguments.push_back({sizeof(uint32_t), true});
  // A position of one of the column groups, the first of them at the beginning.
  const auto step = int64_t{layout.kv_group_heads} * dims.head_dim;
  instance.scratchpad = {{.words = 2,
                          .append = 0,
                          .mask = 1,
                          .scalar = static_cast<uint32_t>(instance.arguments.size() - 1),
                          .scale = step,
                          .addend = -step,
                          .core_adds_up = adds_up},
                         positions};
  check_image(image, instance.name);
  return image;
}

Image fused_decode_image(const AirDims& dims, uint32_t window, uint64_t buffer_bytes, float eps) {
  const AirProgram abi = fused_decode_program(dims, window, buffer_bytes);
  const Q4nxLayout layout = q4nx_layout(dims, window, buffer_bytes);
  Image image;
  image.form = ImageForm::xclbin;
  image.instances.push_back(fused_decode_instance(abi, layout, eps));
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

// Images behind the attention of a prompt.

namespace {

// O in 0 to 2, the residual stream in 3, its sum with O in 4, the norm's weight in 5, and what is
// normed in 6.
SlotIndex o_and_norm(ImageWriter& to) {
  const uint64_t seq = to.dims.seq, emb = to.dims.emb, q_dim = to.dims.q_dim();
  const SlotIndex residual = to.to.whole(4, seq, emb), normed = to.to.whole(6, seq, emb);
  to.gemm(Role::o, to.to.whole(0, seq, q_dim), q_dim, 1, 2, "proj_f32");
  to.add(Role::attn_residual, to.columns(2, emb), to.to.whole(3, seq, emb), residual);
  to.rmsnorm(Role::ffn_norm, residual, to.to.whole(5, 1, emb), normed, emb);
  return normed;
}

// Weights in 7 and 9, their products in 8 and 10, what is gated in 11.
SlotIndex gated(ImageWriter& to, SlotIndex normed) {
  const uint64_t emb = to.dims.emb;
  const SlotIndex gate = to.gemm(Role::gate, normed, emb, 7, 8, "gate_f32"),
                  up = to.gemm(Role::up, normed, emb, 9, 10, "up_f32"),
                  product = to.to.whole(11, to.dims.seq, to.dims.hidden);
  to.swiglu(gate, up, product);
  return product;
}

// `weight` and the argument behind it are of the product; the sum of it and `residual` is the
// result.
void down_and_add(ImageWriter& to, SlotIndex x, size_t weight, size_t residual, size_t result) {
  const uint64_t seq = to.dims.seq, emb = to.dims.emb;
  to.gemm(Role::down, x, to.dims.hidden, weight, weight + 1, "down_f32");
  to.add(Role::ffn_residual, to.columns(weight + 1, emb), to.to.whole(residual, seq, emb),
         to.to.whole(result, seq, emb));
}

void o_ffn(ImageWriter& to) {
  down_and_add(to, gated(to, o_and_norm(to)), 12, 4, 14);
}

void o_ffn_head(ImageWriter& to) {
  gated(to, o_and_norm(to));
}

void o_res_norm(ImageWriter& to) {
  o_and_norm(to);
}

void gate_up(ImageWriter& to) {
  const SlotIndex normed = to.to.whole(0, to.dims.seq, to.dims.emb);
  to.gemm(Role::gate, normed, to.dims.emb, 1, 2, "");
  to.gemm(Role::up, normed, to.dims.emb, 3, 4, "");
}

void gate(ImageWriter& to) {
  to.gemm(Role::gate, to.to.whole(0, to.dims.seq, to.dims.emb), to.dims.emb, 1, 2, "gate_f32");
}

void up(ImageWriter& to) {
  to.gemm(Role::up, to.to.whole(0, to.dims.seq, to.dims.emb), to.dims.emb, 1, 2, "up_f32");
}

void swiglu(ImageWriter& to) {
  const uint64_t seq = to.dims.seq, hidden = to.dims.hidden;
  to.swiglu(to.to.whole(0, seq, hidden), to.to.whole(1, seq, hidden), to.to.whole(2, seq, hidden));
}

void down_add(ImageWriter& to) {
  down_and_add(to, to.to.whole(0, to.dims.seq, to.dims.hidden), 1, 3, 4);
}

}  // namespace

std::span<const NamedWriter> prompt_images() {
  static constexpr NamedWriter kWriters[] = {
      {"o_ffn", o_ffn},
      {"o_ffn_qwen", o_ffn},
      {"o_ffn_head", o_ffn_head},
      {"o_res_norm", o_res_norm},
      {"gate_up", gate_up},
      {"gate", gate},
      {"up", up},
      {"swiglu", swiglu},
      {"down_add", down_add},
  };
  return kWriters;
}

// Images behind the attention of one token, and the head.

namespace {

constexpr uint64_t kCascadeCols = 512;  // the part of K that one core of a cascade takes

// Three fused launches, written as what they are made of: O and the residual; norm, gate, up and
// SwiGLU; down and the residual. What passes between a launch's own cores is in no argument, and
// sums go to the residual add before they are rounded.
void o_gemv_ffn(ImageWriter& to) {
  const AirDims& d = to.dims;
  const uint64_t emb = d.emb, hidden = d.hidden;
  InstanceBuilder& b = to.to;
  const SlotIndex wo = b.whole(0, emb, d.q_dim()), attn = b.whole(1, 1, d.q_dim()),
                  x = b.whole(3, 1, emb), res1 = b.part("res1", SlotKind::scratch, 6, 1, emb, {}),
                  norm_w = b.part("ffn_norm_w", SlotKind::weight, 6, 1, emb, {emb, {}}),
                  w_gate = b.part("w_gate", SlotKind::weight, 7, hidden, emb,
                                  rows_apart(0, hidden, emb, 2 * emb)),
                  w_up = b.part("w_up", SlotKind::weight, 7, hidden, emb,
                                rows_apart(emb, hidden, emb, 2 * emb)),
                  product = b.whole(11, 1, hidden), w_down = b.whole(12, emb, hidden),
                  out = b.whole(14, 1, emb), proj = b.scratch("proj", DType::f32, 1, emb),
                  normed = b.scratch("normed2", DType::bf16, 1, emb),
                  gate = b.scratch("gate", DType::f32, 1, hidden),
                  up = b.scratch("up", DType::f32, 1, hidden),
                  down = b.scratch("down", DType::f32, 1, emb);
  to.gemv(Role::o, std::min(d.q_dim(), kCascadeCols), attn, wo, proj);
  to.add(Role::attn_residual, proj, x, res1);
  to.rmsnorm(Role::ffn_norm, res1, norm_w, normed, emb);
  to.gemv(Role::gate, std::min(emb, kCascadeCols), normed, w_gate, gate);
  to.gemv(Role::up, std::min(emb, kCascadeCols), normed, w_up, up);
  to.swiglu(gate, up, product);
  to.gemv(Role::down, std::min(hidden, kCascadeCols), product, w_down, down);
  to.add(Role::ffn_residual, down, res1, out);
  to.launches = 3;
}

// A weight of n rows in 0, one row of k values in 1, n results in 2.
void single_gemv(ImageWriter& to, Role role, uint64_t n, uint64_t k) {
  to.gemv(role, k, to.to.whole(1, 1, k), to.to.whole(0, n, k), to.to.whole(2, 1, n));
}

void o_gemv(ImageWriter& to) {
  single_gemv(to, Role::o, to.dims.emb, to.dims.q_dim());
}

void gate_gemv(ImageWriter& to) {
  single_gemv(to, Role::gate, to.dims.hidden, to.dims.emb);
}

void up_gemv(ImageWriter& to) {
  single_gemv(to, Role::up, to.dims.hidden, to.dims.emb);
}

void down_gemv(ImageWriter& to) {
  single_gemv(to, Role::down, to.dims.emb, to.dims.hidden);
}

void lm_head_gemv(ImageWriter& to) {
  const SlotIndex x = to.to.whole(0, 1, to.dims.emb);
  const auto [rows, partitions] = air_head(to.dims);
  for (uint32_t p = 0; p < partitions; ++p)
    to.gemv(Role::lm_head, to.dims.emb, x, to.to.whole(1 + 2 * size_t{p}, rows, to.dims.emb),
            to.to.whole(2 + 2 * size_t{p}, 1, rows));
}

}  // namespace

std::span<const NamedWriter> token_images() {
  static constexpr NamedWriter kWriters[] = {
      {"o_gemv_ffn", o_gemv_ffn}, {"o_gemv", o_gemv},       {"gate_gemv", gate_gemv},
      {"up_gemv", up_gemv},       {"down_gemv", down_gemv}, {"lm_head_gemv", lm_head_gemv},
  };
  return kWriters;
}

namespace {

// A block is 32 rows by 256 columns:
//   bf16 scales [8 groups of 32 columns][32 rows], bf16 minima [8][32],
//   then bytes [2 halves of 16 rows][256 columns][8 pairs of rows], low nibble first.
constexpr uint64_t kBlockRows = 32, kBlockCols = 256, kGroupCols = 32, kHalfRows = 16;
constexpr uint64_t kMinimaAt = 512, kCodesAt = 1024, kBlockBytes = 5120;

// The stream feeds 4 columns of the array, each through two shim channels; a channel brings the
// blocks of two of its column's four cores in turns. Core (column, row) works on the row blocks
// 16 * pass + 4 * column + row.
uint64_t block_at(const Q4nxPlace& place, uint64_t row_block, uint64_t col_block) {
  const uint64_t passes = place.phase_rows / (kBlockRows * 16);
  const uint64_t across = place.phase_cols / kBlockCols;
  const uint64_t pass = row_block / 16, column = row_block % 16 / 4, core = row_block % 4;
  const uint64_t channel = column * 2 + core / 2;
  return ((channel * passes + pass) * across + col_block) * 2 + core % 2;
}

float bf16_at(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bf16_to_f32(bits);
}

// `count` columns of one row of a block.
void decode_row(const std::byte* block, uint64_t row, uint64_t count, uint16_t* out) {
  const std::byte* codes =
      block + kCodesAt + row / kHalfRows * kBlockCols * 8 + row % kHalfRows / 2;
  const int shift = row % 2 == 0 ? 0 : 4;
  for (uint64_t col = 0; col < count; ++col) {
    const uint64_t parameter = (col / kGroupCols * kBlockRows + row) * 2;
    const float scale = bf16_at(block + parameter);
    const float minimum = bf16_at(block + kMinimaAt + parameter);
    const int code = std::to_integer<int>(codes[col * 8] >> shift) & 15;
    out[col] = f32_to_bf16(static_cast<float>(code) * scale + minimum);
  }
}

}  // namespace

void decode_q4nx(const std::byte* phase, const Q4nxPlace& place, uint64_t rows, uint64_t cols,
                 uint16_t* out, ThreadPool& pool) {
  pool.parallel_for(rows, kBlockRows, [&](size_t begin, size_t end) {
    for (uint64_t r = begin; r < end; ++r) {
      const uint64_t row =
          place.first_row + r / place.chunk_rows * place.chunk_stride + r % place.chunk_rows;
      for (uint64_t col = 0; col < cols; col += kBlockCols) {
        const uint64_t block = block_at(place, row / kBlockRows, col / kBlockCols);
        decode_row(phase + block * kBlockBytes, row % kBlockRows, std::min(kBlockCols, cols - col),
                   out + r * cols + col);
      }
    }
  });
}

}  // namespace tyto::vxrt
