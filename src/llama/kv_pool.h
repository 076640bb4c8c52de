// Which pages of the KV memory are whose. Bookkeeping only: no byte of the cache is touched here.
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tyto {

using KvPage = uint32_t;
inline constexpr KvPage kNoPage = UINT32_MAX;

// Layers by what they attend to: every position before, or those of a window.
enum class KvKind : uint8_t { full, windowed };

struct KvRange {
  uint32_t first = 0;  // position of a page
  uint32_t count = 0;
};

// Who ran a pass: the device for prompts, or the one for tokens, which does everything where there
// is no other.
enum class Side : uint8_t { decode, prefill };

// For each position the side whose pass began there; none: it was inside of one. What one pass
// writes may differ in its last bits from what several do, or another device does, so whoever has
// to write it all again does it in the same passes.
using PassBegins = std::vector<std::optional<Side>>;

// Pages of `page_positions` positions each, reference-counted.
class KvPool {
 public:
  // All positions together can be counted in 32 bits.
  KvPool(uint32_t pages, uint32_t page_positions);
  ~KvPool();                                            // every reference has been given back
  void reset(uint32_t pages, uint32_t page_positions);  // of a pool that nobody uses
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

  // The first page that a sequence of so many positions has to have. Counted from the beginning of
  // its last page, so that it can always be cut to whole pages.
  uint32_t first_needed(uint32_t length) const;
  // The first page that is not given back: a page's positions can be taken back, as is done with
  // guesses of several passes.
  uint32_t first_kept(uint32_t length) const;
  // That one sequence has at once.
  static uint32_t most_pages(uint32_t positions, uint32_t rows, uint32_t page);
};
inline constexpr KvWindow kNoWindow = {};

// The pages in which one sequence's positions lie, in order. Gives its references back when it
// goes; pools and window outlive it. One that was moved from is empty.
//
// Of layers with a window it has the pages from one place on. What lies before it is given back
// when the table grows, not when a pass has ended: until then it can be cut to any length since the
// beginning of that pass, which is what a speculation does.
class KvTable {
 public:
  explicit KvTable(KvPool& pool, const KvWindow& window = kNoWindow)
      : pool_(&pool), window_(&window) {}
  // On pages that others hold, with references of its own: what share() and caches of prefixes
  // make. As many pages as the positions take; of windowed ones those in front may be kNoPage.
  KvTable(KvPool& pool, std::span<const KvPage> pages, PassBegins begins,
          const KvWindow& window = kNoWindow, std::span<const KvPage> window_pages = {});
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

  // Whether it could go on from its first `wanted` positions: all pages are there that the next one
  // attends to.
  bool can_be_cut_to(uint32_t wanted) const;

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
  // Of which kind of pages grow_to(wanted) would find too few; none: there are enough.
  std::optional<KvKind> lacking(uint32_t wanted) const;

  // Makes room for writing the positions from length() up to `wanted`, which is not less; of
  // windowed pages for one pass, however much is wanted. False, and no room made, when a pool has
  // too few free pages. At most one copy is needed (of the partly used page, if it is shared): the
  // caller performs it before anything is written and before any other table changes, for nothing
  // holds `from` on this table's behalf.
  [[nodiscard]] bool grow_to(uint32_t wanted, std::optional<Copy>& copy);

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

  KvPool* pool_;
  const KvWindow* window_;
  std::vector<KvPage> pages_, window_pages_;
  uint32_t passed_ = 0;  // windowed pages from the front that are kNoPage
  PassBegins begins_;
};

}  // namespace tyto
