// The cache of prefixes where layers with a window have pages of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "engine/prefix_cache.h"
#include "unit/engine/small_cache.h"

namespace tyto {
namespace {

// Pages of four positions, a window of six, passes of up to eight.
constexpr uint32_t kPage = 4, kWindow = 6, kRows = 8;

struct WindowedCache {
  explicit WindowedCache(uint32_t pages = 40, uint32_t window_pages = 40)
      : pool(pages, kPage),
        window_pool(window_pages, kPage),
        window{&window_pool, kWindow, kRows},
        cache(pool, window),
        memory(pages, Tokens(kPage, -1)),
        window_memory(window_pages, Tokens(kPage, -1)) {}

  // As a pipeline does it, in passes. False when there is no room.
  bool append(KvTable& table, std::span<const Token> tokens) {
    while (!tokens.empty()) {
      const auto now = static_cast<uint32_t>(std::min<size_t>(tokens.size(), kRows));
      const uint32_t begin = table.length();
      std::optional<KvTable::Copy> copy;
      while (!table.grow_to(begin + now, copy))
        if (!cache.evict(*table.lacking(begin + now))) return false;
      if (copy) copy_pages(*copy);
      for (uint32_t i = 0; i < now; ++i) {
        const uint32_t at = begin + i;
        const KvPage page = table.pages()[at / kPage], windowed = table.window_pages()[at / kPage];
        EXPECT_EQ(pool.references(page), 1u) << "written while shared";
        EXPECT_EQ(window_pool.references(windowed), 1u) << "written while shared";
        memory[page][at % kPage] = window_memory[windowed][at % kPage] = tokens[i];
      }
      table.set_length(begin + now);
      tokens = tokens.subspan(now);
    }
    return true;
  }
  void copy_pages(const KvTable::Copy& copy) {
    std::copy_n(memory[copy.from].begin(), copy.positions, memory[copy.to].begin());
    if (copy.window_from == kNoPage) return;
    std::copy_n(window_memory[copy.window_from].begin(), copy.positions,
                window_memory[copy.window_to].begin());
  }

  KvTable written(const Tokens& tokens) {
    KvTable table(pool, window);
    EXPECT_TRUE(append(table, tokens));
    return table;
  }
  void keep(const Tokens& tokens) { cache.keep(tokens, written(tokens)); }

  // All that the next position attends to is there, and is what it should be.
  void expect_holds(const KvTable& table, std::span<const Token> tokens) const {
    ASSERT_EQ(table.length(), tokens.size());
    const uint32_t length = table.length();
    for (uint32_t at = 0; at < length; ++at)
      ASSERT_EQ(memory[table.pages()[at / kPage]][at % kPage], tokens[at]) << at;
    for (uint32_t at = length + 1 - std::min(length + 1, kWindow); at < length; ++at) {
      ASSERT_NE(table.window_pages()[at / kPage], kNoPage) << at;
      ASSERT_EQ(window_memory[table.window_pages()[at / kPage]][at % kPage], tokens[at]) << at;
    }
  }
  uint32_t find(const Tokens& tokens) {
    const KvTable table = cache.find(tokens, kAll);
    expect_holds(table, std::span(tokens).first(table.length()));
    return table.length();
  }

