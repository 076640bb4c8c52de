#include "device/cpu/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "device/cpu/operations.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

size_t units(const MatmulTarget& target) {
  return (target.rows + kUnitRows - 1) / kUnitRows;
}

// The rows of a target from its unit `begin` on, up to unit `end`.
Rows rows_of(const MatmulTarget& target, size_t begin, size_t end) {
  return {begin * kUnitRows, std::min(end * kUnitRows, target.rows)};
}

// One call of multiply(), as its threads see it.
struct MatmulWork {
  const MatmulGroup& group;
  const InnerLoops& loops;
  LoopReads reads;
  size_t pieces = 1;               // pieces of the tokens, each with tiles of its own
  Activations forms[kForms] = {};  // [Form]

  TokenTile piece(size_t index) const {
    const size_t first = group.tokens * index / pieces;
    return {first, group.tokens * (index + 1) / pieces - first};
  }

  Activations activations(const MatmulTarget& target, const TokenTile& tokens) const {
    return forms[static_cast<size_t>(form_for(target, group.in_blocks))].from(tokens.first);
  }

  // Units [begin, end) of the loop times some tokens. A target's units follow the other's. Before
  // an epilogue a unit is the same rows of every target, which it finds in this thread's cache.
  void multiply(size_t begin, size_t end, const TokenTile& tokens) const {
    const std::span<const MatmulTarget> targets = group.targets;
    if (group.epilogue == Epilogue::none) {
      for (size_t i = 0; i < targets.size(); ++i) {
        const LoopReads::Array& own = reads.arrays[i];
        const size_t from = std::max(begin, own.first), to = std::min(end, own.end);
        if (from < to)
          multiply_rows(targets[i], rows_of(targets[i], from - own.first, to - own.first),
                        activations(targets[i], tokens), tokens, group.in_blocks, loops);
      }
      return;
    }
    for (size_t unit = begin; unit < end; ++unit) {
      const Rows rows = rows_of(targets.front(), unit, unit + 1);
      for (const MatmulTarget& target : targets)
        multiply_rows(target, rows, activations(target, tokens), tokens, group.in_blocks, loops);
      finish_rows(rows, tokens);
    }
  }

  void finish_rows(const Rows& rows, const TokenTile& tokens) const {
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

LoopReads reads_of(const MatmulGroup& group) {
  LoopReads reads;
  for (size_t i = 0; i < group.targets.size(); ++i) {
    const bool is_in_turn = group.epilogue == Epilogue::none;
    reads.arrays[i] = reads_of(group.targets[i], is_in_turn ? reads.count : 0);
    reads.count = reads.arrays[i].end;
  }
  return reads;
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
  MatmulWork work{group, loops, reads_of(group), pieces_of(group, pool)};
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
  const LoopReads& reads = work.reads;
  const auto all_tokens = [&](size_t begin, size_t end) {
    work.multiply(begin, end, work.piece(0));
  };
  if (group.tokens <= kMostStreamedTokens) return pool.parallel_for(reads, all_tokens);
  if (work.pieces == 1) return pool.parallel_for(reads.count, reads.grain, all_tokens);
  pool.parallel_for(reads.count * work.pieces, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      work.multiply(i / work.pieces, i / work.pieces + 1, work.piece(i % work.pieces));
  });
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
                     size_t tokens, float* y, bool in_blocks, const InnerLoops& loops) {
  FloatMatmul job{
      target.weights, target.type, x.k, target.row_stride, rows.begin, rows.end - rows.begin,
      x.floats,       tokens,      y,   target.rows};
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
    job.y = y + row;
    loops.floats->multiply(job);
  }
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
                   const TokenTile& tokens, bool in_blocks, const InnerLoops& loops) {
  static thread_local ScratchBuffer<float> aside;
  float* const y = target.y + tokens.first * target.rows;
  const auto panels = [&](size_t panel) { return (rows.end - rows.begin + panel - 1) / panel; };
  if (x.form == Form::blocks)
    loops.packed->multiply({.matrix = target.packed,
                            .x = x.blocks,
                            .tokens = tokens.count,
                            .first_panel = rows.begin / kPanelRows,
                            .panels = panels(kPanelRows),
                            .y = y,
                            .y_stride = target.rows,
                            .aside = aside.at_least(tokens.count * kPanelRows)});
  else if (is_packed(x.form))
    loops.packed_floats->multiply({.matrix = target.packed,
                                   .x = x.floats,
                                   .tokens = tokens.count,
                                   .first_panel = rows.begin / kFloatPanelRows,
                                   .panels = panels(kFloatPanelRows),
                                   .y = y,
                                   .y_stride = target.rows,
                                   .aside = aside.at_least(tokens.count * kFloatPanelRows)});
  else
    multiply_floats(target, rows, x, tokens.count, y, in_blocks, loops);
  if (target.bias == nullptr) return;
  for (size_t t = 0; t < tokens.count; ++t)
    loops.add(y + t * target.rows + rows.begin, target.bias + rows.begin, rows.end - rows.begin);
}

