// MLIR-AIR's six bf16 programs on the virtual NPU, called as on a real one: arguments by position,
// filled by hand, results compared with plain loops.
#include "device/vnpu/images/air_images.h"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "unit/device/plain_math.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using plain::Values;
using plain::Words;

constexpr size_t kEmb = 64, kHeads = 4, kKvHeads = 2, kDim = 16, kHidden = 128, kSeq = 64;
constexpr size_t kQ = kHeads * kDim, kKv = kKvHeads * kDim;
constexpr AirDims kDims = {2, kEmb, kHeads, kKvHeads, kDim, kHidden, 20000, kSeq};
constexpr float kClose = 0.012f;  // share of the largest value: a bf16 has 8 bits

// One program in a context of its own.
struct AirRig {
  explicit AirRig(const Image& image)
      : elf(load_elf(image)),
        context(device, elf),
        kernel(context, "main:" + image.instances[0].name) {}

  void write(int argument, const Values& values) {
    buffers[argument] = upload(device, plain::to_bf16(values));
  }
  void reserve(int argument, size_t bytes) { buffers[argument] = xrt::ext::bo(device, bytes); }
  Values read(int argument) { return plain::to_f32(download(buffers.at(argument))); }

  ert_cmd_state call() {
    xrt::run run(kernel);
    for (const auto& [argument, buffer] : buffers) run.set_arg(argument, buffer);
    run.start();
    return run.wait(std::chrono::milliseconds(60000));
  }

  xrt::device device{0};
  xrt::elf elf;
  xrt::hw_context context;
  xrt::ext::kernel kernel;
  std::map<int, xrt::bo> buffers;
};

// cos then sin of each position, as the model's table holds them.
Values rope_rows(size_t positions) {
  Values rows(positions * kDim);
  for (size_t p = 0; p < positions; ++p)
    for (size_t i = 0; i < kDim / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * double(i) / kDim);
      rows[p * kDim + i] = plain::rounded(static_cast<float>(std::cos(angle)));
      rows[p * kDim + kDim / 2 + i] = plain::rounded(static_cast<float>(std::sin(angle)));
    }
  return rows;
}

// Row pos * heads + head: each position's row once per head.
Values per_head(const Values& rows, size_t heads) {
  Values result;
  for (size_t p = 0; p < rows.size() / kDim; ++p)
    for (size_t h = 0; h < heads; ++h)
      result.insert(result.end(), rows.begin() + static_cast<std::ptrdiff_t>(p * kDim),
                    rows.begin() + static_cast<std::ptrdiff_t>((p + 1) * kDim));
  return result;
}

Values roped(Values x, const Values& lut) {
  for (size_t head = 0; head < x.size() / kDim; ++head)
    plain::rotate_head(x.data() + head * kDim, lut.data() + head * kDim, kDim);
  return plain::rounded(x);
}

using AirImages = VxrtTest;

// Weights are (in, out) in prefill: as matmul of the fixture's plain loops wants them, transposed.
TEST_F(AirImages, RmsGemmsRope) {
  AirRig rig(air_image(kDims, "rms_gemms_rope"));
  const Values x = plain::random_values(kSeq * kEmb, 1), norm = plain::random_values(kEmb, 2);
  const Values wq = plain::random_values(kEmb * kQ, 3, 0.2f),
               wk = plain::random_values(kEmb * kKv, 4, 0.2f),
               wv = plain::random_values(kEmb * kKv, 5, 0.2f);
  const Values lut = rope_rows(kSeq), lut_q = per_head(lut, kHeads),
               lut_k = per_head(lut, kKvHeads);
  rig.write(0, x);
  rig.write(1, norm);
  rig.write(3, wq);
  rig.write(5, wk);
  rig.write(7, wv);
  rig.write(9, lut_q);
  rig.write(10, lut_k);
  for (int intermediate : {2, 4, 11}) rig.reserve(intermediate, kSeq * kEmb * 2);
  for (int intermediate : {6, 8, 12}) rig.reserve(intermediate, kSeq * kKv * 2);
  rig.reserve(13, kSeq * kQ * 4);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;

  const Values normed = plain::rmsnorm(x, norm, 1e-5);
  const Values q = plain::rounded(plain::matmul(normed, plain::transpose(wq, kQ, kEmb), kEmb));
  const Values k = plain::rounded(plain::matmul(normed, plain::transpose(wk, kKv, kEmb), kEmb));
  const Values v = plain::rounded(plain::matmul(normed, plain::transpose(wv, kKv, kEmb), kEmb));
  plain::expect_close(rig.read(2), normed, kClose, "normed");
  plain::expect_close(rig.read(4), q, kClose, "q");
  plain::expect_close(rig.read(8), v, kClose, "v");
  plain::expect_close(rig.read(11), roped(q, lut_q), kClose, "q_roped");
  plain::expect_close(rig.read(12), roped(k, lut_k), kClose, "k_roped");
  rig.buffers[13].sync(XCL_BO_SYNC_BO_FROM_DEVICE);  // q before it is rounded
  const float* wide = rig.buffers[13].map<const float*>();
  EXPECT_EQ(plain::to_bf16(Values(wide, wide + kSeq * kQ)), plain::to_bf16(rig.read(4)));
  EXPECT_EQ(counters().total.launches, 7u);
}

