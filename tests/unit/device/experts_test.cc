// Products with the experts that each row takes, against plain loops.
#include "device/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "device/cpu/packed_weights.h"
#include "support/random_model.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

constexpr size_t kExperts = 6, kUsed = 3, kRows = 96, kCols = 256;

std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  return values;
}

// One matrix of all experts, packed or as a file has it, and choices of some rows.
struct Case {
  Case(DType type, size_t tokens, bool is_packed, size_t rows = kRows)
      : weight(random.tensor(type, kExperts * rows, kCols, 0.3f)),
        x(random_values(tokens * kUsed * kCols, 5)),
        bias(random_values(kExperts * rows, 6)) {
    std::mt19937 numbers(9);
    for (size_t t = 0; t < tokens; ++t) {
      std::set<int32_t> chosen;
      while (chosen.size() < kUsed) chosen.insert(static_cast<int32_t>(numbers() % (kExperts - 1)));
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    shares = random_values(tokens * kUsed, 7);
    if (is_packed) packed = pack_weights(weight, pool);
    target = {.type = type,
              .rows = rows,
              .weights = weight.bytes.data(),
              .row_stride = weight.row_stride(),
              .packed = is_packed ? &packed.matrix : nullptr,
              .bias = bias.data(),
              .y = nullptr};
  }

  // [tokens, kUsed, rows] of tokens `first` and so on.
  std::vector<float> run(size_t first, size_t tokens, bool x_of_choice, float* mixed = nullptr) {
    std::vector<float> y(tokens * kUsed * target.rows);
    target.y = y.data();
    const size_t x_rows = x_of_choice ? kUsed : 1;
    ExpertGroup group{.x = x.data() + first * x_rows * kCols,
                      .x_of_choice = x_of_choice,
                      .tokens = tokens,
                      .k = kCols,
                      .ids = ids.data() + first * kUsed,
                      .used = kUsed,
                      .experts = kExperts,
                      .targets = {&target, 1}};
    if (mixed != nullptr) group.weights = shares.data() + first * kUsed;
    group.mixed = mixed;
    read = multiply_experts(group, pool, best_inner_loops());
    return y;
  }

  std::vector<float> plain(size_t tokens, bool x_of_choice) {
    std::vector<float> y, row(kCols);
    for (size_t i = 0; i < tokens * kUsed; ++i)
      for (size_t r = 0; r < target.rows; ++r) {
        const size_t at = static_cast<size_t>(ids[i]) * target.rows + r;
        dequantize(weight.dtype, weight.row(at), row);
        const float* in = x.data() + (x_of_choice ? i : i / kUsed) * kCols;
        double sum = bias[at];
        for (size_t c = 0; c < kCols; ++c) sum += double{row[c]} * in[c];
        y.push_back(static_cast<float>(sum));
      }
    return y;
  }

  testing_support::RandomModel random;
  ThreadPool pool{3};
  TensorView weight;
  std::vector<float> x, bias, shares;
  std::vector<int32_t> ids;
  PackedWeights packed;
  MatmulTarget target;
  size_t read = 0;
};

double worst(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error = std::max(error, std::fabs(double{a[i]} - b[i]));
  return error;
}

struct Kind {
  DType type;
  bool is_packed;
  double tolerance;  // activations of 8 bits, or rounded to bf16, beside f32
};
const Kind kKinds[] = {{DType::f32, false, 1e-4},  {DType::f32, true, 1e-4},
                       {DType::bf16, true, 0.05},  {DType::q8_0, true, 0.1},
                       {DType::q4_k, false, 1e-4}, {DType::q4_k, true, 0.1}};

bool can_run(const Kind& kind) {
  return !kind.is_packed || best_inner_loops().packed != nullptr;
}

TEST(Experts, GiveWhatPlainLoopsGive) {
  for (const Kind& kind : kKinds)
    for (const size_t tokens : {1u, 2u, 7u, 40u})
      for (const bool x_of_choice : {false, true}) {
        if (!can_run(kind)) continue;
        Case test(kind.type, tokens, kind.is_packed);
        EXPECT_LE(worst(test.run(0, tokens, x_of_choice), test.plain(tokens, x_of_choice)),
                  kind.tolerance)
            << info(kind.type).name << " " << kind.is_packed << " " << tokens;
        EXPECT_EQ(test.read, std::set(test.ids.begin(), test.ids.end()).size());
      }
}

// Rows that fill no whole unit of the threads' work.
TEST(Experts, OfAnyHeightAreReadRowByRow) {
  Case test(DType::f32, 5, false, 41);
  EXPECT_LE(worst(test.run(0, 5, false), test.plain(5, false)), 1e-4);
}

TEST(Experts, ATokensBitsDoNotDependOnWhoRunsWithIt) {
  constexpr size_t kTokens = 40;
  for (const Kind& kind : kKinds) {
    if (!can_run(kind)) continue;
    Case test(kind.type, kTokens, kind.is_packed);
    std::vector<float> mixed(kTokens * kRows), alone(kRows);
    const std::vector<float> together = test.run(0, kTokens, true, mixed.data());
    for (size_t t = 0; t < kTokens; ++t) {
      const std::vector<float> one = test.run(t, 1, true, alone.data());
      const auto at = together.begin() + static_cast<std::ptrdiff_t>(t * kUsed * kRows);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), at)) << info(kind.type).name << " " << t;
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), mixed.data() + t * kRows));
    }
  }
}

