#include "llama/observation.h"

#include <algorithm>

namespace tyto {
namespace {

// Whether what a slot holds after pieces[index] is read before it is written again.
bool is_read_later(const std::vector<Piece>& pieces, size_t index, uint16_t whole_slot,
                   bool is_residual) {
  for (size_t p = index + 1; p < pieces.size(); ++p)
    for (const Launch& launch : pieces[p].program.launches) {
      bool reads = false, writes = false;
      for (const Arg& arg : launch.args) {
        if (pieces[p].whole_slots[arg.slot] != whole_slot) continue;
        reads |= arg.reads;
        writes |= arg.writes;
      }
      if (reads || writes) return reads;
    }
  return is_residual;
}

bool leaves(const std::vector<Piece>& pieces, size_t index, uint16_t local,
            const std::string& residual) {
  const Slot& slot = pieces[index].program.slots[local];
  if (slot.kind == SlotKind::kv || slot.kind == SlotKind::output || slot.kind == SlotKind::inout)
    return true;
  return is_read_later(pieces, index, pieces[index].whole_slots[local], slot.name == residual);
}

}  // namespace

Visibility visibility(const std::vector<Piece>& pieces, size_t index, const std::string& residual) {
  const Program& program = pieces[index].program;
  std::vector<const Launch*> last_writer(program.slots.size());
  for (const Launch& launch : program.launches)
    for (const Arg& arg : launch.args)
      if (arg.writes) last_writer[arg.slot] = &launch;

  Visibility result;
  for (const Launch& launch : program.launches) {
    bool shows = false;
    for (const Arg& arg : launch.args) {
      if (!arg.writes || last_writer[arg.slot] != &launch) continue;
      if (!leaves(pieces, index, arg.slot, residual)) continue;
      const Slot& slot = program.slots[arg.slot];
      result.visible.push_back({arg.slot, slot.kind == SlotKind::kv ? slot.name : launch.step});
      shows = true;
    }
    if (!shows) result.hidden.push_back(launch.step);
  }
  return result;
}

void put_in_pairs(std::vector<float>& heads, uint32_t head_dim) {
  const size_t half = head_dim / 2;
  std::vector<float> head(head_dim);
  for (size_t begin = 0; begin + head_dim <= heads.size(); begin += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      head[2 * i] = heads[begin + i];
      head[2 * i + 1] = heads[begin + half + i];
    }
    std::copy(head.begin(), head.end(), heads.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace tyto
