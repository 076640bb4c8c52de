// What the tree of prefixes gives back, and trees of unusual shape.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "engine/prefix_cache.h"
#include "unit/engine/small_cache.h"

namespace tyto {
namespace {

TEST(PrefixCacheEvict, TheLeastRecentlyUsedFirst) {
  SmallCache cache(8, 4);
  for (const Token token : {1, 2, 3, 4}) cache.keep({token, 0, 0, 0});
  EXPECT_EQ(cache.find({1, 0, 0, 0}), 4u);
  cache.keep({2, 0, 0, 0});
  EXPECT_EQ(cache.known({3, 9}), 1u) << "also by a part of it";
  for (const Token token : {4, 1, 2, 3}) {
    const uint32_t pages = cache.cache.pages();
    EXPECT_TRUE(cache.cache.evict());
    EXPECT_EQ(cache.cache.pages(), pages - 1);
    EXPECT_EQ(cache.pool.references(static_cast<KvPage>(token - 1)), 0u);
  }
  EXPECT_FALSE(cache.cache.evict());
  EXPECT_EQ(cache.cache.counts().evictions, 4u);
}

TEST(PrefixCacheEvict, TheEndOfAPrefixBeforeItsBeginning) {
  SmallCache cache(8, 2);
  cache.keep({1, 1, 2, 2, 3, 3});
  cache.keep({1, 1, 5, 5});
  EXPECT_EQ(cache.find({1, 1}), 2u);
  for (const KvPage page : {2, 1, 4, 0}) {  // 3, the second's first page, was given back at once
    EXPECT_EQ(cache.pool.references(page), 1u);
    EXPECT_TRUE(cache.cache.evict());
    EXPECT_EQ(cache.pool.references(page), 0u);
  }
}

TEST(PrefixCacheEvict, NotWhatSomebodyUses) {
  SmallCache cache(8, 2);
  cache.keep({1, 1, 2, 2});
  cache.keep({3, 3});
  {
    const KvTable table = cache.cache.find(Tokens{1, 1, 2, 2}, 4);
    EXPECT_TRUE(cache.cache.evict());
    EXPECT_FALSE(cache.cache.evict());
    EXPECT_EQ(cache.known({1, 1, 2, 2}), 4u);
  }
  EXPECT_TRUE(cache.cache.evict());
  EXPECT_TRUE(cache.cache.evict());
  EXPECT_EQ(cache.pool.in_use(), 0u);
}

TEST(PrefixCacheEvict, ATableThatMustCopyCanStillHaveThePoolToItself) {
  SmallCache cache(2, 4);
  cache.keep({1, 2, 3, 4, 5, 6, 7, 8});
  const Tokens tokens = {1, 2, 9, 9, 9, 9, 9, 9};
  KvTable table = cache.cache.find(tokens, 7);
  EXPECT_EQ(table.length(), 2u);
  while (cache.cache.evict()) continue;
  EXPECT_FALSE(cache.memory.append(table, std::span(tokens).subspan(2)));
  table.set_length(0);  // whole pages
  EXPECT_TRUE(cache.cache.evict());
  EXPECT_TRUE(cache.memory.append(table, tokens));
}

TEST(PrefixCacheClear, LeavesTablesAlone) {
  SmallCache cache(8, 4);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  cache.keep(tokens);
  KvTable table = cache.cache.find(tokens, 8);
  cache.cache.clear();
  EXPECT_EQ(cache.cache.pages(), 0u);
  EXPECT_EQ(cache.find(tokens), 0u);
  EXPECT_EQ(cache.memory.read(table), tokens);
  cache.cache.keep(tokens, std::move(table));
  EXPECT_EQ(cache.find(tokens), 8u);
}

TEST(PrefixCacheCounts, LookupsHitsTokensAndEvictions) {
  SmallCache cache(8, 4);
  cache.keep({1, 2, 3, 4});
  cache.find({1, 2, 3, 4, 5});
  cache.find({2});
  cache.find({1, 2, 3});
  cache.keep({1});
  cache.cache.evict();
  cache.cache.evict();
  const PrefixCache::Counts counts = cache.cache.counts();
  EXPECT_EQ(counts.lookups, 3u);
  EXPECT_EQ(counts.hits, 2u);
  EXPECT_EQ(counts.tokens_found, 7u);
  EXPECT_EQ(counts.evictions, 1u);
}

TEST(PrefixCacheSize, ALongPromptInPagesOfOnePosition) {
  constexpr uint32_t kLength = 131072;
  SmallCache cache(kLength, 1);
  Tokens tokens(kLength);
  std::iota(tokens.begin(), tokens.end(), 0);
  cache.keep(tokens);
  EXPECT_EQ(cache.cache.pages(), kLength);
  EXPECT_EQ(cache.find(tokens, kLength - 1), kLength - 1);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(cache.cache.evict());
  EXPECT_EQ(cache.find(tokens), kLength - 1000);
}  // and the tree goes without running out of stack

TEST(PrefixCacheSize, ManySiblingsThatBeginAlike) {
  constexpr Token kSiblings = 3000;
  SmallCache cache(kSiblings, 64);
  Tokens tokens(64, 7);
  for (Token i = 0; i < kSiblings; ++i) {
    tokens.back() = i * 37 % kSiblings;
    cache.keep(tokens);
  }
  EXPECT_EQ(cache.cache.pages(), static_cast<uint32_t>(kSiblings));
  for (Token i = 0; i < kSiblings; ++i) {
    tokens.back() = i;
    EXPECT_EQ(cache.find(tokens), 64u);
  }
}

}  // namespace
}  // namespace tyto