// As many KV heads as heads: K and V go through f32 too, and have arguments for it.
TEST_F(AirImages, RmsGemmsRopeWithoutSharedHeads) {
  AirDims dims = kDims;
  dims.kv_heads = kHeads;
  AirRig rig(air_image(dims, "rms_gemms_rope"));
  const Values x = plain::random_values(kSeq * kEmb, 1), norm = plain::random_values(kEmb, 2);
  const Values w = plain::random_values(kEmb * kQ, 3, 0.2f);
  for (int i : {2, 4, 6, 8, 11, 12}) rig.reserve(i, kSeq * kEmb * 2);
  for (int i : {13, 14, 15}) rig.reserve(i, kSeq * kQ * 4);
  for (int i : {3, 5, 7}) rig.write(i, w);
  for (int i : {9, 10}) rig.write(i, per_head(rope_rows(kSeq), kHeads));
  rig.write(0, x);
  rig.write(1, norm);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  EXPECT_EQ(counters().total.launches, 9u);
  EXPECT_EQ(rig.read(8), rig.read(4));
  EXPECT_EQ(rig.read(12), rig.read(11));
}

Values prompt_attention(const Values& q, const Values& k, const Values& v) {
  Values out(q.size());
  for (size_t t = 0; t < kSeq; ++t)
    for (size_t h = 0; h < kHeads; ++h) {
      const size_t kv = h / (kHeads / kKvHeads) * kDim;
      plain::attend(
          q.data() + t * kQ + h * kDim, kDim, t + 1,
          [&](size_t p) { return k.data() + p * kKv + kv; },
          [&](size_t p) { return v.data() + p * kKv + kv; }, out.data() + t * kQ + h * kDim);
    }
  return out;
}

TEST_F(AirImages, FlashAttn) {
  AirRig rig(air_image(kDims, "flash_attn"));
  const Values q = plain::random_values(kSeq * kQ, 1, 3), k = plain::random_values(kSeq * kKv, 2),
               v = plain::random_values(kSeq * kKv, 3);
  rig.write(0, q);
  rig.write(1, k);
  rig.write(2, v);
  rig.reserve(3, kSeq * kQ * 2);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  plain::expect_close(rig.read(3), prompt_attention(q, k, v), kClose, "out");
}

// `run` columns of every row, then the next ones.
Values head_by_head(const Values& rows, size_t cols, size_t run) {
  Values result;
  for (size_t first = 0; first < cols; first += run)
    for (size_t t = 0; t < rows.size() / cols; ++t)
      for (size_t i = 0; i < run; ++i) result.push_back(rows[t * cols + first + i]);
  return result;
}

// Queries and keys in whole heads, values and results in halves of them.
TEST_F(AirImages, FlashAttnHeadByHead) {
  AirDims dims = kDims;
  dims.like = *images_like("qwen3-4b");
  AirRig rig(air_image(dims, "flash_attn"));
  const Values q = plain::random_values(kSeq * kQ, 1, 3), k = plain::random_values(kSeq * kKv, 2),
               v = plain::random_values(kSeq * kKv, 3);
  rig.write(0, head_by_head(q, kQ, kDim));
  rig.write(1, head_by_head(k, kKv, kDim));
  rig.write(2, head_by_head(v, kKv, kDim / 2));
  rig.reserve(3, kSeq * kQ * 2);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  plain::expect_close(rig.read(3), head_by_head(prompt_attention(q, k, v), kQ, kDim / 2), kClose,
                      "out");
}

