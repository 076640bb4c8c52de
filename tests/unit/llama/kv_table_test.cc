#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "llama/kv_store.h"
#include "support/kv_memory.h"

namespace tyto {
namespace {

using Pages = std::vector<KvPage>;
using Copy = std::optional<KvTable::Copy>;

Pages pages_of(const KvTable& table) {
  return {table.pages().begin(), table.pages().end()};
}

// With positions up to `length` written.
KvTable table_of(KvPool& pool, uint32_t length) {
  KvTable table(pool);
  Copy copy;
  EXPECT_TRUE(table.grow_to(length, copy));
  EXPECT_FALSE(copy);
  table.set_length(length);
  return table;
}

TEST(KvTable, StartsEmpty) {
  KvPool pool(2, 4);
  const KvTable table(pool);
  EXPECT_TRUE(table.pages().empty());
  EXPECT_EQ(table.length(), 0u);
  EXPECT_EQ(table.room(), 0u);
  EXPECT_EQ(table.pages_needed(0), 0u);
}

TEST(KvTable, GrowsByWholePages) {
  KvPool pool(4, 4);
  KvTable table(pool);
  Copy copy = KvTable::Copy{};
  EXPECT_EQ(table.pages_needed(5), 2u);
  EXPECT_TRUE(table.grow_to(5, copy));
  EXPECT_FALSE(copy) << "an old answer is not left there";
  EXPECT_EQ(pages_of(table), (Pages{0, 1}));
  EXPECT_EQ(table.room(), 8u);
  EXPECT_EQ(table.length(), 0u) << "nothing has been written";
  EXPECT_EQ(table.pages_needed(8), 0u);
  EXPECT_TRUE(table.grow_to(8, copy));
  EXPECT_TRUE(table.grow_to(3, copy)) << "less than the room";
  EXPECT_EQ(table.room(), 8u);
  EXPECT_EQ(table.pages_needed(9), 1u);
}

TEST(KvTable, FailingToGrowChangesNothing) {
  KvPool pool(3, 4);
  KvTable table = table_of(pool, 6);
  Copy copy;
  EXPECT_EQ(table.pages_needed(13), 2u);
  EXPECT_FALSE(table.grow_to(13, copy));
  EXPECT_EQ(pages_of(table), (Pages{0, 1}));
  EXPECT_EQ(table.length(), 6u);
  EXPECT_EQ(pool.in_use(), 2u);
  EXPECT_FALSE(table.grow_to(std::numeric_limits<uint32_t>::max(), copy));
  EXPECT_TRUE(table.grow_to(12, copy));
}

TEST(KvTable, OnePageAsLargeAsTheContext) {
  constexpr uint32_t kContext = std::numeric_limits<uint32_t>::max();
  KvPool pool(1, kContext);
  KvTable table = table_of(pool, kContext);
  EXPECT_EQ(table.room(), kContext);
  table.set_length(1);
  EXPECT_EQ(pages_of(table), (Pages{0}));
}

TEST(KvTable, ARunKeepsTheRoomThatIsLeft) {
  KvPool pool(3, 4);
  KvTable table(pool);
  Copy copy;
  EXPECT_TRUE(table.grow_to(12, copy));
  table.set_length(2);
  EXPECT_EQ(table.length(), 2u);
  EXPECT_EQ(table.room(), 12u);
  table.set_length(9);
  EXPECT_EQ(table.room(), 12u);
}

TEST(KvTable, ForgettingPositionsGivesBackPagesThatHoldNone) {
  KvPool pool(3, 4);
  KvTable table = table_of(pool, 12);
  table.set_length(9);
  EXPECT_EQ(pages_of(table), (Pages{0, 1, 2}));
  table.set_length(8);
  EXPECT_EQ(pages_of(table), (Pages{0, 1}));
  table.set_length(1);
  EXPECT_EQ(pages_of(table), (Pages{0}));
  EXPECT_EQ(pool.in_use(), 1u);
  table.set_length(0);
  EXPECT_TRUE(table.pages().empty());
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(KvTable, SettingTheSameLengthGivesUpUnusedRoom) {
  KvPool pool(3, 4);
  KvTable table(pool);
  Copy copy;
  EXPECT_TRUE(table.grow_to(4, copy));
  table.set_length(0);  // the very first run failed
  EXPECT_EQ(pool.in_use(), 0u);
  table = table_of(pool, 3);
  EXPECT_TRUE(table.grow_to(12, copy));
  table.set_length(3);
  EXPECT_EQ(pages_of(table), (Pages{0}));
}

TEST(KvTable, GivesItsPagesBackWhenItGoes) {
  KvPool pool(3, 4);
  {
    const KvTable table = table_of(pool, 12);
    EXPECT_EQ(pool.in_use(), 3u);
  }
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(KvTable, MovingLeavesAnEmptyTable) {
  KvPool pool(3, 4);
  KvTable first = table_of(pool, 5);
  KvTable second(std::move(first));
  EXPECT_EQ(first.length(), 0u);  // NOLINT: the contract
  EXPECT_TRUE(first.pages().empty());
  EXPECT_EQ(pages_of(second), (Pages{0, 1}));
  EXPECT_EQ(second.length(), 5u);

  first = table_of(pool, 1);
  EXPECT_EQ(pool.in_use(), 3u);
  second = std::move(first);
  EXPECT_EQ(pages_of(second), (Pages{2})) << "what it had before is given back";
  EXPECT_EQ(pool.in_use(), 1u);
  KvTable& same = second;
  second = std::move(same);
  EXPECT_EQ(pages_of(second), (Pages{2}));
}

TEST(KvTableShare, HasTheFirstPagesOnly) {
  KvPool pool(3, 4);
  const KvTable table = table_of(pool, 12);
  const KvTable shared = table.share(5);
  EXPECT_EQ(pages_of(shared), (Pages{0, 1}));
  EXPECT_EQ(shared.length(), 5u);
  EXPECT_EQ(table.share(4).pages().size(), 1u);
  EXPECT_TRUE(table.share(0).pages().empty());
  EXPECT_EQ(pool.references(0), 2u);
  EXPECT_EQ(pool.references(1), 2u);
  EXPECT_EQ(pool.references(2), 1u);
  EXPECT_EQ(pool.in_use(), 3u);
}

TEST(KvTableShare, LeavesOutRoomThatIsNotUsed) {
  KvPool pool(3, 4);
  KvTable table = table_of(pool, 4);
  Copy copy;
  EXPECT_TRUE(table.grow_to(12, copy));
  EXPECT_EQ(pages_of(table.share(4)), (Pages{0}));
}

TEST(KvTableShare, AppendingCopiesAPartlyUsedPageOnce) {
  KvPool pool(4, 4);
  KvTable table = table_of(pool, 6);
  KvTable shared = table.share(5);
  EXPECT_EQ(shared.pages_needed(6), 1u);
  Copy copy;
  EXPECT_TRUE(shared.grow_to(6, copy));
  EXPECT_EQ(copy, (KvTable::Copy{1, 2, 1})) << "only what the share holds";
  EXPECT_EQ(pages_of(shared), (Pages{0, 2}));
  shared.set_length(6);
  EXPECT_TRUE(shared.grow_to(7, copy));
  EXPECT_FALSE(copy);
  EXPECT_EQ(table.pages_needed(7), 0u) << "the page is its own again";
  EXPECT_TRUE(table.grow_to(7, copy));
  EXPECT_FALSE(copy);
  EXPECT_EQ(pages_of(table), (Pages{0, 1}));
}

TEST(KvTableShare, TheOriginalCopiesIfItIsFirst) {
  KvPool pool(4, 4);
  KvTable table = table_of(pool, 6);
  const KvTable shared = table.share(5);
  Copy copy;
  EXPECT_TRUE(table.grow_to(7, copy));
  EXPECT_EQ(copy, (KvTable::Copy{1, 2, 2}));
  EXPECT_EQ(pages_of(shared), (Pages{0, 1}));
}

TEST(KvTableShare, NoCopyOnceTheOtherIsGone) {
  KvPool pool(2, 4);
  KvTable shared(pool);
  {
    const KvTable table = table_of(pool, 6);
    shared = table.share(5);
  }
  EXPECT_EQ(pool.in_use(), 2u);
  Copy copy;
  EXPECT_TRUE(shared.grow_to(8, copy));
  EXPECT_FALSE(copy);
}

TEST(KvTableShare, NoCopyWhenTheLastPageIsFull) {
  KvPool pool(3, 4);
  const KvTable table = table_of(pool, 8);
  KvTable shared = table.share(8);
  EXPECT_EQ(shared.pages_needed(9), 1u);
  Copy copy;
  EXPECT_TRUE(shared.grow_to(9, copy));
  EXPECT_FALSE(copy);
  EXPECT_EQ(pages_of(shared), (Pages{0, 1, 2}));
}

TEST(KvTableShare, NoCopyWhenNothingIsAppended) {
  KvPool pool(2, 4);
  const KvTable table = table_of(pool, 5);
  KvTable shared = table.share(5);
  EXPECT_EQ(shared.pages_needed(5), 0u);
  Copy copy;
  EXPECT_TRUE(shared.grow_to(5, copy));
  EXPECT_FALSE(copy);
}

TEST(KvTableShare, AFullPageThatIsUsedInPartIsCopied) {
  KvPool pool(2, 4);
  KvTable table = table_of(pool, 4);
  const KvTable shared = table.share(4);
  table.set_length(3);
  Copy copy;
  EXPECT_TRUE(table.grow_to(4, copy));
  EXPECT_EQ(copy, (KvTable::Copy{0, 1, 3}));
}

TEST(KvTableShare, ThePageToCopyNeedNotBeTheLastOfTheRoom) {
  KvPool pool(3, 4);
  KvTable table = table_of(pool, 1);
  Copy copy;
  EXPECT_TRUE(table.grow_to(8, copy));
  table.set_length(2);
  const KvTable shared = table.share(2);
  EXPECT_EQ(table.pages_needed(8), 1u);
  EXPECT_TRUE(table.grow_to(8, copy));
  EXPECT_EQ(copy, (KvTable::Copy{0, 2, 2}));
  EXPECT_EQ(pages_of(table), (Pages{2, 1}));
}

TEST(KvTableShare, WithoutAPageForTheCopyGrowingFails) {
  KvPool pool(2, 4);
  KvTable table = table_of(pool, 3);
  KvTable shared = table.share(3);
  Copy copy;
  EXPECT_EQ(shared.pages_needed(5), 2u);
  EXPECT_FALSE(shared.grow_to(5, copy));
  EXPECT_FALSE(copy);
  EXPECT_EQ(pages_of(shared), (Pages{0}));
  EXPECT_EQ(pool.references(0), 2u);
  table.set_length(0);
  EXPECT_TRUE(shared.grow_to(5, copy));
}

TEST(KvTable, RemembersWherePassesBegan) {
  KvPool pool(4, 4);
  KvTable table(pool);
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(7, copy));
  table.set_length(5, Side::prefill);
  table.set_length(6);
  table.set_length(7);
  constexpr std::optional<Side> kInside = {};
  const PassBegins want = {Side::prefill, kInside,      kInside,     kInside,
                           kInside,       Side::decode, Side::decode};
  EXPECT_EQ(table.begins(), want);
  EXPECT_EQ(table.share(6).begins(), PassBegins(want.begin(), want.begin() + 6));
  table.set_length(3);  // what follows was forgotten
  table.set_length(4);
  EXPECT_EQ(table.begins(), (PassBegins{Side::prefill, kInside, kInside, Side::decode}));
}

TEST(KvTableDeathTest, BrokenPromises) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  KvPool pool(3, 4);
  KvTable table = table_of(pool, 6);
  Copy copy;
  EXPECT_DEATH((void)table.grow_to(5, copy), "internal error");
  EXPECT_DEATH((void)table.pages_needed(5), "internal error");
  EXPECT_DEATH(table.set_length(9), "internal error");
  EXPECT_DEATH((void)table.share(7), "internal error");
  EXPECT_DEATH((void)KvTable(pool, table.pages(), PassBegins(4)), "internal error");
  const KvTable shared = table.share(6);
  EXPECT_DEATH(table.set_length(7), "internal error");  // written without grow_to
}

// Any number of tables, each with the tokens it should hold.
struct ModelledSequence {
  KvTable table;
  Tokens tokens;
};

void change_something(std::vector<ModelledSequence>& sequences, KvMemory& memory,
                      std::mt19937& random) {
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  const size_t index = below(static_cast<uint32_t>(sequences.size()));
  ModelledSequence& sequence = sequences[index];
  const uint32_t length = sequence.table.length();
  switch (below(8)) {
    case 0:
      sequence.table.set_length(below(length + 1));
      sequence.tokens.resize(sequence.table.length());
      break;
    case 1: {
      Tokens tokens = sequence.tokens;
      tokens.resize(below(length + 1));
      KvTable shared = sequence.table.share(static_cast<uint32_t>(tokens.size()));
      if (sequences.size() < 6) sequences.push_back({std::move(shared), std::move(tokens)});
      break;
    }
    case 2:
      if (sequences.size() > 1) sequences.erase(sequences.begin() + static_cast<long>(index));
      break;
    default: {
      Tokens more(below(9));
      for (Token& token : more) token = static_cast<Token>(below(1000));
      if (memory.append(sequence.table, more, below(6)))
        sequence.tokens.insert(sequence.tokens.end(), more.begin(), more.end());
    }
  }
}

TEST(KvTableRandom, EveryTableReadsBackWhatWasWritten) {
  for (const auto& [pages, page_positions] :
       {std::pair{1u, 1u}, {1u, 256u}, {7u, 1u}, {12u, 4u}, {4u, 256u}}) {
    SCOPED_TRACE(testing::Message() << pages << " pages of " << page_positions);
    KvPool pool(pages, page_positions);
    {
      KvMemory memory(pool);
      std::mt19937 random(pages * 1000 + page_positions);
      std::vector<ModelledSequence> sequences;
      for (int step = 0; step < 4000 && !testing::Test::HasFailure(); ++step) {
        if (sequences.empty()) sequences.push_back({KvTable(pool), {}});
        change_something(sequences, memory, random);
        std::vector<uint32_t> references(pages);
        for (const ModelledSequence& sequence : sequences) {
          EXPECT_EQ(memory.read(sequence.table), sequence.tokens);
          EXPECT_GE(sequence.table.room(), sequence.table.length());
          for (const KvPage page : sequence.table.pages()) ++references[page];
        }
        uint32_t in_use = 0;
        for (KvPage page = 0; page < pages; ++page) {
          EXPECT_EQ(pool.references(page), references[page]);
          in_use += references[page] > 0 ? 1 : 0;
        }
        EXPECT_EQ(pool.in_use(), in_use);
      }
    }
    EXPECT_EQ(pool.in_use(), 0u);
    EXPECT_EQ(pool.peak(), pages);
  }
}

}  // namespace
}  // namespace tyto