namespace {

// The choices of one expert: order[first] and so on.
struct Taken {
  uint32_t expert;
  uint32_t first;
  uint32_t count;
};

// Which expert meets which choices; kept between calls for its memory.
struct Routing {
  std::vector<uint32_t> counts;  // [experts]
  std::vector<uint32_t> order;   // choices, those of an expert side by side
  std::vector<Taken> taken;
  bool is_complete = true;  // every choice names an expert that there is

  void sort(const ExpertGroup& group) {
    const size_t choices = group.tokens * group.used;
    counts.assign(group.experts, 0);
    const auto is_expert = [&](int32_t id) {
      return id >= 0 && static_cast<size_t>(id) < group.experts;
    };
    size_t valid = 0;
    for (size_t i = 0; i < choices; ++i)
      if (is_expert(group.ids[i])) ++counts[static_cast<size_t>(group.ids[i])], ++valid;
    is_complete = valid == choices;
    taken.clear();
    uint32_t first = 0;
    for (uint32_t e = 0; e < group.experts; ++e) {
      if (counts[e] == 0) continue;
      taken.push_back({e, first, counts[e]});
      first += counts[e];
      counts[e] = taken.back().first;  // where its next choice goes
    }
    order.resize(valid);
    for (size_t i = 0; i < choices; ++i)
      if (is_expert(group.ids[i]))
        order[counts[static_cast<size_t>(group.ids[i])]++] = static_cast<uint32_t>(i);
  }

  // A single row whose experts all differ: its choices are in order.
  bool is_of_one_row(const ExpertGroup& group) const {
    return group.tokens == 1 && is_complete && taken.size() == group.used &&
           std::is_sorted(order.begin(), order.end());
  }
};

void spoil_strangers(const ExpertGroup& group) {
  for (size_t i = 0; i < group.tokens * group.used; ++i) {
    if (group.ids[i] >= 0 && static_cast<size_t>(group.ids[i]) < group.experts) continue;
    for (const MatmulTarget& target : group.targets)
      std::fill_n(target.y + i * target.rows, target.rows, std::numeric_limits<float>::quiet_NaN());
    if (group.gated != nullptr)
      std::fill_n(group.gated + i * group.targets.front().rows, group.targets.front().rows,
                  std::numeric_limits<float>::quiet_NaN());
  }
}

// One call of multiply_experts(), as its threads see it.
class ExpertWork {
 public:
  ExpertWork(const ExpertGroup& group, const Routing& routing, ThreadPool& pool,
             const InnerLoops& loops)
      : group_(group), routing_(routing), pool_(pool), loops_(loops) {
    shares_x_ = routing.is_of_one_row(group) && !group.x_of_choice;
    prepare();
  }