Values plus(Values rows, const Values& bias) {
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += bias[i % bias.size()];
  return plain::rounded(rows);
}

// The weights' columns beyond a row's width are not zero here: what comes of them must be dropped.
TEST_F(AirImages, RmsQkvBiasRopeWithPaddedProducts) {
  constexpr size_t kPadded = 1024;
  AirDims dims = kDims;
  dims.qkv_bias = 1;
  dims.like = *images_like("qwen2.5-0.5b");
  AirRig rig(air_image(dims, "rms_qkv_bias_rope"));
  const Values x = plain::random_values(kSeq * kEmb, 1), norm = plain::random_values(kEmb, 2),
               bq = plain::random_values(kQ, 6), bv = plain::random_values(kKv, 7);
  const auto wide = [](size_t seed) {
    return plain::random_values(kEmb * kPadded, static_cast<uint32_t>(seed), 0.2f);
  };
  const auto narrow = [](const Values& weight, size_t n) {  // (in, padded out) to (out, in)
    Values result(n * kEmb);
    for (size_t r = 0; r < n; ++r)
      for (size_t c = 0; c < kEmb; ++c) result[r * kEmb + c] = weight[c * kPadded + r];
    return result;
  };
  const Values wq = wide(3), wk = wide(4), wv = wide(5);
  const Values lut = rope_rows(kSeq), lut_q = per_head(lut, kHeads);
  rig.write(0, x);
  rig.write(1, norm);
  rig.write(3, wq);
  rig.write(5, wk);
  rig.write(7, wv);
  rig.write(9, bq);
  rig.write(10, Values(kKv, 0.0f));
  rig.write(11, bv);
  rig.write(15, lut_q);
  rig.write(16, per_head(lut, kKvHeads));
  for (int i : {2, 12, 17}) rig.reserve(i, kSeq * kEmb * 2);
  for (int i : {4, 6, 8}) rig.reserve(i, kSeq * kPadded * 2);
  for (int i : {13, 14, 18}) rig.reserve(i, kSeq * kKv * 2);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  const Values normed = plain::rmsnorm(x, norm, 1e-5);
  const Values q = plain::rounded(plain::matmul(normed, narrow(wq, kQ), kEmb)),
               v = plain::rounded(plain::matmul(normed, narrow(wv, kKv), kEmb));
  plain::expect_close(rig.read(12), plus(q, bq), kClose, "q_b");
  plain::expect_close(rig.read(14), plus(v, bv), kClose, "v_b");
  plain::expect_close(rig.read(17), roped(plus(q, bq), lut_q), kClose, "q_roped");
  EXPECT_EQ(counters().total.launches, 9u);
}

struct Ffn {  // weights as a checkpoint stores them: (out, in)
  Values wo = plain::random_values(kEmb * kQ, 11, 0.2f);
  Values norm = plain::random_values(kEmb, 12);
  Values gate = plain::random_values(kHidden * kEmb, 13, 0.2f);
  Values up = plain::random_values(kHidden * kEmb, 14, 0.2f);
  Values down = plain::random_values(kEmb * kHidden, 15, 0.2f);
};

