#include "text/grammar/interned_sets.h"

#include <algorithm>

namespace tyto {
namespace {

uint64_t hash_of(std::span<const uint64_t> values) {
  uint64_t hash = values.size();
  for (const uint64_t value : values) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

InternedSets::InternedSets() : begins_{0}, slots_(64) {
  intern({});
}

size_t InternedSets::slot_of(std::span<const uint64_t> sorted) const {
  size_t slot = hash_of(sorted) & (slots_.size() - 1);
  while (slots_[slot] != 0 && !std::ranges::equal((*this)[slots_[slot] - 1], sorted))
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

uint32_t InternedSets::intern(std::span<const uint64_t> sorted) {
  const size_t slot = slot_of(sorted);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  const auto id = static_cast<uint32_t>(size());
  values_.insert(values_.end(), sorted.begin(), sorted.end());
  begins_.push_back(values_.size());
  slots_[slot] = id + 1;
  if (size() * 2 > slots_.size()) grow();
  return id;
}

void InternedSets::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (uint32_t id = 0; id < size(); ++id) slots_[slot_of((*this)[id])] = id + 1;
}

}  // namespace tyto
