#include "device/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cpu/operations.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

// One call of multiply(), as its threads see it.
struct MatmulWork {
  const MatmulGroup& group;
  const InnerLoops& loops;
  size_t pieces = 1;               // pieces of the tokens, each with tiles of its own
  Activations forms[kForms] = {};  // [Form]

  TokenTile piece(size_t index) const {
    const size_t first = group.tokens * index / pieces;
    return {first, group.tokens * (index + 1) / pieces - first};
  }

  void multiply(const MatmulTarget& target, const Rows& rows, const TokenTile& tokens) const {
    const Form form = form_for(target, group.in_blocks);
    MatmulTarget part = target;
    part.y += tokens.first * target.rows;
    multiply_rows(part, rows, forms[static_cast<size_t>(form)].from(tokens.first), tokens.count,
                  group.in_blocks, loops);
  }

  void finish_rows(const Rows& rows, const TokenTile& tokens) const {
    if (group.epilogue == Epilogue::none) return;
    const MatmulTarget& first = group.targets.front();
    const MatmulTarget& last = group.targets.back();
    for (size_t t = tokens.first; t < tokens.first + tokens.count; ++t) {
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

// Into how many pieces the tokens are cut, so that a thread has a few units of work and not only
// one or two, the last of which all others would wait for. Each piece unpacks the weights again, so
// none is small.
size_t pieces_of(const MatmulGroup& group, const ThreadPool& pool) {
  constexpr size_t kUnitsPerThread = 8, kLeastTokens = 64;
  size_t all = 0;
  for (const MatmulTarget& target : group.targets) all += units(target);
  if (group.epilogue == Epilogue::swiglu) all /= 2;  // side by side
  const size_t wanted = (kUnitsPerThread * pool.threads() + all - 1) / all;
  return pool.threads() == 1 ? 1 : std::clamp<size_t>(group.tokens / kLeastTokens, 1, wanted);
}

// Calls of so few tokens wait for the weights, so that it pays to ask for them early.
constexpr size_t kMostStreamedTokens = 16;

// What unit after unit of a target reads, beginning as unit `first` of a loop.
LoopReads::Array reads_of(const MatmulTarget& target, size_t first) {
  LoopReads::Array reads{target.weights, target.row_stride * kUnitRows, first,
                         first + units(target)};
  if (target.packed == nullptr) return reads;
  const PackedLayout layout = packed_layout(target.packed->type);
  reads.base = reinterpret_cast<const std::byte*>(target.packed->panels);
  reads.bytes = layout.panel_size(target.packed->k) * (kUnitRows / layout.panel_rows);
  return reads;
}

template <typename Body>
void for_units(const MatmulWork& work, const LoopReads& reads, ThreadPool& pool, const Body& body) {
  const auto all_tokens = [&](size_t begin, size_t end) { body(begin, end, work.piece(0)); };
  if (work.group.tokens <= kMostStreamedTokens) return pool.parallel_for(reads, all_tokens);
  if (work.pieces == 1) return pool.parallel_for(reads.count, reads.grain, all_tokens);
  pool.parallel_for(reads.count * work.pieces, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      body(i / work.pieces, i / work.pieces + 1, work.piece(i % work.pieces));
  });
}

// The same rows of every target, so that what follows finds them in this thread's cache.
void multiply_side_by_side(const MatmulWork& work, ThreadPool& pool) {
  const std::span<const MatmulTarget> targets = work.group.targets;
  LoopReads reads{.count = units(targets.front()), .arrays = {}};
  for (size_t i = 0; i < targets.size(); ++i) reads.arrays[i] = reads_of(targets[i], 0);
  for_units(work, reads, pool, [&](size_t begin, size_t end, const TokenTile& tokens) {
    for (size_t unit = begin; unit < end; ++unit) {
      const Rows rows = rows_of(targets.front(), unit, unit + 1);
      for (const MatmulTarget& target : targets) work.multiply(target, rows, tokens);
      work.finish_rows(rows, tokens);
    }
  });
}

void multiply_in_turn(const MatmulWork& work, ThreadPool& pool) {
  const std::span<const MatmulTarget> targets = work.group.targets;
  LoopReads reads;
  for (size_t i = 0; i < targets.size(); ++i) {
    reads.arrays[i] = reads_of(targets[i], reads.count);
    reads.count = reads.arrays[i].end;
  }
  for_units(work, reads, pool, [&](size_t begin, size_t end, const TokenTile& tokens) {
    for (size_t i = 0; i < targets.size(); ++i) {
      const LoopReads::Array& units = reads.arrays[i];
      const size_t from = std::max(begin, units.first), to = std::min(end, units.end);
      if (from >= to) continue;
      const Rows rows = rows_of(targets[i], from - units.first, to - units.first);
      work.multiply(targets[i], rows, tokens);
    }
  });
}

// The tokens in a form, tile by tile.
void prepare(const Activations& prepared, const MatmulWork& work, const float* x,
             ThreadPool& pool) {
  const size_t most = tile_tokens(prepared.form, work.loops);
  const size_t largest = (work.group.tokens + work.pieces - 1) / work.pieces;
  const size_t tiles = token_tiles(largest, most);
  pool.parallel_for(work.pieces * tiles, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const TokenTile piece = work.piece(i / tiles);
      if (i % tiles >= token_tiles(piece.count, most)) continue;
      const TokenTile tile = token_tile(piece.count, most, i % tiles);
      prepare_tile(prepared, x, {piece.first + tile.first, tile.count}, work.loops);
    }
  });
}

}  // namespace

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops) {
  TYTO_ASSERT(!group.targets.empty() && group.targets.size() <= LoopReads().arrays.size() &&
              (group.epilogue != Epilogue::swiglu || group.targets.size() == 2));
  static thread_local ActivationMemory memory;
  MatmulWork work{group, loops, pieces_of(group, pool)};
  std::vector<float> rounded;
  if (group.in_blocks) rounded = in_blocks(group.x, group.tokens, group.k, pool);
  const float* x = group.in_blocks ? rounded.data() : group.x;
  for (const MatmulTarget& target : group.targets) {
    const Form form = form_for(target, group.in_blocks);
    Activations& prepared = work.forms[static_cast<size_t>(form)];
    if (!prepared.empty()) continue;
    prepared = reserve(form, group.tokens, group.k, memory, loops);
    prepare(prepared, work, x, pool);
  }
  if (group.epilogue == Epilogue::none)
    multiply_in_turn(work, pool);
  else
    multiply_side_by_side(work, pool);
}

namespace {

// Rows of unpacked blocks decoded at a time: 16 rows of 8192 f32 values are 512 KB, an L2's worth.
constexpr size_t kWidenedRows = 16;

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
  float* widened = memory.at_least(kWidenedRows * x.k);
  job.weights = widened;
  job.type = DType::f32;
  job.row_stride = x.k * sizeof(float);
  job.first_row = 0;
  for (size_t row = rows.begin; row < rows.end; row += kWidenedRows) {
    job.rows = std::min(kWidenedRows, rows.end - row);
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
