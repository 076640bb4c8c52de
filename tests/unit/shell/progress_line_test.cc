#include "shell/progress.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace tyto {
namespace {

TEST(ProgressLine, SaysWhatIsDoneAndHowMuchOfIt) {
  EXPECT_EQ(progress_text({"loading weights", 0, 10}, 80),
            "loading weights [..............................]   0%");
  EXPECT_EQ(progress_text({"loading weights", 5, 10}, 80),
            "loading weights [###############...............]  50%");
  EXPECT_EQ(progress_text({"opening the model"}, 80), "opening the model …");
  EXPECT_EQ(progress_text({"opening the model", 0, 0, 3.2}, 80), "opening the model … 3 s");
}

TEST(ProgressLine, TimeLeftIsSaidOfLongWorkOnly) {
  const auto text = [](uint64_t done, double seconds) {
    return progress_text({"work", done, 100, seconds}, 80);
  };
  EXPECT_EQ(text(50, 2).find("left"), std::string::npos);  // 4 s in all
  EXPECT_NE(text(10, 2).find(" 10%  18 s left"), std::string::npos);
  EXPECT_NE(text(1, 10).find("16 min left"), std::string::npos);
  EXPECT_EQ(text(1, 0.5).find("left"), std::string::npos);  // too early to tell
  EXPECT_EQ(text(0, 60).find("left"), std::string::npos);
}

TEST(ProgressLine, FitsEveryTerminal) {
  for (size_t columns = 0; columns < 100; ++columns)
    for (const ProgressState& state :
         {ProgressState{"prompt 1 of 8: the reference computes", 3, 40, 30},
          ProgressState{"猫頭鷹", 3, 40, 0}, ProgressState{"opening the model", 0, 0, 12}})
      EXPECT_LE(columns_of(progress_text(state, columns)), columns);
  EXPECT_NE(progress_text({"loading weights", 5, 10}, 16).find(" 50%"), std::string::npos);
}

TEST(ProgressLine, LargeCountsDoNotOverflow) {
  EXPECT_NE(progress_text({"bytes", UINT64_MAX / 2, UINT64_MAX}, 80).find(" 50%"),
            std::string::npos);
}

}  // namespace
}  // namespace tyto
