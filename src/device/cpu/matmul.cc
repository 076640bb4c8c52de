#include "device/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/cpu/matmul_work.h"
#include "device/cpu/numerics.h"

namespace tyto::cpu {
namespace {

// One call of multiply(), as its threads see it.
struct Work {
  const MatmulGroup& group;
  const InnerLoops& loops;
  Activations forms[kForms] = {};  // [Form]

  void multiply(const MatmulTarget& target, const Rows& rows) const {
    const Form form = form_for(target, group.in_blocks);
    multiply_rows(target, rows, forms[static_cast<size_t>(form)], group.tokens, group.in_blocks,
                  loops);
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
  const PackedLayout layout = packed_layout(target.packed->type);
  reads.base = reinterpret_cast<const std::byte*>(target.packed->panels);
  reads.bytes = layout.panel_size(target.packed->k) * (kUnitRows / layout.panel_rows);
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
      for (const MatmulTarget& target : targets) work.multiply(target, rows);
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
        work.multiply(targets[i], rows_of(targets[i], from - units.first, to - units.first));
    }
  });
}

}  // namespace

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops) {
  TYTO_ASSERT(!group.targets.empty() && group.targets.size() <= LoopReads().arrays.size() &&
              (group.epilogue != Epilogue::swiglu || group.targets.size() == 2));
  static thread_local ActivationMemory memory;
  Work work{group, loops};
  std::vector<float> rounded;
  if (group.in_blocks) rounded = in_blocks(group.x, group.tokens, group.k, pool);
  const float* x = group.in_blocks ? rounded.data() : group.x;
  for (const MatmulTarget& target : group.targets) {
    const Form form = form_for(target, group.in_blocks);
    Activations& prepared = work.forms[static_cast<size_t>(form)];
    if (!prepared.empty()) continue;
    prepared = reserve(form, group.tokens, group.k, memory, loops);
    const size_t most = tile_tokens(form, loops);
    pool.parallel_for(token_tiles(group.tokens, most), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i)
        prepare_tile(prepared, x, token_tile(group.tokens, most, i), loops);
    });
  }
  if (group.epilogue == Epilogue::none)
    multiply_in_turn(work, pool);
  else
    multiply_side_by_side(work, pool);
}

}  // namespace tyto::cpu
