#include "device/vulkan/vulkan_device.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tyto::vulkan {
namespace {

TEST(CallTime, TicksCountOnWhereTheCounterWraps) {
  constexpr uint64_t k36 = uint64_t{1} << 36;
  EXPECT_EQ(ticks_between(100, 350, 36), 250u);
  EXPECT_EQ(ticks_between(k36 - 10, 5, 36), 15u);
  EXPECT_EQ(ticks_between(k36 - 1, 0, 36), 1u);
  EXPECT_EQ(ticks_between(7, 7, 36), 0u);
  // What stands above the valid bits is no part of the time.
  EXPECT_EQ(ticks_between((uint64_t{5} << 40) | 100, (uint64_t{9} << 50) | 350, 36), 250u);
  EXPECT_EQ(ticks_between(100, 350, 64), 250u);
  EXPECT_EQ(ticks_between(UINT64_MAX - 9, 5, 64), 15u);
  EXPECT_EQ(ticks_between(UINT64_MAX, 0, 63), 1u);
  EXPECT_EQ(ticks_between(100, 350, 0), 0u);
  EXPECT_EQ(ticks_between(350, 100, 0), 0u);
}

// When a call that takes `took` is noticed, while the last of its form took `expected`.
struct Noticed {
  uint64_t after_ns = 0;
  uint64_t looks = 0;
};
Noticed noticed(uint64_t took, uint64_t expected) {
  Noticed result;
  while (result.after_ns < took) {
    const uint64_t nap = nap_ns(result.after_ns, expected);
    if (nap == 0) return {std::max(took, result.after_ns), result.looks};  // polls, then waits
    result.after_ns += nap;
    ++result.looks;
  }
  return result;
}

TEST(CallTime, ACallThatEndsEarlyIsNoticedSoon) {
  constexpr uint64_t kTimes[] = {0,           1'000,          29'000,        31'000,
                                 200'000,     1'000'000,      7'654'321,     50'000'000,
                                 900'000'000, 30'000'000'000, 60'000'000'000};
  for (const uint64_t expected : kTimes)
    for (const uint64_t took : kTimes) {
      const Noticed end = noticed(took, expected);
      EXPECT_GE(end.after_ns, took);
      EXPECT_LE(end.after_ns, took + std::max(kLongestNap, took / 32)) << took << " " << expected;
      EXPECT_LT(end.looks, 1000u) << took << " " << expected;
      EXPECT_TRUE(took < expected || end.after_ns == took) << took << " " << expected;
    }
  // A timestamp that means nothing makes no sleep without an end.
  EXPECT_LE(nap_ns(0, UINT64_MAX), kLongestNap);
  EXPECT_EQ(nap_ns(UINT64_MAX, 1'000'000), 0u);
}

TEST(CallTime, ACallOfTheExpectedLengthIsSleptThrough) {
  EXPECT_EQ(noticed(1'000'000, 1'000'000).looks, 4u);
  EXPECT_EQ(nap_ns(0, 30'000), 0u);  // too short to sleep
  EXPECT_EQ(nap_ns(0, 100'000), 85'000u);
  EXPECT_EQ(nap_ns(85'000, 100'000), 0u);
}

}  // namespace
}  // namespace tyto::vulkan
