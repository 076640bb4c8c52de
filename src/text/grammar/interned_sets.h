// Sets of numbers, each stored once: equal sets have equal ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tyto {

class InternedSets {
 public:
  InternedSets();  // has the empty set, whose id is 0

  uint32_t intern(std::span<const uint64_t> sorted);  // distinct
  std::span<const uint64_t> operator[](uint32_t id) const {
    return std::span(values_).subspan(begins_[id], begins_[id + 1] - begins_[id]);
  }
  size_t size() const { return begins_.size() - 1; }
  size_t bytes() const {
    return values_.size() * sizeof(uint64_t) + slots_.size() * 2 * sizeof(uint32_t);
  }

 private:
  size_t slot_of(std::span<const uint64_t> sorted) const;
  void grow();

  std::vector<uint64_t> values_;
  std::vector<size_t> begins_;   // [sets + 1]
  std::vector<uint32_t> slots_;  // ids + 1; a power of two, never full; 0: free
};

}  // namespace tyto
