#include "llama/kv_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <ranges>
#include <utility>
#include <vector>

#include "base/error.h"
#include "llama/forward_program.h"
#include "tensor/quant.h"

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
                 const KvWindow& window, std::span<const KvPage> window_pages, KvPool* state_pool,
                 std::span<const StateAt> states)
    : pool_(&pool),
      window_(&window),
      state_pool_(state_pool),
      pages_(pages.begin(), pages.end()),
      window_pages_(window_pages.begin(), window_pages.end()),
      begins_(std::move(begins)),
      states_(states.begin(), states.end()) {
  TYTO_ASSERT(pages.size() == pool.pages_for(length()));
  TYTO_ASSERT(window_pages.size() == (window.pool == nullptr ? 0 : pages.size()));
  for (const KvPage page : pages_) pool.retain(page);
  while (passed_ < window_pages_.size() && window_pages_[passed_] == kNoPage) ++passed_;
  for (const KvPage page : window_pages.subspan(passed_)) window.pool->retain(page);
  for (const StateAt& each : states_) state_pool->retain(each.state);
}

KvTable::~KvTable() {
  release_from(0);
  release_states_behind(0);
}

KvTable::KvTable(KvTable&& other) noexcept
    : pool_(other.pool_),
      window_(other.window_),
      state_pool_(other.state_pool_),
      pages_(std::exchange(other.pages_, {})),
      window_pages_(std::exchange(other.window_pages_, {})),
      passed_(std::exchange(other.passed_, 0)),
      begins_(std::exchange(other.begins_, {})),
      states_(std::exchange(other.states_, {})),
      next_(std::exchange(other.next_, {})),
      wanted_state_(other.wanted_state_) {}

KvTable& KvTable::operator=(KvTable&& other) noexcept {
  if (this == &other) return *this;
  release_from(0);
  release_states_behind(0);
  pool_ = other.pool_;
  window_ = other.window_;
  state_pool_ = other.state_pool_;
  pages_ = std::exchange(other.pages_, {});
  window_pages_ = std::exchange(other.window_pages_, {});
  passed_ = std::exchange(other.passed_, 0);
  begins_ = std::exchange(other.begins_, {});
  states_ = std::exchange(other.states_, {});
  next_ = std::exchange(other.next_, {});
  wanted_state_ = other.wanted_state_;
  return *this;
}

uint32_t KvTable::room() const {
  return static_cast<uint32_t>(pages_.size()) * pool_->page_positions();
}

bool KvTable::can_be_cut_to(uint32_t wanted) const {
  if (wanted == 0) return true;
  if (state_pool_ != nullptr &&
      std::ranges::find(states_, wanted, &StateAt::position) == states_.end())
    return false;
  return passed_ == 0 || passed_ <= window_->first_needed(wanted);
}

uint32_t KvTable::last_cut(uint32_t wanted) const {
  if (can_be_cut_to(wanted)) return wanted;
  for (const StateAt& each : states_ | std::views::reverse)
    if (each.position < wanted && can_be_cut_to(each.position)) return each.position;
  return 0;
}

bool KvTable::appends_to_shared_page(uint32_t wanted) const {
  if (wanted <= length() || length() % pool_->page_positions() == 0) return false;
  return pool_->references(pages_[length() / pool_->page_positions()]) > 1;
}

// Only together with the other page: a table that has a windowed page has that one, too.
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
  if (state_pool_ != nullptr && next_.empty() && wanted > length() && state_pool_->available() == 0)
    return KvKind::state;
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
  // What is thrown for want of memory is thrown before a page is taken.
  const size_t end = window_end(wanted);
  pages_.reserve(pool_->pages_for(wanted));
  window_pages_.reserve(end);
  begins_.reserve(std::max(room(), pool_->pages_for(wanted) * pool_->page_positions()));
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
  while (window_pages_.size() < end) window_pages_.push_back(*window_->pool->take());
  if (state_pool_ != nullptr && next_.empty() && wanted > length())
    next_.push_back({wanted, *state_pool_->take()});
  return true;
}

