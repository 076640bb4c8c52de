// Attention on every instruction set against plain double-precision loops.
#include "device/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "support/print_inner_loops.h"
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
    const Segment segment{0, static_cast<uint32_t>(tokens), static_cast<uint32_t>(position)};
    attend({.q = q.data() + position * heads * head_dim,
            .k = k_bytes.data(),
            .v = v_bytes.data(),
            .kv_type = type,
            .segments = {&segment, 1},
            .shape = shape(),
            .sinks = sinks.empty() ? nullptr : sinks.data(),
            .y = y.data()},
           pool, loops);
    return y;
  }

  LaunchShape shape() const {
    return {.heads = static_cast<uint32_t>(heads),
            .kv_heads = static_cast<uint32_t>(kv_heads),
            .head_dim = static_cast<uint32_t>(head_dim),
            .context = static_cast<uint32_t>(context),
            .window = window,
            .score_cap = cap};
  }

  std::vector<double> expected(size_t token, size_t head) const {
    const size_t kv_head = head / (heads / kv_heads);
    const float* query = q.data() + (token * heads + head) * head_dim;
    const size_t first = window != 0 && token >= window ? token + 1 - window : 0;
    std::vector<double> weights(token + 1), result(head_dim);
    double most = sinks.empty() ? -1e30 : sinks[head];
    for (size_t p = first; p <= token; ++p) {
      for (size_t i = 0; i < head_dim; ++i)
        weights[p] += double{query[i]} * k[(kv_head * context + p) * head_dim + i];
      weights[p] /= std::sqrt(static_cast<double>(head_dim));
      if (cap != 0) weights[p] = cap * std::tanh(weights[p] / cap);
      most = std::max(most, weights[p]);
    }
    double total = sinks.empty() ? 0 : std::exp(sinks[head] - most);
    for (size_t p = first; p <= token; ++p) total += weights[p] = std::exp(weights[p] - most);
    for (size_t p = first; p <= token; ++p)
      for (size_t i = 0; i < head_dim; ++i)
        result[i] += weights[p] / total * v[(kv_head * context + p) * head_dim + i];
    return result;
  }

  DType type;
  size_t heads, kv_heads, head_dim, context;
  std::vector<std::byte> k_bytes, v_bytes;
  std::vector<float> k, v, q;
  uint32_t window = 0;
  float cap = 0;
  std::vector<float> sinks;
};

class AttentionTest : public testing::TestWithParam<const InnerLoops*> {
 protected:
  void check(const Case& test, size_t position, size_t tokens) {
    // Queries and weights that meet codes are rounded to 16 bits, the codes themselves to eight.
    const double near = test.type == DType::q8_0 ? 3e-4 : 2e-5;
    const auto y = test.run(loops_, position, tokens);
    for (size_t t = 0; t < tokens; ++t)
      for (size_t head = 0; head < test.heads; ++head) {
        const auto expected = test.expected(position + t, head);
        for (size_t i = 0; i < test.head_dim; ++i)
          ASSERT_NEAR(y[(t * test.heads + head) * test.head_dim + i], expected[i], near)
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

TEST_P(AttentionTest, AWindowHidesWhatIsBeforeIt) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0})
    for (const uint32_t window : {1u, 7u, 32u, 100u, 255u, 256u, 257u, 300u, 600u, 699u, 700u}) {
      Case test(type, 6, 2, 32, 700);
      test.window = window;
      for (size_t position : {0, 31, 254, 255, 256, 300, 511, 512, 699}) check(test, position, 1);
      check(test, 240, 300);
      check(test, 660, 40);
    }
}

TEST_P(AttentionTest, CutsAndThreadsChangeNothingInAWindow) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0})
    for (const uint32_t window : {5u, 100u, 290u}) {
      Case test(type, 8, 2, 64, 600);
      test.window = window;
      test.cap = 20;
      test.sinks = random_values(test.heads, 4);
      const auto whole = test.run(loops_, 0, 600, 1);
      EXPECT_EQ(test.run(loops_, 0, 600, 5), whole);
      const size_t width = test.heads * test.head_dim;
      for (auto [position, tokens] :
           {std::pair<size_t, size_t>{0, 1}, {255, 3}, {300, 1}, {511, 9}, {560, 40}, {599, 1}}) {
        const std::vector<float> part(whole.begin() + position * width,
                                      whole.begin() + (position + tokens) * width);
        for (unsigned threads : {1u, 3u, 16u})
          EXPECT_EQ(test.run(loops_, position, tokens, threads), part) << window << " " << position;
      }
    }
}

