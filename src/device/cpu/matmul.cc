#include "device/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cpu/matmul_work.h"
#include "device/cpu/numerics.h"

namespace tyto::cpu {
namespace {

// One call of multiply(), as its threads see it.
struct MatmulWork {
  const MatmulGroup& group;
  const InnerLoops& loops;
  size_t pieces = 1;               // of the tokens, each with tiles of its own
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
// one or two, the last of which all others would wait for. Each piece unpacks the weights anew, so
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

}  // namespace tyto::cpu
