#include "device/npu/formats/memory_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tyto {
namespace {

TEST(HeadsFirst, RunsOfColumnsEachWithAllItsRows) {
  ThreadPool pool(2);
  const HeadsFirst form = {4, 6, 2};
  std::vector<uint16_t> rows(3 * 6), turned(form.values(), 99), back(rows.size(), 7);
  std::iota(rows.begin(), rows.end(), uint16_t{0});
  to_heads_first(form, rows.data(), 3, turned.data(), pool);
  EXPECT_EQ(turned, (std::vector<uint16_t>{0, 1, 6,  7,  12, 13, 0, 0,     //
                                           2, 3, 8,  9,  14, 15, 0, 0,     //
                                           4, 5, 10, 11, 16, 17, 0, 0}));  // nothing of 99 is left
  from_heads_first(form, turned.data(), 3, back.data(), pool);
  EXPECT_EQ(back, rows);
}

}  // namespace
}  // namespace tyto
