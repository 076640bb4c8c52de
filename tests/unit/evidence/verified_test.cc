// What a machine remembers of its verifications.
#include "evidence/verified.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

Combination combination() {
  return {.tyto = "1.0",
          .weights = "w",
          .driver = "d",
          .hardware = "h",
          .device = "vnpu",
          .fusion = "block",
          .weight_form = "bf16",
          .kv_type = "f16",
          .numerics = "bf16",
          .images = {"a", "b", "c"}};
}

std::string line(bool passed, const std::string& time, const Combination& of = combination()) {
  return record_line({of, passed, time, "the f32 reference", 2}) + "\n";
}

TEST(Verified, NothingIsRememberedOfAnEmptyFile) {
  EXPECT_EQ(look_up("", combination()).state, Verified::no);
  EXPECT_EQ(look_up("\n\n", combination()).state, Verified::no);
  EXPECT_EQ(look_up("\n\n", combination()).warning, "");
}

TEST(Verified, TheNewestLineCounts) {
  const Verification failed = look_up(line(true, "t1") + line(false, "t2"), combination());
  EXPECT_EQ(failed.state, Verified::failed);
  EXPECT_EQ(failed.time, "t2");
  const Verification passed = look_up(line(false, "t1") + line(true, "t2"), combination());
  EXPECT_EQ(passed.state, Verified::yes);
  EXPECT_EQ(passed.time, "t2");
}

TEST(Verified, EveryPartOfTheCombinationCounts) {
  const std::string lines = line(true, "t");
  EXPECT_EQ(look_up(lines, combination()).state, Verified::yes);
  for (std::string Combination::* part :
       {&Combination::tyto, &Combination::weights, &Combination::driver, &Combination::hardware,
        &Combination::device, &Combination::fusion, &Combination::weight_form,
        &Combination::kv_type, &Combination::numerics}) {
    Combination other = combination();
    other.*part += "x";
    EXPECT_EQ(look_up(lines, other).state, Verified::no) << other.*part;
  }
}

TEST(Verified, FewerImagesAreCoveredAndOthersAreNot) {
  Combination running = combination();
  running.images = {"a", "c"};
  EXPECT_EQ(look_up(line(true, "t"), running).state, Verified::yes);
  running.images = {"a", "d"};
  EXPECT_EQ(look_up(line(true, "t"), running).state, Verified::no);
}

TEST(Verified, DamagedLinesArePassedOverWithOneWarning) {
  std::string other_version = line(false, "t3");
  other_version.replace(other_version.find("tyto-verified-1"), 15, "tyto-verified-2");
  const std::string half = line(false, "t4").substr(0, 60) + "\n";
  const Verification result =
      look_up("garbage\n" + line(true, "t1") + half + "{}\n[1,2]\n" + other_version +
                  "{\"schema\":\"tyto-verified-1\",\"verdict\":\"maybe\"}\n\xff\xfe\n",
              combination());
  EXPECT_EQ(result.state, Verified::yes);
  EXPECT_EQ(result.time, "t1");
  EXPECT_NE(result.warning.find("7 damaged lines"), std::string::npos) << result.warning;
  EXPECT_EQ(result.warning.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tyto
