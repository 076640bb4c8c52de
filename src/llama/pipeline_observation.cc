// The part of a pipeline that only somebody who watches it needs: copies of what its dispatches
// leave behind.
#include "llama/pipeline.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// Values in the order of a head's rotation: what comes out of the projections of q and k.
bool is_rotated(const std::string& step) {
  const std::string label = event_name(step).label;
  return label.starts_with("q") || label.starts_with("k");
}

}  // namespace

void Pipeline::prepare_observation(const Plan& plan, size_t index, Step& step) {
  const Program& program = plan.pieces[index].program;
  // A program with the head goes on to logits; what it leaves in the residual stream is nobody's.
  const bool leaves_residual = plan.forward.program.name == "body";
  Visibility seen = visibility(plan.pieces, index, leaves_residual ? "x" : "");
  for (VisibleSlot& visible : seen.visible) {
    const Slot& slot = program.slots[visible.slot];
    step.visible.push_back({std::move(visible.step), slot, buffers_.at(slot.name)});
  }
  step.hidden = std::move(seen.hidden);
  step.is_head_alone = plan.forward.program.name == "head";
}

void Pipeline::show(const Step& step, const Call& call) {
  ObservedDispatch dispatch{.name = step.name,
                            .device = step.label.counters->device,
                            .position = step.is_head_alone ? position_ - 1 : call.position,
                            .hidden = step.hidden};
  for (const Step::Visible& visible : step.visible) {
    Observed result{visible.step, dispatch.position, call.tokens, seen_values(step, visible, call)};
    const bool was_halved = rope_device_ != nullptr && rope_device_ != devices_.back();
    if (was_halved && is_rotated(result.step)) put_in_pairs(result.values, model_.config.head_dim);
    dispatch.results.push_back(std::move(result));
  }
  options_.observer(dispatch);
}

std::vector<float> Pipeline::seen_values(const Step& step, const Step::Visible& visible,
                                         const Call& call) {
  const Slot& slot = visible.slot;
  const size_t row = row_bytes(slot.dtype, slot.cols);
  if (slot.kind != SlotKind::kv) {
    const size_t bytes = call.tokens * row;
    step.device->sync(visible.buffer, Sync::from_device, 0, bytes);
    std::vector<float> values(call.tokens * slot.cols);
    dequantize(slot.dtype, visible.buffer.bytes().first(bytes), values);
    return values;
  }
  // [kv_heads / group][positions][group][head_dim] -> [tokens][kv_heads][head_dim]
  step.device->sync(visible.buffer, Sync::from_device, 0, slot.bytes());
  const size_t heads = model_.config.kv_heads, group = first_.kv ? first_.kv->group : 1;
  const size_t positions = slot.rows / heads;
  std::vector<float> values(call.tokens * heads * slot.cols);
  for (size_t t = 0; t < call.tokens; ++t)
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = (head / group * positions + call.position + t) * group + head % group;
      dequantize(slot.dtype, visible.buffer.bytes().subspan(at * row, row),
                 std::span(values).subspan((t * heads + head) * slot.cols, slot.cols));
    }
  return values;
}

}  // namespace tyto