TEST_F(AirImages, OFfn) {
  AirRig rig(air_image(kDims, "o_ffn"));
  const Ffn w;
  const Values attn = plain::random_values(kSeq * kQ, 1), x = plain::random_values(kSeq * kEmb, 2);
  rig.write(0, attn);
  rig.write(1, plain::transpose(w.wo, kQ, kEmb));
  rig.write(3, x);
  rig.write(5, w.norm);
  rig.write(7, plain::transpose(w.gate, kEmb, kHidden));
  rig.write(9, plain::transpose(w.up, kEmb, kHidden));
  rig.write(12, plain::transpose(w.down, kHidden, kEmb));
  for (int i : {2, 4, 6, 13, 14}) rig.reserve(i, kSeq * kEmb * 2);
  for (int i : {8, 10, 11}) rig.reserve(i, kSeq * kHidden * 2);
  for (int i : {15, 18}) rig.reserve(i, kSeq * kEmb * 4);
  for (int i : {16, 17}) rig.reserve(i, kSeq * kHidden * 4);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;

  const Values proj = plain::rounded(plain::matmul(attn, w.wo, kQ));
  const Values res1 = plain::add(proj, x), normed = plain::rmsnorm(res1, w.norm, 1e-5);
  const Values product = plain::swiglu(plain::rounded(plain::matmul(normed, w.gate, kEmb)),
                                       plain::rounded(plain::matmul(normed, w.up, kEmb)));
  const Values out = plain::add(plain::rounded(plain::matmul(product, w.down, kHidden)), res1);
  plain::expect_close(rig.read(4), res1, kClose, "res1");
  plain::expect_close(rig.read(11), product, kClose, "swiglu");
  plain::expect_close(rig.read(14), out, kClose, "output");
  EXPECT_EQ(counters().total.launches, 12u);
}

TEST_F(AirImages, RmsGemvRope) {
  AirRig rig(air_image(kDims, "rms_gemv_rope"));
  const Values x = plain::random_values(kEmb, 1), norm = plain::random_values(kEmb, 2);
  const Values wq = plain::random_values(kQ * kEmb, 3, 0.2f),
               wk = plain::random_values(kKv * kEmb, 4, 0.2f),
               wv = plain::random_values(kKv * kEmb, 5, 0.2f);
  const Values lut = rope_rows(8), row(lut.end() - kDim, lut.end());  // position 7
  const Values lut_q = per_head(row, kHeads), lut_k = per_head(row, kKvHeads);
  rig.write(0, x);
  rig.write(1, norm);
  rig.write(3, wq);  // as stored
  rig.write(5, wk);
  rig.write(7, wv);
  rig.write(9, lut_q);
  rig.write(10, lut_k);
  for (int i : {2, 4, 11}) rig.reserve(i, kEmb * 2);
  for (int i : {6, 8, 12}) rig.reserve(i, kKv * 2);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;

  const Values exact = plain::rmsnorm(x, norm, 1e-5), normed = rig.read(2);
  plain::expect_close(normed, exact, 0.02f, "normed");  // its squares are added up in bf16
  const Values q = plain::rounded(plain::matmul(normed, wq, kEmb));
  const Values k = plain::rounded(plain::matmul(normed, wk, kEmb));
  plain::expect_close(rig.read(8), plain::matmul(normed, wv, kEmb), kClose, "v");
  plain::expect_close(rig.read(11), roped(q, lut_q), kClose, "q_roped");
  plain::expect_close(rig.read(12), roped(k, lut_k), kClose, "k_roped");
  EXPECT_EQ(counters().total.launches, 6u);
}

// Each head turns by its own row of the table, not by the first one's.
TEST_F(AirImages, RopeRowsAreReadForEveryHead) {
  AirRig rig(air_image(kDims, "rms_gemv_rope"));
  const Values x = plain::random_values(kEmb, 1), w = plain::random_values(kQ * kEmb, 3);
  Values table = plain::random_values(kQ, 9);
  rig.write(0, x);
  rig.write(1, Values(kEmb, 1.0f));
  rig.write(3, w);
  for (int i : {5, 7}) rig.write(i, Values(kKv * kEmb, 0.5f));
  rig.write(9, table);
  rig.write(10, Values(kKv, 0.25f));
  for (int i : {2, 4, 11}) rig.reserve(i, kEmb * 2);
  for (int i : {6, 8, 12}) rig.reserve(i, kKv * 2);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED);
  plain::expect_close(rig.read(11), roped(rig.read(4), table), kClose, "q_roped");
}

