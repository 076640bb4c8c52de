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

uint32_t KvWindow::first_needed(uint32_t length) const {
  const uint32_t page = pool->page_positions(), whole_pages = length / page * page;
  return whole_pages < positions ? 0 : (whole_pages + 1 - positions) / page;
}

uint32_t KvWindow::first_kept(uint32_t length) const {
  return first_needed(length - std::min(length, pool->page_positions()));
}

// The window in front of a page, that page, the last one's used part and the pass.
uint32_t KvWindow::most_pages(uint32_t positions, uint32_t rows, uint32_t page) {
  const auto pages_for = [page](uint64_t count) { return (count + page - 1) / page; };
  return static_cast<uint32_t>(pages_for(positions - 1) + 1 + pages_for(uint64_t{page} - 1 + rows));
}

KvTable::KvTable(KvPool& pool, std::span<const KvPage> pages, PassBegins begins,
                 const KvWindow& window, std::span<const KvPage> window_pages)
    : pool_(&pool),
      window_(&window),
      pages_(pages.begin(), pages.end()),
      window_pages_(window_pages.begin(), window_pages.end()),
      begins_(std::move(begins)) {
  TYTO_ASSERT(pages.size() == pool.pages_for(length()));
  TYTO_ASSERT(window_pages.size() == (window.pool == nullptr ? 0 : pages.size()));
  for (const KvPage page : pages_) pool.retain(page);
  while (passed_ < window_pages_.size() && window_pages_[passed_] == kNoPage) ++passed_;
  for (const KvPage page : window_pages.subspan(passed_)) window.pool->retain(page);
}

KvTable::~KvTable() {
  release_from(0);
}

KvTable::KvTable(KvTable&& other) noexcept
    : pool_(other.pool_),
      window_(other.window_),
      pages_(std::exchange(other.pages_, {})),
      window_pages_(std::exchange(other.window_pages_, {})),
      passed_(std::exchange(other.passed_, 0)),
      begins_(std::exchange(other.begins_, {})) {}

KvTable& KvTable::operator=(KvTable&& other) noexcept {
  if (this == &other) return *this;
  release_from(0);
  pool_ = other.pool_;
  window_ = other.window_;
  pages_ = std::exchange(other.pages_, {});
  window_pages_ = std::exchange(other.window_pages_, {});
  passed_ = std::exchange(other.passed_, 0);
  begins_ = std::exchange(other.begins_, {});
  return *this;
}

uint32_t KvTable::room() const {
  return static_cast<uint32_t>(pages_.size()) * pool_->page_positions();
}

bool KvTable::can_be_cut_to(uint32_t wanted) const {
  return wanted == 0 || passed_ == 0 || passed_ <= window_->first_needed(wanted);
}

bool KvTable::appends_to_shared_page(uint32_t wanted) const {
  if (wanted <= length() || length() % pool_->page_positions() == 0) return false;
  return pool_->references(pages_[length() / pool_->page_positions()]) > 1;
}

// Only together with the other page: whoever has a windowed page has that one, too.
bool KvTable::copies_window_page(uint32_t wanted) const {
  if (window_->pool == nullptr || !appends_to_shared_page(wanted)) return false;
  return window_->pool->references(window_pages_[length() / pool_->page_positions()]) > 1;
}

size_t KvTable::window_end(uint32_t wanted) const {
  if (window_->pool == nullptr) return 0;
  const uint32_t end = std::min(wanted, length() + window_->rows);
  return std::max<size_t>(pool_->pages_for(end), window_pages_.size());
}

uint32_t KvTable::pages_needed(uint32_t wanted) const {
  TYTO_ASSERT(wanted >= length());
  const uint32_t present = static_cast<uint32_t>(pages_.size());
  const uint32_t pages = std::max(pool_->pages_for(wanted), present);
  return pages - present + (appends_to_shared_page(wanted) ? 1 : 0);
}

std::optional<KvKind> KvTable::lacking(uint32_t wanted) const {
  if (pages_needed(wanted) > pool_->available()) return KvKind::full;
  if (window_->pool == nullptr) return std::nullopt;
  const size_t needed =
      window_end(wanted) - window_pages_.size() + (copies_window_page(wanted) ? 1 : 0);
  if (needed > window_->pool->available()) return KvKind::windowed;
  return std::nullopt;
}

namespace {

// Another page in the place of one that is shared.
KvPage replace_page(KvPool& pool, KvPage& page) {
  pool.release(page);
  return page = *pool.take();
}

}  // namespace

bool KvTable::grow_to(uint32_t wanted, std::optional<Copy>& copy) {
  TYTO_ASSERT(can_be_cut_to(length()));
  copy.reset();
  release_passed();
  if (lacking(wanted)) return false;
  if (appends_to_shared_page(wanted)) {
    const size_t last = length() / pool_->page_positions();
    copy = Copy{.from = pages_[last], .positions = length() % pool_->page_positions()};
    if (copies_window_page(wanted)) {
      copy->window_from = window_pages_[last];
      copy->window_to = replace_page(*window_->pool, window_pages_[last]);
    }
    copy->to = replace_page(*pool_, pages_[last]);
  }
  while (room() < wanted) pages_.push_back(*pool_->take());
  for (const size_t end = window_end(wanted); window_pages_.size() < end;)
    window_pages_.push_back(*window_->pool->take());
  begins_.reserve(room());
  return true;
}

void KvTable::set_length(uint32_t wanted, Side side) {
  TYTO_ASSERT(wanted <= room());
  TYTO_ASSERT(!appends_to_shared_page(wanted));
  TYTO_ASSERT(window_->pool == nullptr || pool_->pages_for(wanted) <= window_pages_.size());
  if (wanted <= length()) release_from(pool_->pages_for(wanted));
  const uint32_t before = length();
  begins_.resize(wanted);
  if (wanted > before) begins_[before] = side;
}

KvTable KvTable::share(uint32_t wanted) const {
  TYTO_ASSERT(wanted <= length());
  const uint32_t pages = pool_->pages_for(wanted);
  return KvTable(*pool_, std::span(pages_).first(pages),
                 {begins_.begin(), begins_.begin() + wanted}, *window_,
                 std::span(window_pages_).first(window_->pool == nullptr ? 0 : pages));
}

void KvTable::release_from(size_t first) {
  while (pages_.size() > first) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  while (window_pages_.size() > first) {
    if (window_pages_.back() != kNoPage) window_->pool->release(window_pages_.back());
    window_pages_.pop_back();
  }
  passed_ = std::min(passed_, static_cast<uint32_t>(window_pages_.size()));
}

void KvTable::release_passed() {
  if (window_->pool == nullptr) return;
  for (const uint32_t first = window_->first_kept(length());
       passed_ < std::min<size_t>(first, window_pages_.size()); ++passed_)
    window_->pool->release(std::exchange(window_pages_[passed_], kNoPage));
}

}  // namespace tyto