// Pages that are behind the window of all rows may hold anything.
TEST_P(AttentionTest, NothingIsReadBehindTheWindow) {
  Case test(DType::f32, 2, 1, 16, 700);
  test.window = 100;
  const auto before = test.run(loops_, 690, 10);
  const std::vector<float> poison(256 * test.head_dim, NAN);
  for (auto* bytes : {&test.k_bytes, &test.v_bytes})
    std::memcpy(bytes->data(), poison.data(), poison.size() * sizeof(float));
  EXPECT_EQ(test.run(loops_, 690, 10), before);
}

TEST_P(AttentionTest, BoundsAndSinks) {
  for (const float cap : {0.0f, 1.5f, 50.0f})
    for (const bool has_sinks : {false, true}) {
      Case test(DType::f16, 6, 2, 32, 600);
      test.cap = cap;
      if (has_sinks) test.sinks = {-1, 0, 1, 3, 20, -200};
      for (size_t position : {0, 255, 256, 599}) check(test, position, 1);
      check(test, 200, 120);
      Case wide = test;  // scores of some hundreds
      for (float& value : wide.q) value *= 100;
      if (cap != 0) check(wide, 590, 10);
    }
}

// Sequences that hold the same keys on different pages, in no order; what lies between is not read.
struct Paged {
  static constexpr uint32_t kPage = kSplitPositions, kPages = 12;

  explicit Paged(const Case& one_piece) : of(one_piece) {
    row = row_bytes(of.type, of.head_dim);
    k.resize(kPages * of.kv_heads * kPage * row, std::byte{0x7f});  // no value that is of use
    v = k;
  }

  void put(std::span<const uint32_t> pages) {
    for (auto [from, to] : {std::pair{&of.k_bytes, &k}, {&of.v_bytes, &v}})
      for (size_t head = 0; head < of.kv_heads; ++head)
        for (size_t p = 0; p < of.context; ++p) {
          const size_t at = (pages[p / kPage] * of.kv_heads + head) * kPage + p % kPage;
          std::copy_n(from->begin() + (head * of.context + p) * row, row, to->begin() + at * row);
        }
  }

  const Case& of;
  size_t row;
  std::vector<std::byte> k, v;
};

TEST_P(AttentionTest, SegmentsOnPagesOfTheirOwnEqualEachAloneInOnePiece) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0}) {
    const Case test(type, 6, 2, 32, 600);
    Paged paged(test);
    const std::vector<std::vector<uint32_t>> tables = {{7, 2, 9}, {0, 11, 1}, {5, 6, 3}};
    for (const auto& table : tables) paged.put(table);
    // Rows of the call in another order than the segments.
    const std::vector<Segment> segments = {{41, 1, 599, tables[0]},
                                           {0, 40, 230, tables[1]},
                                           {40, 1, 255, tables[2]},
                                           {42, 1, 0, tables[1]}};
    const size_t width = test.heads * test.head_dim, rows = 43;
    std::vector<float> q(rows * width);
    for (const Segment& segment : segments)
      std::copy_n(test.q.begin() + segment.position * width, segment.rows * width,
                  q.begin() + segment.first_row * width);
    LaunchShape shape = test.shape();
    shape.page = Paged::kPage;
    for (unsigned threads : {1u, 2u, 16u}) {
      ThreadPool pool(threads);
      std::vector<float> y(rows * width, -777.0f);
      attend({.q = q.data(),
              .k = paged.k.data(),
              .v = paged.v.data(),
              .kv_type = type,
              .segments = segments,
              .shape = shape,
              .y = y.data()},
             pool, loops_);
      for (const Segment& segment : segments) {
        const std::vector<float> part(y.begin() + segment.first_row * width,
                                      y.begin() + (segment.first_row + segment.rows) * width);
        EXPECT_EQ(part, test.run(loops_, segment.position, segment.rows, 1))
            << info(type).name << " position " << segment.position << ", threads " << threads;
      }
    }
  }
}

// A query that is no number, or beyond all of them, must not vanish where it is rounded.
TEST_P(AttentionTest, WhatIsNotFiniteStaysSo) {
  for (DType type : {DType::f32, DType::f16, DType::q8_0})
    for (const float value : {NAN, INFINITY, -INFINITY}) {
      Case test(type, 2, 1, 64, 300);
      test.q[299 * 2 * 64 + 7] = value;
      const auto y = test.run(loops_, 299, 1);
      for (size_t i = 0; i < 64; ++i) EXPECT_FALSE(std::isfinite(y[i])) << info(type).name;
      const auto expected = test.expected(299, 1);
      for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(y[64 + i], expected[i], 1e-4);
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