void fill_o_gemv_ffn(AirRig& rig, const Ffn& w, const Values& attn, const Values& x) {
  Values packed(2 * kEmb), gateup;
  std::copy(w.norm.begin(), w.norm.end(), packed.begin() + kEmb);
  for (size_t i = 0; i < kHidden; ++i)
    for (const Values* rows : {&w.gate, &w.up})
      gateup.insert(gateup.end(), rows->begin() + static_cast<std::ptrdiff_t>(i * kEmb),
                    rows->begin() + static_cast<std::ptrdiff_t>((i + 1) * kEmb));
  rig.write(0, w.wo);
  rig.write(1, attn);
  rig.write(3, x);
  rig.write(6, packed);
  rig.write(7, gateup);
  rig.reserve(11, kHidden * 2);
  rig.write(12, w.down);
  rig.reserve(14, kEmb * 2);
}

TEST_F(AirImages, OGemvFfn) {
  AirRig rig(air_image(kDims, "o_gemv_ffn"));
  const Ffn w;
  const Values attn = plain::random_values(kQ, 1), x = plain::random_values(kEmb, 2);
  fill_o_gemv_ffn(rig, w, attn, x);
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  EXPECT_EQ(counters().total.launches, 3u);

  const Values res1 = plain::add(plain::matmul(attn, w.wo, kQ), x);
  const Values normed = plain::rmsnorm(res1, w.norm, 1e-5);
  const Values product =
      plain::swiglu(plain::matmul(normed, w.gate, kEmb), plain::matmul(normed, w.up, kEmb));
  const Values out = plain::add(plain::matmul(product, w.down, kHidden), res1);
  const Values packed = rig.read(6);
  plain::expect_close(Values(packed.begin(), packed.begin() + kEmb), res1, kClose, "row 0");
  EXPECT_EQ(Values(packed.begin() + kEmb, packed.end()), w.norm);
  plain::expect_close(rig.read(11), product, kClose, "swiglu");
  plain::expect_close(rig.read(14), out, kClose, "output");
}

// Nothing, a buffer of one word, or the full size: all the same, and left alone.
TEST_F(AirImages, DeadArgumentsAreNeverLookedAt) {
  const Ffn w;
  const Values attn = plain::random_values(kQ, 1), x = plain::random_values(kEmb, 2);
  Values expected;
  for (size_t bytes : {size_t{0}, size_t{4}, kHidden * kEmb * 2}) {
    AirRig rig(air_image(kDims, "o_gemv_ffn"));
    fill_o_gemv_ffn(rig, w, attn, x);
    for (int dead : {2, 4, 5, 8, 9, 10, 13})
      if (bytes > 0) rig.write(dead, Values(bytes / 2, 7.0f));
    ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
    if (expected.empty()) expected = rig.read(14);
    EXPECT_EQ(rig.read(14), expected);
    if (bytes == 0) continue;
    for (int dead : {2, 4, 5, 8, 9, 10, 13})
      EXPECT_EQ(rig.read(dead), Values(bytes / 2, 7.0f)) << dead;
  }
}

TEST_F(AirImages, ALiveArgumentThatIsMissingOrShortEndsAsError) {
  set_hostile(false);
  AirRig rig(air_image(kDims, "o_gemv_ffn"));
  fill_o_gemv_ffn(rig, {}, Values(kQ, 1.0f), Values(kEmb, 1.0f));
  const xrt::bo gateup = rig.buffers[7];
  rig.buffers.erase(7);
  EXPECT_EQ(rig.call(), ERT_CMD_STATE_ERROR);
  EXPECT_EQ(counters().last_error, "argument 7 was given no buffer");
  rig.reserve(7, kHidden * kEmb * 2);  // half of it
  EXPECT_EQ(rig.call(), ERT_CMD_STATE_ERROR);
  rig.buffers[7] = gateup;
  EXPECT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED);
}

// 20000 tokens: two partitions, the second with zeros behind its 3616 real rows.
TEST_F(AirImages, LmHeadGemv) {
  AirRig rig(air_image(kDims, "lm_head_gemv"));
  const Values x = plain::random_values(kEmb, 1);
  const Values head = plain::random_values(20000 * kEmb, 2, 0.2f);
  Values second(head.begin() + 16384 * kEmb, head.end());
  second.resize(16384 * kEmb);
  rig.write(0, x);
  rig.write(1, Values(head.begin(), head.begin() + 16384 * kEmb));
  rig.reserve(2, 16384 * 2);
  rig.write(3, second);
  rig.write(4, Values(16384, 9.0f));
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
  EXPECT_EQ(counters().total.launches, 2u);
  Values logits = rig.read(2), rest = rig.read(4);
  EXPECT_EQ(Values(rest.begin() + 3616, rest.end()), Values(16384 - 3616));
  logits.insert(logits.end(), rest.begin(), rest.begin() + 3616);
  plain::expect_close(logits, plain::matmul(x, head, kEmb), kClose, "logits");
}

