#include "shell/progress.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

TEST(DownloadMeter, TimesAreThoseOfAClock) {
  EXPECT_EQ(clock_time(0), "0:00");
  EXPECT_EQ(clock_time(9.9), "0:09");
  EXPECT_EQ(clock_time(75), "1:15");
  EXPECT_EQ(clock_time(3700), "1:01:40");
  EXPECT_EQ(clock_time(-1), "0:00");
  EXPECT_EQ(clock_time(1e300), "100000:00:00");
}

}  // namespace
}  // namespace tyto
