#include "device/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cpu/numerics.h"
#include "device/cpu/scratch_buffer.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

// Rows that one thread takes at a time: two panels of blocks, one of floats.
constexpr size_t kUnitRows = 32;
static_assert(kUnitRows % kPanelRows == 0 && kUnitRows % kFloatPanelRows == 0);

// Rows of unpacked blocks decoded at a time: 16 rows of 8192 f32 values are 512 KB, an L2's worth.
constexpr size_t kRowsAtOnce = 16;

// The activations of one call in the form the kernels take, filled by the caller of multiply().
struct Prepared {
  ScratchBuffer<int8_t> codes;
  ScratchBuffer<int16_t> wide_codes;
  ScratchBuffer<float> scales;
  ScratchBuffer<int32_t> negated_sum;
  ScratchBuffer<int32_t> negated_half_sums;
  ScratchBuffer<float> scaled_sum;
  ScratchBuffer<std::byte> floats;
  ScratchBuffer<std::byte> bf16;
  ScratchBuffer<std::byte> packed_floats;
  ScratchBuffer<std::byte> packed_bf16;

  BlockActivations blocks(size_t tokens, size_t k, bool wide) {
    const size_t count = tokens * (k / kBlockValues);
    return {codes.at_least(count * kBlockValues),
            wide ? wide_codes.at_least(count * kBlockValues) : nullptr,
            scales.at_least(count),
            negated_sum.at_least(count),
            negated_half_sums.at_least(2 * count),
            scaled_sum.at_least(count)};
  }
};

BlockActivations quantize(const MatmulGroup& group, Prepared& memory, ThreadPool& pool,
                          const PackedLoops& loops) {
  const BlockActivations result = memory.blocks(group.tokens, group.k, loops.wide_codes);
  pool.parallel_for(token_tiles(group.tokens, loops.tile_tokens), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      loops.quantize_tile(group.x, group.k, group.k, token_tile(group.tokens, loops.tile_tokens, i),
                          result);
  });
  return result;
}

// Whether rows are multiplied as they lie; else they are widened to f32 first.
bool is_direct(const MatmulGroup& group, const MatmulTarget& target) {
  return is_float(target.type) && !group.in_blocks;
}

// The form of activations that a target takes. Each of the two for floats differs for bf16 from the
// one for f16 and f32.
enum class Form : uint8_t { blocks, floats, bf16, packed_floats, packed_bf16 };

Form form_for(const MatmulGroup& group, const MatmulTarget& target) {
  const bool is_bf16 = target.type == DType::bf16;
  if (target.packed == nullptr)
    return is_bf16 && is_direct(group, target) ? Form::bf16 : Form::floats;
  if (!is_float(target.type)) return Form::blocks;
  return is_bf16 ? Form::packed_bf16 : Form::packed_floats;
}

template <typename Loops>  // FloatLoops, PackedFloatLoops
const void* prepare(DType type, const MatmulGroup& group, const float* x,
                    ScratchBuffer<std::byte>& memory, ThreadPool& pool, const Loops& loops) {
  std::byte* result = memory.at_least(group.tokens * loops.token_bytes(type, group.k));
  pool.parallel_for(token_tiles(group.tokens, loops.tile_tokens), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      loops.prepare_tile(type, x, group.k, group.k, token_tile(group.tokens, loops.tile_tokens, i),
                         result);
  });
  return result;
}

const void* prepare_form(Form form, const MatmulGroup& group, const float* x, Prepared& memory,
                         ThreadPool& pool, const InnerLoops& loops) {
  switch (form) {
    case Form::bf16:
      return prepare(DType::bf16, group, x, memory.bf16, pool, *loops.floats);
    case Form::packed_floats:
      return prepare(DType::f32, group, x, memory.packed_floats, pool, *loops.packed_floats);
    case Form::packed_bf16:
      return prepare(DType::bf16, group, x, memory.packed_bf16, pool, *loops.packed_floats);
    default:
      return prepare(DType::f32, group, x, memory.floats, pool, *loops.floats);
  }
}

