#include "check/diagnose.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "llama/reference.h"
#include "program/kernels.h"
#include "tensor/compare.h"
#include "tensor/quant.h"
#include "trace/counters.h"

namespace tyto {
namespace {

// Whether what a slot holds after pieces[index] is read before it is written again.
bool is_read_later(const std::vector<Piece>& pieces, size_t index, uint16_t whole_slot,
                   bool is_residual) {
  for (size_t p = index + 1; p < pieces.size(); ++p)
    for (const Launch& launch : pieces[p].program.launches) {
      bool reads = false, writes = false;
      for (const Arg& arg : launch.args) {
        if (pieces[p].whole_slots[arg.slot] != whole_slot) continue;
        reads |= arg.reads;
        writes |= arg.writes;
      }
      if (reads || writes) return reads;
    }
  return is_residual;
}

bool leaves(const std::vector<Piece>& pieces, size_t index, uint16_t local, bool residual_goes_on) {
  const Slot& slot = pieces[index].program.slots[local];
  if (slot.kind == SlotKind::kv || slot.kind == SlotKind::output || slot.kind == SlotKind::inout)
    return true;
  return is_read_later(pieces, index, pieces[index].whole_slots[local],
                       residual_goes_on && slot.role == Role::x);
}

}  // namespace

Visibility visibility(const std::vector<Piece>& pieces, size_t index, bool residual_goes_on) {
  const Program& program = pieces[index].program;
  std::vector<const Launch*> last_writer(program.slots.size());
  for (const Launch& launch : program.launches)
    for (const Arg& arg : launch.args)
      if (arg.writes) last_writer[arg.slot] = &launch;

  Visibility result;
  for (const Launch& launch : program.launches) {
    bool shows = false;
    for (const Arg& arg : launch.args) {
      if (!arg.writes || last_writer[arg.slot] != &launch) continue;
      if (!leaves(pieces, index, arg.slot, residual_goes_on)) continue;
      const Slot& slot = program.slots[arg.slot];
      const bool is_besides = slot.kind == SlotKind::kv || slot.role == Role::expert_ids;
      result.visible.push_back({arg.slot, {is_besides ? slot.role : launch.role, launch.layer}});
      shows = true;
    }
    if (!shows) result.hidden.push_back({launch.role, launch.layer});
  }
  return result;
}

void put_in_pairs(std::vector<float>& heads, uint32_t head_dim) {
  const size_t half = head_dim / 2;
  std::vector<float> head(head_dim);
  for (size_t begin = 0; begin + head_dim <= heads.size(); begin += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      head[2 * i] = heads[begin + i];
      head[2 * i + 1] = heads[begin + half + i];
    }
    std::copy(head.begin(), head.end(), heads.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

namespace {

// Values in the order of a head's rotation: what comes out of the projections of q and k.
bool is_rotated(Role role) {
  if (role.part == Role::q || role.part == Role::k) return role.facet != Facet::lora_a;
  return role == Role::q_rope || role == Role::k_rope || role == Role::q_scale ||
         role == Role::k_cache;
}

// Whether the layer rotates heads that its checkpoint keeps in pairs.
bool has_pairs(const Program& program, uint16_t layer) {
  return std::any_of(program.launches.begin(), program.launches.end(), [&](const Launch& launch) {
    return launch.layer == layer && launch.shape.rope_pairs;
  });
}

const LaunchShape& cache_shape(const Program& program, uint16_t slot) {
  for (const Launch& launch : program.launches)
    for (const Arg& arg : launch.args)
      if (arg.slot == slot) return launch.shape;
  TYTO_ASSERT(false);
}

// Where a position of a head is in a cache, in rows.
size_t cache_row(const LaunchShape& shape, const Segment& segment, size_t head, size_t position) {
  if (shape.page > 0) {
    const size_t page = segment.pages_of(shape.window)[position / shape.page];
    return (page * shape.kv_heads + head) * shape.page + position % shape.page;
  }
  const size_t group = shape.kv_group;
  return (head / group * shape.context + position) * group + head % group;
}

std::vector<float> values_of(const DispatchView& dispatch, uint16_t index) {
  const Program& program = dispatch.pieces[dispatch.index].program;
  const Slot& slot = program.slots[index];
  const Buffer& buffer = dispatch.buffers[index];
  const size_t row = row_bytes(slot.dtype, slot.cols), rows = dispatch.call.rows;
  if (slot.kind != SlotKind::kv) {
    dispatch.device.sync(buffer, Sync::from_device, 0, rows * row);
    std::vector<float> values(rows * slot.cols);
    if (slot.dtype == DType::i32) {
      const auto* ids = reinterpret_cast<const int32_t*>(buffer.data);
      std::copy(ids, ids + values.size(), values.begin());
      return values;
    }
    dequantize(slot.dtype, buffer.bytes().first(rows * row), values);
    return values;
  }
  // -> [rows][kv_heads][head_dim]
  dispatch.device.sync(buffer, Sync::from_device, 0, slot.bytes());
  const LaunchShape& shape = cache_shape(program, index);
  const Segment& segment = dispatch.call.only;
  std::vector<float> values(rows * shape.kv_heads * slot.cols);
  for (size_t t = 0; t < rows; ++t)
    for (size_t head = 0; head < shape.kv_heads; ++head) {
      const size_t at = cache_row(shape, segment, head, segment.position + t);
      dequantize(slot.dtype, buffer.bytes().subspan(at * row, row),
                 std::span(values).subspan((t * shape.kv_heads + head) * slot.cols, slot.cols));
    }
  return values;
}

uint32_t head_dim_of(const Program& program) {
  for (const Launch& launch : program.launches)
    if (launch.shape.head_dim > 0) return launch.shape.head_dim;
  return 0;
}

}  // namespace

ObservedDispatch observe(const DispatchView& dispatch) {
  TYTO_ASSERT(dispatch.call.batch.empty());
  const Program& program = dispatch.pieces[dispatch.index].program;
  // A program with the head goes on to logits; what it leaves in the residual stream is not read.
  Visibility seen = visibility(dispatch.pieces, dispatch.index, dispatch.part == Part::body);
  ObservedDispatch result{.label = dispatch_name(program).label,
                          .device = dispatch.device.info().name,
                          .position = dispatch.position,
                          .hidden = std::move(seen.hidden)};
  for (const VisibleSlot& visible : seen.visible) {
    Observed values{visible.step, dispatch.position, dispatch.call.rows,
                    values_of(dispatch, visible.slot)};
    if (dispatch.in_halves && is_rotated(visible.step.role) &&
        has_pairs(program, visible.step.layer))
      put_in_pairs(values.values, head_dim_of(program));
    result.results.push_back(std::move(values));
  }
  return result;
}

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

namespace {

std::string place(uint32_t rank, uint32_t listed) {
  return rank > 0 ? fmt::format("rank {}", rank) : fmt::format("beyond the best {}", listed);
}

}  // namespace

uint32_t rank_of(Token token, std::span<const Candidate> candidates) {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return c.token == token; });
  if (found == candidates.end()) return 0;
  const auto better = std::count_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& c) { return c.logit > found->logit; });
  return static_cast<uint32_t>(better) + 1;
}

