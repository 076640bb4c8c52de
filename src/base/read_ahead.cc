#include "base/read_ahead.h"

#include <unistd.h>

#include <algorithm>

namespace tyto {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kLinesAtOnce = 16;

// More than any model has matrices; beyond it are those of models that were closed.
constexpr size_t kMostFollowers = 8192;

constexpr size_t kLeastCache = size_t{256} << 10;  // any x86 core that has AVX2 has as much

}  // namespace

LoopReads ReadOrder::after(const LoopReads& reads) {
  if (followers_.size() > kMostFollowers) followers_.clear();
  const std::byte* key = reads.arrays.front().base;
  if (last_ != nullptr) followers_[last_] = reads;
  last_ = key;
  const auto known = followers_.find(key);
  return known == followers_.end() ? LoopReads{} : known->second;
}

void ReadAhead::begin(const LoopReads& reads, const IndexRange& range, size_t budget) {
  reads_ = reads;
  range_ = range;
  array_ = offset_ = 0;
  left_ = budget;
}

void ReadAhead::fetch_some() {
  constexpr int kSecondLevel = 2;
  for (size_t step = 0; step < kLinesAtOnce && !done(); ++step) {
    const LoopReads::Array& array = reads_.arrays[array_];
    const bool is_read = array.first <= range_.begin && range_.begin < array.end;
    if (!is_read || offset_ >= array.bytes) {
      offset_ = 0;
      if (++array_ < reads_.arrays.size()) continue;
      array_ = 0;
      ++range_.begin;
      continue;
    }
    const size_t at = (range_.begin - array.first) * array.bytes + offset_;
    __builtin_prefetch(array.base + at, 0, kSecondLevel);
    offset_ += kLine;
    left_ -= std::min(left_, kLine);
  }
}

size_t read_ahead_budget() {
  const long cache = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max(kLeastCache, cache > 0 ? static_cast<size_t>(cache) : 0) / 2;
}

}  // namespace tyto