bool KvTable::keep_state(uint32_t position, bool is_kept) {
  TYTO_ASSERT(!next_.empty() && position > length());
  const auto place =
      std::lower_bound(next_.begin() + 1, next_.end(), position,
                       [](const StateAt& each, uint32_t at) { return each.position < at; });
  if (place != next_.end() && place->position == position) {
    place->is_kept |= is_kept;
    return true;
  }
  const std::optional<KvPage> state = state_pool_->take();
  if (state) next_.insert(place, {position, *state, is_kept});
  return state.has_value();
}

std::vector<KeptState> KvTable::kept_in_pass(uint32_t rows) const {
  std::vector<KeptState> kept;
  for (const StateAt& each : next_ | std::views::drop(1))
    if (each.position < length() + rows) kept.push_back({each.position - length(), each.state});
  return kept;
}

void KvTable::set_length(uint32_t wanted, Side side) {
  TYTO_ASSERT(wanted <= room());
  TYTO_ASSERT(!appends_to_shared_page(wanted));
  TYTO_ASSERT(window_->pool == nullptr || pool_->pages_for(wanted) <= window_pages_.size());
  const uint32_t before = length();
  if (wanted <= before) release_from(pool_->pages_for(wanted));
  if (state_pool_ != nullptr && wanted > before) take_next(wanted);
  release_states_behind(wanted);
  begins_.resize(wanted);
  if (wanted > before) begins_[before] = side;
}

// A state that was to be kept where the pass ended is the one behind it.
void KvTable::take_next(uint32_t wanted) {
  TYTO_ASSERT(!next_.empty());
  auto rest = next_.begin() + 1;
  for (; rest != next_.end() && rest->position < wanted; ++rest) states_.push_back(*rest);
  const bool is_kept = rest != next_.end() && rest->position == wanted && rest->is_kept;
  states_.push_back({wanted, next_.front().state, is_kept});
  next_.erase(next_.begin(), rest);
}

void KvTable::release_states_behind(uint32_t position) {
  for (const StateAt& each : next_) state_pool_->release(each.state);
  next_.clear();
  while (!states_.empty() && states_.back().position > position) {
    state_pool_->release(states_.back().state);
    states_.pop_back();
  }
}

KvTable KvTable::share(uint32_t wanted) const {
  TYTO_ASSERT(wanted <= length());
  const uint32_t pages = pool_->pages_for(wanted);
  const auto last_behind = std::ranges::upper_bound(states_, wanted, {}, &StateAt::position);
  return KvTable(*pool_, std::span(pages_).first(pages),
                 {begins_.begin(), begins_.begin() + wanted}, *window_,
                 std::span(window_pages_).first(window_->pool == nullptr ? 0 : pages), state_pool_,
                 std::span(states_).first(static_cast<size_t>(last_behind - states_.begin())));
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
  std::erase_if(states_, [&](const StateAt& each) {
    const bool is_passed =
        !each.is_kept && each.position < length() && each.position != wanted_state_;
    if (is_passed) state_pool_->release(each.state);
    return is_passed;
  });
  if (window_->pool == nullptr) return;
  for (const uint32_t first = window_->first_kept(length());
       passed_ < std::min<size_t>(first, window_pages_.size()); ++passed_)
    window_->pool->release(std::exchange(window_pages_[passed_], kNoPage));
}

