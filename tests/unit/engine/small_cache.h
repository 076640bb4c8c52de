// A pool, a model of its memory and a cache of prefixes, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/prefix_cache.h"
#include "support/kv_memory.h"

namespace tyto {

inline constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();

struct SmallCache {
  SmallCache(uint32_t pages, uint32_t page_positions)
      : pool(pages, page_positions), memory(pool), cache(pool) {}

  // As a sequence that has run them without looking for a prefix.
  KvTable written(const Tokens& tokens) {
    KvTable table(pool);
    EXPECT_TRUE(memory.append(table, tokens));
    return table;
  }
  void keep(const Tokens& tokens) { cache.keep(tokens, written(tokens)); }

  // Length of the known prefix, after checking what its pages hold. Changes what find() changes.
  uint32_t find(const Tokens& tokens, uint32_t most = kAll) {
    const KvTable table = cache.find(tokens, most);
    EXPECT_LE(table.length(), tokens.size());
    EXPECT_EQ(memory.read(table), Tokens(tokens.begin(), tokens.begin() + table.length()));
    return table.length();
  }
  // The same without handing anything over: every page in use has another holder.
  uint32_t known(const Tokens& tokens) {
    std::vector<KvPage> held;
    for (KvPage page = 0; page < pool.capacity(); ++page)
      if (pool.references(page) > 0) held.push_back(page);
    for (const KvPage page : held) pool.retain(page);
    const uint32_t length = find(tokens);
    for (const KvPage page : held) pool.release(page);
    return length;
  }
  // A page of the tree, by tokens that end in it.
  KvPage page_of(const Tokens& tokens) {
    const KvTable table = cache.find(tokens, kAll);
    EXPECT_EQ(table.length(), tokens.size());
    return table.pages().back();
  }

  KvPool pool;
  KvMemory memory;
  PrefixCache cache;
};

}  // namespace tyto
