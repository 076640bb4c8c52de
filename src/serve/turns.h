// Whose turn it is among models that share the devices. Each gets the same time while it has work,
// however long its steps are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tyto {

class Turns {
 public:
  explicit Turns(size_t count) : used_ns_(count), had_work_(count) {}

  // The one that has used least, among those that have work: [count]. Who had none before begins
  // where the others are, so that idle time is not saved up. None: no model has work.
  std::optional<size_t> next(const std::vector<bool>& has_work);
  // What its turn has taken. No turn counts for more than kLongestWaitNs, so that a model whose
  // step was very long is not kept waiting as long.
  void used(size_t who, uint64_t ns);

  static constexpr uint64_t kLongestWaitNs = 1'000'000'000;

 private:
  std::vector<uint64_t> used_ns_;  // [count]
  std::vector<bool> had_work_;     // [count], when it was last asked
  uint64_t time_ns_ = 0;           // what the last one had used when its turn came
};

}  // namespace tyto
