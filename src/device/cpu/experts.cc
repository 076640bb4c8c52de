#include "device/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "device/cpu/matmul.h"

namespace tyto::cpu {
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
  bool is_complete = true;  // every choice is an expert's

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
    multiply_rows(part, {0, width}, shares_x_ ? all : all.from(taken.first), taken.count, false,
                  loops_);
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

void choose_experts(std::span<const float> scores, size_t used, bool weighs_chosen_alone,
                    int32_t* ids, float* weights) {
  // NaN is larger than nothing; experts are chosen all the same, and weights tell of it.
  for (size_t n = 0; n < used; ++n) {
    const auto is_free = [&](size_t e) {
      return std::find(ids, ids + n, static_cast<int32_t>(e)) == ids + n;
    };
    size_t best = 0;
    while (!is_free(best)) ++best;
    for (size_t e = best + 1; e < scores.size(); ++e)
      if (scores[e] > scores[best] && is_free(e)) best = e;
    ids[n] = static_cast<int32_t>(best);
  }
  const float largest = scores[static_cast<size_t>(ids[0])];
  std::sort(ids, ids + used);
  float total = 0;
  for (size_t n = 0; n < used; ++n)
    total += weights[n] = std::exp(scores[static_cast<size_t>(ids[n])] - largest);
  if (!weighs_chosen_alone) {
    total = 0;
    for (const float score : scores) total += std::exp(score - largest);
  }
  for (size_t n = 0; n < used; ++n) weights[n] /= total;
}

}  // namespace tyto::cpu