// A GEMM's operands are rounded to blocks where the hardware is said to; a GEMV's never are.
TEST_F(AirImages, NumericsOfTheArray) {
  const Values q = plain::random_values(kSeq * kQ, 1, 3), k = plain::random_values(kSeq * kKv, 2),
               v = plain::random_values(kSeq * kKv, 3);
  std::vector<Values> prefill, decode;
  for (cpu::Numerics numerics : {cpu::Numerics::bf16, cpu::Numerics::bfp16}) {
    reset({.threads = 2, .numerics = numerics});
    AirRig attention(air_image(kDims, "flash_attn"));
    attention.write(0, q);
    attention.write(1, k);
    attention.write(2, v);
    attention.reserve(3, kSeq * kQ * 2);
    ASSERT_EQ(attention.call(), ERT_CMD_STATE_COMPLETED);
    prefill.push_back(attention.read(3));
    AirRig ffn(air_image(kDims, "o_gemv_ffn"));
    fill_o_gemv_ffn(ffn, {}, plain::random_values(kQ, 1), plain::random_values(kEmb, 2));
    ASSERT_EQ(ffn.call(), ERT_CMD_STATE_COMPLETED);
    decode.push_back(ffn.read(14));
  }
  EXPECT_EQ(decode[0], decode[1]);
  EXPECT_NE(prefill[0], prefill[1]);
  plain::expect_close(prefill[1], prefill[0], 0.06f, "in blocks");
}

// A corrupted run leaves NaN in what it writes, row 0 of the packed norm too, and nowhere else.
TEST_F(AirImages, CorruptionKeepsToWhatIsWritten) {
  AirRig rig(air_image(kDims, "o_gemv_ffn"));
  const Ffn w;
  fill_o_gemv_ffn(rig, w, Values(kQ, 1.0f), Values(kEmb, 1.0f));
  inject(parse_fault("corrupt@1"));
  ASSERT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED);
  const Words packed = download(rig.buffers[6]);
  EXPECT_EQ(Words(packed.begin(), packed.begin() + kEmb), Words(kEmb, 0xffff));
  EXPECT_EQ(Words(packed.begin() + kEmb, packed.end()), plain::to_bf16(w.norm));
  EXPECT_EQ(download(rig.buffers[14]), Words(kEmb, 0xffff));
  EXPECT_EQ(rig.read(0), w.wo);
}

