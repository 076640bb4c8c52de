// KV memory as tests see it: which token was written at each position of each page.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "llama/kv_store.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

using Tokens = std::vector<Token>;

class KvMemory {
 public:
  explicit KvMemory(const KvPool& pool)
      : pool_(pool), pages_(pool.capacity(), Tokens(pool.page_positions(), kNothing)) {}

  // What a pipeline does with tokens: makes room for them and `spare` more, copies as told, writes.
  // False when there is no room.
  bool append(KvTable& table, std::span<const Token> tokens, uint32_t spare = 0) {
    const Tokens before = read(table);
    const std::vector<KvPage> old(table.pages().begin(), table.pages().end());
    const uint32_t length = table.length() + static_cast<uint32_t>(tokens.size());
    const uint32_t needed = table.pages_needed(length + spare);
    const uint32_t available = pool_.available();
    std::optional<KvTable::Copy> copy;
    if (!table.grow_to(length + spare, copy)) {
      EXPECT_GT(needed, available);
      EXPECT_EQ(pool_.available(), available);
      EXPECT_TRUE(std::ranges::equal(table.pages(), old));
      EXPECT_FALSE(copy);
      return false;
    }
    EXPECT_EQ(available - pool_.available(), needed);
    for (size_t i = 0; i < table.pages().size(); ++i)
      if (i >= old.size() || old[i] != table.pages()[i]) scrub(table.pages()[i]);
    if (copy) perform(*copy);
    EXPECT_EQ(read(table), before);

    const uint32_t size = pool_.page_positions();
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      const KvPage page = table.pages()[(table.length() + i) / size];
      EXPECT_EQ(pool_.references(page), 1u) << "written while shared";
      pages_[page][(table.length() + i) % size] = tokens[i];
    }
    table.set_length(length);
    return true;
  }

  Tokens read(const KvTable& table) const {
    Tokens tokens;
    for (uint32_t i = 0; i < table.length(); ++i)
      tokens.push_back(
          pages_[table.pages()[i / pool_.page_positions()]][i % pool_.page_positions()]);
    return tokens;
  }

  std::span<const Token> page(KvPage page) const { return pages_[page]; }

 private:
  static constexpr Token kNothing = -1;

  void scrub(KvPage page) { std::ranges::fill(pages_[page], kNothing); }

  void perform(const KvTable::Copy& copy) {
    EXPECT_GT(copy.positions, 0u);
    EXPECT_LT(copy.positions, pool_.page_positions());
    EXPECT_NE(copy.from, copy.to);
    EXPECT_GT(pool_.references(copy.from), 0u);
    std::copy_n(pages_[copy.from].begin(), copy.positions, pages_[copy.to].begin());
  }

  const KvPool& pool_;
  std::vector<Tokens> pages_;  // [capacity][page_positions]
};

}  // namespace tyto
