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

// Whether one device runs all of a launch's operator; a part of an operator is none.
bool is_on_one_device(const Program& whole, std::span<const uint8_t> device_of, size_t index) {
  for (size_t i = 0; i < whole.launches.size(); ++i)
    if (whole.launches[i].op == whole.launches[index].op && device_of[i] != device_of[index])
      return false;
  return true;
}

bool cut_between(const Launch& before, const Launch& after, Fusion fusion) {
  if (fusion == Fusion::op) return before.op.empty() || before.op != after.op;
  return fusion == Fusion::block && before.block != after.block;
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
  for (size_t i = range.begin; reads_first && i-- > 0;) {  // the nearest earlier writer decides
    const auto& args = whole.launches[i].args;
    if (std::any_of(args.begin(), args.end(),
                    [&](const Arg& a) { return a.slot == slot && a.writes; })) {
      result.arrives = device_of[i] != here;
      break;
    }
  }
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
  piece.program.name = range.end - range.begin == 1 ? first.step
                       : first.block == last.block  ? first.block
                                                    : whole.name;
  std::map<uint16_t, uint16_t> local;  // whole slot -> piece slot
  for (size_t i = range.begin; i < range.end; ++i) {
    Launch launch = whole.launches[i];
    for (Arg& arg : launch.args) {
      const auto [entry, is_new] =
          local.try_emplace(arg.slot, static_cast<uint16_t>(piece.whole_slots.size()));
      if (is_new) {
        Slot slot = whole.slots[arg.slot];
        if (slot.kind == SlotKind::scratch)
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