namespace {

// Positions that attention takes together, so that a page is a whole number of its steps.
constexpr uint32_t kPagePositions = 256;

constexpr std::array kKinds = {KvKind::full, KvKind::windowed};

uint64_t physical_memory() {
  return static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
         static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
}

uint32_t pages_for(uint32_t positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// How memory is divided between layers that attend to everything, layers with a window and states.
struct Division {
  uint64_t page_bytes = 0, window_page_bytes = 0;
  uint64_t pages = 0, window_pages = 0;  // for the contexts asked for
  uint64_t least_window_pages = 0;       // that one sequence needs
  StateShape state = {};                 // as many as sequences need, whatever the pages

  uint64_t window_pages_beside(uint64_t count) const {
    const uint64_t share = (count * window_pages + pages - 1) / pages;
    return std::min(count, std::max(share, least_window_pages));
  }
  uint64_t states_beside(uint64_t count) const {
    return state.bytes == 0 ? 0 : state.states + count / state.step;
  }
  // Pages of the first kind that fit together with those of the other.
  uint64_t pages_in(uint64_t bytes) const {
    const auto all = std::views::iota(uint64_t{1}, uint64_t{UINT32_MAX / kPagePositions} + 1);
    const auto fits = [&](uint64_t count) {
      return count * page_bytes + window_pages_beside(count) * window_page_bytes +
                 states_beside(count) * state.bytes <=
             bytes;
    };
    return static_cast<uint64_t>(std::ranges::partition_point(all, fits) - all.begin());
  }
};

}  // namespace

KvStore::KvStore(const Config& config, const DeviceOrder& devices, const KvNeeds& needs,
                 Trace& trace)
    : config_(config),
      devices_(devices),
      needs_(needs),
      trace_(trace),
      move_name_(trace.name({.label = "KV cache to the other device"})) {
  const DeviceInfo& first = devices.first;
  const std::optional<KvForm> fixed = fixed_shapes(first).kv;
  if (fixed && needs.type && *needs.type != fixed->type)
    throw Error(
        ErrorCode::usage, fmt::format("--kv-type {}", info(*needs.type).name),
        fmt::format("the kernels of {} keep the cache as {}", first.name, info(fixed->type).name),
        "leave it out");
  shape_.type = fixed ? fixed->type : needs.type.value_or(DType::f16);
  shape_.group = fixed ? fixed->group : 1;
  if (config_.head_dim % info(shape_.type).block_values != 0)
    throw Error(ErrorCode::unsupported, fmt::format("--kv-type {}", info(shape_.type).name),
                fmt::format("its blocks of {} do not fit into heads of {}",
                            info(shape_.type).block_values, config_.head_dim),
                "use f16");
  const bool is_one_piece = std::ranges::any_of(devices.all, [](const Device* device) {
    return fixed_shapes(device->info()).kv_in_one_piece;
  });
  shape_.state.bytes = state_bytes(config_);
  if (is_one_piece)
    choose_one_piece();
  else
    choose_pages();
  caches_.resize(is_one_piece ? shape_.pages : 1);
  owners_[0].resize(shape_.pages);
  owners_[1].resize(shape_.windowed.pages > 0 ? shape_.windowed.pages : shape_.pages);
}

// A device whose kernels know no tables has a cache for each sequence that was asked for.
void KvStore::choose_one_piece() {
  const uint32_t held = fixed_shapes(devices_.first).most_positions;
  shape_.is_one_piece = true;
  shape_.page = held > 0 ? held : needs_.context;
  shape_.pages = needs_.sequences;
  shape_.page_bytes = 2 * config_.attention_layers() * page_pitch();
  choose_states(UINT64_MAX);
  const uint64_t all = shape_.pages * shape_.page_bytes + shape_.state.all_bytes();
  if (needs_.memory > 0 && needs_.memory / needs_.shares < all)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", needs_.memory),
                fmt::format("the caches of {} sequences take {} bytes each, {} positions in one "
                            "piece{}",
                            shape_.pages, shape_.page_bytes, shape_.page, states_text()),
                "give more, or fewer sequences");
}

// Each sequence has the state in front of its last pass and that behind it, and one more is
// remembered; one sequence can always run. What prompts leave behind them comes on top, so seldom
// that it takes no more memory than their pages.
void KvStore::choose_states(uint64_t memory) {
  StateShape& state = shape_.state;
  if (state.bytes == 0) return;
  constexpr uint64_t kEach = 3;
  const uint64_t page = std::max<uint64_t>(1, shape_.page_bytes),
                 all = kEach * needs_.sequences + 1;
  state.step = static_cast<uint32_t>(
      std::min<uint64_t>((state.bytes + page - 1) / page, UINT32_MAX / kPagePositions));
  state.states = static_cast<uint32_t>(std::min(all, std::max(kEach, memory / 4 / state.bytes)));
}

