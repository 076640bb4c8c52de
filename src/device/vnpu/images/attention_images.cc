// The images in front of the attention, and the attention of a prompt.
#include "device/vnpu/images/image_writer.h"

namespace tyto::vxrt {
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
  constexpr Role kRoles[] = {Role::q_bias, Role::k_bias, Role::v_bias};
  for (size_t i = 0; i < 3; ++i)
    to.add(kRoles[i], to.columns(kProjections[i].result, widths[i]), to.repeated(9 + i, widths[i]),
           to.to.whole(12 + i, to.rows(), widths[i]));
}

// Weights of one head in 9 and 10, what comes of them in 11 and 12.
void norm_heads(ImageWriter& to) {
  const uint64_t widths[] = {to.dims.q_dim(), to.dims.kv_dim()};
  constexpr Role kRoles[] = {Role::q_norm, Role::k_norm};
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

}  // namespace tyto::vxrt
