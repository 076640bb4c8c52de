// The part of Forward that keeps keys and values: who has the newest copy of a page, and how it
// gets to where it is needed.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "base/error.h"
#include "llama/forward.h"

namespace tyto {
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

// How memory is divided between layers that attend to everything and layers with a window.
struct Division {
  uint64_t page_bytes = 0, window_page_bytes = 0;
  uint64_t pages = 0, window_pages = 0;  // for the contexts asked for
  uint64_t least_window_pages = 0;       // that one sequence needs

  uint64_t window_pages_beside(uint64_t count) const {
    const uint64_t share = (count * window_pages + pages - 1) / pages;
    return std::min(count, std::max(share, least_window_pages));
  }
  // Pages of the first kind that fit together with those of the other.
  uint64_t pages_in(uint64_t bytes) const {
    const auto all = std::views::iota(uint64_t{1}, uint64_t{UINT32_MAX / kPagePositions} + 1);
    const auto fits = [&](uint64_t count) {
      return count * page_bytes + window_pages_beside(count) * window_page_bytes <= bytes;
    };
    return static_cast<uint64_t>(std::ranges::partition_point(all, fits) - all.begin());
  }
};

}  // namespace

// A device whose kernels know no tables has a cache for each sequence that was asked for.
void Forward::choose_caches() {
  kv_.is_one_piece = std::ranges::any_of(
      devices_, [](const Device* device) { return device->info().kv_in_one_piece; });
  if (kv_.is_one_piece) {
    kv_.page = first_.most_positions > 0 ? first_.most_positions : context_;
    kv_.pages = options_.sequences;
    kv_.page_bytes = 2 * model_.config.layers * page_pitch();
    caches_.resize(kv_.pages);
    const uint64_t all = kv_.pages * kv_.page_bytes;
    if (options_.kv_memory > 0 && options_.kv_memory / options_.kv_shares < all)
      throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", options_.kv_memory),
                  fmt::format("the caches of {} sequences take {} bytes each, {} positions in one "
                              "piece",
                              kv_.pages, kv_.page_bytes, kv_.page),
                  "give more, or fewer sequences");
  } else {
    choose_pages();
    caches_.resize(1);
  }
  homes_[0].resize(kv_.pages);
  homes_[1].resize(kv_.windowed.pages > 0 ? kv_.windowed.pages : kv_.pages);
}

void Forward::choose_pages() {
  const Config& config = model_.config;
  kv_.page = kPagePositions;
  // Two sides would have to hand windows over, and one of them may keep caches in one piece.
  uint32_t windowed = 0;  // layers
  for (uint32_t layer = 0; layer < config.layers && options_.kv_shares == 1; ++layer)
    windowed += kind_of(layer) == KvKind::windowed ? 1 : 0;
  kv_.page_bytes = 2 * (config.layers - windowed) * page_pitch();
  kv_.windowed.page_bytes = 2 * windowed * page_pitch();
  // One more page than a full context has: a conversation that leaves another in the middle of a
  // page copies it. Of windows one that is being used, and one that is remembered.
  const uint32_t for_one = pages_for(context_);
  Division division{.page_bytes = kv_.page_bytes,
                    .window_page_bytes = kv_.windowed.page_bytes,
                    .pages = uint64_t{for_one} * options_.sequences + 1};
  if (windowed > 0) {
    const uint32_t rows = std::max(chunk_, kv_.page);
    division.least_window_pages = KvWindow::most_pages(config.window, rows, kv_.page);
    const uint64_t each = division.least_window_pages + pages_for(config.window) + 1;
    division.window_pages = each * options_.sequences + 1;
  }
  uint64_t pages = division.pages_in(options_.kv_memory / options_.kv_shares);
  if (options_.kv_memory > 0 && pages == 0)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", options_.kv_memory),
                fmt::format("a page of {} positions takes {} bytes", kv_.page,
                            kv_.page_bytes + kv_.windowed.page_bytes),
                "give more");
  // Of many long contexts no more than a quarter of the machine's memory.
  if (options_.kv_memory == 0) {
    const uint64_t quarter = division.pages_in(physical_memory() / 4 / options_.kv_shares);
    pages = std::min({division.pages, std::max<uint64_t>(quarter, for_one + 1),
                      uint64_t{UINT32_MAX / kv_.page}});
  }
  const uint64_t window_pages = division.window_pages_beside(pages);
  // Where all layers have windows the others' pages are mere numbers.
  if (kv_.page_bytes == 0 && window_pages >= division.least_window_pages)
    pages = std::max(pages, division.pages);
  kv_.pages = static_cast<uint32_t>(pages);
  kv_.windowed.pages = static_cast<uint32_t>(window_pages);
}

// Every sequence's, if each has its own; the first one is what steps are bound to until one of
// another runs.
Buffer& Forward::cache(const Slot& slot, Device& owner) {
  const SlotKey key{slot.role, slot.layer};
  if (&owner != owners_.at(key))
    throw Error(ErrorCode::unsupported, slot.name,
                fmt::format("{} and {} would both keep it", owners_.at(key)->info().name,
                            owner.info().name));
  SetupTimer timer(trace_, "activations and KV cache");
  for (uint32_t i = 0; i < caches_.size(); ++i) {
    const auto [entry, is_new] = caches_[i].try_emplace(key);
    if (is_new) entry->second = owner.alloc(slot, i);
    TYTO_ASSERT(slot.bytes() <= entry->second.size);
  }
  return caches_.front().at(key);
}

KvKind Forward::kind_of(uint32_t layer) const {
  const Config& config = model_.config;
  const bool has_window = config.is_windowed(layer) && config.window < context_;
  return has_window ? KvKind::windowed : KvKind::full;
}

