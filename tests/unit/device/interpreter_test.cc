// Patterns and block arithmetic of the interpreter that the virtual NPU is made of.
#include "device/cpu/interpreter.h"

#include <cstring>

#include "device/cpu/operations.h"
#include "unit/device/plain_math.h"

namespace tyto::cpu {
namespace {

using plain::Values;
using plain::Words;

TEST(Bfp16, EightValuesShareOneExponent) {
  // The largest is in [4, 8), so one step is 1/16.
  Values block = {5.0f, -5.03f, 0.1f, 0.03125f, -0.02f, 7.99f, 0.0f, 1.0f};
  round_to_bfp16(block.data(), block.size());
  EXPECT_EQ(block, (Values{5.0f, -5.0f, 0.125f, 0.0f, 0.0f, 127.0f / 16, 0.0f, 1.0f}));
  Values small = {1e-3f, 0, 0, 0, 0, 0, 0, 0, 1000.0f, 1e-3f};  // the next block has its own
  round_to_bfp16(small.data(), small.size());
  EXPECT_NEAR(small[0], 1e-3f, 1e-3f / 128);
  EXPECT_EQ(small[9], 0.0f);
}

TEST(Bfp16, KeepsWhatItCannotRound) {
  const float inf = std::numeric_limits<float>::infinity();
  Values block = {1.0f, inf, std::nanf(""), 0.3f};
  round_to_bfp16(block.data(), block.size());
  EXPECT_EQ(block[1], inf);
  EXPECT_TRUE(std::isnan(block[2]));
  Values tiny = {1e-42f, -1e-44f};
  round_to_bfp16(tiny.data(), tiny.size());
  EXPECT_EQ(tiny, (Values{0.0f, 0.0f}));
  Values none;
  round_to_bfp16(none.data(), 0);
}

TEST(Bfp16, ErrorIsHalfAStepOfTheLargest) {
  Values values = plain::random_values(800, 3);
  const Values before = values;
  round_to_bfp16(values.data(), values.size());
  double worst = 0;
  for (size_t i = 0; i < values.size(); i += 8) {
    float largest = 0;
    for (size_t j = i; j < i + 8; ++j) largest = std::max(largest, std::abs(before[j]));
    const double step = std::exp2(std::floor(std::log2(largest)) - 6);
    for (size_t j = i; j < i + 8; ++j)
      worst = std::max(worst, std::abs(values[j] - before[j]) / step);
  }
  EXPECT_LE(worst, 1.0);  // one whole step only where 127 is the last mantissa
  EXPECT_GT(worst, 0.4);
}

// One launch over buffers whose slots lie as `patterns` say.
struct Bench {
  Program program;
  std::vector<Pattern> patterns;
  std::vector<std::vector<std::byte>> memory;

