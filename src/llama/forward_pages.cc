// The part of Forward that keeps keys and values: who has the newest copy of a page, and how it
// gets to where it is needed.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "llama/forward.h"

namespace tyto {

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

// Before a call the newest copy of what it attends to comes to the device that it runs on. Of two
// devices that use the cache one is the host's.
void Forward::move_pages(const Segment& segment, Device& to) {
  for (uint32_t i = 0, begin = 0; begin < segment.end(); ++i, begin += kv_.page) {
    Device*& home = homes_[segment.pages[i]];
    if (home == &to) continue;
    const uint32_t held = std::min(kv_.page, segment.position - std::min(segment.position, begin));
    if (home != nullptr && held > 0) {
      Span span(trace_, EventKind::host, cache_name_, begin, held);
      const bool to_host = is_host(&to);
      sync_page(segment.pages[i], {0, held}, to_host ? *home : to,
                to_host ? Sync::from_device : Sync::to_device);
    }
    home = &to;
  }
}

uint64_t Forward::page_begin(KvPage page) const {
  return kv_.is_one_piece ? 0 : page * (kv_.page_bytes / 2 / model_.config.layers);
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

void Forward::sync_page(KvPage page, KvRange range, Device& device, Sync direction) {
  for_each_run(page, range,
               [&](const SlotKey&, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 device.sync(cache, direction, offset, bytes);
               });
}

// In the host's memory, whoever has the newest copy.
void Forward::copy_page(const KvTable::Copy& copy) {
  Device* const home = homes_[copy.from];
  const bool is_elsewhere = home != nullptr && !is_host(home);
  const KvRange range{0, copy.positions};
  if (is_elsewhere) sync_page(copy.from, range, *home, Sync::from_device);
  const Caches& to = caches_[caches_of(copy.to)];
  for_each_run(copy.from, range,
               [&](const SlotKey& key, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 const uint64_t to_offset = offset - page_begin(copy.from) + page_begin(copy.to);
                 std::memcpy(to.at(key).data + to_offset, cache.data + offset, bytes);
               });
  if (is_elsewhere) sync_page(copy.to, range, *home, Sync::to_device);
  homes_[copy.to] = home;
}

void Forward::read_page(KvPage page, KvRange range, std::span<std::byte> to) {
  Device* const home = homes_[page];
  if (home != nullptr && !is_host(home)) sync_page(page, range, *home, Sync::from_device);
  for_each_run(page, range,
               [&](const SlotKey&, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 std::ranges::copy(cache.bytes().subspan(offset, bytes), to.begin());
                 to = to.subspan(bytes);
               });
  TYTO_ASSERT(to.empty());
}

// The host has the newest copy then, of what was in front of it, too; a device that runs next gets
// it all (move_pages). A device may lay a cache out anew when it is given some of it, so it is not
// given the new positions alone.
void Forward::write_page(KvPage page, KvRange range, std::span<const std::byte> from) {
  Device*& home = homes_[page];
  if (range.first > 0 && home != nullptr && !is_host(home))
    sync_page(page, {0, range.first}, *home, Sync::from_device);
  for_each_run(page, range,
               [&](const SlotKey&, const Buffer& cache, uint64_t offset, uint64_t bytes) {
                 std::ranges::copy(from.first(bytes), cache.data + offset);
                 from = from.subspan(bytes);
               });
  TYTO_ASSERT(from.empty());
  home = *std::ranges::find_if(devices_, [&](Device* each) { return is_host(each); });
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
