// States of recurrent layers in a table: what a pass reads and writes, where a table can be cut,
// and what is given back.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "llama/kv_store.h"

namespace tyto {
namespace {

struct StatePools {
  KvPool pool{16, 4};
  KvPool states{8, 1};

  KvTable table() { return KvTable(pool, kNoWindow, &states); }
  // A pass that appends rows and keeps states behind some positions.
  static bool append(KvTable& table, uint32_t rows, const std::vector<uint32_t>& kept = {},
                     bool is_kept = true) {
    std::optional<KvTable::Copy> copy;
    if (!table.grow_to(table.length() + rows, copy)) return false;
    for (const uint32_t position : kept)
      if (!table.keep_state(position, is_kept)) return false;
    table.set_length(table.length() + rows);
    return true;
  }
};

std::vector<uint32_t> positions_of(const KvTable& table) {
  std::vector<uint32_t> positions;
  for (const StateAt& each : table.states()) positions.push_back(each.position);
  return positions;
}

using Positions = std::vector<uint32_t>;

TEST(KvState, APassReadsOneStateAndWritesAnother) {
  StatePools pools;
  KvTable table = pools.table();
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(3, copy));
  EXPECT_EQ(table.state_from(), kNoState);
  EXPECT_EQ(table.state_to(), 0u);
  ASSERT_TRUE(table.keep_state(2, true));
  EXPECT_EQ(table.kept_in_pass(3), (std::vector<KeptState>{{2, 1}}));
  table.set_length(3);
  EXPECT_EQ(positions_of(table), (Positions{2, 3}));
  ASSERT_TRUE(table.grow_to(9, copy));
  EXPECT_EQ(table.state_from(), 0u);
  EXPECT_EQ(table.state_to(), 2u);
  table.set_length(9);
  EXPECT_EQ(positions_of(table), (Positions{2, 3, 9})) << "until the next pass";
  ASSERT_TRUE(StatePools::append(table, 1));
  EXPECT_EQ(positions_of(table), (Positions{2, 9, 10}));
  EXPECT_EQ(pools.states.in_use(), 3u);
  table.set_length(0);
  EXPECT_EQ(pools.states.in_use(), 0u);
}

TEST(KvState, ATableIsCutToWhereAStateIs) {
  StatePools pools;
  KvTable table = pools.table();
  ASSERT_TRUE(StatePools::append(table, 10, {4, 8}));
  ASSERT_TRUE(StatePools::append(table, 5));
  EXPECT_TRUE(table.can_be_cut_to(15));
  EXPECT_TRUE(table.can_be_cut_to(10)) << "where the last pass began";
  EXPECT_FALSE(table.can_be_cut_to(12));
  EXPECT_EQ(table.last_cut(14), 10u);
  EXPECT_EQ(table.last_cut(9), 8u);
  EXPECT_EQ(table.last_cut(3), 0u);
  table.set_length(table.last_cut(9));
  EXPECT_EQ(positions_of(table), (Positions{4, 8}));
  EXPECT_EQ(table.state_from(), table.states().back().state);
}

TEST(KvState, AStateIsWantedUntilAnotherIs) {
  StatePools pools;
  KvTable table = pools.table();
  table.want_state(6);
  ASSERT_TRUE(StatePools::append(table, 8, {6}, false));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StatePools::append(table, 1));
  EXPECT_EQ(positions_of(table), (Positions{6, 10, 11}));
  table.want_state(11);
  ASSERT_TRUE(StatePools::append(table, 1));
  ASSERT_TRUE(StatePools::append(table, 1));
  EXPECT_EQ(positions_of(table), (Positions{11, 12, 13}));
}

TEST(KvState, TablesShareStatesAndCopyNone) {
  StatePools pools;
  KvTable table = pools.table();
  ASSERT_TRUE(StatePools::append(table, 6, {4}));
  {
    KvTable other = table.share(4);
    EXPECT_EQ(positions_of(other), (Positions{4}));
    EXPECT_EQ(pools.states.references(other.states().back().state), 2u);
    ASSERT_TRUE(StatePools::append(other, 2));
    EXPECT_NE(other.state_from(), table.state_from());
    EXPECT_EQ(pools.states.in_use(), 3u);
  }
  EXPECT_EQ(pools.states.in_use(), 2u);
}

TEST(KvState, WithoutAFreeStateATableDoesNotGrow) {
  KvPool pool(16, 4), states(2, 1);
  KvTable table(pool, kNoWindow, &states);
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(2, copy));
  table.set_length(2);
  ASSERT_TRUE(table.grow_to(4, copy)) << "one in front of the pass, one behind it";
  EXPECT_FALSE(table.keep_state(3, true));
  table.set_length(4);
  ASSERT_TRUE(table.grow_to(5, copy)) << "the first is given back";
  KvTable other(pool, kNoWindow, &states);
  EXPECT_EQ(other.lacking(1), KvKind::state);
  EXPECT_FALSE(other.grow_to(1, copy));
  table.set_length(table.length());
  EXPECT_TRUE(other.grow_to(1, copy)) << "room that was not used is given up";
}

}  // namespace
}  // namespace tyto