  // Expert after expert, each with all rows that take it.
  void multiply_by_expert() const {
    const size_t units = units_of_one();
    pool_.parallel_for(routing_.taken.size() * units, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) multiply_unit(routing_.taken[i / units], i % units);
    });
  }

  // The same columns of the one row's every expert, which then can be added up at once.
  void multiply_and_mix() const {
    const MatmulTarget& target = group_.targets.front();
    pool_.parallel_for(units_of_one(), 1, [&](size_t begin, size_t end) {
      for (size_t unit = begin; unit < end; ++unit) {
        for (const Taken& taken : routing_.taken) multiply_unit(taken, unit);
        const Rows rows = rows_of(unit);
        mix_rows(target.y + rows.begin, target.rows, group_.weights, group_.used,
                 rows.end - rows.begin, group_.mixed + rows.begin);
      }
    });
  }

 private:
  size_t units_of_one() const { return (group_.targets.front().rows + kUnitRows - 1) / kUnitRows; }
  Rows rows_of(size_t unit) const {
    return {unit * kUnitRows, std::min((unit + 1) * kUnitRows, group_.targets.front().rows)};
  }

  void prepare() {
    static thread_local ActivationMemory memory;
    for (const MatmulTarget& target : group_.targets) {
      const Form form = form_for(target, false);
      Activations& prepared = forms_[static_cast<size_t>(form)];
      if (!prepared.empty()) continue;
      const size_t tokens = shares_x_ ? 1 : routing_.order.size();
      prepared = reserve(form, tokens, group_.k, memory, loops_);
      if (shares_x_)
        prepare_tile(prepared, group_.x, {0, 1}, loops_);
      else
        prepare_tiles(prepared);
    }
  }

  // Rows in the order of their experts, no tile with those of two.
  void prepare_tiles(const Activations& prepared) const {
    static thread_local std::vector<TokenTile> tiles;
    static thread_local ScratchBuffer<float> gathered;
    const size_t most = tile_tokens(prepared.form, loops_);
    tiles.clear();
    for (const Taken& taken : routing_.taken)
      for (size_t i = 0; i < token_tiles(taken.count, most); ++i) {
        const TokenTile tile = token_tile(taken.count, most, i);
        tiles.push_back({taken.first + tile.first, tile.count});
      }
    float* const rows = gathered.at_least(routing_.order.size() * group_.k);
    const std::span<const TokenTile> all = tiles;  // this thread's, for the others
    pool_.parallel_for(all.size(), 1, [&, all](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        for (size_t t = all[i].first; t < all[i].first + all[i].count; ++t)
          std::memcpy(rows + t * group_.k, row_of(routing_.order[t]), group_.k * sizeof(float));
        prepare_tile(prepared, rows, all[i], loops_);
      }
    });
  }

  const float* row_of(uint32_t choice) const {
    return group_.x + (group_.x_of_choice ? choice : choice / group_.used) * group_.k;
  }

  void multiply_unit(const Taken& taken, size_t unit) const {
    const Rows rows = rows_of(unit);
    for (const MatmulTarget& target : group_.targets) multiply_unit_of(target, taken, rows);
    if (group_.gated == nullptr) return;
    const MatmulTarget& gate = group_.targets.front();
    for (uint32_t t = 0; t < taken.count; ++t) {
      const size_t at = routing_.order[taken.first + t] * gate.rows + rows.begin;
      loops_.swiglu(group_.activation, gate.y + at, group_.targets.back().y + at, group_.gated + at,
                    rows.end - rows.begin);
    }
  }

  void multiply_unit_of(const MatmulTarget& target, const Taken& taken, const Rows& rows) const {
    static thread_local ScratchBuffer<float> aside;
    const size_t width = rows.end - rows.begin, first = taken.expert * target.rows + rows.begin;
    const bool is_alone = taken.count == 1;
    const auto place = [&](uint32_t t) {
      return target.y + routing_.order[taken.first + t] * target.rows + rows.begin;
    };
    MatmulTarget part = target;
    PackedMatrix panels;
    part.rows = width;
    part.weights += first * target.row_stride;
    part.bias = target.bias == nullptr ? nullptr : target.bias + first;
    part.y = is_alone ? place(0) : aside.at_least(taken.count * kUnitRows);
    if (target.packed != nullptr) {
      panels = *target.packed;
      panels.rows = width;
      panels.panels = target.packed->panel(first / packed_layout(panels.type).panel_rows);
      part.packed = &panels;
    }
    const Activations& all = forms_[static_cast<size_t>(form_for(target, false))];
    multiply_rows(part, {0, width}, shares_x_ ? all : all.from(taken.first), {0, taken.count},
                  false, loops_);
    if (is_alone) return;
    for (uint32_t t = 0; t < taken.count; ++t)
      std::memcpy(place(t), part.y + t * width, width * sizeof(float));
  }

  const ExpertGroup& group_;
  const Routing& routing_;
  ThreadPool& pool_;
  const InnerLoops& loops_;
  bool shares_x_ = false;
  Activations forms_[kForms] = {};  // [Form]
};

}  // namespace

