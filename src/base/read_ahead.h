// What a thread brings into its cache while it waits for the next parallel loop. Memory is what a
// token's time is made of, and it is idle whenever threads wait for each other or for a step that
// one of them does alone.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

namespace tyto {

// What a parallel loop over [0, count) reads, so far as it is known before the loop begins.
struct LoopReads {
  // Index i, if inside [first, end), reads `bytes` bytes that follow those of index i - 1.
  struct Array {
    const std::byte* base = nullptr;  // where index `first` lies
    size_t bytes = 0;
    size_t first = 0;
    size_t end = 0;
  };
  size_t count = 0;
  size_t grain = 1;
  std::array<Array, 3> arrays;  // in the order in which an index reads them
};

struct IndexRange {
  size_t begin = 0;
  size_t end = 0;
};

// Loops come in the same order token after token: what followed last time is expected again.
class ReadOrder {
 public:
  // What came after `reads` when it came last; nothing (count 0) the first time.
  LoopReads after(const LoopReads& reads);

 private:
  std::unordered_map<const std::byte*, LoopReads> followers_;  // by the first array's base
  const std::byte* last_ = nullptr;
};

// One thread's way through what it expects to read. Addresses that are no longer mapped do no
// harm: the processor drops a prefetch that it cannot translate.
class ReadAhead {
 public:
  // At most `budget` bytes of what `range` reads; nothing of what was begun before.
  void begin(const LoopReads& reads, const IndexRange& range, size_t budget);
  bool done() const { return left_ == 0 || range_.begin >= range_.end; }
  void fetch_some();  // takes a fraction of a microsecond

 private:
  LoopReads reads_;
  IndexRange range_;  // what is left of it
  size_t array_ = 0;
  size_t offset_ = 0;  // in what index range_.begin reads of that array
  size_t left_ = 0;    // bytes
};

// Bytes that a thread may read ahead: half of its core's second-level cache.
size_t read_ahead_budget();

}  // namespace tyto
