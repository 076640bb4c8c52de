// Attention on every instruction set against plain double-precision loops.
#include "device/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

std::vector<float> random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 500.0f;
  return values;
}

// A cache filled up to its context, and queries for its last tokens.
struct Case {
  Case(DType kv_type, size_t query_heads, size_t cache_heads, size_t dim, size_t positions)
      : type(kv_type),
        heads(query_heads),
        kv_heads(cache_heads),
        head_dim(dim),
        context(positions) {
    for (auto* bytes : {&k_bytes, &v_bytes}) {
      const auto values = random_values(kv_heads * context * head_dim, bytes == &k_bytes ? 1 : 2);
      bytes->resize(row_bytes(type, values.size()));
      quantize(type, values, *bytes);
    }
    k.resize(kv_heads * context * head_dim);
    v.resize(k.size());
    dequantize(type, k_bytes, k);
    dequantize(type, v_bytes, v);
    q = random_values(context * heads * head_dim, 3);
  }

  // Queries of tokens [position, position + tokens).
  std::vector<float> run(const AttentionLoops& loops, size_t position, size_t tokens,
                         unsigned threads = 2) const {
    ThreadPool pool(threads);
    std::vector<float> y(tokens * heads * head_dim, -777.0f);
    attend({.q = q.data() + position * heads * head_dim,
            .k = k_bytes.data(),
            .v = v_bytes.data(),
            .kv_type = type,
            .tokens = tokens,
            .position = position,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .context = context,
            .y = y.data()},
           pool, loops);
    return y;
  }

  std::vector<double> expected(size_t token, size_t head) const {
    const size_t kv_head = head / (heads / kv_heads);
    const float* query = q.data() + (token * heads + head) * head_dim;
    std::vector<double> weights(token + 1), result(head_dim);
    double most = -1e30, total = 0;
    for (size_t p = 0; p <= token; ++p) {
      for (size_t i = 0; i < head_dim; ++i)
        weights[p] += double{query[i]} * k[(kv_head * context + p) * head_dim + i];
      weights[p] /= std::sqrt(static_cast<double>(head_dim));
      most = std::max(most, weights[p]);
    }
    for (double& weight : weights) total += weight = std::exp(weight - most);
    for (size_t p = 0; p <= token; ++p)
      for (size_t i = 0; i < head_dim; ++i)
        result[i] += weights[p] / total * v[(kv_head * context + p) * head_dim + i];
    return result;
  }

  DType type;
  size_t heads, kv_heads, head_dim, context;
  std::vector<std::byte> k_bytes, v_bytes;
  std::vector<float> k, v, q;
};

class AttentionTest : public testing::TestWithParam<const InnerLoops*> {
 protected:
  void check(const Case& test, size_t position, size_t tokens) {
    const auto y = test.run(loops_, position, tokens);
    for (size_t t = 0; t < tokens; ++t)
      for (size_t head = 0; head < test.heads; ++head) {
        const auto expected = test.expected(position + t, head);
        for (size_t i = 0; i < test.head_dim; ++i)
          ASSERT_NEAR(y[(t * test.heads + head) * test.head_dim + i], expected[i], 2e-5)
              << info(test.type).name << " token " << position + t << " head " << head;
      }
  }
  const AttentionLoops& loops_ = *GetParam()->attention;
};

TEST_P(AttentionTest, MatchesPlainLoops) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0})
    for (size_t head_dim : {8, 20, 32, 64, 128}) {
      if (head_dim % info(type).block_values != 0) continue;
      const Case test(type, 6, 2, head_dim, 100);
      for (size_t tokens : {1, 2, 5, 33, 100}) check(test, 100 - tokens, tokens);
    }
}

TEST_P(AttentionTest, MatchesPlainLoopsAcrossSplits) {
  const Case test(DType::f16, 4, 1, 32, 700);
  for (size_t position : {254, 255, 256, 257, 511, 512, 699}) check(test, position, 1);
  check(test, 0, 700);
  check(test, 250, 20);
}

TEST_P(AttentionTest, EveryShapeOfHeads) {
  for (auto [heads, kv_heads] :
       {std::pair<size_t, size_t>{1, 1}, {7, 7}, {5, 1}, {48, 1}, {12, 4}}) {
    const Case test(DType::f16, heads, kv_heads, 16, 40);
    check(test, 39, 1);
    check(test, 3, 37);
  }
}

// To the last bit: however a sequence is cut into calls, however many threads share the work.
TEST_P(AttentionTest, CutsAndThreadsChangeNothing) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0}) {
    const Case test(type, 8, 2, 64, 600);
    const auto whole = test.run(loops_, 0, 600, 1);
    EXPECT_EQ(test.run(loops_, 0, 600, 5), whole);
    const size_t width = test.heads * test.head_dim;
    for (auto [position, tokens] :
         {std::pair<size_t, size_t>{0, 1}, {255, 3}, {300, 1}, {511, 9}, {560, 40}, {599, 1}}) {
      const std::vector<float> part(whole.begin() + position * width,
                                    whole.begin() + (position + tokens) * width);
      for (unsigned threads : {1u, 3u, 16u})
        EXPECT_EQ(test.run(loops_, position, tokens, threads), part) << position;
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Case test(DType::f32, 2, 1, 16, 300);
  for (float& value : test.q) value *= 1000;
  const auto y = test.run(loops_, 299, 1);
  for (float value : y) EXPECT_TRUE(std::isfinite(value));
  const auto expected = test.expected(299, 1);
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(y[16 + i], expected[i], 1e-3);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, AttentionTest,
                         testing::ValuesIn(usable_inner_loops().begin(),
                                           usable_inner_loops().end()),
                         [](const auto& variant) { return std::string(variant.param->name); });

}  // namespace
}  // namespace tyto::cpu
