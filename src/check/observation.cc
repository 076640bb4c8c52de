#include "check/observation.h"

#include <algorithm>

#include "base/error.h"
#include "program/launch_names.h"
#include "tensor/quant.h"

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
  return role == Role::q || role == Role::k || role == Role::q_norm || role == Role::k_norm ||
         role == Role::q_rope || role == Role::k_rope || role == Role::q_scale ||
         role == Role::k_cache || role == Role::q_lora || role == Role::q_lora_b ||
         role == Role::k_lora || role == Role::k_lora_b;
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
  // A program with the head goes on to logits; what it leaves in the residual stream is nobody's.
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

}  // namespace tyto
