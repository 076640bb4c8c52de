// The forward passes of a Pipeline: one, or two where prompts run on other devices than tokens,
// each with caches in its own form. Both number their pages alike, and what one lacks of a page is
// handed over by the other before it is needed: each position once, in either direction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/progress.h"
#include "llama/forward.h"

namespace tyto {

// Devices of each side in order of preference; the host's takes what the others cannot run.
struct SideDevices {
  std::vector<Device*> decode;
  std::vector<Device*> prefill;
};

// Used by one thread. Model and devices outlive it.
class Sides {
 public:
  Sides(const Model& model, const SideDevices& devices, const ForwardOptions& options, Trace& trace,
        const Progress& progress = {});

  bool are_two() const { return halves_.size() > 1; }
  const Forward& forward(Side side) const { return *halves_[index(side)].forward; }
  uint32_t page() const { return page_; }  // positions
  uint32_t pages() const { return pages_; }
  uint64_t page_bytes() const;  // both sides'
  // Only where there is one side.
  const WindowShape& windowed() const { return forward(Side::decode).kv().windowed; }
  const StateShape& state() const { return forward(Side::decode).kv().state; }
  uint64_t position_bytes(KvKind kind = KvKind::full) const;  // for read_page and write_page

  // Pages of SequenceRows are those of page(), as everywhere above a Forward.
  void run(Side side, std::span<const SequenceRows> rows, const Forward::OnLogits& on_logits);

  void copy_page(const KvTable::Copy& copy);
  // In the form of the decode side.
  void read_page(KvPage page, KvRange range, std::span<std::byte> to, KvKind kind = KvKind::full);
  void write_page(KvPage page, KvRange range, std::span<const std::byte> from,
                  KvKind kind = KvKind::full);
  // States are only where there is one side.
  void read_state(uint32_t state, std::span<std::byte> to);
  void write_state(uint32_t state, std::span<const std::byte> from);

 private:
  struct Half {
    std::unique_ptr<Forward> forward;
    uint16_t handed_over_name = 0;
    // Pages of its own for each page: more than one where the other side's are whole caches.
    uint32_t pages_each = 1;
    std::vector<uint32_t> held = {};  // [pages], positions from the front that it has
  };

  size_t index(Side side) const { return are_two() ? static_cast<size_t>(side) : 0; }
  Half& other(Side side) { return halves_[1 - index(side)]; }
  uint32_t lacking(Side side, const SequenceRows& rows) const;
  void bring(Side side, const SequenceRows& rows);
  void hand_over(Side side, KvPage page, KvRange range);
  void wrote(Side side, std::span<const KvPage> pages, KvRange positions);
  // Stretches of a page that lie in one page of each side: visit(range).
  template <typename Visit>
  void for_each_stretch(KvRange range, const Visit& visit) const;
  static KvPage own_page(const Half& half, KvPage page, uint32_t position);

  const Config& config_;
  Trace& trace_;
  std::vector<Half> halves_;  // [sides], or one for both
  uint32_t page_ = 0, pages_ = 0;
  std::vector<SequenceRows> rows_;   // the rows of this run, with the side's own pages,
  std::vector<KvPage> own_pages_;    // which are here
  std::vector<std::byte> in_, out_;  // the present stretch, before and after conversion
};

}  // namespace tyto