GateResult compare_greedy(const Continuation& ours, const Continuation& theirs,
                          const GateOptions& options) {
  TYTO_ASSERT(ours.top.size() == ours.generated.size());
  TYTO_ASSERT(theirs.top.size() == theirs.generated.size());
  GateResult result;
  const size_t our_size = std::min<size_t>(ours.generated.size(), options.tokens);
  const size_t their_size = std::min<size_t>(theirs.generated.size(), options.tokens);
  const size_t both = std::min(our_size, their_size);
  for (size_t i = 0; i < both; ++i) {
    ++result.compared;
    result.ours = ours.generated[i];
    result.theirs = theirs.generated[i];
    if (result.ours == result.theirs) continue;
    result.divergence = static_cast<uint32_t>(i);
    result.rank_of_ours = rank_of(result.ours, theirs.top[i]);
    result.rank_of_theirs = rank_of(result.theirs, ours.top[i]);
    const auto is_near = [&](uint32_t rank) { return rank > 0 && rank <= options.k; };
    result.passed = is_near(result.rank_of_ours) && is_near(result.rank_of_theirs);
    if (!result.passed)
      result.reason = fmt::format(
          "at token {} the other side ranks our token {} and we rank theirs {}; both must be among "
          "the best {}",
          i, place(result.rank_of_ours, static_cast<uint32_t>(theirs.top[i].size())),
          place(result.rank_of_theirs, static_cast<uint32_t>(ours.top[i].size())), options.k);
    return result;
  }
  if (both == 0)
    result.reason = "there is nothing to compare";
  else if (our_size != their_size)
    result.reason = fmt::format(
        "{} ended after {} tokens, {} after {}", our_size < their_size ? "ours" : "theirs", both,
        our_size < their_size ? "theirs" : "ours", std::max(our_size, their_size));
  else
    result.passed = true;
  return result;
}

}  // namespace tyto