  KvPool pool, window_pool;
  KvWindow window;
  PrefixCache cache;
  std::vector<Tokens> memory, window_memory;
};

Tokens counting(size_t count, Token first = 0) {
  Tokens tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<Token>(i);
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(PrefixCacheWindow, AContinuationFindsAllOfIt) {
  WindowedCache cache;
  const Tokens tokens = counting(43);
  cache.keep(tokens);
  EXPECT_EQ(cache.find(joined(tokens, {1, 2})), 43u);
}

TEST(PrefixCacheWindow, WhatBranchesOffEarlierFindsWholePagesThatHaveTheirWindow) {
  WindowedCache cache;
  const Tokens tokens = counting(43);
  cache.keep(tokens);  // the last pass began at 40: windows from position 28 on are there
  EXPECT_EQ(cache.find(joined(counting(38), {1})), 38u);
  EXPECT_EQ(cache.find(joined(counting(33), {1})), 0u) << "32 attends to 27";
  EXPECT_EQ(cache.find(joined(counting(10), {1})), 0u);
}

TEST(PrefixCacheWindow, WhatIsKeptOnTheWayStaysFindable) {
  WindowedCache cache;
  KvTable table = cache.written(counting(18));
  cache.cache.keep(counting(16), table.share(16));
  ASSERT_TRUE(cache.append(table, counting(60, 18)));
  cache.cache.keep(counting(78), std::move(table));
  EXPECT_EQ(cache.find(joined(counting(18), {1})), 16u);
  EXPECT_EQ(cache.find(joined(counting(78), {1})), 78u);
}

TEST(PrefixCacheWindow, RunningItAgainBringsTheWindowBack) {
  WindowedCache cache;
  cache.keep(counting(60));
  EXPECT_EQ(cache.find(joined(counting(20), {1})), 0u);
  cache.keep(counting(20));
  EXPECT_EQ(cache.find(joined(counting(20), {1})), 20u);
  EXPECT_EQ(cache.find(joined(counting(60), {1})), 60u);
  EXPECT_EQ(cache.pool.in_use(), 15u) << "in the pages that were there";
}

TEST(PrefixCacheWindow, EvictionOfWindowsBeginsInFront) {
  WindowedCache cache;
  cache.keep(counting(16));
  cache.keep(counting(16, 100));
  ASSERT_EQ(cache.window_pool.in_use(), 8u);
  EXPECT_TRUE(cache.cache.evict(KvKind::windowed));
  EXPECT_TRUE(cache.cache.evict(KvKind::windowed));
  EXPECT_EQ(cache.window_pool.in_use(), 6u);
  EXPECT_EQ(cache.pool.in_use(), 8u);
  EXPECT_EQ(cache.find(joined(counting(16), {1})), 16u) << "10 and on are there";
  EXPECT_EQ(cache.find(joined(counting(8), {1})), 0u);
  EXPECT_EQ(cache.find(joined(counting(8, 100), {1})), 8u) << "used more recently";
  while (cache.cache.evict(KvKind::windowed)) continue;
  EXPECT_EQ(cache.window_pool.in_use(), 0u);
  EXPECT_EQ(cache.find(joined(counting(16), {1})), 0u);
}

TEST(PrefixCacheWindow, WhereConversationsPartTheBeginningIsGivenUpLast) {
  WindowedCache cache;
  cache.keep(joined(counting(8), counting(4, 20)));
  cache.keep(joined(counting(8), counting(4, 30)));
  ASSERT_EQ(cache.window_pool.in_use(), 4u);
  EXPECT_TRUE(cache.cache.evict(KvKind::windowed));
  EXPECT_EQ(cache.find(joined(counting(8), {99})), 8u);
  EXPECT_EQ(cache.find(joined(counting(8), counting(4, 30))), 12u);
}

TEST(PrefixCacheWindow, NotWhatSomebodyUses) {
  WindowedCache cache;
  const Tokens tokens = counting(16);
  KvTable table = cache.written(tokens);
  cache.cache.keep(tokens, table.share(16));
  EXPECT_FALSE(cache.cache.evict(KvKind::windowed));
  table.set_length(0);
  EXPECT_TRUE(cache.cache.evict(KvKind::windowed));
}

TEST(PrefixCacheWindow, APageGoesWithItsWindow) {
  WindowedCache cache;
  cache.keep(counting(12));
  EXPECT_TRUE(cache.cache.evict());
  EXPECT_EQ(cache.pool.in_use(), 2u);
  EXPECT_EQ(cache.window_pool.in_use(), 2u);
  cache.cache.clear();
  EXPECT_EQ(cache.window_pool.in_use(), 0u);
}

// Conversations that go on, branch off and end, in pools that are too small for all of them.
void converse(WindowedCache& cache, unsigned seed, uint64_t& found) {
  std::mt19937 random(seed);
  const auto below = [&](size_t end) { return static_cast<uint32_t>(random() % end); };
  std::vector<Tokens> heard = {{}};
  struct Running {
    KvTable table;
    Tokens tokens;
  };
  std::vector<Running> running;
  const auto start = [&] {
    Tokens prompt = heard[below(heard.size())];
    if (below(2) == 0) prompt.resize(below(prompt.size() + 1));
    for (uint32_t more = below(20); more > 0; --more)
      prompt.push_back(static_cast<Token>(below(3)));
    if (prompt.size() > 60) prompt.resize(60);
    KvTable table = cache.cache.find(prompt, static_cast<uint32_t>(prompt.size()));
    found += table.length();
    const auto rest = std::span<const Token>(prompt).subspan(table.length());
    if (!cache.append(table, rest)) prompt.resize(table.length());
    running.push_back({std::move(table), std::move(prompt)});
  };
  const auto go_on = [&](Running& each) {
    const Tokens more(1 + below(12), static_cast<Token>(below(3)));
    if (each.tokens.size() >= 60) return;
    cache.append(each.table, more);
    each.tokens = joined(each.tokens, more);
    each.tokens.resize(each.table.length());  // not all may have found room
    if (below(3) == 0) cache.cache.keep(each.tokens, each.table.share(each.table.length()));
  };
  for (int step = 0; step < 4000; ++step) {
    SCOPED_TRACE(step);
    const size_t which = running.empty() ? 0 : below(running.size());
    if (running.size() < 3 && below(2) == 0) {
      start();
    } else if (!running.empty() && below(4) > 0) {
      go_on(running[which]);
    } else if (!running.empty()) {
      heard.push_back(running[which].tokens);
      if (heard.size() > 12) heard.erase(heard.begin());
      cache.cache.keep(running[which].tokens, std::move(running[which].table));
      running.erase(running.begin() + static_cast<long>(which));
    }
    for (const Running& each : running) cache.expect_holds(each.table, each.tokens);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PrefixCacheWindow, EverybodyFindsWhatWasWritten) {
  for (const auto& [pages, window_pages] : {std::pair{60u, 14u}, {24u, 24u}, {200u, 20u}}) {
    SCOPED_TRACE(testing::Message() << pages << " and " << window_pages);
    WindowedCache cache(pages, window_pages);
    uint64_t found = 0;
    converse(cache, pages, found);
    if (HasFatalFailure()) return;
    EXPECT_GT(found, 1000u) << "the test tests something";
    EXPECT_GT(cache.cache.counts().evictions, 100u);
    cache.cache.clear();
    EXPECT_EQ(cache.pool.in_use(), 0u) << "nothing leaks";
    EXPECT_EQ(cache.window_pool.in_use(), 0u);
  }
}

}  // namespace
}  // namespace tyto
