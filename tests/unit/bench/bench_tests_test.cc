#include "bench/bench_tests.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace tyto {
namespace {

using Counts = std::vector<uint32_t>;

std::string usage_error(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(BenchTests, CountsAreListsAndRanges) {
  EXPECT_EQ(parse_counts("512", "-p"), Counts{512});
  EXPECT_EQ(parse_counts("0,128,512", "-p"), (Counts{0, 128, 512}));
  EXPECT_EQ(parse_counts("1-4", "-t"), (Counts{1, 2, 3, 4}));
  EXPECT_EQ(parse_counts("16-64+16", "-p"), (Counts{16, 32, 48, 64}));
  EXPECT_EQ(parse_counts("16-60+16", "-p"), (Counts{16, 32, 48}));
  EXPECT_EQ(parse_counts("128-1024*2", "-p"), (Counts{128, 256, 512, 1024}));
  EXPECT_EQ(parse_counts("7-7*1,3", "-p"), (Counts{7, 3}));
  EXPECT_EQ(parse_counts(std::vector<std::string>{"1,2", "3"}, "-p"), (Counts{1, 2, 3}));
}

TEST(BenchTests, BadCountsNameTheFlag) {
  for (const char* bad : {"", "x", "1,", ",1", "1 2", "-1", "1.5", "1-", "1-4+", "1-4/2", "4-1",
                          "0-8*2", "1-8*1", "1-8+0", "99999999999", "16777217", "1-100000"})
    EXPECT_TRUE(usage_error([&] { parse_counts(bad, "-p"); }).starts_with("-p: ")) << bad;
}

TEST(BenchTests, PairsAreTwoCounts) {
  EXPECT_EQ(parse_pair("512,128", "-pg"), (std::pair<uint32_t, uint32_t>{512, 128}));
  for (const char* bad : {"", "512", "512,", ",1", "1,2,3", "a,b"})
    EXPECT_TRUE(usage_error([&] { parse_pair(bad, "-pg"); }).starts_with("-pg: ")) << bad;
}

TEST(BenchTests, NamesAreListedWithCommas) {
  EXPECT_EQ(parse_names({"a,b", "c"}, "-m"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(parse_names({}, "-m").empty());
  for (const char* bad : {"", "a,,b", "a,", ",a"})
    EXPECT_TRUE(usage_error([&] { parse_names({bad}, "-m"); }).starts_with("-m: ")) << bad;
}

TEST(BenchTests, TestsInTheOrderOfDepthsAndTheirNames) {
  const auto tests = bench_tests(
      {.prompts = {0, 512}, .generates = {128, 0}, .pairs = {{16, 4}, {0, 0}}, .depths = {0, 64}});
  std::vector<std::string> names;
  for (const BenchTest& test : tests) names.push_back(test.name());
  EXPECT_EQ(names, (std::vector<std::string>{"pp512", "tg128", "pp16+tg4", "pp512 @ d64",
                                             "tg128 @ d64", "pp16+tg4 @ d64"}));
  EXPECT_EQ(tests.back().tokens(), 20u);
  EXPECT_EQ(tests.back().positions(), 84u);
  usage_error([] { bench_tests({.prompts = {0}, .generates = {}, .pairs = {}, .depths = {0}}); });
}

TEST(BenchTests, FlagsOfSeveralLettersAreSpelledOut) {
  const std::vector<std::string> given = {"bench", "-pg", "16,4", "-ub", "64",   "-p", "8",
                                          "-dev",  "cpu", "-oe",  "md",  "-ctk", "f16"};
  EXPECT_EQ(
      spell_out_bench_flags(given),
      (std::vector<std::string>{"bench", "--pg", "16,4", "--ubatch-size", "64", "-p", "8",
                                "--device", "cpu", "--output-err", "md", "--cache-type-k", "f16"}));
}

TEST(BenchTests, FlagsWithoutAMeaningAreRefusedWithTheReason) {
  for (const char* flag : {"-ngl", "--n-gpu-layers", "--n-gpu-layers=99", "-fa", "-hfr", "--poll",
                           "-C", "--mmap=0", "--numa"}) {
    const std::string text =
        usage_error([&] { spell_out_bench_flags(std::vector<std::string>{"bench", flag, "1"}); });
    EXPECT_NE(text.find("llama-bench"), std::string::npos) << flag;
    const std::string name = std::string(flag).substr(0, std::string(flag).find('='));
    EXPECT_TRUE(text.starts_with(name + ": ")) << text;
  }
}

TEST(BenchTests, StatisticsOfFewValues) {
  const Statistics odd = statistics({3, 1, 2});
  EXPECT_DOUBLE_EQ(odd.mean, 2);
  EXPECT_DOUBLE_EQ(odd.deviation, 1);
  EXPECT_DOUBLE_EQ(odd.median, 2);
  EXPECT_DOUBLE_EQ(odd.least, 1);
  EXPECT_DOUBLE_EQ(odd.most, 3);
  EXPECT_DOUBLE_EQ(statistics({1, 2, 4, 9}).median, 3);
  EXPECT_DOUBLE_EQ(statistics({5}).deviation, 0);
  EXPECT_DOUBLE_EQ(statistics({}).mean, 0);
}

}  // namespace
}  // namespace tyto
