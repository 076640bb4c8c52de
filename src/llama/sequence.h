// One sequence of tokens in the caches of a Pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llama/kv_store.h"
#include "text/tokenizer/vocabulary.h"
#include "trace/receipt.h"

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
  // Positions that another sequence computed: `tokens` holds the table's.
  void begin_with(std::span<const Token> tokens, KvTable kv);
  // Forgets everything from `position` on. Always possible to 0, to where the last pass began and,
  // unless layers have states, to the page before; elsewhere unless a window in front of it has
  // been given back (KvWindow), or there is no state (StateAt).
  void rewind(uint32_t position);
  bool can_rewind(uint32_t position) const { return kv_.can_be_cut_to(position); }
  uint32_t last_cut(uint32_t position) const { return kv_.last_cut(position); }
  // A pass that comes by keeps the state behind this position, until another one is wanted.
  void want_state(uint32_t position) { kv_.want_state(position); }
  KvTable share(uint32_t length) const { return kv_.share(length); }  // the first positions
  // What the cache holds, for another owner; the sequence is empty afterwards.
  KvTable take_cache();

  // How many of the best logits of a row suffice the reader; 0: all are wanted.
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

// What the head would see of a position: the residual stream after the final norm. [emb], valid
// during the call.
using OnHidden = std::function<void(uint32_t position, std::span<const float> hidden)>;

// Some more tokens of a sequence: the one form in which work goes from a scheduler to a device's
// call. Its first part says what is wanted; the pipeline fills in the second from the sequence.
struct SequenceRows {
  Sequence* sequence = nullptr;
  std::span<const Token> tokens;
  uint32_t logits = 1;                  // the last rows whose logits are wanted
  const OnHidden* on_hidden = nullptr;  // when given, gets every row's hidden state
  Side side = Side::decode;             // as Pipeline::side_for says

  uint32_t position = 0;               // where the first row stands in its sequence
  std::span<const KvPage> pages = {};  // with room for all rows
  std::span<const KvPage> window_pages = {};
  uint32_t state_from = kNoState, state_to = kNoState;
  std::vector<KeptState> kept = {};
  uint32_t candidates = 0;  // best logits of a row that suffice; 0: all are wanted
  std::vector<DeviceCounters>* counters = nullptr;  // gets its share of the call's work
  HandOvers* handed_over = nullptr;                 // gets what Sides bring for it

  uint32_t count() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t end() const { return position + count(); }
};

}  // namespace tyto
