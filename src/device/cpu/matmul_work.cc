#include "device/cpu/matmul_work.h"

#include <algorithm>

#include "device/cpu/numerics.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

// Rows of unpacked blocks decoded at a time: 16 rows of 8192 f32 values are 512 KB, an L2's worth.
constexpr size_t kRowsAtOnce = 16;

// Whether rows are multiplied as they lie; else they are widened to f32 first.
bool is_direct(const MatmulTarget& target, bool in_blocks) {
  return is_float(target.type) && !in_blocks;
}

// What the tokens of a form are prepared as.
DType type_of(Form form) {
  return form == Form::bf16 || form == Form::packed_bf16 ? DType::bf16 : DType::f32;
}

bool is_packed(Form form) {
  return form == Form::packed_floats || form == Form::packed_bf16;
}

void widen_row(const MatmulTarget& target, size_t row, size_t k, bool in_blocks,
               const InnerLoops& loops, float* out) {
  const std::byte* values = target.weights + row * target.row_stride;
  if (is_float(target.type))
    loops.widen(target.type, values, out, k);
  else
    dequantize(target.type, {values, row_bytes(target.type, k)}, {out, k});
  if (in_blocks) round_to_bfp16(out, k);
}

void multiply_floats(const MatmulTarget& target, const Rows& rows, const Activations& x,
                     size_t tokens, bool in_blocks, const InnerLoops& loops) {
  FloatMatmul job{target.weights,        target.type, x.k,    target.row_stride, rows.begin,
                  rows.end - rows.begin, x.floats,    tokens, target.y,          target.rows};
  if (is_direct(target, in_blocks)) return loops.floats->multiply(job);
  static thread_local ScratchBuffer<float> memory;
  float* widened = memory.at_least(kRowsAtOnce * x.k);
  job.weights = widened;
  job.type = DType::f32;
  job.row_stride = x.k * sizeof(float);
  job.first_row = 0;
  for (size_t row = rows.begin; row < rows.end; row += kRowsAtOnce) {
    job.rows = std::min(kRowsAtOnce, rows.end - row);
    for (size_t r = 0; r < job.rows; ++r)
      widen_row(target, row + r, x.k, in_blocks, loops, widened + r * x.k);
    job.y = target.y + row;
    loops.floats->multiply(job);
  }
}

void multiply_packed_floats(const MatmulTarget& target, const Rows& rows, const Activations& x,
                            size_t tokens, const PackedFloatLoops& loops) {
  static thread_local ScratchBuffer<float> aside;
  loops.multiply({.matrix = target.packed,
                  .x = x.floats,
                  .tokens = tokens,
                  .first_panel = rows.begin / kFloatPanelRows,
                  .panels = (rows.end - rows.begin + kFloatPanelRows - 1) / kFloatPanelRows,
                  .y = target.y,
                  .y_stride = target.rows,
                  .aside = aside.at_least(tokens * kFloatPanelRows)});
}

void multiply_packed(const MatmulTarget& target, const Rows& rows, const BlockActivations& x,
                     size_t tokens, const PackedLoops& loops) {
  static thread_local ScratchBuffer<float> aside;
  loops.multiply({.matrix = target.packed,
                  .x = x,
                  .tokens = tokens,
                  .first_panel = rows.begin / kPanelRows,
                  .panels = (rows.end - rows.begin + kPanelRows - 1) / kPanelRows,
                  .y = target.y,
                  .y_stride = target.rows,
                  .aside = aside.at_least(tokens * kPanelRows)});
}

}  // namespace

Form form_for(const MatmulTarget& target, bool in_blocks) {
  const bool is_bf16 = target.type == DType::bf16;
  if (target.packed == nullptr)
    return is_bf16 && is_direct(target, in_blocks) ? Form::bf16 : Form::floats;
  if (!is_float(target.type)) return Form::blocks;
  return is_bf16 ? Form::packed_bf16 : Form::packed_floats;
}

size_t tile_tokens(Form form, const InnerLoops& loops) {
  if (form == Form::blocks) return loops.packed->tile_tokens;
  return is_packed(form) ? loops.packed_floats->tile_tokens : loops.floats->tile_tokens;
}

Activations Activations::from(size_t token) const {
  Activations result = *this;
  if (form != Form::blocks) {
    result.floats += token * token_bytes;
    return result;
  }
  const size_t values = token * k, count = values / kBlockValues;
  result.blocks.codes += values;
  if (blocks.wide_codes != nullptr) result.blocks.wide_codes += values;
  result.blocks.scales += count;
  result.blocks.negated_sum += count;
  result.blocks.negated_half_sums += 2 * count;
  result.blocks.scaled_sum += count;
  return result;
}

Activations reserve(Form form, size_t tokens, size_t k, ActivationMemory& memory,
                    const InnerLoops& loops) {
  Activations result{.form = form, .k = k};
  if (form == Form::blocks) {
    const size_t count = tokens * (k / kBlockValues);
    result.blocks = {
        memory.codes.at_least(count * kBlockValues),
        loops.packed->wide_codes ? memory.wide_codes.at_least(count * kBlockValues) : nullptr,
        memory.scales.at_least(count),
        memory.negated_sum.at_least(count),
        memory.negated_half_sums.at_least(2 * count),
        memory.scaled_sum.at_least(count)};
    return result;
  }
  const DType type = type_of(form);
  result.token_bytes = is_packed(form) ? loops.packed_floats->token_bytes(type, k)
                                       : loops.floats->token_bytes(type, k);
  result.floats = memory.floats[static_cast<size_t>(form)].at_least(tokens * result.token_bytes);
  return result;
}

void prepare_tile(const Activations& out, const float* x, const TokenTile& tile,
                  const InnerLoops& loops) {
  if (out.form == Form::blocks)
    return loops.packed->quantize_tile(x, out.k, out.k, tile, out.blocks);
  const auto prepare =
      is_packed(out.form) ? loops.packed_floats->prepare_tile : loops.floats->prepare_tile;
  prepare(type_of(out.form), x, out.k, out.k, tile, out.floats);
}

void multiply_rows(const MatmulTarget& target, const Rows& rows, const Activations& x,
                   size_t tokens, bool in_blocks, const InnerLoops& loops) {
  if (x.form == Form::blocks)
    multiply_packed(target, rows, x.blocks, tokens, *loops.packed);
  else if (is_packed(x.form))
    multiply_packed_floats(target, rows, x, tokens, *loops.packed_floats);
  else
    multiply_floats(target, rows, x, tokens, in_blocks, loops);
  if (target.bias == nullptr) return;
  for (size_t t = 0; t < tokens; ++t)
    loops.add(target.y + t * target.rows + rows.begin, target.bias + rows.begin,
              rows.end - rows.begin);
}

}  // namespace tyto::cpu
