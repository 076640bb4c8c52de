// The tree of prefixes against a list of them, in which everything is looked for from end to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefix_cache.h"
#include "support/kv_memory.h"

namespace tyto {
namespace {

size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  size_t length = 0;
  while (length < a.size() && length < b.size() && a[length] == b[length]) ++length;
  return length;
}

bool begins_with(std::span<const Token> tokens, std::span<const Token> prefix) {
  return common_prefix(tokens, prefix) == prefix.size();
}

// What PrefixCache promises, the plain way.
class KnownPrefixes {
 public:
  struct Entry {
    Tokens tokens;  // from the very first to the last in this page
    KvPage page = 0;
    uint64_t used = 0;
  };

  explicit KnownPrefixes(const KvPool& pool) : pool_(pool) {}

  struct Found {
    uint32_t length = 0;
    KvPage last_page = 0;
  };
  Found find(std::span<const Token> tokens) {
    size_t length = 0;
    for (const Entry& entry : entries)
      length = std::max(length, common_prefix(entry.tokens, tokens));
    if (length == 0) return {};
    const uint32_t depth = pool_.pages_for(static_cast<uint32_t>(length));
    const size_t end = size_t{depth} * pool_.page_positions();
    const size_t chosen = choose(tokens.first(std::min(tokens.size(), end)), length, depth);
    touch(entries[chosen]);
    const Found found = {static_cast<uint32_t>(length), entries[chosen].page};
    if (length < end && is_free_leaf(entries[chosen]))
      entries.erase(entries.begin() + static_cast<long>(chosen));
    return found;
  }

  void keep(std::span<const Token> tokens, std::span<const KvPage> pages) {
    for (uint32_t depth = 1; depth <= pool_.pages_for(static_cast<uint32_t>(tokens.size()));
         ++depth) {
      const size_t end = size_t{depth} * pool_.page_positions();
      const auto prefix = tokens.first(std::min(tokens.size(), end));
      const auto has_it = [&](const Entry& e) {
        return depth_of(e) == depth && begins_with(e.tokens, prefix);
      };
      if (std::ranges::none_of(entries, has_it)) {
        std::erase_if(entries, [&](const Entry& entry) {
          return depth_of(entry) == depth && begins_with(prefix, entry.tokens);
        });
        entries.push_back({Tokens(prefix.begin(), prefix.end()), pages[depth - 1]});
      }
      if (end >= tokens.size()) touch(entries[choose(tokens, tokens.size(), depth)]);
    }
  }

  std::optional<KvPage> evict() {
    const Entry* oldest = nullptr;
    for (const Entry& entry : entries)
      if (is_free_leaf(entry) && (oldest == nullptr || entry.used < oldest->used)) oldest = &entry;
    if (oldest == nullptr) return std::nullopt;
    const KvPage page = oldest->page;
    entries.erase(entries.begin() + (oldest - entries.data()));
    return page;
  }

  std::vector<Entry> entries;

 private:
  uint32_t depth_of(const Entry& entry) const {
    return pool_.pages_for(static_cast<uint32_t>(entry.tokens.size()));
  }

  // The one of equally long matches that follows `tokens` most closely, else precedes them.
  size_t choose(std::span<const Token> tokens, size_t length, uint32_t depth) const {
    std::optional<size_t> after, before;
    const auto less = [](std::span<const Token> a, std::span<const Token> b) {
      return std::ranges::lexicographical_compare(a, b);
    };
    for (size_t i = 0; i < entries.size(); ++i) {
      const Tokens& candidate = entries[i].tokens;
      if (depth_of(entries[i]) != depth || common_prefix(candidate, tokens) != length) continue;
      if (less(candidate, tokens)) {
        if (!before || less(entries[*before].tokens, candidate)) before = i;
      } else {
        if (!after || less(candidate, entries[*after].tokens)) after = i;
      }
    }
    return after ? *after : before.value();
  }

