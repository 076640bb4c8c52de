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

using DispatchBlocks = std::span<const std::vector<DispatchBlock>>;

// The block of its device that a launch belongs to; none where the device has none for it.
const DispatchBlock* dispatch_block(const Program& whole, const Launch& launch, uint8_t device,
                                    DispatchBlocks blocks) {
  if (device >= blocks.size()) return nullptr;
  const bool is_prompt = whole.slots[launch.args.front().slot].rows > 1;
  for (const DispatchBlock& block : blocks[device])
    if (block.is_prompt == is_prompt &&
        std::find(block.roles.begin(), block.roles.end(), launch.role) != block.roles.end())
      return &block;
  return nullptr;
}

// Whether launches i - 1 and i, of one device, are two dispatches.
bool cut_before(const Program& whole, size_t i, Fusion fusion, uint8_t device,
                DispatchBlocks blocks) {
  const Launch &before = whole.launches[i - 1], &after = whole.launches[i];
  if (fusion == Fusion::op) return !is_one_operator(before, after);
  if (fusion == Fusion::token) return false;
  const DispatchBlock* block = dispatch_block(whole, after, device, blocks);
  if (block != dispatch_block(whole, before, device, blocks)) return true;
  return block != nullptr ? before.layer != after.layer : !is_one_block(before, after);
}

std::vector<Range> ranges(const Program& whole, Fusion fusion, std::span<const uint8_t> device_of,
                          DispatchBlocks blocks) {
  std::vector<Range> result;
  for (size_t i = 0; i < whole.launches.size(); ++i) {
    const bool starts = i == 0 || device_of[i] != device_of[i - 1] ||
                        cut_before(whole, i, fusion, device_of[i], blocks) ||
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
  // No launch has written it: the host does, or an earlier program left it on this device.
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
  bool is_overwritten = !written_here;  // then what was written here is not read
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

std::string_view name(Fusion fusion) {
  switch (fusion) {
    case Fusion::op:
      return "op";
    case Fusion::block:
      return "block";
    case Fusion::token:
      break;
  }
  return "token";
}

std::optional<Fusion> fusion_from_name(std::string_view name) {
  if (name == "op") return Fusion::op;
  if (name == "block") return Fusion::block;
  if (name == "token") return Fusion::token;
  return std::nullopt;
}

std::vector<Piece> stitch(const Program& whole, Fusion fusion, std::span<const uint8_t> device_of,
                          DispatchBlocks blocks) {
  TYTO_ASSERT(device_of.size() == whole.launches.size());
  std::vector<Piece> pieces;
  for (const Range& range : ranges(whole, fusion, device_of, blocks)) {
    Piece& piece = pieces.emplace_back(cut(whole, device_of, range));
    const Launch& first = whole.launches[range.begin];
    const DispatchBlock* block =
        fusion == Fusion::block ? dispatch_block(whole, first, piece.device, blocks) : nullptr;
    if (block == nullptr) continue;
    piece.program.dispatch = block->name;
    piece.program.name = layer_name(block->name, first.layer);
  }
  return pieces;
}

}  // namespace tyto