void KvStore::choose_pages() {
  shape_.page = kPagePositions;
  // Two sides would have to hand windows over, and one of them may keep caches in one piece.
  uint32_t windowed = 0;  // layers
  for (uint32_t layer = 0; layer < config_.layers && needs_.shares == 1; ++layer)
    windowed += kind_of(layer) == KvKind::windowed ? 1 : 0;
  shape_.page_bytes = 2 * (config_.attention_layers() - windowed) * page_pitch();
  shape_.windowed.page_bytes = 2 * windowed * page_pitch();
  const uint64_t quarter_of_all = physical_memory() / 4;
  choose_states((needs_.memory > 0 ? needs_.memory : quarter_of_all) / needs_.shares);
  // One more page than a full context has: a conversation that leaves another in the middle of a
  // page copies it. Of windows one that is being used, and one that is remembered.
  const uint32_t for_one = pages_for(needs_.context);
  Division division{.page_bytes = shape_.page_bytes,
                    .window_page_bytes = shape_.windowed.page_bytes,
                    .pages = uint64_t{for_one} * needs_.sequences + 1,
                    .state = shape_.state};
  if (windowed > 0) {
    const uint32_t rows = std::max(needs_.pass_rows, shape_.page);
    division.least_window_pages = KvWindow::most_pages(config_.window, rows, shape_.page);
    const uint64_t each = division.least_window_pages + pages_for(config_.window) + 1;
    division.window_pages = each * needs_.sequences + 1;
  }
  uint64_t pages = division.pages_in(needs_.memory / needs_.shares);
  if (needs_.memory > 0 && pages == 0)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", needs_.memory),
                fmt::format("a page of {} positions takes {} bytes{}", shape_.page,
                            shape_.page_bytes + shape_.windowed.page_bytes, states_text()),
                "give more");
  // Many long contexts get no more than a quarter of the machine's memory.
  if (needs_.memory == 0) {
    const uint64_t quarter = division.pages_in(quarter_of_all / needs_.shares);
    pages = std::min({division.pages, std::max<uint64_t>(quarter, for_one + 1),
                      uint64_t{UINT32_MAX / shape_.page}});
  }
  const uint64_t window_pages = division.window_pages_beside(pages);
  // Where all layers have windows the others' pages are mere numbers.
  if (shape_.page_bytes == 0 && window_pages >= division.least_window_pages)
    pages = std::max(pages, division.pages);
  shape_.pages = static_cast<uint32_t>(pages);
  shape_.windowed.pages = static_cast<uint32_t>(window_pages);
  shape_.state.states = static_cast<uint32_t>(division.states_beside(pages));
}

std::string KvStore::states_text() const {
  const StateShape& state = shape_.state;
  if (state.bytes == 0) return "";
  return fmt::format(", and {} states of recurrent layers {} bytes each", state.states,
                     state.bytes);
}

Buffer& KvStore::allocate(const Slot& slot, Device& owner) {
  const SlotKey key{slot.role, slot.layer};
  SetupTimer timer(trace_, "activations and KV cache");
  for (uint32_t i = 0; i < caches_.size(); ++i) {
    const auto [entry, is_new] = caches_[i].try_emplace(key);
    if (is_new) entry->second = owner.alloc(slot, i);
    TYTO_ASSERT(slot.bytes() <= entry->second.size);
  }
  return caches_.front().at(key);
}

Buffer& KvStore::allocate_state(const Slot& slot, Device& owner) {
  SetupTimer timer(trace_, "activations and KV cache");
  const auto [entry, is_new] = states_.try_emplace({slot.role, slot.layer});
  if (is_new) entry->second = owner.alloc(slot);
  state_owners_[entry->first] = &owner;
  TYTO_ASSERT(slot.bytes() <= entry->second.size);
  return entry->second;
}

template <typename Visit>
void KvStore::for_each_part(uint32_t state, const Visit& visit) const {
  for (const auto& [key, buffer] : states_)
    for (const LayerState& part : layer_states(config_, key.second))
      if (part.role == key.first) {
        const uint64_t bytes = sizeof(float) * part.rows * part.cols;
        visit(buffer, *state_owners_.at(key), state * bytes, bytes);
      }
}

void KvStore::read_state(uint32_t state, std::span<std::byte> to) {
  for_each_part(state, [&](const Buffer& buffer, Device& owner, uint64_t offset, uint64_t bytes) {
    owner.sync(buffer, Sync::from_device, offset, bytes);
    std::ranges::copy(buffer.bytes().subspan(offset, bytes), to.begin());
    to = to.subspan(bytes);
  });
  TYTO_ASSERT(to.empty());
}

