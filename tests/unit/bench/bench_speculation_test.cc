#include "bench/bench_speculation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

OracleScript script(size_t tokens, double acceptance) {
  OracleScript made{.begin = 3, .vocab = 10};
  for (size_t i = 0; i < tokens; ++i) made.tokens.push_back(static_cast<Token>(i % 10));
  falsify_drafts(made, acceptance);
  return made;
}

TEST(BenchSpeculation, AnOracleSpoilsItsShareAndAlwaysTheSame) {
  for (const double acceptance : {0.0, 0.25, 0.5, 0.7, 1.0}) {
    const OracleScript made = script(64, acceptance);
    const auto wrong = std::ranges::count(made.is_wrong, true);
    EXPECT_NEAR(static_cast<double>(wrong), 64 * (1 - acceptance), 0.5) << acceptance;
    EXPECT_EQ(made.is_wrong, script(64, acceptance).is_wrong);
  }
  EXPECT_TRUE(script(0, 0.5).is_wrong.empty());
}

TEST(BenchSpeculation, AnOracleGuessesFromWhereTheTextIs) {
  auto made = std::make_shared<OracleScript>(script(12, 1));
  const Drafter drafter = oracle_drafter(made);
  std::vector<Token> text(3 + 8);
  EXPECT_EQ(drafter(text, 3), (std::vector<Token>{8, 9, 0}));
  EXPECT_EQ(drafter(text, 100), (std::vector<Token>{8, 9, 0, 1}));  // its end
  EXPECT_TRUE(drafter(text, 0).empty());
  text.resize(3 + 12);
  EXPECT_TRUE(drafter(text, 4).empty());
  falsify_drafts(*made, 0);
  text.resize(3 + 8);
  EXPECT_EQ(drafter(text, 2), (std::vector<Token>{9, 0}));  // each another token of the vocabulary
}

TEST(BenchSpeculation, NamesAreTheTests) {
  EXPECT_EQ(parse_speculation("lookup").text, "lookup");
  EXPECT_EQ(parse_speculation("oracle:0.7").text, "oracle:0.70");
  EXPECT_EQ(parse_speculation("oracle:1").text, "oracle:1.00");
  EXPECT_EQ(parse_speculation("oracle:0.705").text, "oracle:0.705");
  EXPECT_DOUBLE_EQ(*parse_speculation("oracle:0").oracle, 0);
  for (const char* bad : {"", "oracle", "oracle:", "oracle:2", "oracle:-1", "oracle:nan",
                          "oracle:0.5x", "draft", "Lookup"})
    EXPECT_ERROR(parse_speculation(bad), "there is no such draft") << bad;
  EXPECT_EQ((BenchTest{.generate = 64, .speculation = "oracle:0.70"}).name(),
            "tg64 spec oracle:0.70");
  EXPECT_EQ((BenchTest{.generate = 8, .depth = 32, .speculation = "lookup"}).name(),
            "tg8 @ d32 spec lookup");
  EXPECT_TRUE(can_speculate({.generate = 1}));
  EXPECT_FALSE(can_speculate({.prompt = 8}));
  EXPECT_FALSE(can_speculate({.generate = 8, .sequences = 2}));
}

}  // namespace
}  // namespace tyto
