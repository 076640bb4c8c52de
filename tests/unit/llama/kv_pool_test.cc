#include "llama/kv_store.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>

namespace tyto {
namespace {

TEST(KvPool, TakesTheLowestFreePageFirst) {
  KvPool pool(4, 16);
  for (KvPage page = 0; page < 4; ++page) EXPECT_EQ(pool.take(), page);
  for (const KvPage page : {2, 0, 3}) pool.release(page);
  for (const KvPage page : {0, 2, 3}) EXPECT_EQ(pool.take(), page);
  for (KvPage page = 0; page < 4; ++page) pool.release(page);
}

TEST(KvPool, HasNothingToGiveWhenAllAreTaken) {
  KvPool pool(1, 16);
  EXPECT_EQ(pool.take(), 0u);
  EXPECT_EQ(pool.take(), std::nullopt);
  pool.release(0);
  EXPECT_EQ(pool.take(), 0u);
  pool.release(0);

  KvPool none(0, 16);
  EXPECT_EQ(none.take(), std::nullopt);
  EXPECT_EQ(none.peak(), 0u);
}

TEST(KvPool, CountsWhatIsInUseAndThePeak) {
  KvPool pool(3, 16);
  EXPECT_EQ(pool.capacity(), 3u);
  EXPECT_EQ(pool.page_positions(), 16u);
  EXPECT_EQ(pool.in_use(), 0u);
  pool.take();
  pool.take();
  pool.retain(1);  // no further page
  EXPECT_EQ(pool.in_use(), 2u);
  EXPECT_EQ(pool.available(), 1u);
  pool.release(0);
  EXPECT_EQ(pool.in_use(), 1u);
  EXPECT_EQ(pool.peak(), 2u);
  pool.take();
  EXPECT_EQ(pool.peak(), 2u);
  for (const KvPage page : {0, 1, 1}) pool.release(page);
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(KvPool, APageIsFreeOnceItsLastReferenceIsGivenBack) {
  KvPool pool(2, 16);
  pool.take();
  pool.retain(0);
  pool.release(0);
  EXPECT_EQ(pool.references(0), 1u);
  EXPECT_EQ(pool.take(), 1u);
  pool.release(0);
  EXPECT_EQ(pool.references(0), 0u);
  EXPECT_EQ(pool.take(), 0u);
  for (const KvPage page : {0, 1}) pool.release(page);
}

TEST(KvPool, PagesForPositions) {
  const KvPool pool(1, 4);
  for (const auto& [positions, pages] : {std::pair{0u, 0u}, {1u, 1u}, {4u, 1u}, {5u, 2u}})
    EXPECT_EQ(pool.pages_for(positions), pages);
  EXPECT_EQ(pool.pages_for(std::numeric_limits<uint32_t>::max()), 1u << 30);
}

TEST(KvPoolDeathTest, BrokenPromises) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  KvPool pool(1, 4);
  EXPECT_DEATH(pool.retain(0), "internal error");
  EXPECT_DEATH(pool.release(0), "internal error");
  EXPECT_DEATH((void)pool.references(1), "internal error");
  EXPECT_DEATH(KvPool(1, 0), "internal error");
  EXPECT_DEATH(KvPool(1u << 16, 1u << 16), "internal error");
  EXPECT_DEATH(KvPool(1, 4).take(), "internal error");  // the pool goes before its page is back
}

}  // namespace
}  // namespace tyto
