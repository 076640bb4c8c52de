#include "model/model.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto {
namespace {

std::string told(uint64_t has, uint64_t least) try {
  fail_cut_off("f", has, least);
} catch (const Error& error) {
  return error.what();
}

TEST(CutOff, SizesAreInTheUnitOfTheLargerOne) {
  EXPECT_EQ(told(5'000'000, 7'273'000), "f: the file is cut off: 5.0 of at least 7.3 MB");
  EXPECT_EQ(told(5'000'000, 219'000'000), "f: the file is cut off: 5.0 of at least 219.0 MB");
  EXPECT_EQ(told(900'000'000, 4'920'000'000), "f: the file is cut off: 0.9 of at least 4.9 GB");
  EXPECT_EQ(told(1300, 2600), "f: the file is cut off: 1.3 of at least 2.6 kB");
  EXPECT_EQ(told(351, 352), "f: the file is cut off: 351 of at least 352 bytes");
}

TEST(CutOff, WhatIsMissingCanBeSeen) {
  EXPECT_EQ(told(7'250'000, 7'273'000), "f: the file is cut off: 7250.0 of at least 7273.0 kB");
  EXPECT_EQ(told(7'272'999, 7'273'000),
            "f: the file is cut off: 7272999 of at least 7273000 bytes");
  EXPECT_EQ(told(96, 1'049'000), "f: the file is cut off: less than 0.1 of at least 1.0 MB");
}

TEST(CutOff, NothingAndMoreThanAnyDiskAreToldApart) {
  EXPECT_EQ(told(0, 100), "f: the file is empty");
  EXPECT_NE(told(100, UINT64_MAX).find("the file is damaged"), std::string::npos);
}

}  // namespace
}  // namespace tyto
