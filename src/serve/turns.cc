#include "serve/turns.h"

#include <algorithm>

#include "base/error.h"

namespace tyto {

std::optional<size_t> Turns::next(const std::vector<bool>& has_work) {
  TYTO_ASSERT(has_work.size() == used_ns_.size());
  std::optional<size_t> least;
  for (size_t i = 0; i < has_work.size(); ++i) {
    if (has_work[i] && !had_work_[i]) used_ns_[i] = std::max(used_ns_[i], time_ns_);
    if (has_work[i] && (!least || used_ns_[i] < used_ns_[*least])) least = i;
  }
  had_work_ = has_work;
  if (least) time_ns_ = used_ns_[*least];
  return least;
}

void Turns::used(size_t who, uint64_t ns) {
  used_ns_[who] += std::min(ns, kLongestWaitNs);
}

}  // namespace tyto