  void add(const Slot& slot, const Pattern& pattern, uint64_t values) {
    program.slots.push_back(slot);
    patterns.push_back(pattern);
    memory.emplace_back(row_bytes(slot.dtype, values));
  }
  template <typename T>
  T* at(size_t slot) {
    return reinterpret_cast<T*>(memory[slot].data());
  }
  void run(const Call& call, Numerics numerics = Numerics::bf16) {
    check_launches(program, "bench");
    ThreadPool pool(2);
    std::vector<std::byte*> buffers;
    for (auto& bytes : memory) buffers.push_back(bytes.data());
    Interpreter interpreter(program, patterns);
    ASSERT_EQ(interpreter.why_not(buffers, call), std::nullopt);
    interpreter.run(buffers, call, pool, numerics);
  }
};

// f32 rows with gaps are collected and put back; what lies in the gaps stays.
TEST(InterpreterPatterns, F32RowsApart) {
  Bench bench;
  bench.add({"x", SlotKind::inout, DType::f32, 3, 4}, rows_apart(2, 3, 4, 6), 20);
  bench.add({"y", SlotKind::input, DType::f32, 3, 4}, {}, 12);
  bench.program.launches = {{Kernel::add, "add", {{0, true, true}, {1, true, false}}, {}}};
  for (size_t i = 0; i < 20; ++i) bench.at<float>(0)[i] = static_cast<float>(i);
  for (size_t i = 0; i < 12; ++i) bench.at<float>(1)[i] = 100.0f;
  bench.run(call_of(2));
  for (size_t i = 0; i < 20; ++i) {
    const bool is_in = i >= 2 && (i - 2) % 6 < 4 && i < 2 + 2 * 6;  // two rows of the three
    EXPECT_EQ(bench.at<float>(0)[i], static_cast<float>(i) + (is_in ? 100.0f : 0.0f)) << i;
  }
}

TEST(LayerNorm, IsWhatPlainLoopsGive) {
  constexpr size_t kWidth = 70, kRows = 6;
  Bench bench;
  bench.add({"x", SlotKind::input, DType::f32, kRows, kWidth}, {}, kRows * kWidth);
  bench.add({"w", SlotKind::weight, DType::f32, 1, kWidth}, {}, kWidth);
  bench.add({"y", SlotKind::output, DType::f32, kRows, kWidth}, {}, kRows * kWidth);
  const std::vector<Arg> args = {{0, true, false}, {1, true, false}, {2, false, true}};
  bench.program.launches = {{Kernel::layernorm, "norm", args, {.eps = 1e-5f}}};
  Values x = plain::random_values(kRows * kWidth, 1);
  const Values w = plain::random_values(kWidth, 2);
  for (float& value : x) value += 3;  // a mean that counts
  std::memcpy(bench.at<float>(0), x.data(), x.size() * 4);
  std::memcpy(bench.at<float>(1), w.data(), w.size() * 4);
  bench.run(call_of(kRows));
  for (size_t row = 0; row < kRows; ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < kWidth; ++i) mean += x[row * kWidth + i] / double{kWidth};
    for (size_t i = 0; i < kWidth; ++i)
      variance += std::pow(x[row * kWidth + i] - mean, 2) / double{kWidth};
    for (size_t i = 0; i < kWidth; ++i) {
      const double expected = (x[row * kWidth + i] - mean) / std::sqrt(variance + 1e-5) * w[i];
      EXPECT_NEAR(bench.at<float>(2)[row * kWidth + i], expected, 1e-5) << row << " " << i;
    }
  }
}

TEST(InterpreterPatterns, WeightRowsApartAreReadInPlace) {
  constexpr size_t kK = 24, kN = 10, kStride = 31;
  for (DType type : {DType::bf16, DType::f32}) {
    for (uint32_t tokens : {1u, 6u}) {
      Bench bench;
      bench.add({"x", SlotKind::input, DType::f32, 6, kK}, {}, 6 * kK);
      bench.add({"w", SlotKind::weight, type, kN, kK}, rows_apart(5, kN, kK, kStride),
                5 + kN * kStride);
      bench.add({"y", SlotKind::output, DType::f32, 6, kN}, {}, 6 * kN);
      bench.program.launches = {
          {Kernel::matmul, "mm", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
      const Values x = plain::random_values(tokens * kK, 1), w = plain::random_values(kN * kK, 2);
      std::memcpy(bench.at<float>(0), x.data(), x.size() * 4);
      for (size_t r = 0; r < kN; ++r)
        for (size_t c = 0; c < kK; ++c) {
          const size_t at = 5 + r * kStride + c;
          if (type == DType::f32)
            bench.at<float>(1)[at] = w[r * kK + c];
          else
            bench.at<uint16_t>(1)[at] = f32_to_bf16(w[r * kK + c]);
        }
      bench.run(call_of(tokens));
      const float* y = bench.at<float>(2);
      plain::expect_close(Values(y, y + tokens * kN), plain::matmul(x, w, kK), 1e-5f, "y");
    }
  }
}

// A cache in regions, position by position, gives what one head after the other does.
TEST(InterpreterPatterns, CachesOfAnyOrderAndTypeAgree) {
  constexpr uint32_t kHeads = 8, kKvHeads = 4, kDim = 8, kContext = 16;
  // Two regions, each with its two heads side by side.
  const Pattern regions = {10,
                           {{2, kContext * 2 * kDim}, {2, kDim}, {kContext, 2 * kDim}, {kDim, 1}}};
  constexpr uint64_t kRows = kKvHeads * kContext;
  const LaunchShape shape{
      .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .context = kContext};
  std::vector<Values> results;
  for (DType type : {DType::bf16, DType::f16, DType::f32})
    for (const Pattern& pattern : {Pattern{}, regions}) {
      Bench bench;
      bench.add({"q", SlotKind::input, DType::bf16, 4, kHeads * kDim}, {}, 4 * kHeads * kDim);
      bench.add({"k", SlotKind::input, DType::bf16, 4, kKvHeads * kDim}, {}, 4 * kKvHeads * kDim);
      bench.add({"kc", SlotKind::kv, type, kRows, kDim}, pattern, 10 + kRows * kDim);
      bench.add({"vc", SlotKind::kv, type, kRows, kDim}, pattern, 10 + kRows * kDim);
      bench.add({"y", SlotKind::output, DType::f32, 4, kHeads * kDim}, {}, 4 * kHeads * kDim);
      bench.program.launches = {
          {Kernel::kv_append,
           "append",
           {{1, true, false}, {1, true, false}, {2, false, true}, {3, false, true}},
           shape},
          {Kernel::attention,
           "attend",
           {{0, true, false}, {2, true, false}, {3, true, false}, {4, false, true}},
           shape}};
      for (uint32_t call = 0; call < 3; ++call) {
        const Words q = plain::to_bf16(plain::random_values(4 * kHeads * kDim, call));
        const Words k = plain::to_bf16(plain::random_values(4 * kKvHeads * kDim, 50 + call));
        std::memcpy(bench.at<uint16_t>(0), q.data(), q.size() * 2);
        std::memcpy(bench.at<uint16_t>(1), k.data(), k.size() * 2);
        bench.run(call_of(4, call * 4));
      }
      const float* y = bench.at<float>(4);
      results.emplace_back(y, y + 4 * kHeads * kDim);
      plain::expect_close(results.back(), results.front(), 1e-3f, "y");
    }
}

// Caches are eight positions of one sequence, or pages for four sequences.
std::optional<std::string> problem_of(Kernel kernel, uint32_t page, const Call& call) {
  constexpr uint32_t kHeads = 2, kDim = 8;
  const uint64_t positions = page == 0 ? 8 : uint64_t{4} * page;
  const LaunchShape shape{
      .heads = kHeads, .kv_heads = kHeads, .head_dim = kDim, .context = 8, .page = page};
  const uint64_t rows = 4, width = kHeads * kDim;
  Program program;
  program.slots = {{"q", SlotKind::input, DType::f32, rows, width},
                   {"k", SlotKind::input, DType::f32, rows, width},
                   {"v", SlotKind::input, DType::f32, rows, width},
                   {"k_cache", SlotKind::kv, DType::f32, kHeads * positions, kDim},
                   {"v_cache", SlotKind::kv, DType::f32, kHeads * positions, kDim},
                   {"y", SlotKind::output, DType::f32, rows, width}};
  const auto in = [](uint16_t slot) { return Arg{slot, true, false}; };
  const auto out = [](uint16_t slot) { return Arg{slot, false, true}; };
  const std::vector<Arg> args =
      kernel == Kernel::kv_append   ? std::vector{in(1), in(2), out(3), out(4)}
      : kernel == Kernel::attention ? std::vector{in(0), in(3), in(4), out(5)}
                                    : std::vector{in(0), in(1), in(2), out(5)};
  program.launches = {{kernel, "launch", args, shape}};
  check_launches(program, "here");
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> buffers;
  for (const Slot& slot : program.slots)
    buffers.push_back(memory.emplace_back(slot.bytes()).data());
  return Interpreter(program).why_not(buffers, call);
}

TEST(InterpreterCalls, ThoseThatReachBeyondACacheOrTheirRowsAreRefused) {
  for (const Kernel kernel : {Kernel::kv_append, Kernel::attention}) {
    EXPECT_FALSE(problem_of(kernel, 0, call_of(4, 4)));
    EXPECT_TRUE(problem_of(kernel, 0, call_of(4, 5)));
    EXPECT_TRUE(problem_of(kernel, 0, call_of(4, UINT32_MAX - 1)));  // 2^32 + 2 positions, not 2
    EXPECT_TRUE(problem_of(kernel, 0, call_of(4, 0, 1)));            // rows 1 to 4 of 4
    EXPECT_TRUE(problem_of(kernel, 0, call_of(5)));
    EXPECT_TRUE(problem_of(kernel, 0, call_of(0)));
    // Pages: enough of them, all there.
    constexpr uint32_t kPage = kSplitPositions;
    const std::vector<uint32_t> pages = {3, 0}, one_page = {3}, beyond = {3, 4};
    EXPECT_FALSE(problem_of(kernel, kPage, call_of(4, kPage - 2, 0, pages)));
    EXPECT_FALSE(problem_of(kernel, kPage, call_of(4, kPage - 4, 0, one_page)));
    EXPECT_TRUE(problem_of(kernel, kPage, call_of(4, kPage - 2, 0, one_page)));
    EXPECT_TRUE(problem_of(kernel, kPage, call_of(4, kPage - 2, 0, beyond)));
    EXPECT_TRUE(problem_of(kernel, kPage, call_of(4, UINT32_MAX - 1, 0, pages)));
    // Several sequences: only in pages, and their rows are the call's.
    const std::vector<Segment> two = {{2, 2, 5, pages}, {0, 2, 0, one_page}};
    EXPECT_FALSE(problem_of(kernel, kPage, call_of(two)));
    EXPECT_TRUE(problem_of(kernel, 0, call_of(two)));
    Call short_of_rows = call_of(two);
    short_of_rows.rows = 3;
    EXPECT_TRUE(problem_of(kernel, kPage, short_of_rows));
    const std::vector<Segment> too_far = {{3, 2, 5, pages}, {0, 2, 0, one_page}};
    EXPECT_TRUE(problem_of(kernel, kPage, call_of(too_far)));
  }
}

TEST(InterpreterCalls, APromptsOwnRowsAreOneSequenceFromPositionZero) {
  EXPECT_FALSE(problem_of(Kernel::prompt_attention, 0, call_of(4)));
  EXPECT_TRUE(problem_of(Kernel::prompt_attention, 0, call_of(4, 1)));
  EXPECT_TRUE(problem_of(Kernel::prompt_attention, 0, call_of(2, 0, 3)));
  const std::vector<Segment> two = {{0, 2, 0}, {2, 2, 0}};
  EXPECT_TRUE(problem_of(Kernel::prompt_attention, 0, call_of(two)));
}

TEST(InterpreterPatterns, ProblemsAreNamed) {
  Program program;
  program.slots = {{"ids", SlotKind::input, DType::i32, 4, 1},
                   {"table", SlotKind::weight, DType::bf16, 10, 8},
                   {"x", SlotKind::output, DType::bf16, 4, 8}};
  program.launches = {
      {Kernel::embed, "embed", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
  EXPECT_TRUE(pattern_problem(program, 0, rows_apart(0, 4, 1, 2)));
  EXPECT_FALSE(pattern_problem(program, 0, {7, {}}));
  EXPECT_TRUE(pattern_problem(program, 1, transposed(10, 8)));
  EXPECT_FALSE(pattern_problem(program, 1, rows_apart(0, 10, 8, 9)));
  EXPECT_FALSE(pattern_problem(program, 2, transposed(4, 8)));
}

// ---- Products of blocks

struct Product {
  Values y;
  double error;  // mean, against the mean magnitude
};

Product multiply(uint32_t tokens, Numerics numerics) {
  constexpr size_t kK = 256, kN = 32;
  Bench bench;
  bench.add({"x", SlotKind::input, DType::bf16, 16, kK}, {}, 16 * kK);
  bench.add({"w", SlotKind::weight, DType::bf16, kN, kK}, {}, kN * kK);
  bench.add({"y", SlotKind::output, DType::f32, 16, kN}, {}, 16 * kN);
  bench.program.launches = {
      {Kernel::matmul, "mm", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
  const Values x = plain::random_values(tokens * kK, 1), w = plain::random_values(kN * kK, 2);
  std::memcpy(bench.at<uint16_t>(0), plain::to_bf16(x).data(), x.size() * 2);
  std::memcpy(bench.at<uint16_t>(1), plain::to_bf16(w).data(), w.size() * 2);
  bench.run(call_of(tokens), numerics);
  const Values exact = plain::matmul(x, w, kK);
  Product result{Values(bench.at<float>(2), bench.at<float>(2) + tokens * kN), 0};
  double total = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    result.error += std::abs(result.y[i] - exact[i]);
    total += std::abs(exact[i]);
  }
  result.error /= total;
  return result;
}

// Published for the array's GEMMs: a mean relative error of about 9.5e-3.
TEST(Bfp16, GemmsRoundTheirOperandsAndGemvsDoNot) {
  for (uint32_t tokens : {2u, 3u, 16u}) {
    EXPECT_LT(multiply(tokens, Numerics::bf16).error, 1e-5) << tokens;
    EXPECT_GT(multiply(tokens, Numerics::bfp16).error, 3e-3) << tokens;
    EXPECT_LT(multiply(tokens, Numerics::bfp16).error, 2e-2) << tokens;
  }
  EXPECT_EQ(multiply(1, Numerics::bfp16).y, multiply(1, Numerics::bf16).y);
}

Values attend(Kernel kernel, Numerics numerics) {
  constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 16, kTokens = 24;
  const LaunchShape shape{
      .heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .context = kTokens};
  Bench bench;
  bench.add({"q", SlotKind::input, DType::bf16, kTokens, kHeads * kDim}, {},
            kTokens * kHeads * kDim);
  // Position after position; as a cache, a pattern puts one head after the other.
  const Pattern by_head = {0, {{kKvHeads, kDim}, {kTokens, kKvHeads * kDim}, {kDim, 1}}};
  const bool is_cache = kernel == Kernel::attention;
  for (const char* name : {"k", "v"})
    bench.add({name, SlotKind::input, DType::bf16, is_cache ? kKvHeads * kTokens : kTokens,
               is_cache ? kDim : kKvHeads * kDim},
              is_cache ? by_head : Pattern{}, kTokens * kKvHeads * kDim);
  bench.add({"y", SlotKind::output, DType::f32, kTokens, kHeads * kDim}, {},
            kTokens * kHeads * kDim);
  bench.program.launches = {
      {kernel,
       "attend",
       {{0, true, false}, {1, true, false}, {2, true, false}, {3, false, true}},
       shape}};
  const size_t counts[] = {kTokens * kHeads * kDim, kTokens * kKvHeads * kDim,
                           kTokens * kKvHeads * kDim};
  for (size_t i = 0; i < 3; ++i)
    std::memcpy(bench.at<uint16_t>(i),
                plain::to_bf16(plain::random_values(counts[i], static_cast<uint32_t>(i), 2)).data(),
                counts[i] * 2);
  bench.run(call_of(kTokens), numerics);
  const float* y = bench.at<float>(3);
  return Values(y, y + kTokens * kHeads * kDim);
}

TEST(Bfp16, AttentionRoundsBothItsProducts) {
  const Values exact = attend(Kernel::prompt_attention, Numerics::bf16);
  plain::expect_close(attend(Kernel::attention, Numerics::bf16), exact, 1e-5f, "from a cache");
  const Values blocks = attend(Kernel::prompt_attention, Numerics::bfp16);
  plain::expect_close(blocks, exact, 0.05f, "in blocks");
  EXPECT_NE(blocks, exact);
  plain::expect_close(attend(Kernel::attention, Numerics::bfp16), blocks, 1e-5f, "from a cache");
}

}  // namespace
}  // namespace tyto::cpu
