// Where a device leaves the reference: both run the same tokens, and every result that can be seen
// is compared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "check/transcript.h"
#include "llama/forward.h"
#include "model/model.h"
#include "program/stitch.h"
#include "report/diagnosis.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// What the dispatches of a forward pass leave behind, copied out for an observer. A dispatch
// shows what leaves it: values that a later dispatch reads, outputs, and rows of the KV cache.
// Everything else stays inside and is hidden.

// A launch's result, or rows of a cache.
struct StepKey {
  Role role = Role::none;
  uint16_t layer = kNoLayer;
  auto operator<=>(const StepKey&) const = default;
};

// Rows of one step's result, for consecutive positions. A copy: it stays as it was when the
// dispatch completed.
struct Observed {
  StepKey step;
  uint32_t position = 0;
  uint32_t rows = 0;
  std::vector<float> values = {};  // [rows, width], heads in the checkpoint's order
};

struct ObservedDispatch {
  std::string label;
  std::string device;
  uint32_t position = 0;
  std::vector<Observed> results = {};
  std::vector<StepKey> hidden = {};  // steps that happened inside and left nothing to see
};

// Copies what can be seen of a dispatch of one sequence.
ObservedDispatch observe(const DispatchView& dispatch);

// What can be seen of a piece when it has completed.
struct VisibleSlot {
  uint16_t slot = 0;  // in the piece's program
  StepKey step;       // that wrote it last
};
struct Visibility {
  std::vector<VisibleSlot> visible = {};
  std::vector<StepKey> hidden = {};
};

// What pieces[index] shows. `residual_goes_on`: later programs read the residual stream.
Visibility visibility(const std::vector<Piece>& pieces, size_t index, bool residual_goes_on);

// A token's heads [head][half][2] from what a device that rotates halves has: [head][2][half].
void put_in_pairs(std::vector<float>& heads, uint32_t head_dim);

// What the reference computed, of every step and position, and the tokens it did it for: the prompt
// and then its own greedy choices.
class ReferenceRecord {
 public:
  ReferenceRecord(const Model& model, std::span<const Token> prompt, uint32_t decode_tokens,
                  const Progress& progress = {});

  const std::vector<Token>& tokens() const { return tokens_; }
  size_t prompt_size() const { return prompt_size_; }
  // [rows, width] from `position` on; empty when the reference has no such step.
  std::span<const float> rows(const StepKey& step, uint32_t position, uint32_t rows) const;

 private:
  struct Step {
    size_t width = 0;
    std::vector<float> values;  // [positions, width]
  };
  std::map<StepKey, Step> steps_;
  std::vector<Token> tokens_;
  size_t prompt_size_;
};

// Gathers what a forward pass shows, to be compared in the end. Every record is a copy of its own.
class DeviceRecord {
 public:
  // To be given to the forward pass; refers to this.
  DispatchObserver observer() {
    return [this](const DispatchView& dispatch) { dispatches_.push_back(observe(dispatch)); };
  }
  const std::vector<ObservedDispatch>& dispatches() const { return dispatches_; }

 private:
  std::vector<ObservedDispatch> dispatches_;
};

// Fills in steps, hidden and uncompared. Pure.
void compare_records(const std::vector<ObservedDispatch>& device, const ReferenceRecord& reference,
                     Diagnosis& diagnosis);

// The gate: do two engines that continued one prompt greedily agree? Pure comparison.

struct GateOptions {
  uint32_t tokens = 32;  // compared, at most
  uint32_t k = 5;        // where tokens differ, each must be among the other side's k best
};

struct GateResult {
  bool passed = false;
  uint32_t compared = 0;               // positions looked at, the divergence included
  std::optional<uint32_t> divergence;  // the first position where the tokens differ
  Token ours = 0, theirs = 0;          // there
  uint32_t rank_of_ours = 0;           // among their candidates; 0: not one of them
  uint32_t rank_of_theirs = 0;
  std::string reason;  // why it failed
};

// Tokens with equal logits have equal ranks: 1 + how many are strictly better. 0: not listed.
uint32_t rank_of(Token token, std::span<const Candidate> candidates);

// Both sides saw the same context up to the first position where their tokens differ; what comes
// after it is not compared. A side that ended earlier than the other, or that has nothing, fails.
GateResult compare_greedy(const Continuation& ours, const Continuation& theirs,
                          const GateOptions& options);

}  // namespace tyto
