#include "llama/kv_pool.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace tyto {

KvPool::KvPool(uint32_t pages, uint32_t page_positions) {
  reset(pages, page_positions);
}

void KvPool::reset(uint32_t pages, uint32_t page_positions) {
  TYTO_ASSERT(page_positions > 0 && in_use() == 0);
  TYTO_ASSERT(uint64_t{pages} * page_positions <= std::numeric_limits<uint32_t>::max());
  page_positions_ = page_positions;
  peak_ = 0;
  references_.assign(pages, 0);
  free_.resize(pages);
  std::iota(free_.begin(), free_.end(), KvPage{0});  // in order: a heap already
}

KvPool::~KvPool() {
  TYTO_ASSERT(in_use() == 0);
}

uint32_t KvPool::pages_for(uint32_t positions) const {
  return positions / page_positions_ + (positions % page_positions_ != 0 ? 1 : 0);
}

std::optional<KvPage> KvPool::take() {
  if (free_.empty()) return std::nullopt;
  std::ranges::pop_heap(free_, std::greater<>());
  const KvPage page = free_.back();
  free_.pop_back();
  TYTO_ASSERT(references_[page] == 0);
  references_[page] = 1;
  peak_ = std::max(peak_, in_use());
  return page;
}

void KvPool::retain(KvPage page) {
  TYTO_ASSERT(references(page) > 0);
  ++references_[page];
}

void KvPool::release(KvPage page) {
  TYTO_ASSERT(references(page) > 0);
  if (--references_[page] > 0) return;
  free_.push_back(page);
  std::ranges::push_heap(free_, std::greater<>());
}

uint32_t KvPool::references(KvPage page) const {
  TYTO_ASSERT(page < capacity());
  return references_[page];
}

KvTable::KvTable(KvPool& pool, std::span<const KvPage> pages, PassBegins begins)
    : pool_(&pool), pages_(pages.begin(), pages.end()), begins_(std::move(begins)) {
  TYTO_ASSERT(pages.size() == pool.pages_for(length()));
  for (const KvPage page : pages_) pool.retain(page);
}

KvTable::~KvTable() {
  release_from(0);
}

KvTable::KvTable(KvTable&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      begins_(std::exchange(other.begins_, {})) {}

KvTable& KvTable::operator=(KvTable&& other) noexcept {
  if (this == &other) return *this;
  release_from(0);
  pool_ = other.pool_;
  pages_ = std::exchange(other.pages_, {});
  begins_ = std::exchange(other.begins_, {});
  return *this;
}

uint32_t KvTable::room() const {
  return static_cast<uint32_t>(pages_.size()) * pool_->page_positions();
}

bool KvTable::appends_to_shared_page(uint32_t wanted) const {
  if (wanted <= length() || length() % pool_->page_positions() == 0) return false;
  return pool_->references(pages_[length() / pool_->page_positions()]) > 1;
}

uint32_t KvTable::pages_needed(uint32_t wanted) const {
  TYTO_ASSERT(wanted >= length());
  const uint32_t present = static_cast<uint32_t>(pages_.size());
  const uint32_t pages = std::max(pool_->pages_for(wanted), present);
  return pages - present + (appends_to_shared_page(wanted) ? 1 : 0);
}

bool KvTable::grow_to(uint32_t wanted, std::optional<Copy>& copy) {
  copy.reset();
  if (pages_needed(wanted) > pool_->available()) return false;
  if (appends_to_shared_page(wanted)) {
    KvPage& last = pages_[length() / pool_->page_positions()];
    copy = Copy{last, *pool_->take(), length() % pool_->page_positions()};
    pool_->release(last);
    last = copy->to;
  }
  while (room() < wanted) pages_.push_back(*pool_->take());
  begins_.reserve(room());
  return true;
}

void KvTable::set_length(uint32_t wanted, Side side) {
  TYTO_ASSERT(wanted <= room());
  TYTO_ASSERT(!appends_to_shared_page(wanted));
  if (wanted <= length()) release_from(pool_->pages_for(wanted));
  const uint32_t before = length();
  begins_.resize(wanted);
  if (wanted > before) begins_[before] = side;
}

KvTable KvTable::share(uint32_t wanted) const {
  TYTO_ASSERT(wanted <= length());
  return KvTable(*pool_, pages().first(pool_->pages_for(wanted)),
                 {begins_.begin(), begins_.begin() + wanted});
}

void KvTable::release_from(size_t first) {
  while (pages_.size() > first) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace tyto