TEST(Experts, AreAddedUpByTheirWeights) {
  Case test(DType::f32, 1, false);
  std::vector<float> mixed(kRows);
  const std::vector<float> y = test.run(0, 1, false, mixed.data());
  for (size_t r = 0; r < kRows; ++r) {
    double sum = 0;
    for (size_t i = 0; i < kUsed; ++i) sum += double{test.shares[i]} * y[i * kRows + r];
    EXPECT_NEAR(mixed[r], sum, 1e-5);
  }
}

TEST(Experts, AnIdThatIsNoExpertsIsNotRead) {
  for (const int32_t stranger : {-1, static_cast<int32_t>(kExperts), INT32_MAX}) {
    Case test(DType::f32, 2, false);
    test.ids[4] = stranger;
    std::vector<float> mixed(2 * kRows);
    const std::vector<float> y = test.run(0, 2, false, mixed.data());
    EXPECT_TRUE(std::isnan(y[4 * kRows]) && std::isnan(mixed[kRows]));
    EXPECT_TRUE(std::isfinite(y[3 * kRows]) && std::isfinite(mixed[0]));
  }
}

TEST(Experts, TheBestAreChosenInAscendingOrder) {
  const std::vector<float> logits = {1, 5, -2, 4, 5.5f, 0};
  std::vector<float> scores = logits;
  int32_t ids[3];
  float weights[3];
  choose_experts(scores, {3, {}}, ids, weights);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 3), (std::vector<int32_t>{1, 3, 4}));
  const double chosen = std::exp(5.0) + std::exp(4.0) + std::exp(5.5);
  EXPECT_NEAR(weights[1], std::exp(4.0) / chosen, 1e-6);
  scores = logits;
  choose_experts(scores, {3, {.weighs_chosen_alone = false}}, ids, weights);
  const double all = chosen + std::exp(1.0) + std::exp(-2.0) + 1;
  EXPECT_NEAR(weights[2], std::exp(5.5) / all, 1e-6);
}

TEST(Experts, SigmoidsWithABiasChooseByTheSumAndWeighWithoutIt) {
  std::vector<float> scores = {2, -1, 0, 3}, again = scores;
  const std::vector<float> bias = {-1, 1, 0, 0};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  int32_t ids[2];
  float weights[2];
  choose_experts(scores, {2, {.factor = 2.5f, .sigmoid_scores = true}, bias.data()}, ids, weights);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 2), (std::vector<int32_t>{1, 3}));
  const double total = sigmoid(-1) + sigmoid(3);
  EXPECT_NEAR(weights[0], 2.5 * sigmoid(-1) / total, 1e-6);
  EXPECT_NEAR(weights[1], 2.5 * sigmoid(3) / total, 1e-6);
  choose_experts(again, {2, {.weighs_chosen_alone = false, .sigmoid_scores = true}}, ids, weights);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 2), (std::vector<int32_t>{0, 3}));
  EXPECT_NEAR(weights[0], sigmoid(2), 1e-6);
}

// The second group has the best expert, the first and the third have the best two together.
TEST(Experts, AreTakenFromTheGroupsWhoseTwoBestAddUpToMost) {
  std::vector<float> scores = {2, 2, -4, 5, -9, -9, 3, 1, 0};
  int32_t ids[3];
  float weights[3];
  const LaunchShape shape{.sigmoid_scores = true, .groups = 3, .groups_used = 2};
  choose_experts(scores, {3, shape}, ids, weights);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 3), (std::vector<int32_t>{0, 1, 6}));
}

TEST(Experts, NotANumberChoosesSomeAndShows) {
  std::vector<float> scores(4, std::nanf(""));
  int32_t ids[2];
  float weights[2];
  choose_experts(scores, {2, {}}, ids, weights);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 1);
  EXPECT_TRUE(std::isnan(weights[0]));
}

}  // namespace
}  // namespace tyto::cpu
