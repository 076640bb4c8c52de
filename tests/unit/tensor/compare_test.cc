#include "tensor/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tyto {
namespace {

using Values = std::vector<float>;

TEST(Compare, EqualVectors) {
  const Values values = {1, -2, 3};
  const Comparison result = compare(values, values);
  EXPECT_EQ(result.max_abs_error, 0);
  EXPECT_EQ(result.max_abs_reference, 3);
  EXPECT_DOUBLE_EQ(result.cosine, 1);
  EXPECT_EQ(result.nmse, 0);
  EXPECT_TRUE(result.finite);
}

TEST(Compare, DistancesAreThoseOfTheFormulas) {
  const Comparison result = compare(Values{1, 1}, Values{1, 0});
  EXPECT_EQ(result.max_abs_error, 1);
  EXPECT_EQ(result.max_abs_reference, 1);
  EXPECT_DOUBLE_EQ(result.cosine, std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(result.nmse, 1);
  EXPECT_DOUBLE_EQ(compare(Values{2, 0}, Values{-1, 0}).cosine, -1);
  EXPECT_DOUBLE_EQ(compare(Values{0, 3}, Values{2, 0}).cosine, 0);
}

TEST(Compare, ZeroVectors) {
  EXPECT_EQ(compare(Values{0, 0}, Values{0, 0}).cosine, 1);
  EXPECT_EQ(compare(Values{0, 0}, Values{0, 0}).nmse, 0);
  EXPECT_EQ(compare(Values{0, 0}, Values{0, 2}).cosine, 0);
  EXPECT_EQ(compare(Values{0, 2}, Values{0, 0}).cosine, 0);
  EXPECT_GT(compare(Values{0, 2}, Values{0, 0}).nmse, 0);
  EXPECT_EQ(compare(Values{}, Values{}).cosine, 1);
}

TEST(Compare, NonFiniteValuesAreReported) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInf, -kInf}) {
    EXPECT_FALSE(compare(Values{1, bad}, Values{1, 1}).finite);
    EXPECT_FALSE(compare(Values{1, 1}, Values{1, bad}).finite);
    EXPECT_FALSE(compare(Values{bad}, Values{bad}).finite);
  }
}

TEST(Compare, LargeValuesDoNotOverflow) {
  const Values large(1000, 3e38f);
  const Comparison result = compare(large, large);
  EXPECT_TRUE(result.finite);
  EXPECT_DOUBLE_EQ(result.cosine, 1);
  EXPECT_EQ(result.nmse, 0);
}

TEST(CompareDeathTest, SizesMustAgree) {
  EXPECT_DEATH((void)compare(Values{1}, Values{1, 2}), "internal error");
}

}  // namespace
}  // namespace tyto
