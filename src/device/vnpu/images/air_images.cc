#include "device/vnpu/images/air_images.h"

#include <iterator>
#include <utility>

#include "base/error.h"
#include "device/vnpu/images/instance_builder.h"
#include "device/vnpu/images/tile_needs.h"

namespace tyto::vxrt {
namespace {

using SlotIndex = InstanceBuilder::SlotIndex;

// GEMM tiles of the registry's best builds: cores' rows, K in L2, K in L1, cores' columns.
constexpr GemmTiles kFusedCastTiles = {64, 512, 32, 128};    // Q and O: f32, then a cast launch
constexpr GemmTiles kDrainTiles = {32, 256, 32, 128, 2, 2};  // K and V: bf16 at once
constexpr GemmTiles kFfnTiles = {64, 256, 32, 128};          // gate, up, down: f32 and a cast
constexpr AttentionTiles kAttentionTiles = {256, 64};
constexpr uint64_t kCastChunk = 2048, kAddChunk = 2048, kSwigluChunk = 4096;
constexpr uint32_t kGemvTileRows = 8, kGemvInputRows = 4;
constexpr uint64_t kCascadeCols = 512;  // of K that one core of a cascade takes

constexpr uint32_t kCastBytes = 4 + 2, kBinaryBytes = 3 * 2;  // per value of all operands

struct Context {
  InstanceBuilder& to;
  const AirDims& dims;
  float eps;
};

void rmsnorm(const Context& c, Role role, SlotIndex x, SlotIndex weight, SlotIndex y,
             bool bf16_sums = false) {
  LaunchShape shape;
  shape.eps = c.eps;
  shape.bf16_sums = bf16_sums;
  c.to.launch(Kernel::rmsnorm, role, {x, weight, y}, rmsnorm_needs(c.dims.emb), shape);
}

void rope(const Context& c, Role role, uint32_t heads, SlotIndex x, SlotIndex table, SlotIndex y) {
  LaunchShape shape;
  shape.heads = heads;
  shape.head_dim = c.dims.head_dim;
  c.to.launch(Kernel::rope, role, {x, table, y}, element_needs(c.dims.head_dim, kBinaryBytes),
              shape);
}

void add(const Context& c, Role role, SlotIndex x, SlotIndex y, SlotIndex z) {
  c.to.launch(Kernel::add, role, {x, y, z}, element_needs(kAddChunk, kBinaryBytes));
}

void swiglu(const Context& c, SlotIndex gate, SlotIndex up, SlotIndex y) {
  c.to.launch(Kernel::swiglu, Role::swiglu, {gate, up, y},
              element_needs(kSwigluChunk, kBinaryBytes));
}

struct Product {
  Role role;
  uint64_t k, n;
};

void gemm(const Context& c, const Product& product, const GemmTiles& tiles, SlotIndex x,
          SlotIndex weight, SlotIndex y) {
  c.to.launch(Kernel::matmul, product.role, {x, weight, y},
              gemm_needs(tiles.within(c.dims.seq, product.k, product.n)));
}

// The "fused-cast" GEMM: f32 into an argument of its own, and a launch that rounds it.
void gemm_and_cast(const Context& c, const Product& product, const GemmTiles& tiles, SlotIndex x,
                   SlotIndex weight, SlotIndex wide, SlotIndex y) {
  gemm(c, product, tiles, x, weight, wide);
  c.to.launch(Kernel::cast, product.role, {wide, y}, element_needs(kCastChunk, kCastBytes));
}

void gemv(const Context& c, Role role, uint64_t k, SlotIndex x, SlotIndex weight, SlotIndex y) {
  c.to.launch(Kernel::matmul, role, {x, weight, y}, gemv_needs({kGemvTileRows, kGemvInputRows, k}));
}

uint32_t rms_gemms_rope(const Context& c) {
  const AirDims& d = c.dims;
  const uint64_t seq = d.seq, q_dim = d.q_dim(), kv_dim = d.kv_dim();
  const bool is_mha = kv_dim == q_dim;  // then K and V take Q's kind of GEMM
  const SlotIndex x = c.to.whole(0, seq, d.emb), norm_w = c.to.whole(1, 1, d.emb),
                  normed = c.to.whole(2, seq, d.emb), wq = c.to.turned(3, q_dim, d.emb),
                  q = c.to.whole(4, seq, q_dim), wk = c.to.turned(5, kv_dim, d.emb),
                  k = c.to.whole(6, seq, kv_dim), wv = c.to.turned(7, kv_dim, d.emb),
                  v = c.to.whole(8, seq, kv_dim), lut_q = c.to.whole(9, seq, q_dim),
                  lut_k = c.to.whole(10, seq, kv_dim), q_roped = c.to.whole(11, seq, q_dim),
                  k_roped = c.to.whole(12, seq, kv_dim), q_f32 = c.to.whole(13, seq, q_dim);
  rmsnorm(c, Role::attn_norm, x, norm_w, normed);
  gemm_and_cast(c, {Role::q, d.emb, q_dim}, kFusedCastTiles, normed, wq, q_f32, q);
  if (is_mha) {
    const SlotIndex k_f32 = c.to.whole(14, seq, kv_dim), v_f32 = c.to.whole(15, seq, kv_dim);
    gemm_and_cast(c, {Role::k, d.emb, kv_dim}, kFusedCastTiles, normed, wk, k_f32, k);
    gemm_and_cast(c, {Role::v, d.emb, kv_dim}, kFusedCastTiles, normed, wv, v_f32, v);
  } else {
    gemm(c, {Role::k, d.emb, kv_dim}, kDrainTiles, normed, wk, k);
    gemm(c, {Role::v, d.emb, kv_dim}, kDrainTiles, normed, wv, v);
  }
  rope(c, Role::q_rope, d.heads, q, lut_q, q_roped);
  rope(c, Role::k_rope, d.kv_heads, k, lut_k, k_roped);
  return is_mha ? 9 : 7;
}

uint32_t flash_attn(const Context& c) {
  const AirDims& d = c.dims;
  const SlotIndex q = c.to.whole(0, d.seq, d.q_dim()), k = c.to.whole(1, d.seq, d.kv_dim()),
                  v = c.to.whole(2, d.seq, d.kv_dim()), out = c.to.whole(3, d.seq, d.q_dim());
  LaunchShape shape;
  shape.heads = d.heads;
  shape.kv_heads = d.kv_heads;
  shape.head_dim = d.head_dim;
  // Wider heads leave room for fewer rows.
  AttentionTiles tiles = kAttentionTiles;
  while (tiles.kv_rows > 8 && attention_needs(tiles, d.head_dim).l1_bytes > kL1Bytes)
    tiles.kv_rows /= 2;
  c.to.launch(Kernel::prompt_attention, Role::attention, {q, k, v, out},
              attention_needs(tiles, d.head_dim), shape);
  return 1;
}

uint32_t o_ffn(const Context& c) {
  const AirDims& d = c.dims;
  const uint64_t seq = d.seq, q_dim = d.q_dim();
  const SlotIndex attn = c.to.whole(0, seq, q_dim), wo = c.to.turned(1, d.emb, q_dim),
                  proj = c.to.whole(2, seq, d.emb), x = c.to.whole(3, seq, d.emb),
                  res1 = c.to.whole(4, seq, d.emb), norm_w = c.to.whole(5, 1, d.emb),
                  normed = c.to.whole(6, seq, d.emb), w_gate = c.to.turned(7, d.hidden, d.emb),
                  gate = c.to.whole(8, seq, d.hidden), w_up = c.to.turned(9, d.hidden, d.emb),
                  up = c.to.whole(10, seq, d.hidden), product = c.to.whole(11, seq, d.hidden),
                  w_down = c.to.turned(12, d.emb, d.hidden), down = c.to.whole(13, seq, d.emb),
                  out = c.to.whole(14, seq, d.emb), proj_f32 = c.to.whole(15, seq, d.emb),
                  gate_f32 = c.to.whole(16, seq, d.hidden), up_f32 = c.to.whole(17, seq, d.hidden),
                  down_f32 = c.to.whole(18, seq, d.emb);
  gemm_and_cast(c, {Role::o, q_dim, d.emb}, kFusedCastTiles, attn, wo, proj_f32, proj);
  add(c, Role::attn_residual, proj, x, res1);
  rmsnorm(c, Role::ffn_norm, res1, norm_w, normed);
  gemm_and_cast(c, {Role::gate, d.emb, d.hidden}, kFfnTiles, normed, w_gate, gate_f32, gate);
  gemm_and_cast(c, {Role::up, d.emb, d.hidden}, kFfnTiles, normed, w_up, up_f32, up);
  swiglu(c, gate, up, product);
  gemm_and_cast(c, {Role::down, d.hidden, d.emb}, kFfnTiles, product, w_down, down_f32, down);
  add(c, Role::ffn_residual, down, res1, out);
  return 12;
}

uint32_t rms_gemv_rope(const Context& c) {
  const AirDims& d = c.dims;
  const uint64_t q_dim = d.q_dim(), kv_dim = d.kv_dim();
  const SlotIndex x = c.to.whole(0, 1, d.emb), norm_w = c.to.whole(1, 1, d.emb),
                  normed = c.to.whole(2, 1, d.emb), wq = c.to.whole(3, q_dim, d.emb),
                  q = c.to.whole(4, 1, q_dim), wk = c.to.whole(5, kv_dim, d.emb),
                  k = c.to.whole(6, 1, kv_dim), wv = c.to.whole(7, kv_dim, d.emb),
                  v = c.to.whole(8, 1, kv_dim), lut_q = c.to.whole(9, 1, q_dim),
                  lut_k = c.to.whole(10, 1, kv_dim), q_roped = c.to.whole(11, 1, q_dim),
                  k_roped = c.to.whole(12, 1, kv_dim);
  rmsnorm(c, Role::attn_norm, x, norm_w, normed, true);
  gemv(c, Role::q, d.emb, normed, wq, q);
  gemv(c, Role::k, d.emb, normed, wk, k);
  gemv(c, Role::v, d.emb, normed, wv, v);
  rope(c, Role::q_rope, d.heads, q, lut_q, q_roped);
  rope(c, Role::k_rope, d.kv_heads, k, lut_k, k_roped);
  return 6;
}

// Three fused launches, written as what they are made of: O and the residual; norm, gate, up and
// SwiGLU; down and the residual. What passes between a launch's own cores is in no argument, and
// sums go to the residual add before they are rounded.
uint32_t o_gemv_ffn(const Context& c) {
  const AirDims& d = c.dims;
  const uint64_t emb = d.emb, hidden = d.hidden;
  const SlotIndex wo = c.to.whole(0, emb, d.q_dim()), attn = c.to.whole(1, 1, d.q_dim()),
                  x = c.to.whole(3, 1, emb),
                  res1 = c.to.part("res1", SlotKind::scratch, 6, 1, emb, {}),
                  norm_w = c.to.part("ffn_norm_w", SlotKind::weight, 6, 1, emb, {emb, {}}),
                  w_gate = c.to.part("w_gate", SlotKind::weight, 7, hidden, emb,
                                     rows_apart(0, hidden, emb, 2 * emb)),
                  w_up = c.to.part("w_up", SlotKind::weight, 7, hidden, emb,
                                   rows_apart(emb, hidden, emb, 2 * emb)),
                  product = c.to.whole(11, 1, hidden), w_down = c.to.whole(12, emb, hidden),
                  out = c.to.whole(14, 1, emb), proj = c.to.scratch("proj", DType::f32, 1, emb),
                  normed = c.to.scratch("normed2", DType::bf16, 1, emb),
                  gate = c.to.scratch("gate", DType::f32, 1, hidden),
                  up = c.to.scratch("up", DType::f32, 1, hidden),
                  down = c.to.scratch("down", DType::f32, 1, emb);
  gemv(c, Role::o, std::min(d.q_dim(), kCascadeCols), attn, wo, proj);
  add(c, Role::attn_residual, proj, x, res1);
  rmsnorm(c, Role::ffn_norm, res1, norm_w, normed);
  gemv(c, Role::gate, std::min(emb, kCascadeCols), normed, w_gate, gate);
  gemv(c, Role::up, std::min(emb, kCascadeCols), normed, w_up, up);
  swiglu(c, gate, up, product);
  gemv(c, Role::down, std::min(hidden, kCascadeCols), product, w_down, down);
  add(c, Role::ffn_residual, down, res1, out);
  return 3;
}

uint32_t lm_head_gemv(const Context& c) {
  const SlotIndex x = c.to.whole(0, 1, c.dims.emb);
  const auto [rows, partitions] = air_head(c.dims);
  for (uint32_t p = 0; p < partitions; ++p) {
    const SlotIndex weight = c.to.whole(1 + 2 * size_t{p}, rows, c.dims.emb);
    const SlotIndex logits = c.to.whole(2 + 2 * size_t{p}, 1, rows);
    gemv(c, Role::lm_head, c.dims.emb, x, weight, logits);
  }
  return partitions;
}

struct Writer {
  std::string_view program;
  uint32_t (*write)(const Context&);  // returns the launches
  bool is_prefill;
};

constexpr Writer kWriters[] = {
    {"rms_gemms_rope", rms_gemms_rope, true},
    {"flash_attn", flash_attn, true},
    {"o_ffn", o_ffn, true},
    {"rms_gemv_rope", rms_gemv_rope, false},
    {"o_gemv_ffn", o_gemv_ffn, false},
    {"lm_head_gemv", lm_head_gemv, false},
};

}  // namespace

Image air_image(const AirDims& dims, std::string_view program, float eps) {
  const AirProgram abi = air_program(program, dims);
  for (const Writer& writer : kWriters) {
    if (writer.program != program) continue;
    InstanceBuilder builder(abi, 0);
    const uint32_t launches = writer.write({builder, dims, eps});
    Image image;
    image.instances.push_back(builder.take(writer.is_prefill ? dims.seq : 1, launches));
    check_image(image, abi.name);
    return image;
  }
  fail_unsupported(std::string(program), "no image is known for this program");
}

}  // namespace tyto::vxrt
