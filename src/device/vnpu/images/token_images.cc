// Images behind the attention of one token, and the head.
#include <algorithm>

#include "device/vnpu/images/image_writer.h"

namespace tyto::vxrt {
namespace {

constexpr uint64_t kCascadeCols = 512;  // of K that one core of a cascade takes

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

}  // namespace tyto::vxrt
