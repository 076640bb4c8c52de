// Where a forward pass keeps keys and values: pages in the caches of its devices, which device has
// the newest copy of each page, and how a copy gets to where it is needed. And the states of layers
// that have one instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"
#include "llama/placement.h"
#include "model/config.h"
#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

// Which pages of the KV memory are whose. Bookkeeping only: no byte of the cache is touched here.
// Used by one thread.

using KvPage = uint32_t;
inline constexpr KvPage kNoPage = UINT32_MAX;

// Layers by what they attend to: every position before, or those of a window. Others have states,
// each of which is that of all such layers.
enum class KvKind : uint8_t { full, windowed, state };

struct KvRange {
  uint32_t first = 0;  // position of a page
  uint32_t count = 0;
};

// Who ran a pass: the device for prompts, or the one for tokens, which does everything where there
// is no other.
enum class Side : uint8_t { decode, prefill };

// For each position the side whose pass began there; none: it was inside of one. What one pass
// writes may differ in its last bits from what several do, or another device does, so where all of
// it has to be written again it is done in the same passes.
using PassBegins = std::vector<std::optional<Side>>;

// Pages of `page_positions` positions each, reference-counted.
class KvPool {
 public:
  // All positions together can be counted in 32 bits.
  KvPool(uint32_t pages, uint32_t page_positions);
  ~KvPool();                                            // every reference has been given back
  void reset(uint32_t pages, uint32_t page_positions);  // the pool must not be in use
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  uint32_t page_positions() const { return page_positions_; }
  uint32_t capacity() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t in_use() const { return capacity() - available(); }
  uint32_t peak() const { return peak_; }  // most in use at once so far

  // Pages in which `positions` lie.
  uint32_t pages_for(uint32_t positions) const;

  // A page with one reference; nothing when all are taken. The lowest free page first, so that
  // memory is touched from the front.
  std::optional<KvPage> take();
  void retain(KvPage page);
  void release(KvPage page);
  uint32_t references(KvPage page) const;  // 0: free

 private:
  uint32_t page_positions_ = 0;
  std::vector<uint32_t> references_;  // [capacity]
  std::vector<KvPage> free_;          // a heap, the lowest on top
  uint32_t peak_ = 0;
};

// Pages of their own for the layers that attend to a window: those that no position to come attends
// to are given back.
struct KvWindow {
  KvPool* pool = nullptr;  // with pages as long as the others'; none: all layers share a page
  uint32_t positions = 0;  // that a position attends to, itself among them
  uint32_t rows = 0;       // most that a pass writes, at least a page

  // The first page that a sequence of `length` positions has to have. Counted from the beginning of
  // its last page, so that it can always be cut to whole pages.
  uint32_t first_needed(uint32_t length) const;
  // The first page that is not given back: a page's positions can be taken back, as is done with
  // guesses of several passes.
  uint32_t first_kept(uint32_t length) const;
  // That one sequence has at once.
  static uint32_t most_pages(uint32_t positions, uint32_t rows, uint32_t page);
};
inline constexpr KvWindow kNoWindow = {};

// What the recurrent layers have behind the first `position` positions of a sequence.
struct StateAt {
  uint32_t position = 0;
  uint32_t state = kNoState;
  bool is_kept = false;  // as long as its positions are
  bool operator==(const StateAt&) const = default;
};

// The pages in which one sequence's positions lie, in order. Gives its references back when it
// goes; pools and window outlive it. One that was moved from is empty.
//
// For layers with a window it has the pages from one place on. What lies before it is given back
// when the table grows, not when a pass has ended: until then it can be cut to any length since the
// beginning of that pass, which is what a speculation does.
//
// Where layers have states a pass reads the one in front of it and writes another. So the table can
// be cut to where the last pass began, to where a state was kept and to where one is wanted. Others
// are given back when it grows.
class KvTable {
 public:
  explicit KvTable(KvPool& pool, const KvWindow& window = kNoWindow, KvPool* states = nullptr)
      : pool_(&pool), window_(&window), state_pool_(states) {}
  // On pages that others hold, with references of its own: what share() and caches of prefixes
  // make. As many pages as the positions take; of windowed ones those in front may be kNoPage.
  KvTable(KvPool& pool, std::span<const KvPage> pages, PassBegins begins,
          const KvWindow& window = kNoWindow, std::span<const KvPage> window_pages = {},
          KvPool* state_pool = nullptr, std::span<const StateAt> states = {});
  ~KvTable();
  KvTable(KvTable&& other) noexcept;
  KvTable& operator=(KvTable&& other) noexcept;
  KvTable(const KvTable&) = delete;
  KvTable& operator=(const KvTable&) = delete;

  std::span<const KvPage> pages() const { return pages_; }
  // By position like pages(), kNoPage in front; empty where all layers share a page.
  std::span<const KvPage> window_pages() const { return window_pages_; }
  uint32_t length() const { return static_cast<uint32_t>(begins_.size()); }  // positions in use
  const PassBegins& begins() const { return begins_; }                       // [length()]
  uint32_t room() const;  // positions the pages have room for

  // By position; the last one is that at length(), unless that is 0.
  std::span<const StateAt> states() const { return states_; }

