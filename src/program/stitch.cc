#include "program/stitch.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tyto {
namespace {

struct Range {
  size_t begin = 0;  // launches [begin, end) of the whole
  size_t end = 0;
};

bool is_one_operator(const Launch& a, const Launch& b) {
  return a.op_group != 0 && a.op_group == b.op_group && a.layer == b.layer;
}

bool is_one_block(const Launch& a, const Launch& b) {
  return a.block == b.block && a.layer == b.layer;
}

// Whether one device runs all of a launch's operator; otherwise its launches go one by one.
bool is_on_one_device(const Program& whole, std::span<const uint8_t> device_of, size_t index) {
  for (size_t i = 0; i < whole.launches.size(); ++i)
    if (is_one_operator(whole.launches[i], whole.launches[index]) &&
        device_of[i] != device_of[index])
      return false;
  return true;
}

bool cut_between(const Launch& before, const Launch& after, Fusion fusion) {
  if (fusion == Fusion::op) return !is_one_operator(before, after);
  return fusion == Fusion::block && !is_one_block(before, after);
}

std::vector<Range> ranges(const Program& whole, Fusion fusion, std::span<const uint8_t> device_of) {
  std::vector<Range> result;
  for (size_t i = 0; i < whole.launches.size(); ++i) {
    const bool starts = i == 0 || device_of[i] != device_of[i - 1] ||
                        cut_between(whole.launches[i - 1], whole.launches[i], fusion) ||
                        (fusion == Fusion::op && !is_on_one_device(whole, device_of, i));
    if (starts) result.push_back({i, i});
    result.back().end = i + 1;
  }
  return result;
}

// Whether a scratch slot's bytes must arrive from, or leave for, another device.
struct Crossing {
  bool arrives = false;
  bool leaves = false;
};

// Whether a device has a slot as it was last written before launch `begin`: it wrote it, or it has
// been brought there for an earlier launch.
bool is_resident(const Program& whole, std::span<const uint8_t> device_of, size_t begin,
                 uint16_t slot) {
  const uint8_t here = device_of[begin];
  for (size_t i = begin; i-- > 0;)
    for (const Arg& arg : whole.launches[i].args) {
      if (arg.slot != slot) continue;
      if (device_of[i] == here) return true;
      if (arg.writes) return false;
    }
  // Nobody has written it: the host does, or an earlier program left it on this device.
  return whole.slots[slot].kind != SlotKind::input;
}

Crossing crossing(const Program& whole, std::span<const uint8_t> device_of, Range range,
                  uint16_t slot) {
  const uint8_t here = device_of[range.begin];
  Crossing result;
  bool reads_first = false, written_here = false;
  for (size_t i = range.begin; i < range.end; ++i)
    for (const Arg& arg : whole.launches[i].args)
      if (arg.slot == slot) {
        reads_first |= arg.reads && !written_here;
        written_here |= arg.writes;
      }
  if (reads_first) result.arrives = !is_resident(whole, device_of, range.begin, slot);
  bool is_overwritten = !written_here;  // then nobody sees what was written here
  for (size_t i = range.end; !is_overwritten && i < whole.launches.size(); ++i)
    for (const Arg& arg : whole.launches[i].args)
      if (arg.slot == slot) {
        result.leaves |= arg.reads && device_of[i] != here;
        is_overwritten |= arg.writes;
      }
  return result;
}

SlotKind kind_after_crossing(const Crossing& crossing) {
  if (crossing.arrives && crossing.leaves) return SlotKind::inout;
  if (crossing.arrives) return SlotKind::input;
  return crossing.leaves ? SlotKind::output : SlotKind::scratch;
}

Piece cut(const Program& whole, std::span<const uint8_t> device_of, Range range) {
  Piece piece;
  piece.device = device_of[range.begin];
  const Launch& first = whole.launches[range.begin];
  const Launch& last = whole.launches[range.end - 1];
  piece.program.name = range.end - range.begin == 1 ? first.name
                       : is_one_block(first, last)  ? layer_name(name(first.block), first.layer)
                                                    : whole.name;
  std::map<uint16_t, uint16_t> local;  // whole slot -> piece slot
  for (size_t i = range.begin; i < range.end; ++i) {
    Launch launch = whole.launches[i];
    for (Arg& arg : launch.args) {
      const auto [entry, is_new] =
          local.try_emplace(arg.slot, static_cast<uint16_t>(piece.whole_slots.size()));
      if (is_new) {
        Slot slot = whole.slots[arg.slot];
        if (slot.kind == SlotKind::scratch || slot.kind == SlotKind::input)
          slot.kind = kind_after_crossing(crossing(whole, device_of, range, arg.slot));
        piece.whole_slots.push_back(arg.slot);
        piece.program.slots.push_back(std::move(slot));
      }
      arg.slot = entry->second;
    }
    piece.program.launches.push_back(std::move(launch));
  }
  return piece;
}

}  // namespace

std::optional<Fusion> fusion_from_name(std::string_view name) {
  if (name == "op") return Fusion::op;
  if (name == "block") return Fusion::block;
  if (name == "token") return Fusion::token;
  return std::nullopt;
}

std::vector<Piece> stitch(const Program& whole, Fusion fusion, std::span<const uint8_t> device_of) {
  TYTO_ASSERT(device_of.size() == whole.launches.size());
  std::vector<Piece> pieces;
  for (const Range& range : ranges(whole, fusion, device_of))
    pieces.push_back(cut(whole, device_of, range));
  return pieces;
}

}  // namespace tyto