// Before a call the newest copy of what it attends to comes to the device that it runs on. Of two
// devices that use the cache one is the host's.
void Forward::move_pages(const Segment& segment, KvKind layers, Device& to) {
  const auto pages =
      layers == KvKind::windowed && kv_.windowed.pages > 0 ? segment.window_pages : segment.pages;
  for (uint32_t i = 0, begin = 0; begin < segment.end(); ++i, begin += kv_.page) {
    if (pages[i] == kNoPage) continue;
    Device*& home = home_of(layers, pages[i]);
    if (home == &to) continue;
    const uint32_t held = std::min(kv_.page, segment.position - std::min(segment.position, begin));
    if (home != nullptr && held > 0) {
      Span span(trace_, EventKind::host, cache_name_, begin, held);
      const bool to_host = is_host(&to);
      sync_page(layers, pages[i], {0, held}, to_host ? *home : to,
                to_host ? Sync::from_device : Sync::to_device);
    }
    home = &to;
  }
}

uint64_t Forward::page_pitch() const {
  return uint64_t{kv_.page} * model_.config.kv_heads * row_bytes(kv_.type, model_.config.head_dim);
}

uint64_t Forward::page_begin(KvPage page) const {
  return kv_.is_one_piece ? 0 : page * page_pitch();
}

// A whole page is one run, in the order of its parts.
template <typename Visit>
void Forward::for_each_run(KvPage page, KvRange range, const Visit& visit) const {
  const uint64_t groups = model_.config.kv_heads / kv_.group;
  const uint64_t row = kv_.group * row_bytes(kv_.type, model_.config.head_dim);
  const bool is_whole = range.count == kv_.page;
  const uint64_t begin = page_begin(page) + range.first * row;
  const uint64_t bytes = (is_whole ? groups : 1) * range.count * row;
  for (const auto& [key, cache] : caches_[caches_of(page)])
    for (uint64_t i = 0; i < (is_whole ? 1 : groups); ++i)
      visit(key, cache, begin + i * kv_.page * row, bytes);
}

void Forward::sync_page(KvKind layers, KvPage page, KvRange range, Device& device, Sync direction) {
  if (is_host(&device)) return;
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (kind_of(key.second) == layers) device.sync(cache, direction, offset, bytes);
               });
}

void Forward::copy_page(const KvTable::Copy& copy) {
  copy_page(KvKind::full, copy.from, copy.to, copy.positions);
  if (copy.window_from != kNoPage)
    copy_page(KvKind::windowed, copy.window_from, copy.window_to, copy.positions);
}

// In the host's memory, whoever has the newest copy.
void Forward::copy_page(KvKind pages, KvPage from, KvPage to, uint32_t positions) {
  const KvRange range{0, positions};
  for (const KvKind layers : kKinds) {
    if (!lie_in(pages, layers)) continue;
    Device* const home = home_of(layers, from);
    if (home != nullptr) sync_page(layers, from, range, *home, Sync::from_device);
    const Caches& target = caches_[caches_of(to)];
    for_each_run(from, range,
                 [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                   if (kind_of(key.second) != layers) return;
                   const uint64_t to_offset = offset - page_begin(from) + page_begin(to);
                   std::memcpy(target.at(key).data + to_offset, cache.data + offset, bytes);
                 });
    if (home != nullptr) sync_page(layers, to, range, *home, Sync::to_device);
    home_of(layers, to) = home;
  }
}

void Forward::read_page(KvPage page, KvRange range, std::span<std::byte> to, KvKind pages) {
  for (const KvKind layers : kKinds) {
    Device* const home = lie_in(pages, layers) ? home_of(layers, page) : nullptr;
    if (home != nullptr) sync_page(layers, page, range, *home, Sync::from_device);
  }
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (!lie_in(pages, kind_of(key.second))) return;
                 std::ranges::copy(cache.bytes().subspan(offset, bytes), to.begin());
                 to = to.subspan(bytes);
               });
  TYTO_ASSERT(to.empty());
}

// The host has the newest copy then, of what was in front of it, too; a device that runs next gets
// it all (move_pages). A device may lay a cache out anew when it is given some of it, so it is not
// given the new positions alone.
void Forward::write_page(KvPage page, KvRange range, std::span<const std::byte> from,
                         KvKind pages) {
  for (const KvKind layers : kKinds) {
    if (!lie_in(pages, layers)) continue;
    Device*& home = home_of(layers, page);
    if (range.first > 0 && home != nullptr)
      sync_page(layers, page, {0, range.first}, *home, Sync::from_device);
    home = *std::ranges::find_if(devices_, [&](Device* each) { return is_host(each); });
  }
  for_each_run(page, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 if (!lie_in(pages, kind_of(key.second))) return;
                 std::ranges::copy(from.first(bytes), cache.data + offset);
                 from = from.subspan(bytes);
               });
  TYTO_ASSERT(from.empty());
}

void Forward::bind_caches(Stage& stage, size_t index) {
  if (stage.caches == index) return;
  for (size_t i = 0; i < stage.steps.size(); ++i) {
    Step& step = stage.steps[i];
    const std::vector<Slot>& slots = stage.pieces[i].program.slots;
    for (uint16_t s = 0; s < slots.size(); ++s) {
      if (slots[s].kind != SlotKind::kv) continue;
      step.buffers[s] = caches_[index].at({slots[s].role, slots[s].layer});
      step.executable->bind(s, step.buffers[s]);
    }
  }
  stage.caches = index;
}

}  // namespace tyto