  // Whether it could go on from its first `wanted` positions: all pages are there that the next one
  // attends to, and the state.
  bool can_be_cut_to(uint32_t wanted) const;
  // The most positions, up to `wanted`, that it can be cut to.
  uint32_t last_cut(uint32_t wanted) const;

  // A page that is shared must not be appended to: `from`'s first `positions` are to be copied to
  // `to`, and those of the windowed page that belongs to it, unless that is the table's alone.
  struct Copy {
    KvPage from = 0;
    KvPage to = 0;
    uint32_t positions = 0;
    KvPage window_from = kNoPage;
    KvPage window_to = kNoPage;
    bool operator==(const Copy&) const = default;
  };

  // Pages that grow_to(wanted) would have to take from the pool: new ones and the copy of a shared
  // last page.
  uint32_t pages_needed(uint32_t wanted) const;
  // The kind of pages of which grow_to(wanted) would find too few; none: there are enough.
  std::optional<KvKind> lacking(uint32_t wanted) const;

  // Makes room for writing the positions from length() up to `wanted`, which is not less; of
  // windowed pages for one pass, however much is wanted. False, and no room made, when a pool has
  // too few free pages. At most one copy is needed (of the partly used page, if it is shared): the
  // caller performs it before anything is written and before any other table changes, for nothing
  // holds `from` on this table's behalf.
  [[nodiscard]] bool grow_to(uint32_t wanted, std::optional<Copy>& copy);

  void want_state(uint32_t position) { wanted_state_ = position; }
  uint32_t wanted_state() const { return wanted_state_; }
  // The pass that grow_to() made room for is to keep the state behind its first positions, too.
  // False when the pool has none that is free.
  bool keep_state(uint32_t position, bool is_kept);
  // The states of that pass: in front of it, behind it, and those it keeps, by its rows.
  uint32_t state_from() const { return states_.empty() ? kNoState : states_.back().state; }
  uint32_t state_to() const { return next_.empty() ? kNoState : next_.front().state; }
  std::vector<KeptState> kept_in_pass(uint32_t rows) const;

  // More than length(), after a pass of that side: positions up to there have been written, within
  // the room; what room is left stays. Otherwise forgets the positions from `wanted` on and gives
  // back the pages that hold none, so that set_length(length()) gives up unused room and
  // set_length(0) everything.
  void set_length(uint32_t wanted, Side side = Side::decode);

  // Another table on the first `wanted` positions, which this one holds. Whichever of the two is
  // first to append to a page that both have in part copies it.
  KvTable share(uint32_t wanted) const;

 private:
  bool appends_to_shared_page(uint32_t wanted) const;
  bool copies_window_page(uint32_t wanted) const;
  size_t window_end(uint32_t wanted) const;
  void release_from(size_t first);
  void release_passed();
  void take_next(uint32_t wanted);
  void release_states_behind(uint32_t position);

  KvPool* pool_;
  const KvWindow* window_;
  KvPool* state_pool_;  // null: no layer has a state
  std::vector<KvPage> pages_, window_pages_;
  uint32_t passed_ = 0;  // windowed pages from the front that are kNoPage
  PassBegins begins_;
  std::vector<StateAt> states_;
  std::vector<StateAt> next_;  // behind the pass at hand, and inside of it
  uint32_t wanted_state_ = 0;
};

// Pages that layers with a window have for themselves.
struct WindowShape {
  uint32_t pages = 0;       // 0: such layers lie in the pages of all layers
  uint64_t page_bytes = 0;  // keys and values of these layers
};

// What layers with a state have for themselves.
struct StateShape {
  uint32_t states = 0;  // 0: there are no such layers
  uint64_t bytes = 0;   // one state's
  uint32_t step = 1;    // pages from one that a long prompt leaves to the next

  uint64_t all_bytes() const { return states * bytes; }
};

// Where the devices of a Forward keep keys and values.
struct KvShape {
  uint32_t page = 0;        // positions
  uint32_t pages = 0;       // capacity
  uint64_t page_bytes = 0;  // keys and values of all layers but those that `windowed` has
  WindowShape windowed = {};
  StateShape state = {};
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

  // The memory of a state slot, of every sequence.
  Buffer& allocate_state(const Slot& slot, Device& owner);

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
  // What all recurrent layers have, one after the other.
  void read_state(uint32_t state, std::span<std::byte> to);
  void write_state(uint32_t state, std::span<const std::byte> from);
  KvKind kind_of(uint32_t layer) const;

 private:
  using Caches = std::map<SlotKey, Buffer>;  // keys and values of all layers

  void choose_one_piece();
  void choose_pages();
  void choose_states(uint64_t memory);
  std::string states_text() const;
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
  // Where a state lies in the slots: visit(slot's memory, offset, bytes).
  template <typename Visit>
  void for_each_part(uint32_t state, const Visit& visit) const;

  Caches states_;  // every layer's that has one
  std::map<SlotKey, Device*> state_owners_;
  std::vector<Caches> caches_;  // one for each page where caches are one piece, else one for all
  std::array<std::vector<Device*>, 2> owners_;  // [kinds][pages]
};

// Keys and values from the form that one device keeps them in to another's.

// Converts `positions` of a page from the form of KvStore::read on one side to that of
// KvStore::write on the other.
// What has the same form already is copied as it is.
void convert_kv(const KvShape& from, const KvShape& to, const Config& config, uint32_t positions,
                std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace tyto
