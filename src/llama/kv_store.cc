#include "llama/kv_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "base/error.h"

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
  shape_.page_bytes = 2 * config_.layers * page_pitch();
  const uint64_t all = shape_.pages * shape_.page_bytes;
  if (needs_.memory > 0 && needs_.memory / needs_.shares < all)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", needs_.memory),
                fmt::format("the caches of {} sequences take {} bytes each, {} positions in one "
                            "piece",
                            shape_.pages, shape_.page_bytes, shape_.page),
                "give more, or fewer sequences");
}

void KvStore::choose_pages() {
  shape_.page = kPagePositions;
  // Two sides would have to hand windows over, and one of them may keep caches in one piece.
  uint32_t windowed = 0;  // layers
  for (uint32_t layer = 0; layer < config_.layers && needs_.shares == 1; ++layer)
    windowed += kind_of(layer) == KvKind::windowed ? 1 : 0;
  shape_.page_bytes = 2 * (config_.layers - windowed) * page_pitch();
  shape_.windowed.page_bytes = 2 * windowed * page_pitch();
  // One more page than a full context has: a conversation that leaves another in the middle of a
  // page copies it. Of windows one that is being used, and one that is remembered.
  const uint32_t for_one = pages_for(needs_.context);
  Division division{.page_bytes = shape_.page_bytes,
                    .window_page_bytes = shape_.windowed.page_bytes,
                    .pages = uint64_t{for_one} * needs_.sequences + 1};
  if (windowed > 0) {
    const uint32_t rows = std::max(needs_.pass_rows, shape_.page);
    division.least_window_pages = KvWindow::most_pages(config_.window, rows, shape_.page);
    const uint64_t each = division.least_window_pages + pages_for(config_.window) + 1;
    division.window_pages = each * needs_.sequences + 1;
  }
  uint64_t pages = division.pages_in(needs_.memory / needs_.shares);
  if (needs_.memory > 0 && pages == 0)
    throw Error(ErrorCode::usage, fmt::format("--kv-memory {}", needs_.memory),
                fmt::format("a page of {} positions takes {} bytes", shape_.page,
                            shape_.page_bytes + shape_.windowed.page_bytes),
                "give more");
  // Many long contexts get no more than a quarter of the machine's memory.
  if (needs_.memory == 0) {
    const uint64_t quarter = division.pages_in(physical_memory() / 4 / needs_.shares);
    pages = std::min({division.pages, std::max<uint64_t>(quarter, for_one + 1),
                      uint64_t{UINT32_MAX / shape_.page}});
  }
  const uint64_t window_pages = division.window_pages_beside(pages);
  // Where all layers have windows the others' pages are mere numbers.
  if (shape_.page_bytes == 0 && window_pages >= division.least_window_pages)
    pages = std::max(pages, division.pages);
  shape_.pages = static_cast<uint32_t>(pages);
  shape_.windowed.pages = static_cast<uint32_t>(window_pages);
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

KvKind KvStore::kind_of(uint32_t layer) const {
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

}  // namespace tyto