size_t multiply_experts(const ExpertGroup& group, ThreadPool& pool, const InnerLoops& loops) {
  static thread_local Routing routing;
  routing.sort(group);
  if (!routing.is_complete) spoil_strangers(group);
  const ExpertWork work(group, routing, pool, loops);
  const bool mixes = group.mixed != nullptr;
  if (mixes && routing.is_of_one_row(group)) {
    work.multiply_and_mix();
    return routing.taken.size();
  }
  work.multiply_by_expert();
  const size_t width = group.targets.front().rows;
  if (mixes)
    pool.parallel_for(group.tokens, 1, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t)
        mix_rows(group.targets.front().y + t * group.used * width, width,
                 group.weights + t * group.used, group.used, width, group.mixed + t * width);
    });
  return routing.taken.size();
}

void mix_rows(const float* x, size_t stride, const float* weights, size_t used, size_t width,
              float* out) {
  for (size_t i = 0; i < width; ++i) out[i] = weights[0] * x[i];
  for (size_t e = 1; e < used; ++e)
    for (size_t i = 0; i < width; ++i) out[i] += weights[e] * x[e * stride + i];
}

namespace {

// Negative infinity for all experts of the groups whose two best add up to less than others'.
void keep_best_groups(std::span<float> merits, const LaunchShape& shape) {
  const size_t width = merits.size() / shape.groups;
  std::vector<std::pair<float, size_t>> groups;
  for (size_t g = 0; g < shape.groups; ++g) {
    float best = -INFINITY, second = -INFINITY;
    for (const float merit : merits.subspan(g * width, width)) {
      second = std::max(second, std::min(best, merit));
      best = std::max(best, merit);
    }
    groups.emplace_back(width == 1 ? best : best + second, g);
  }
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = shape.groups_used; i < groups.size(); ++i)
    std::ranges::fill(merits.subspan(groups[i].second * width, width), -INFINITY);
}

// NaN is larger than nothing; experts are chosen all the same, and weights tell of it.
void choose_best(std::span<const float> merits, size_t used, int32_t* ids) {
  for (size_t n = 0; n < used; ++n) {
    const auto is_free = [&](size_t e) {
      return std::find(ids, ids + n, static_cast<int32_t>(e)) == ids + n;
    };
    size_t best = 0;
    while (!is_free(best)) ++best;
    for (size_t e = best + 1; e < merits.size(); ++e)
      if (merits[e] > merits[best] && is_free(e)) best = e;
    ids[n] = static_cast<int32_t>(best);
  }
}

float weigh_by_softmax(std::span<const float> scores, const Routes& routes, const int32_t* ids,
                       float largest, float* weights) {
  float total = 0;
  for (size_t n = 0; n < routes.used; ++n)
    total += weights[n] = std::exp(scores[static_cast<size_t>(ids[n])] - largest);
  if (routes.shape.weighs_chosen_alone) return total;
  total = 0;
  for (const float score : scores) total += std::exp(score - largest);
  return total;
}

float weigh_by_sigmoid(std::span<const float> scores, const Routes& routes, const int32_t* ids,
                       float* weights) {
  float total = 0;
  for (size_t n = 0; n < routes.used; ++n)
    total += weights[n] = scores[static_cast<size_t>(ids[n])];
  constexpr float kLeast = 1e-20f;  // so that scores that are all zero weigh nothing
  return routes.shape.weighs_chosen_alone ? total + kLeast : 1;
}

}  // namespace

void choose_experts(std::span<float> scores, const Routes& routes, int32_t* ids, float* weights) {
  static thread_local std::vector<float> merits;
  const LaunchShape& shape = routes.shape;
  if (shape.sigmoid_scores)
    for (float& score : scores) score = 1 / (1 + std::exp(-score));
  merits.assign(scores.begin(), scores.end());
  if (routes.bias != nullptr)
    for (size_t e = 0; e < merits.size(); ++e) merits[e] += routes.bias[e];
  if (shape.groups_used < shape.groups) keep_best_groups(merits, shape);
  choose_best(merits, routes.used, ids);
  const float largest = scores[static_cast<size_t>(ids[0])];
  std::sort(ids, ids + routes.used);
  const float total = shape.sigmoid_scores
                          ? weigh_by_sigmoid(scores, routes, ids, weights)
                          : weigh_by_softmax(scores, routes, ids, largest, weights);
  for (size_t n = 0; n < routes.used; ++n) weights[n] = weights[n] / total * shape.factor;
}

}  // namespace tyto::cpu