struct Rows {
  size_t begin;
  size_t end;
};

void widen_row(const MatmulGroup& group, const MatmulTarget& target, size_t row,
               const InnerLoops& loops, float* out) {
  const std::byte* values = target.weights + row * target.row_stride;
  if (is_float(target.type))
    loops.widen(target.type, values, out, group.k);
  else
    dequantize(target.type, {values, row_bytes(target.type, group.k)}, {out, group.k});
  if (group.in_blocks) round_to_bfp16(out, group.k);
}

void multiply_floats(const MatmulGroup& group, const MatmulTarget& target, const Rows& rows,
                     const void* x, const InnerLoops& loops) {
  FloatMatmul job{target.weights,        target.type, group.k,      target.row_stride, rows.begin,
                  rows.end - rows.begin, x,           group.tokens, target.y,          target.rows};
  if (is_direct(group, target)) return loops.floats->multiply(job);
  static thread_local ScratchBuffer<float> memory;
  float* widened = memory.at_least(kRowsAtOnce * group.k);
  job.weights = widened;
  job.type = DType::f32;
  job.row_stride = group.k * sizeof(float);
  job.first_row = 0;
  for (size_t row = rows.begin; row < rows.end; row += kRowsAtOnce) {
    job.rows = std::min(kRowsAtOnce, rows.end - row);
    for (size_t r = 0; r < job.rows; ++r)
      widen_row(group, target, row + r, loops, widened + r * group.k);
    job.y = target.y + row;
    loops.floats->multiply(job);
  }
}

void multiply_packed_floats(const MatmulGroup& group, const MatmulTarget& target, const Rows& rows,
                            const void* x, const PackedFloatLoops& loops) {
  static thread_local ScratchBuffer<float> aside;
  loops.multiply({.matrix = target.packed,
                  .x = x,
                  .tokens = group.tokens,
                  .first_panel = rows.begin / kFloatPanelRows,
                  .panels = (rows.end - rows.begin + kFloatPanelRows - 1) / kFloatPanelRows,
                  .y = target.y,
                  .y_stride = target.rows,
                  .aside = aside.at_least(group.tokens * kFloatPanelRows)});
}

void multiply_packed(const MatmulGroup& group, const MatmulTarget& target, const Rows& rows,
                     const BlockActivations& x, const PackedLoops& loops) {
  static thread_local ScratchBuffer<float> aside;
  loops.multiply({.matrix = target.packed,
                  .x = x,
                  .tokens = group.tokens,
                  .first_panel = rows.begin / kPanelRows,
                  .panels = (rows.end - rows.begin + kPanelRows - 1) / kPanelRows,
                  .y = target.y,
                  .y_stride = target.rows,
                  .aside = aside.at_least(group.tokens * kPanelRows)});
}

// One call of multiply(), as its threads see it.
struct Work {
  const MatmulGroup& group;
  const InnerLoops& loops;
  BlockActivations blocks = {};
  const void* floats[5] = {};  // [Form]

  void multiply_rows(const MatmulTarget& target, const Rows& rows) const {
    const Form form = form_for(group, target);
    const void* x = floats[static_cast<size_t>(form)];
    if (form == Form::blocks)
      multiply_packed(group, target, rows, blocks, *loops.packed);
    else if (target.packed != nullptr)
      multiply_packed_floats(group, target, rows, x, *loops.packed_floats);
    else
      multiply_floats(group, target, rows, x, loops);
    if (target.bias == nullptr) return;
    for (size_t t = 0; t < group.tokens; ++t)
      loops.add(target.y + t * target.rows + rows.begin, target.bias + rows.begin,
                rows.end - rows.begin);
  }

  void finish_rows(const Rows& rows) const {
    if (group.epilogue == Epilogue::none) return;
    const MatmulTarget& first = group.targets.front();
    const MatmulTarget& last = group.targets.back();
    for (size_t t = 0; t < group.tokens; ++t) {
      const size_t at = t * first.rows + rows.begin;
      if (group.epilogue == Epilogue::add)
        loops.add(group.other + at, first.y + at, rows.end - rows.begin);
      else
        loops.swiglu(group.activation, first.y + at, last.y + at, group.other + at,
                     rows.end - rows.begin);
    }
  }
};