void KvStore::write_state(uint32_t state, std::span<const std::byte> from) {
  for_each_part(state, [&](const Buffer& buffer, Device& owner, uint64_t offset, uint64_t bytes) {
    std::ranges::copy(from.first(bytes), buffer.data + offset);
    from = from.subspan(bytes);
    owner.sync(buffer, Sync::to_device, offset, bytes);
  });
  TYTO_ASSERT(from.empty());
}

KvKind KvStore::kind_of(uint32_t layer) const {
  if (!config_.attends(layer)) return KvKind::state;
  const bool has_window = config_.is_windowed(layer) && config_.window < needs_.context;
  return has_window ? KvKind::windowed : KvKind::full;
}

void KvStore::bring(const Segment& segment, KvKind layers, Device& to) {
  const auto pages = layers == KvKind::windowed && shape_.windowed.pages > 0 ? segment.window_pages
                                                                             : segment.pages;
  for (uint32_t i = 0, begin = 0; begin < segment.end(); ++i, begin += shape_.page) {
    if (pages[i] == kNoPage) continue;
    Device*& owner = owner_of(layers, pages[i]);
    if (owner == &to) continue;
    const uint32_t held =
        std::min(shape_.page, segment.position - std::min(segment.position, begin));
    if (owner != nullptr && held > 0) {
      Span span(trace_, EventKind::host, move_name_, begin, held);
      const bool to_host = devices_.is_host(&to);
      sync(layers, pages[i], {0, held}, to_host ? *owner : to,
           to_host ? Sync::from_device : Sync::to_device);
    }
    owner = &to;
  }
}

uint64_t KvStore::page_pitch() const {
  return uint64_t{shape_.page} * config_.kv_heads * row_bytes(shape_.type, config_.head_dim);
}

uint64_t KvStore::page_begin(KvPage page) const {
  return shape_.is_one_piece ? 0 : page * page_pitch();
}

// A whole page is one run, in the order of its parts.
template <typename Visit>
void KvStore::for_each_run(KvPage page, KvRange range, const Visit& visit) const {
  const uint64_t groups = config_.kv_heads / shape_.group;
  const uint64_t row = shape_.group * row_bytes(shape_.type, config_.head_dim);
  const bool is_whole = range.count == shape_.page;
  const uint64_t begin = page_begin(page) + range.first * row;
  const uint64_t bytes = (is_whole ? groups : 1) * range.count * row;
  for (const auto& [key, cache] : caches_[caches_of(page)])
    for (uint64_t i = 0; i < (is_whole ? 1 : groups); ++i)
      visit(key, cache, begin + i * shape_.page * row, bytes);
}

void KvStore::sync(KvKind layers, KvPage page, KvRange range, Device& device, Sync direction) {
  if (devices_.is_host(&device)) return;
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (kind_of(key.second) == layers) device.sync(cache, direction, offset, bytes);
               });
}

void KvStore::copy(const KvTable::Copy& copy) {
  copy_pages(KvKind::full, copy.from, copy.to, copy.positions);
  if (copy.window_from != kNoPage)
    copy_pages(KvKind::windowed, copy.window_from, copy.window_to, copy.positions);
}

// In the host's memory, whichever device has the newest copy.
void KvStore::copy_pages(KvKind pages, KvPage from, KvPage to, uint32_t positions) {
  const KvRange range{0, positions};
  for (const KvKind layers : kKinds) {
    if (!lie_in(pages, layers)) continue;
    Device* const owner = owner_of(layers, from);
    if (owner != nullptr) sync(layers, from, range, *owner, Sync::from_device);
    const Caches& target = caches_[caches_of(to)];
    for_each_run(from, range,
                 [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                   if (kind_of(key.second) != layers) return;
                   const uint64_t to_offset = offset - page_begin(from) + page_begin(to);
                   std::memcpy(target.at(key).data + to_offset, cache.data + offset, bytes);
                 });
    if (owner != nullptr) sync(layers, to, range, *owner, Sync::to_device);
    owner_of(layers, to) = owner;
  }
}

