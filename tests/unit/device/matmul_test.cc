// How a product's tokens and rows are shared among threads does not change a bit of it.
#include "device/cpu/matmul.h"

#include <gtest/gtest.h>

#include <random>

#include "device/cpu/packed_weights.h"
#include "support/random_model.h"

namespace tyto::cpu {
namespace {

constexpr size_t kRows = 70, kCols = 256;

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return values;
}

// Two matrices times the same tokens, by `threads`; then what an epilogue makes of both.
struct CpuProduct {
  CpuProduct(DType type, bool is_packed, size_t tokens, unsigned threads, Epilogue epilogue)
      : other(random_values(tokens * kRows, 3)) {
    testing_support::RandomModel random;
    ThreadPool pool(threads);
    const std::vector<float> x = random_values(tokens * kCols, 1), bias = random_values(kRows, 2);
    std::vector<MatmulTarget> targets;
    std::vector<PackedWeights> packed(2);
    for (size_t i = 0; i < (epilogue == Epilogue::add ? 1 : 2); ++i) {
      const TensorView weight = random.tensor(type, kRows, kCols, 0.3f);
      if (is_packed) packed[i] = pack_weights(weight, pool);
      y[i].assign(tokens * kRows, -777.0f);
      targets.push_back({.type = type,
                         .rows = kRows,
                         .weights = weight.bytes.data(),
                         .row_stride = weight.row_stride(),
                         .packed = is_packed ? &packed[i].matrix : nullptr,
                         .bias = bias.data(),
                         .y = y[i].data()});
    }
    multiply({.x = x.data(),
              .tokens = tokens,
              .k = kCols,
              .targets = targets,
              .epilogue = epilogue,
              .other = other.data()},
             pool, best_inner_loops());
  }

  std::vector<float> y[2], other;
};

TEST(Matmul, ThreadsThatShareTokensChangeNothing) {
  for (const DType type : {DType::f32, DType::bf16, DType::q8_0, DType::q4_k})
    for (const bool is_packed : {false, true})
      for (const Epilogue epilogue : {Epilogue::none, Epilogue::add, Epilogue::swiglu})
        for (const size_t tokens : {16, 17, 130, 257, 515}) {
          const CpuProduct alone(type, is_packed, tokens, 1, epilogue);
          for (const unsigned threads : {2u, 5u, 40u}) {
            const CpuProduct shared(type, is_packed, tokens, threads, epilogue);
            EXPECT_EQ(shared.y[0], alone.y[0])
                << info(type).name << " " << tokens << " tokens, threads " << threads;
            EXPECT_EQ(shared.y[1], alone.y[1]);
            EXPECT_EQ(shared.other, alone.other);
          }
        }
}

}  // namespace
}  // namespace tyto::cpu