  bool is_free_leaf(const Entry& leaf) const {
    return pool_.references(leaf.page) == 1 &&
           std::ranges::none_of(entries, [&](const Entry& entry) {
             return depth_of(entry) > depth_of(leaf) && begins_with(entry.tokens, leaf.tokens);
           });
  }

  void touch(const Entry& deepest) {
    const Tokens tokens = deepest.tokens;
    ++clock_;
    for (Entry& entry : entries)
      if (begins_with(tokens, entry.tokens)) entry.used = clock_;
  }

  const KvPool& pool_;
  uint64_t clock_ = 0;
};

struct Sizes {
  uint32_t pages;
  uint32_t page_positions;
};

// A few sequences over one pool and one cache, as a server has them.
class PrefixCacheRandom : public testing::TestWithParam<Sizes> {
 protected:
  struct Sequence {
    KvTable table;
    Tokens tokens;  // [table.length()]
  };

  uint32_t below(size_t end) { return static_cast<uint32_t>(random_() % end); }

  Tokens random_tokens(size_t count) {
    Tokens tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(below(3));
    return tokens;
  }

  // Mostly something that was heard before, cut somewhere and gone on with.
  Tokens prompt() {
    Tokens tokens;
    if (!heard_.empty() && below(8) > 0) tokens = heard_[below(heard_.size())];
    if (below(3) > 0) tokens.resize(below(tokens.size() + 1));
    const uint32_t size = GetParam().page_positions;
    if (below(4) == 0) tokens.resize(tokens.size() / size * size);
    const Tokens more = random_tokens(below(2) == 0 ? below(5) : below(size + size / 2 + 2));
    tokens.insert(tokens.end(), more.begin(), more.end());
    const size_t most = size_t{GetParam().pages} * size + 1;
    if (tokens.size() > most) tokens.resize(most);
    return tokens;
  }

  // As a scheduler would: evicts for want of pages and, when that does not help, sometimes gives up
  // a part of what it has.
  void run(Sequence& sequence, std::span<const Token> tokens) {
    while (!memory_.append(sequence.table, tokens, below(3))) {
      if (evict()) continue;
      if (below(2) == 0) {
        sequence.table.set_length(below(sequence.table.length() + 1));
        sequence.tokens.resize(sequence.table.length());
      }
      return;
    }
    sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  }

  void start() {
    const Tokens tokens = prompt();
    const uint32_t size = static_cast<uint32_t>(tokens.size());
    const uint32_t most = below(4) == 0 ? below(size + 3) : std::max(size, 1u) - 1;
    const auto looked_for = std::span(tokens).first(std::min(size, most));
    const KnownPrefixes::Found expected = model_.find(looked_for);
    KvTable table = cache_.find(tokens, most);
    ++expected_.lookups;
    expected_.hits += expected.length > 0 ? 1 : 0;
    expected_.tokens_found += expected.length;
    ASSERT_EQ(table.length(), expected.length);
    if (expected.length > 0) {
      EXPECT_EQ(table.pages().back(), expected.last_page);
    }
    sequences_.push_back(
        {std::move(table), Tokens(tokens.begin(), tokens.begin() + expected.length)});
    heard_.push_back(tokens);
    if (heard_.size() > 24) heard_.erase(heard_.begin() + below(24));
    run(sequences_.back(), std::span(tokens).subspan(expected.length));
  }

  bool evict() {
    const std::optional<KvPage> page = model_.evict();
    EXPECT_EQ(cache_.evict(), page.has_value());
    if (!page) return false;
    ++expected_.evictions;
    EXPECT_EQ(pool_.references(*page), 0u);
    return true;
  }

  void keep(std::span<const Token> tokens, KvTable table) {
    model_.keep(tokens, table.pages());
    cache_.keep(tokens, std::move(table));
  }