void KvStore::read(KvPage page, KvRange range, std::span<std::byte> to, KvKind pages) {
  for (const KvKind layers : kKinds) {
    Device* const owner = lie_in(pages, layers) ? owner_of(layers, page) : nullptr;
    if (owner != nullptr) sync(layers, page, range, *owner, Sync::from_device);
  }
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (!lie_in(pages, kind_of(key.second))) return;
                 std::ranges::copy(cache.bytes().subspan(offset, bytes), to.begin());
                 to = to.subspan(bytes);
               });
  TYTO_ASSERT(to.empty());
}

void KvStore::write(KvPage page, KvRange range, std::span<const std::byte> from, KvKind pages) {
  for (const KvKind layers : kKinds) {
    if (!lie_in(pages, layers)) continue;
    Device*& owner = owner_of(layers, page);
    if (range.first > 0 && owner != nullptr)
      sync(layers, page, {0, range.first}, *owner, Sync::from_device);
    owner = devices_.host();
  }
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (!lie_in(pages, kind_of(key.second))) return;
                 std::ranges::copy(from.first(bytes), cache.data + offset);
                 from = from.subspan(bytes);
               });
  TYTO_ASSERT(from.empty());
}

namespace {

// A head's values [half][2] from [2][half], and back.
void put_in_pairs(std::span<const float> halves, std::span<float> pairs) {
  const size_t half = halves.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    pairs[2 * i] = halves[i];
    pairs[2 * i + 1] = halves[half + i];
  }
}

void put_in_halves(std::span<const float> pairs, std::span<float> halves) {
  const size_t half = pairs.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    halves[i] = pairs[2 * i];
    halves[half + i] = pairs[2 * i + 1];
  }
}

// Converts values that stay where they are, `at_once` at a time.
void convert_values(DType from, DType to, size_t at_once, std::span<const std::byte> in,
                    std::span<std::byte> out) {
  if (from == to) {
    std::ranges::copy(in, out.begin());
    return;
  }
  std::vector<float> values(at_once);
  const uint64_t in_bytes = row_bytes(from, at_once), out_bytes = row_bytes(to, at_once);
  for (uint64_t i = 0; i * in_bytes < in.size(); ++i) {
    dequantize(from, in.subspan(i * in_bytes, in_bytes), values);
    quantize(to, values, out.subspan(i * out_bytes, out_bytes));
  }
}

}  // namespace

namespace {

std::vector<uint32_t> attention_layers(const Config& config) {
  std::vector<uint32_t> layers;
  for (uint32_t layer = 0; layer < config.layers; ++layer)
    if (config.attends(layer)) layers.push_back(layer);
  return layers;
}

}  // namespace

void convert_kv(const KvShape& from, const KvShape& to, const Config& config, uint32_t positions,
                std::span<const std::byte> in, std::span<std::byte> out) {
  if (from.group == to.group && from.in_halves == to.in_halves)
    return convert_values(from.type, to.type, size_t{positions} * config.head_dim, in, out);
  const uint64_t in_bytes = row_bytes(from.type, config.head_dim);
  const uint64_t out_bytes = row_bytes(to.type, config.head_dim);
  const auto row_of = [&](uint32_t group, uint64_t matrix, uint32_t head, uint32_t position) {
    const uint64_t run = matrix * (config.kv_heads / group) + head / group;
    return (run * positions + position) * group + head % group;
  };
  std::vector<float> values(config.head_dim), turned(config.head_dim);
  const std::vector<uint32_t> layers = attention_layers(config);
  for (uint64_t matrix = 0; matrix < 2 * layers.size(); ++matrix) {
    const bool is_key = matrix < layers.size();
    // Keys that no rope turned lie everywhere as the checkpoint has them.
    const bool is_turned =
        is_key && from.in_halves != to.in_halves && config.rotates(layers[matrix]);
    for (uint32_t head = 0; head < config.kv_heads; ++head)
      for (uint32_t position = 0; position < positions; ++position) {
        const uint64_t in_row = row_of(from.group, matrix, head, position);
        const uint64_t out_row = row_of(to.group, matrix, head, position);
        dequantize(from.type, in.subspan(in_row * in_bytes, in_bytes), values);
        if (is_turned && from.in_halves) put_in_pairs(values, turned);
        if (is_turned && to.in_halves) put_in_halves(values, turned);
        if (is_turned) values.swap(turned);
        quantize(to.type, values, out.subspan(out_row * out_bytes, out_bytes));
      }
  }
}

}  // namespace tyto