size_t units(const MatmulTarget& target) {
  return (target.rows + kUnitRows - 1) / kUnitRows;
}

// The rows of a target from its unit `begin` on, up to unit `end`.
Rows rows_of(const MatmulTarget& target, size_t begin, size_t end) {
  return {begin * kUnitRows, std::min(end * kUnitRows, target.rows)};
}

// Calls of so few tokens wait for the weights, so that it pays to ask for them early.
constexpr size_t kMostStreamedTokens = 16;

// What unit after unit of a target reads, beginning as unit `first` of a loop.
LoopReads::Array reads_of(const MatmulTarget& target, size_t first) {
  LoopReads::Array reads{target.weights, target.row_stride * kUnitRows, first,
                         first + units(target)};
  if (target.packed == nullptr) return reads;
  reads.base = reinterpret_cast<const std::byte*>(target.packed->panels);
  reads.bytes =
      packed_layout(target.packed->type).panel_size(target.packed->k) * (kUnitRows / kPanelRows);
  return reads;
}

template <typename Body>
void for_units(const Work& work, const LoopReads& reads, ThreadPool& pool, const Body& body) {
  if (work.group.tokens <= kMostStreamedTokens)
    pool.parallel_for(reads, body);
  else
    pool.parallel_for(reads.count, reads.grain, body);
}

// The same rows of every target, so that what follows finds them in this thread's cache.
void multiply_side_by_side(const Work& work, ThreadPool& pool) {
  const std::span<const MatmulTarget> targets = work.group.targets;
  LoopReads reads{.count = units(targets.front()), .arrays = {}};
  for (size_t i = 0; i < targets.size(); ++i) reads.arrays[i] = reads_of(targets[i], 0);
  for_units(work, reads, pool, [&](size_t begin, size_t end) {
    for (size_t unit = begin; unit < end; ++unit) {
      const Rows rows = rows_of(targets.front(), unit, unit + 1);
      for (const MatmulTarget& target : targets) work.multiply_rows(target, rows);
      work.finish_rows(rows);
    }
  });
}

void multiply_in_turn(const Work& work, ThreadPool& pool) {
  const std::span<const MatmulTarget> targets = work.group.targets;
  LoopReads reads;
  for (size_t i = 0; i < targets.size(); ++i) {
    reads.arrays[i] = reads_of(targets[i], reads.count);
    reads.count = reads.arrays[i].end;
  }
  for_units(work, reads, pool, [&](size_t begin, size_t end) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const LoopReads::Array& units = reads.arrays[i];
      const size_t from = std::max(begin, units.first), to = std::min(end, units.end);
      if (from < to)
        work.multiply_rows(targets[i], rows_of(targets[i], from - units.first, to - units.first));
    }
  });
}

}  // namespace

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops) {
  TYTO_ASSERT(!group.targets.empty() && group.targets.size() <= LoopReads().arrays.size() &&
              (group.epilogue != Epilogue::swiglu || group.targets.size() == 2));
  static thread_local Prepared memory;
  Work work{group, loops};
  std::vector<float> rounded;
  if (group.in_blocks) rounded = in_blocks(group.x, group.tokens, group.k, pool);
  const float* x = group.in_blocks ? rounded.data() : group.x;
  for (const MatmulTarget& target : group.targets) {
    const Form form = form_for(group, target);
    const void*& floats = work.floats[static_cast<size_t>(form)];
    if (form == Form::blocks && work.blocks.codes == nullptr)
      work.blocks = quantize(group, memory, pool, *loops.packed);
    if (form == Form::blocks || floats != nullptr) continue;
    floats = prepare_form(form, group, x, memory, pool, loops);
  }
  if (group.epilogue == Epilogue::none)
    multiply_in_turn(work, pool);
  else
    multiply_side_by_side(work, pool);
}

}  // namespace tyto::cpu
