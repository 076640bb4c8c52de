// Images behind the attention of a prompt.
#include "device/vnpu/images/image_writer.h"

namespace tyto::vxrt {
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

}  // namespace tyto::vxrt
