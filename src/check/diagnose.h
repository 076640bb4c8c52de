// Where a device leaves the reference: both run the same tokens, and every result that can be seen
// is compared.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "check/observation.h"
#include "model/model.h"
#include "report/diagnosis.h"
#include "text/vocabulary.h"

namespace tyto {

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

}  // namespace tyto
