#include "engine/prefix_cache.h"

#include <gtest/gtest.h>

#include <utility>

#include "unit/engine/small_cache.h"

namespace tyto {
namespace {

TEST(PrefixCache, FindsNothingWhenEmpty) {
  SmallCache cache(4, 4);
  EXPECT_EQ(cache.find({1, 2, 3}), 0u);
  EXPECT_FALSE(cache.cache.evict());
  cache.cache.clear();
  EXPECT_EQ(cache.cache.pages(), 0u);
}

TEST(PrefixCache, FindsTokenByTokenAcrossAndInsidePages) {
  SmallCache cache(4, 4);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  cache.keep(tokens);
  EXPECT_EQ(cache.cache.pages(), 3u);
  for (size_t same = 0; same <= tokens.size(); ++same) {
    Tokens other(tokens.begin(), tokens.begin() + static_cast<long>(same));
    EXPECT_EQ(cache.known(other), same);
    other.insert(other.end(), {77, 78, 79, 80, 81});
    EXPECT_EQ(cache.known(other), same);
  }
  EXPECT_EQ(cache.known({2, 3, 4}), 0u) << "a suffix is no prefix";
}

TEST(PrefixCache, FindsAtMostWhatIsAskedFor) {
  SmallCache cache(4, 4);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  cache.keep(tokens);
  const KvTable other = cache.cache.find(tokens, 8);  // so that nothing is handed over
  EXPECT_EQ(cache.find(tokens, 7), 7u);
  EXPECT_EQ(cache.find(tokens, 4), 4u);
  EXPECT_EQ(cache.find(tokens, 1), 1u);
  EXPECT_EQ(cache.find(tokens, 100), 8u);
}

TEST(PrefixCache, WhatIsFoundKnowsInWhichPassesItWasRun) {
  SmallCache cache(4, 4);
  KvTable table(cache.pool);
  for (const Tokens& pass : {Tokens{1, 2, 3, 4, 5, 6}, Tokens{7}, Tokens{8}, Tokens{9}})
    ASSERT_TRUE(cache.memory.append(table, pass));
  const PassBegins want = table.begins();
  cache.cache.keep(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}, std::move(table));
  EXPECT_EQ(cache.cache.find(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, kAll).begins(), want);
  EXPECT_EQ(cache.cache.find(Tokens{1, 2, 3, 4, 5, 6, 7, 33}, kAll).begins(),
            PassBegins(want.begin(), want.begin() + 7));
}

TEST(PrefixCache, NoTokensAndNoPositionsAreMisses) {
  SmallCache cache(1, 4);
  cache.cache.keep({}, KvTable(cache.pool));
  EXPECT_EQ(cache.cache.pages(), 0u);
  cache.keep({1, 2});
  EXPECT_EQ(cache.find({}), 0u);
  EXPECT_EQ(cache.find({}, 0), 0u);
  EXPECT_EQ(cache.find({1, 2}, 0), 0u);
  cache.cache.keep({}, KvTable(cache.pool));
  EXPECT_EQ(cache.cache.pages(), 1u);
  EXPECT_EQ(cache.cache.counts().lookups, 3u);
  EXPECT_EQ(cache.cache.counts().hits, 0u);
}

TEST(PrefixCache, TakesTheLongestOfSiblingsThatBeginAlike) {
  SmallCache cache(8, 4);
  for (const Tokens& tokens : {Tokens{1, 2, 3, 4}, {1, 2, 5, 6}, {1, 7}, {1, 2, 5, 7, 1}})
    cache.keep(tokens);
  EXPECT_EQ(cache.cache.pages(), 5u);
  EXPECT_EQ(cache.known({1, 2, 5, 9}), 3u);
  EXPECT_EQ(cache.known({1, 2, 5, 0}), 3u);
  EXPECT_EQ(cache.known({1, 2, 3, 4, 1}), 4u);
  EXPECT_EQ(cache.known({1, 2, 5, 7, 1}), 5u);
  EXPECT_EQ(cache.known({1, 7, 7}), 2u);
  EXPECT_EQ(cache.known({1, 1}), 1u);
  EXPECT_EQ(cache.known({1, 9}), 1u);
  EXPECT_EQ(cache.known({9}), 0u);
}

TEST(PrefixCache, SharesTheMiddleOfAPageThatOthersDependOn) {
  SmallCache cache(4, 4);
  cache.keep({1, 2, 3, 4, 5});
  KvTable table = cache.cache.find(Tokens{1, 2, 9}, kAll);
  EXPECT_EQ(table.length(), 2u);
  EXPECT_EQ(cache.cache.pages(), 2u);
  EXPECT_EQ(table.pages_needed(3), 1u) << "a copy";
  EXPECT_TRUE(cache.memory.append(table, Tokens{9}));
  EXPECT_EQ(cache.known({1, 2, 3, 4, 5}), 5u);
  cache.cache.keep(Tokens{1, 2, 9}, std::move(table));
  EXPECT_EQ(cache.known({1, 2, 9}), 3u);
  EXPECT_EQ(cache.cache.pages(), 3u);
}

TEST(PrefixCacheHandOver, ContinuingAConversationCopiesNothing) {
  SmallCache cache(4, 4);
  cache.keep({1, 2, 3, 4, 5, 6});
  KvTable table = cache.cache.find(Tokens{1, 2, 3, 4, 5, 6, 7}, 6);
  EXPECT_EQ(table.length(), 6u);
  EXPECT_EQ(cache.cache.pages(), 1u) << "the full page stays in the tree";
  EXPECT_EQ(table.pages_needed(8), 0u);
  EXPECT_TRUE(cache.memory.append(table, Tokens{7}));
  EXPECT_EQ(cache.known({1, 2, 3, 4, 5, 6}), 4u) << "until it is kept again";
  cache.cache.keep(Tokens{1, 2, 3, 4, 5, 6, 7}, std::move(table));
  EXPECT_EQ(cache.known({1, 2, 3, 4, 5, 6, 7}), 7u);
  EXPECT_EQ(cache.pool.in_use(), 2u);
}

TEST(PrefixCacheHandOver, WhatFollowsTheMatchIsForgotten) {
  SmallCache cache(4, 4);
  cache.keep({1, 2, 3, 4});
  KvTable table = cache.cache.find(Tokens{1, 2, 9}, 2);
  EXPECT_EQ(table.length(), 2u);
  EXPECT_EQ(table.pages_needed(4), 0u);
  EXPECT_EQ(cache.cache.pages(), 0u);
}

TEST(PrefixCacheHandOver, AWholeFullPageStays) {
  SmallCache cache(4, 4);
  cache.keep({1, 2, 3, 4});
  const KvTable table = cache.cache.find(Tokens{1, 2, 3, 4, 5}, 4);
  EXPECT_EQ(table.length(), 4u);
  EXPECT_EQ(table.pages_needed(5), 1u);
  EXPECT_EQ(cache.cache.pages(), 1u);
}

TEST(PrefixCacheHandOver, NotWhileSomebodyElseHasThePage) {
  SmallCache cache(4, 4);
  KvTable running = cache.written({1, 2});
  cache.cache.keep(Tokens{1, 2}, running.share(2));
  const KvTable table = cache.cache.find(Tokens{1, 2, 3}, 2);
  EXPECT_EQ(table.length(), 2u);
  EXPECT_EQ(cache.cache.pages(), 1u);
  EXPECT_EQ(cache.pool.references(0), 3u);
}

TEST(PrefixCacheHandOver, ThePageBeforeBecomesALeaf) {
  SmallCache cache(2, 4);
  cache.keep({1, 2, 3, 4, 5});
  EXPECT_EQ(cache.find({1, 2, 3, 4, 5}), 5u);
  EXPECT_EQ(cache.cache.pages(), 1u);
  EXPECT_EQ(cache.find({1, 2, 3}), 3u);
  EXPECT_EQ(cache.cache.pages(), 0u);
}

TEST(PrefixCacheHandOver, AConversationInOnePageAsLargeAsTheContext) {
  SmallCache cache(1, 64);
  Tokens conversation;
  for (Token turn = 1; turn <= 5; ++turn) {
    const size_t before = conversation.size();
    conversation.insert(conversation.end(), 10, turn);
    KvTable table = cache.cache.find(conversation, static_cast<uint32_t>(conversation.size() - 1));
    EXPECT_EQ(table.length(), before);
    EXPECT_TRUE(cache.memory.append(table, std::span(conversation).subspan(before)));
    cache.cache.keep(conversation, std::move(table));
  }
  KvTable again = cache.cache.find(conversation, 49);  // the last answer once more
  EXPECT_EQ(again.length(), 49u);
  EXPECT_EQ(again.pages_needed(64), 0u);
  cache.cache.keep(std::span(conversation).first(49), std::move(again));
  EXPECT_EQ(cache.cache.counts().evictions, 0u);

  const Tokens other = {9, 9, 9};
  KvTable table = cache.cache.find(other, 2);
  EXPECT_FALSE(cache.memory.append(table, other));
  EXPECT_TRUE(cache.cache.evict());
  EXPECT_TRUE(cache.memory.append(table, other));
}

TEST(PrefixCacheKeep, WhatIsKnownStaysOnItsPages) {
  SmallCache cache(8, 4);
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  cache.keep(tokens);
  cache.keep(tokens);
  EXPECT_EQ(cache.cache.pages(), 2u);
  EXPECT_EQ(cache.page_of(tokens), 1u);
  cache.keep({1, 2, 3, 4, 5, 6});
  cache.keep({1, 2});
  EXPECT_EQ(cache.cache.pages(), 2u);
  EXPECT_EQ(cache.pool.in_use(), 2u);
}

TEST(PrefixCacheKeep, ALongerPageReplacesItsBeginning) {
  SmallCache cache(8, 4);
  cache.keep({1, 2});
  cache.keep({1, 2, 3});
  EXPECT_EQ(cache.cache.pages(), 1u);
  EXPECT_EQ(cache.pool.in_use(), 1u);
  cache.keep({1, 2, 3, 4, 5});
  EXPECT_EQ(cache.cache.pages(), 2u);
  EXPECT_EQ(cache.known({1, 2, 3, 4, 5}), 5u);
  cache.keep({1, 2, 4});
  EXPECT_EQ(cache.cache.pages(), 3u) << "not a beginning of the other";
}

TEST(PrefixCacheKeep, ALongerPageReplacesItsBeginningAlsoWhileThatIsInUse) {
  SmallCache cache(8, 4);
  KvTable running = cache.written({1, 2});
  cache.cache.keep(Tokens{1, 2}, running.share(2));
  EXPECT_EQ(running.pages_needed(3), 1u);
  cache.keep({1, 2, 3});
  EXPECT_EQ(cache.cache.pages(), 1u);
  EXPECT_EQ(running.pages_needed(3), 0u) << "the page is its own again";
  EXPECT_TRUE(cache.memory.append(running, Tokens{8}));
  EXPECT_EQ(cache.known({1, 2, 3}), 3u);
}

TEST(PrefixCacheKeep, MoreOfTheSamePage) {
  SmallCache cache(8, 4);
  KvTable table = cache.written({1, 2, 3});
  cache.cache.keep(Tokens{1}, table.share(1));
  cache.cache.keep(Tokens{1, 2, 3}, std::move(table));
  EXPECT_EQ(cache.pool.references(0), 1u);
  EXPECT_EQ(cache.known({1, 2, 3}), 3u);
}

TEST(PrefixCacheKeep, ARunningSequenceGoesOn) {
  SmallCache cache(8, 4);
  Tokens tokens = {1, 2, 3, 4, 5, 6};
  KvTable running = cache.written(tokens);
  cache.cache.keep(tokens, running.share(6));
  EXPECT_EQ(cache.find(tokens), 6u);
  EXPECT_TRUE(cache.memory.append(running, Tokens{7}));
  EXPECT_EQ(cache.known({1, 2, 3, 4, 5, 6}), 6u);
  tokens.push_back(7);
  cache.cache.keep(tokens, std::move(running));
  EXPECT_EQ(cache.known(tokens), 7u);
  EXPECT_EQ(cache.cache.pages(), 2u);
  EXPECT_EQ(cache.pool.in_use(), 2u);
}

TEST(PrefixCacheKeep, UnusedRoomIsGivenBack) {
  SmallCache cache(8, 4);
  KvTable table(cache.pool);
  EXPECT_TRUE(cache.memory.append(table, Tokens{1, 2}, 20));
  cache.cache.keep(Tokens{1, 2}, std::move(table));
  EXPECT_EQ(cache.pool.in_use(), 1u);
}

TEST(PrefixCacheDeathTest, TokensAndTableMustAgree) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SmallCache cache(8, 4);
  EXPECT_DEATH(cache.cache.keep(Tokens{1}, KvTable(cache.pool)), "internal error");
}

}  // namespace
}  // namespace tyto
