// Where a forward pass keeps keys and values: pages in the caches of its devices, which device has
// the newest copy of each page, and how a copy gets to where it is needed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "llama/kv_pool.h"
#include "llama/placement.h"
#include "model/config.h"
#include "trace/span.h"

namespace tyto {

// Pages that layers with a window have for themselves.
struct WindowShape {
  uint32_t pages = 0;       // 0: such layers lie in the pages of all layers
  uint64_t page_bytes = 0;  // keys and values of these layers
};

// Where the devices of a Forward keep keys and values.
struct KvShape {
  uint32_t page = 0;        // positions
  uint32_t pages = 0;       // capacity
  uint64_t page_bytes = 0;  // keys and values of all layers but those that `windowed` has
  WindowShape windowed = {};
  bool is_one_piece = false;  // a page is a sequence's whole cache: kernels know no table
  uint32_t group = 1;         // heads side by side at each position (KvForm)
  DType type = DType::f16;
  bool in_halves = false;  // keys of heads whose rows the checkpoint has in pairs

  uint64_t bytes_of_page(KvKind kind) const {
    return kind == KvKind::full ? page_bytes : windowed.page_bytes;
  }
};

// What decides a KvShape beside the model and its devices.
struct KvNeeds {
  uint32_t context = 0;            // positions of one sequence
  uint32_t pass_rows = 0;          // most rows of a pass
  uint32_t sequences = 1;          // whole contexts that are wanted at once
  std::optional<DType> type = {};  // null: the device's own, else f16
  uint64_t memory = 0;             // bytes; 0: enough for the contexts
  uint32_t shares = 1;             // stores that divide that memory among them
};

using SlotKey = std::pair<Role, uint16_t>;  // a role in one layer

class KvStore {
 public:
  // Config and devices outlive it.
  KvStore(const Config& config, const DeviceOrder& devices, const KvNeeds& needs, Trace& trace);

  const KvShape& shape() const { return shape_; }
  void set_in_halves(bool in_halves) { shape_.in_halves = in_halves; }
  // The memory of a cache slot on its device: of every sequence, where each has its own. Returns
  // the first one.
  Buffer& allocate(const Slot& slot, Device& owner);
  // The caches that hold a page, where each sequence has its own; else 0.
  size_t caches_of(KvPage page) const { return shape_.is_one_piece ? page : 0; }
  const Buffer& cache(size_t caches, const SlotKey& key) const { return caches_[caches].at(key); }

  // Before a call the newest copy of what it attends to comes to the device that it runs on. Where
  // two devices use the cache one of them is the host's.
  void bring(const Segment& segment, KvKind layers, Device& to);
  void copy(const KvTable::Copy& copy);
  // Positions of a page, of all layers that lie there, keys and values: bytes_of_page / page for
  // each, as [keys, values][layers][kv_heads / group][positions][group][head_dim].
  void read(KvPage page, KvRange range, std::span<std::byte> to, KvKind kind = KvKind::full);
  // The host has the newest copy then. A device that runs next gets the page whole: it may lay a
  // cache out again when it is given a part of it.
  void write(KvPage page, KvRange range, std::span<const std::byte> from,
             KvKind kind = KvKind::full);
  KvKind kind_of(uint32_t layer) const;

 private:
  using Caches = std::map<SlotKey, Buffer>;  // keys and values of all layers

  void choose_one_piece();
  void choose_pages();
  uint64_t page_pitch() const;  // from page to page of one layer's keys, or values
  uint64_t page_begin(KvPage page) const;
  // Whether layers of a kind lie in pages of a kind.
  bool lie_in(KvKind pages, KvKind layers) const {
    return shape_.windowed.pages == 0 || pages == layers;
  }
  // The device with the newest copy of what layers of a kind have in a page; null: unwritten. A
  // device may attend to everything and leave windows to the host's.
  Device*& owner_of(KvKind layers, KvPage page) {
    return owners_[static_cast<size_t>(layers)][page];
  }
  // Where positions of a page lie in the caches: visit(key, buffer, offset, bytes).
  template <typename Visit>
  void for_each_run(KvPage page, KvRange range, const Visit& visit) const;
  void sync(KvKind layers, KvPage page, KvRange range, Device& device, Sync direction);
  void copy_pages(KvKind pages, KvPage from, KvPage to, uint32_t positions);

  const Config& config_;
  const DeviceOrder& devices_;
  const KvNeeds needs_;
  Trace& trace_;
  const uint16_t move_name_;
  KvShape shape_;
  std::vector<Caches> caches_;  // one for each page where caches are one piece, else one for all
  std::array<std::vector<Device*>, 2> owners_;  // [kinds][pages]
};

}  // namespace tyto
