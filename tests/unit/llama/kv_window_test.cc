// Pages of layers that attend to a window: what is given back, and what must not be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "llama/kv_store.h"

namespace tyto {
namespace {

using Pages = std::vector<KvPage>;

struct Pools {
  Pools(uint32_t pages, uint32_t window_pages, uint32_t page_positions, uint32_t positions,
        uint32_t rows)
      : pool(pages, page_positions),
        window_pool(window_pages, page_positions),
        window{&window_pool, positions, std::max(rows, page_positions)} {}

  // A pass that appends `rows` positions.
  static bool append(KvTable& table, uint32_t rows) {
    std::optional<KvTable::Copy> copy;
    if (!table.grow_to(table.length() + rows, copy)) return false;
    table.set_length(table.length() + rows);
    return true;
  }
  uint32_t held() const { return window_pool.in_use(); }

  KvPool pool, window_pool;
  KvWindow window;
};

Pages windows_of(const KvTable& table) {
  return {table.window_pages().begin(), table.window_pages().end()};
}

TEST(KvWindow, PagesInFrontAreGivenBackWhenTheTableGrows) {
  Pools pools(8, 8, 4, 3, 4);
  KvTable table(pools.pool, pools.window);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Pools::append(table, 4));
  EXPECT_EQ(windows_of(table), (Pages{0, 1, 2})) << "nothing before it is needed";
  ASSERT_TRUE(Pools::append(table, 4));
  EXPECT_EQ(windows_of(table), (Pages{kNoPage, 1, 2, 0}))
      << "position 12 attends to 10 and on, and the page before may be taken back";
  EXPECT_EQ(table.pages().size(), 4u) << "other layers attend to all";
  EXPECT_EQ(pools.held(), 3u);
  table.set_length(0);
  EXPECT_EQ(pools.held(), 0u);
  EXPECT_EQ(pools.pool.in_use(), 0u);
}

TEST(KvWindow, ATableWithoutAWindowHasNoSuchPages) {
  KvPool pool(4, 4);
  KvTable table(pool);
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(9, copy));
  EXPECT_TRUE(table.window_pages().empty());
  EXPECT_TRUE(table.can_be_cut_to(0));
}

TEST(KvWindow, RoomIsTakenForOnePassHoweverMuchIsWanted) {
  Pools pools(40, 4, 4, 5, 8);
  KvTable table(pools.pool, pools.window);
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(160, copy));
  EXPECT_EQ(table.room(), 160u);
  EXPECT_EQ(pools.held(), 2u);
}

// Whatever the sizes: what a position attends to is there, no more pages than promised are held,
// and the table can be cut to where the last pass began and to the page before.
TEST(KvWindow, HoldsWhatIsAttendedToAndNoMoreThanPromised) {
  std::mt19937 random(3);
  for (const uint32_t page : {1u, 4u, 16u})
    for (const uint32_t positions : {1u, 2u, 4u, 5u, 16u, 33u})
      for (const uint32_t rows : {1u, 3u, 16u, 40u}) {
        SCOPED_TRACE(testing::Message() << page << " " << positions << " " << rows);
        Pools pools(600 / page + 2, 600, page, positions, rows);
        const uint32_t most = KvWindow::most_pages(positions, pools.window.rows, page);
        KvTable table(pools.pool, pools.window);
        while (table.length() < 500) {
          const uint32_t begin = table.length(), now = 1 + static_cast<uint32_t>(random() % rows);
          std::optional<KvTable::Copy> copy;
          ASSERT_TRUE(table.grow_to(begin + now, copy));
          ASSERT_LE(pools.held(), most);
          const uint32_t first = begin + 1 - std::min(begin + 1, positions);
          for (uint32_t at = first; at < begin + now; ++at)
            ASSERT_NE(table.window_pages()[at / page], kNoPage) << at;
          table.set_length(begin + now);
          ASSERT_TRUE(table.can_be_cut_to(begin));
          ASSERT_TRUE(table.can_be_cut_to(begin - std::min(begin, page)));
          ASSERT_TRUE(table.can_be_cut_to(table.length() / page * page));
        }
        EXPECT_LT(pools.held(), 500 / page) << "the test tests something";
      }
}

TEST(KvWindow, SaysWhichPagesAreLacking) {
  Pools pools(4, 2, 4, 6, 4);
  KvTable table(pools.pool, pools.window);
  EXPECT_EQ(table.lacking(8), std::nullopt);
  EXPECT_EQ(table.lacking(17), KvKind::full);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Pools::append(table, 4));
  EXPECT_EQ(table.lacking(9), KvKind::windowed);
  EXPECT_FALSE(Pools::append(table, 1));
  EXPECT_EQ(pools.pool.in_use(), 2u) << "none is taken of the others, either";
}

TEST(KvWindow, ASharedPageIsCopiedWithItsWindow) {
  Pools pools(8, 8, 4, 3, 4);
  KvTable table(pools.pool, pools.window);
  ASSERT_TRUE(Pools::append(table, 4));
  ASSERT_TRUE(Pools::append(table, 2));
  KvTable other = table.share(6);
  EXPECT_EQ(windows_of(other), (Pages{0, 1}));
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(other.grow_to(7, copy));
  EXPECT_EQ(copy, (KvTable::Copy{1, 2, 2, 1, 2}));
  EXPECT_EQ(windows_of(other), (Pages{0, 2}));
  ASSERT_TRUE(table.grow_to(7, copy));
  EXPECT_FALSE(copy) << "nobody else has it any more";
}

TEST(KvWindow, AWindowThatIsTheTablesAloneIsNotCopied) {
  Pools pools(8, 8, 4, 3, 4);
  KvTable table(pools.pool, pools.window);
  ASSERT_TRUE(Pools::append(table, 2));
  const Pages none = {kNoPage};
  const KvTable other(pools.pool, table.pages(), PassBegins(2), pools.window, none);
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(3, copy));
  EXPECT_EQ(copy, (KvTable::Copy{0, 1, 2}));
  EXPECT_EQ(windows_of(table), (Pages{0}));
}

TEST(KvWindow, WhereTheWindowIsGoneATableCannotGoOn) {
  Pools pools(8, 8, 4, 3, 4);
  KvTable table(pools.pool, pools.window);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Pools::append(table, 4));
  EXPECT_FALSE(table.can_be_cut_to(4));
  EXPECT_TRUE(table.can_be_cut_to(0));
  KvTable shared = table.share(8);
  EXPECT_FALSE(shared.can_be_cut_to(8));
  std::optional<KvTable::Copy> copy;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)shared.grow_to(9, copy), "internal error");
}

}  // namespace
}  // namespace tyto
