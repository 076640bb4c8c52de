#include "device/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cpu/numerics.h"
#include "device/cpu/scratch_buffer.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

// Rows that one thread takes at a time: two panels.
constexpr size_t kUnitRows = 32;

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

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

// Whether rows are multiplied as they lie; else they are widened to f32 first.
bool is_direct(const MatmulGroup& group, const MatmulTarget& target) {
  return is_float(target.type) && !group.in_blocks;
}

// Activations have one form for bf16 and another for f16 and f32.
bool takes_bf16_form(const MatmulGroup& group, const MatmulTarget& target) {
  return target.type == DType::bf16 && is_direct(group, target);
}

void* prepare(DType type, const MatmulGroup& group, const float* x,
              ScratchBuffer<std::byte>& memory, ThreadPool& pool, const FloatLoops& loops) {
  std::byte* result = memory.at_least(group.tokens * loops.token_bytes(type, group.k));
  pool.parallel_for(token_tiles(group.tokens, loops.tile_tokens), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      loops.prepare_tile(type, x, group.k, group.k, token_tile(group.tokens, loops.tile_tokens, i),
                         result);
  });
  return result;
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
  const void* floats = nullptr;  // for f16 and f32
  const void* bf16 = nullptr;

  void multiply_rows(const MatmulTarget& target, const Rows& rows) const {
    if (target.packed != nullptr)
      multiply_packed(group, target, rows, blocks, *loops.packed);
    else
      multiply_floats(group, target, rows, takes_bf16_form(group, target) ? bf16 : floats, loops);
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
        loops.swiglu(first.y + at, last.y + at, group.other + at, rows.end - rows.begin);
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

// The same rows of every target, so that what follows finds them in this thread's cache.
void multiply_side_by_side(const Work& work, ThreadPool& pool) {
  const std::span<const MatmulTarget> targets = work.group.targets;
  pool.parallel_for(units(targets.front()), 1, [&](size_t begin, size_t end) {
    for (size_t unit = begin; unit < end; ++unit) {
      const Rows rows = rows_of(targets.front(), unit, unit + 1);
      for (const MatmulTarget& target : targets) work.multiply_rows(target, rows);
      work.finish_rows(rows);
    }
  });
}

void multiply_in_turn(const Work& work, ThreadPool& pool) {
  size_t total = 0;
  for (const MatmulTarget& target : work.group.targets) total += units(target);
  pool.parallel_for(total, 1, [&](size_t begin, size_t end) {
    size_t first = 0;
    for (const MatmulTarget& target : work.group.targets) {
      const size_t count = units(target);
      const size_t from = std::max(begin, first), to = std::min(end, first + count);
      if (from < to) work.multiply_rows(target, rows_of(target, from - first, to - first));
      first += count;
    }
  });
}

}  // namespace

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops) {
  TYTO_ASSERT(!group.targets.empty() &&
              (group.epilogue != Epilogue::swiglu || group.targets.size() == 2));
  static thread_local Prepared memory;
  Work work{group, loops};
  const auto any = [&](auto property) {
    return std::any_of(group.targets.begin(), group.targets.end(), property);
  };
  if (any([](const MatmulTarget& t) { return t.packed != nullptr; }))
    work.blocks = quantize(group, memory, pool, *loops.packed);
  std::vector<float> rounded;
  if (group.in_blocks) rounded = in_blocks(group.x, group.tokens, group.k, pool);
  const float* x = group.in_blocks ? rounded.data() : group.x;
  const auto is_bf16 = [&](const MatmulTarget& t) { return takes_bf16_form(group, t); };
  if (any([&](const MatmulTarget& t) { return t.packed == nullptr && is_bf16(t); }))
    work.bf16 = prepare(DType::bf16, group, x, memory.bf16, pool, *loops.floats);
  if (any([&](const MatmulTarget& t) { return t.packed == nullptr && !is_bf16(t); }))
    work.floats = prepare(DType::f32, group, x, memory.floats, pool, *loops.floats);
  if (group.epilogue == Epilogue::none)
    multiply_in_turn(work, pool);
  else
    multiply_side_by_side(work, pool);
}

}  // namespace tyto::cpu