// A weight that the device keeps repacked follows what is synced, also through a window into it.
TEST_F(AirImages, RepackedWeightsFollowTheirBuffer) {
  AirRig rig(air_image(kDims, "rms_gemms_rope"));
  for (int i : {0, 2, 4, 9, 11}) rig.reserve(i, kSeq * kEmb * 2);
  for (int i : {5, 6, 7, 8, 10, 12}) rig.reserve(i, kSeq * kKv * 2);
  rig.reserve(13, kSeq * kQ * 4);
  rig.write(0, Values(kSeq * kEmb, 1.0f));
  rig.write(1, Values(kEmb, 1.0f));
  // Two weights side by side in one buffer, of which the second is used.
  xrt::bo pool = upload(rig.device, plain::to_bf16(Values(2 * kEmb * kQ, 1.0f)));
  rig.buffers[3] = xrt::bo(pool, kEmb * kQ * 2, kEmb * kQ * 2);
  const auto q = [&] {
    EXPECT_EQ(rig.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
    return rig.read(4)[0];
  };
  EXPECT_NEAR(q(), 64.0f, 0.5f);
  const Words halves = plain::to_bf16(Values(2 * kEmb * kQ, 0.5f));
  put(pool, halves);
  EXPECT_NEAR(q(), 64.0f, 0.5f);                            // not synced
  pool.sync(XCL_BO_SYNC_BO_TO_DEVICE, pool.size() / 2, 0);  // the other half
  EXPECT_NEAR(q(), 64.0f, 0.5f);
  pool.sync(XCL_BO_SYNC_BO_TO_DEVICE, pool.size() / 2, pool.size() / 2);
  EXPECT_NEAR(q(), 32.0f, 0.25f);
  xrt::bo window(pool, kEmb * kQ * 2, kEmb * kQ * 2);
  put(window, plain::to_bf16(Values(kEmb * kQ, 2.0f)));
  window.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  EXPECT_NEAR(q(), 128.0f, 1.0f);
}

// What a launch writes counts as a change too.
TEST_F(AirImages, RepackedWeightsFollowWhatTheDeviceWrites) {
  AirRig maker(air_image(kDims, "flash_attn")), user(air_image(kDims, "rms_gemms_rope"));
  maker.reserve(0, kSeq * kQ * 2);
  maker.reserve(1, kSeq * kKv * 2);
  maker.reserve(3, kSeq * kQ * 2);
  for (int i : {2, 4, 9, 11}) user.reserve(i, kSeq * kEmb * 2);
  for (int i : {5, 6, 7, 8, 10, 12}) user.reserve(i, kSeq * kKv * 2);
  user.reserve(13, kSeq * kQ * 4);
  user.write(0, Values(kSeq * kEmb, 1.0f));
  user.write(1, Values(kEmb, 1.0f));
  user.buffers[3] = maker.buffers[3];  // 64 x 64 values, all those of V's rows
  for (float value : {1.0f, 0.5f}) {
    maker.write(2, Values(kSeq * kKv, value));
    ASSERT_EQ(maker.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
    ASSERT_EQ(user.call(), ERT_CMD_STATE_COMPLETED) << counters().last_error;
    EXPECT_NEAR(user.read(4)[0], 64 * value, 0.5f);
  }
}

// All of a layer's prefill programs in one ELF, so that one context can hold them.
TEST_F(AirImages, OneElfForALayer) {
  const Image images[] = {air_image(kDims, "rms_gemms_rope"), air_image(kDims, "flash_attn"),
                          air_image(kDims, "o_ffn")};
  const xrt::device device(0);
  const xrt::elf elf = load_elf(combined(images));
  const xrt::hw_context context(device, elf);
  EXPECT_EQ(error_of([&] { xrt::ext::kernel(context, "main"); }), EINVAL);  // which one?
  std::map<std::string, xrt::bo> values;
  const auto buffer = [&](const std::string& name, size_t bytes) -> xrt::bo& {
    xrt::bo& bo = values[name];
    if (!bo) bo = upload(device, plain::to_bf16(plain::random_values(bytes / 2, 1, 0.2f)));
    return bo;
  };
  // Producer and consumer share a buffer where one's output is the other's input.
  const std::map<std::pair<int, size_t>, std::string> shared = {
      {{0, 0}, "x"}, {{0, 8}, "v"}, {{0, 11}, "q"},   {{0, 12}, "k"},   {{1, 0}, "q"},
      {{1, 1}, "k"}, {{1, 2}, "v"}, {{1, 3}, "attn"}, {{2, 0}, "attn"}, {{2, 3}, "x"}};
  std::vector<xrt::run> runs;
  for (int program = 0; program < 3; ++program) {
    const Instance& instance = images[program].instances[0];
    xrt::run run(xrt::ext::kernel(context, "main:" + instance.name));
    for (size_t i = 0; i < instance.arguments.size(); ++i) {
      const auto name = shared.find({program, i});
      run.set_arg(static_cast<int>(i),
                  buffer(name != shared.end() ? name->second : fmt::format("{}.{}", program, i),
                         instance.arguments[i].bytes));
    }
    runs.push_back(std::move(run));
  }
  for (xrt::run& run : runs) run_to_completion(run);
  EXPECT_NE(download(values["2.14"]), plain::to_bf16(plain::random_values(kSeq * kEmb, 1, 0.2f)));
  EXPECT_EQ(counters().total.launches, 7u + 1 + 12);
}

}  // namespace
}  // namespace tyto::vxrt
