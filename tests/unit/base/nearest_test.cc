#include "base/spelling.h"

#include <gtest/gtest.h>

#include <vector>

namespace tyto {
namespace {

const std::vector<std::string> kNames = {"temp", "tokens", "threads", "models", "q4_k_m", "n"};

TEST(Nearest, AFewLettersMayBeWrong) {
  EXPECT_EQ(nearest("tmep", kNames), "temp");       // swapped
  EXPECT_EQ(nearest("modells", kNames), "models");  // too many
  EXPECT_EQ(nearest("tread", kNames), "threads");   // too few
  EXPECT_EQ(nearest("tokans", kNames), "tokens");   // another
  EXPECT_EQ(nearest("Q4_K_S", kNames), "q4_k_m");
}

TEST(Nearest, AWordMayBeCutShortOrGoOn) {
  EXPECT_EQ(nearest("temperature", kNames), "temp");
  EXPECT_EQ(nearest("tok", kNames), "tokens");
}

TEST(Nearest, NothingIsNearToAnotherWord) {
  for (const char* typed : {"", "x", "ps", "device", "zzzzzz", "stoken-of-regard"})
    EXPECT_EQ(nearest(typed, kNames), std::nullopt) << typed;
  EXPECT_EQ(nearest("temp", {}), std::nullopt);
  EXPECT_EQ(nearest(std::string(1 << 20, 't'), kNames), std::nullopt);
}

TEST(Nearest, TheNearestOfSeveral) {
  const std::vector<std::string> names = {"top-k", "top-p", "stop"};
  EXPECT_EQ(nearest("top_p", names), "top-p");
  EXPECT_EQ(nearest("stopp", names), "stop");
}

}  // namespace
}  // namespace tyto
