#include "engine/job.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

TEST(StopStrings, WithoutStopsEverythingPasses) {
  StopStrings stops({});
  EXPECT_EQ(stops.push("abc"), "abc");
  EXPECT_EQ(stops.finish(), "");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, HoldsBackWhatCouldBecomeAStop) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("say E"), "say ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("JOY"), "ENJOY");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, StopsBeforeTheStringEvenAcrossPieces) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("the E"), "the ");
  EXPECT_EQ(stops.push("ND of it"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, TheEarliestOfSeveralWins) {
  StopStrings stops({"later", "soon"});
  EXPECT_EQ(stops.push("very soon or later"), "very ");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, RepeatedPrefixIsHeldBackCorrectly) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("aaa"), "a");
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, EmptyStopsAreIgnoredAndFinishGivesTheRest) {
  StopStrings stops({"", "xyz"});
  EXPECT_EQ(stops.push("abx"), "ab");
  EXPECT_EQ(stops.finish(), "x");
}

}  // namespace
}  // namespace tyto
