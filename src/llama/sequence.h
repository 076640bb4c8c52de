// One sequence of tokens in the caches of a Pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llama/kv_pool.h"
#include "text/vocabulary.h"
#include "trace/requirement.h"

namespace tyto {

class Pipeline;

// Live from construction to destruction: a device that fails meanwhile has the sequence run again.
// The pipeline outlives it.
class Sequence {
 public:
  explicit Sequence(Pipeline& pipeline);
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  uint32_t position() const { return kv_.length(); }  // tokens in the cache
  const std::vector<Token>& tokens() const { return tokens_; }
  // Positions that somebody else computed: `tokens` holds the table's.
  void begin_with(std::span<const Token> tokens, KvTable kv);
  // Forgets everything from `position` on. Always possible to 0, to where the last pass began and
  // to the page before; elsewhere unless a window in front of it has been given back (KvWindow).
  void rewind(uint32_t position);
  bool can_rewind(uint32_t position) const { return kv_.can_be_cut_to(position); }
  KvTable share(uint32_t length) const { return kv_.share(length); }  // the first positions
  // What the cache holds, for somebody else; the sequence is empty afterwards.
  KvTable take_cache();

  // Of the best logits of a row that suffice whoever reads them; 0: all are wanted.
  uint32_t candidates = 0;
  Phase phase = Phase::prefill;  // what is run from here on counts as
  PhaseCounters executed;        // by the devices, its share of what it ran together with others
  HandOvers handed_over;         // from side to side (llama/sides.h)
  std::vector<std::string> recoveries;  // from device errors, in words

 private:
  friend class Pipeline;
  Pipeline& pipeline_;
  std::vector<Token> tokens_;  // [kv_.length()]
  KvTable kv_;
};

}  // namespace tyto