  void go_on(size_t index) {
    Sequence& sequence = sequences_[index];
    const uint32_t part = below(sequence.table.length() + 1);
    const auto tokens = std::span<const Token>(sequence.tokens);
    switch (below(10)) {
      case 0:
        sequence.table.set_length(part);
        sequence.tokens.resize(part);
        break;
      case 1:
        sequences_.push_back(
            {sequence.table.share(part), Tokens(tokens.begin(), tokens.begin() + part)});
        break;
      case 2:  // a running sequence
        keep(tokens.first(part), sequence.table.share(part));
        break;
      case 3:  // a cancelled one
        sequences_.erase(sequences_.begin() + static_cast<long>(index));
        break;
      case 4:
      case 5:
      case 6: {
        heard_.push_back(sequence.tokens);
        keep(sequence.tokens, std::move(sequence.table));
        sequences_.erase(sequences_.begin() + static_cast<long>(index));
        break;
      }
      default:
        run(sequence, random_tokens(1 + below(3)));
    }
  }

  void change_something() {
    const uint32_t choice = below(100);
    if (choice == 0) {
      cache_.clear();
      model_.entries.clear();
    } else if (choice < 8) {
      evict();
    } else if (sequences_.empty() || (choice < 40 && sequences_.size() < 5)) {
      start();
    } else {
      go_on(below(sequences_.size()));
    }
  }

  // Every reference has a holder, and every page holds what its holders believe.
  void check() {
    std::vector<uint32_t> references(pool_.capacity());
    for (const Sequence& sequence : sequences_) {
      ASSERT_EQ(memory_.read(sequence.table), sequence.tokens);
      for (const KvPage page : sequence.table.pages()) ++references[page];
    }
    for (const KnownPrefixes::Entry& entry : model_.entries) {
      const size_t start =
          (entry.tokens.size() - 1) / GetParam().page_positions * GetParam().page_positions;
      ASSERT_TRUE(begins_with(memory_.page(entry.page), std::span(entry.tokens).subspan(start)));
      ++references[entry.page];
    }
    for (KvPage page = 0; page < references.size(); ++page)
      ASSERT_EQ(pool_.references(page), references[page]);
    const auto in_use = references.size() - static_cast<size_t>(std::ranges::count(references, 0u));
    ASSERT_EQ(pool_.in_use(), in_use);
    ASSERT_EQ(cache_.pages(), model_.entries.size());
  }

  KvPool pool_{GetParam().pages, GetParam().page_positions};
  KvMemory memory_{pool_};
  PrefixCache cache_{pool_};
  KnownPrefixes model_{pool_};
  PrefixCache::Counts expected_;
  std::mt19937 random_{GetParam().pages * 1000 + GetParam().page_positions};
  std::vector<Sequence> sequences_;
  std::vector<Tokens> heard_;
};

TEST_P(PrefixCacheRandom, AgreesWithAListOfPrefixes) {
  for (int step = 0; step < 20000; ++step) {
    SCOPED_TRACE(step);
    change_something();
    check();
    if (HasFailure()) return;
  }
  EXPECT_EQ(cache_.counts().lookups, expected_.lookups);
  EXPECT_EQ(cache_.counts().hits, expected_.hits);
  EXPECT_EQ(cache_.counts().tokens_found, expected_.tokens_found);
  EXPECT_EQ(cache_.counts().evictions, expected_.evictions);
  EXPECT_GT(expected_.hits, 50u) << "the test tests something";
  EXPECT_GT(expected_.evictions, 50u);
  EXPECT_EQ(pool_.peak(), pool_.capacity());

  sequences_.clear();
  EXPECT_EQ(pool_.in_use(), cache_.pages());
  while (evict()) continue;
  EXPECT_EQ(pool_.in_use(), 0u) << "nothing leaks";
  EXPECT_EQ(cache_.pages(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Pools, PrefixCacheRandom,
                         testing::Values(Sizes{1, 1}, Sizes{1, 4}, Sizes{1, 256}, Sizes{2, 4},
                                         Sizes{5, 1}, Sizes{40, 1}, Sizes{13, 4}, Sizes{40, 4},
                                         Sizes{3, 256}, Sizes{12, 256}),
                         [](const auto& sizes) {
                           return std::to_string(sizes.param.pages) + "PagesOf" +
                                  std::to_string(sizes.param.page_positions);
                         });

}  // namespace
}  // namespace tyto
