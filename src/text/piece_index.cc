#include "text/piece_index.h"

#include <bit>
#include <functional>

namespace tyto {

PieceIndex::PieceIndex(const std::vector<std::string>& pieces) : PieceIndex(pieces, {}) {}

PieceIndex::PieceIndex(const std::vector<std::string>& pieces, const std::vector<bool>& left_out)
    : pieces_(&pieces), slots_(std::bit_ceil(pieces.size() * 3 / 2 + 2), -1) {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty() || (!left_out.empty() && left_out[id])) continue;
    Token& slot = slots_[slot_of(pieces[id])];
    if (slot < 0) slot = static_cast<Token>(id);
  }
}

// The slot that holds the text, or the free one where it belongs.
size_t PieceIndex::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(text) & mask;
  while (slots_[slot] >= 0 && (*pieces_)[static_cast<size_t>(slots_[slot])] != text)
    slot = (slot + 1) & mask;
  return slot;
}

Token PieceIndex::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[slot_of(text)];
}

}  // namespace tyto
