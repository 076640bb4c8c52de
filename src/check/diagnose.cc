#include "check/diagnose.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "llama/reference.h"
#include "tensor/compare.h"
#include "trace/event.h"

namespace tyto {
namespace {

// One step in one phase: the rows of all its dispatches, one after the other.
struct Pair {
  StepError error;
  std::vector<float> device, reference;
};

StepError finished(const Pair& pair) {
  StepError error = pair.error;
  const Comparison whole = compare(pair.device, pair.reference);
  error.cosine = whole.cosine;
  error.max_abs_error = whole.max_abs_error;
  error.max_abs_reference = whole.max_abs_reference;
  error.nmse = whole.nmse;
  error.finite = whole.finite;
  const size_t width = pair.device.size() / error.rows;
  for (size_t row = 0; row < error.rows; ++row) {
    const auto of = [&](const std::vector<float>& values) {
      return std::span(values).subspan(row * width, width);
    };
    const double cosine = compare(of(pair.device), of(pair.reference)).cosine;
    const bool is_worse = std::isnan(cosine) || cosine < error.worst_row_cosine;
    if (is_worse) error.worst_row_cosine = cosine;  // once not a number, it stays so
  }
  return error;
}

void add_hidden(const ObservedDispatch& dispatch, Phase phase, std::vector<HiddenSteps>& all) {
  if (dispatch.hidden.empty()) return;
  HiddenSteps hidden{phase, dispatch.label, dispatch.device, 1, {}};
  for (const StepKey& step : dispatch.hidden) {
    const std::string label(name(step.role));
    if (std::find(hidden.steps.begin(), hidden.steps.end(), label) == hidden.steps.end())
      hidden.steps.push_back(label);
  }
  const auto found = std::find_if(all.begin(), all.end(), [&](const HiddenSteps& other) {
    return other.phase == phase && other.dispatch == hidden.dispatch &&
           other.device == hidden.device && other.steps == hidden.steps;
  });
  if (found == all.end())
    all.push_back(std::move(hidden));
  else
    ++found->dispatches;
}

}  // namespace

ReferenceRecord::ReferenceRecord(const Model& model, std::span<const Token> prompt,
                                 uint32_t decode_tokens, const Progress& progress)
    : tokens_(prompt.begin(), prompt.end()), prompt_size_(prompt.size()) {
  TYTO_ASSERT(!prompt.empty());
  Reference reference(model, [&](Role role, uint16_t layer, std::span<const float> values) {
    Step& step = steps_[{role, layer}];
    step.width = values.size();
    step.values.insert(step.values.end(), values.begin(), values.end());
  });
  const size_t total = prompt.size() + decode_tokens;
  if (progress) progress("the reference computes", 0, total);
  for (size_t i = 0; i < total; ++i) {
    const std::vector<float> logits = reference.forward(tokens_[i]);
    if (i + 1 == tokens_.size() && tokens_.size() < total)
      tokens_.push_back(
          static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    if (progress) progress("the reference computes", i + 1, total);
  }
}

std::span<const float> ReferenceRecord::rows(const StepKey& step, uint32_t position,
                                             uint32_t rows) const {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return {};
  const auto& [width, values] = found->second;
  TYTO_ASSERT((size_t{position} + rows) * width <= values.size());
  return std::span(values).subspan(position * width, rows * width);
}

void compare_records(const std::vector<ObservedDispatch>& device, const ReferenceRecord& reference,
                     Diagnosis& diagnosis) {
  std::vector<Pair> pairs;  // in the order they ran
  std::map<std::pair<Phase, StepKey>, size_t> index;
  for (const ObservedDispatch& dispatch : device) {
    const Phase phase =
        dispatch.position < reference.prompt_size() ? Phase::prefill : Phase::decode;
    add_hidden(dispatch, phase, diagnosis.hidden);
    for (const Observed& seen : dispatch.results) {
      const std::span<const float> expected = reference.rows(seen.step, seen.position, seen.rows);
      const std::string label(name(seen.step.role));
      if (expected.empty()) {
        auto& list = diagnosis.uncompared;
        if (std::find(list.begin(), list.end(), label) == list.end()) list.push_back(label);
        continue;
      }
      TYTO_ASSERT(expected.size() == seen.values.size());
      const auto [entry, is_new] = index.try_emplace({phase, seen.step}, pairs.size());
      if (is_new)
        pairs.push_back({.error = {.phase = phase,
                                   .layer = seen.step.layer == kNoLayer ? -1 : seen.step.layer,
                                   .step = label,
                                   .dispatch = dispatch.label,
                                   .device = dispatch.device},
                         .device = {},
                         .reference = {}});
      Pair& pair = pairs[entry->second];
      pair.error.rows += seen.rows;
      pair.device.insert(pair.device.end(), seen.values.begin(), seen.values.end());
      pair.reference.insert(pair.reference.end(), expected.begin(), expected.end());
    }
  }
  for (const Pair& pair : pairs) diagnosis.steps.push_back(finished(pair));
}

}  // namespace tyto
