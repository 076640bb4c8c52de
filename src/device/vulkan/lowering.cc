#include "device/vulkan/lowering.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "device/vulkan/kernel_calls.h"
#include "device/vulkan/kernel_shapes.h"
#include "program/kernels.h"

namespace tyto::vulkan {
namespace {

bool is_number(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

class Lowering {
 public:
  Lowering(const Program& program, const CallForm& form, const GpuFacts& gpu)
      : program_(program),
        form_(form),
        site_{program_, form_, gpu},
        has_few_products_(form.rows <= (multiplies_matrices() ? kFewBesideMatrices : kFewRows)) {}

  Lowered run() {
    for (size_t i = 0; i < program_.launches.size();) {
      size_t taken = take_attention(i);
      if (taken == 0) taken = take_experts(i);
      if (taken == 0) taken = take_products(i);
      if (taken == 0) taken = take_alone(i);
      i += taken;
    }
    return std::move(result_);
  }

 private:
  bool is_few() const { return form_.rows <= kFewRows; }

  // Cooperative matrices take as long for a row as for sixteen: on an H200 they are faster than
  // products row by row from five rows on.
  static constexpr uint32_t kFewBesideMatrices = 4;
  bool multiplies_matrices() const {
    return std::ranges::all_of(program_.launches, [&](const Launch& launch) {
      return launch.kernel != Kernel::matmul || is_cooperative(site_, launch);
    });
  }

  void add(Dispatch dispatch, size_t first, size_t count) {
    dispatch.launches = {first, count};
    result_.dispatches.push_back(std::move(dispatch));
  }

  // One piece of memory for each use, as large as the largest that asks for it.
  Operand temporary(size_t index, uint64_t bytes) {
    if (result_.temporaries.size() <= index) result_.temporaries.resize(index + 1);
    result_.temporaries[index] = std::max(result_.temporaries[index], bytes);
    return static_cast<Operand>(program_.slots.size() + index);
  }

  // The 16-bit numbers that a slot may hold instead of f32 after launch `writer`: those that
  // products round it to anyway, if products are all that read it.
  Numbers narrowed(uint16_t slot, size_t writer) const {
    const Slot& held = program_.slots[slot];
    if (has_few_products_ || held.kind != SlotKind::scratch || held.cols % 32 != 0)
      return Numbers::f32;
    Numbers numbers = Numbers::f32;
    for (size_t i = writer + 1; i < program_.launches.size(); ++i) {
      const Launch& launch = program_.launches[i];
      bool is_written = false;
      for (size_t arg = 0; arg < launch.args.size(); ++arg) {
        if (launch.args[arg].slot != slot) continue;
        is_written |= launch.args[arg].writes;
        if (!launch.args[arg].reads) continue;
        const bool multiplies = launch.kernel == Kernel::matmul ||
                                (launch.kernel == Kernel::expert_matmul && !is_few());
        if (!multiplies || arg != 0 || !is_cooperative(site_, launch)) return Numbers::f32;
        const Numbers wanted = operand_numbers(site_, launch);
        if (numbers != Numbers::f32 && numbers != wanted) return Numbers::f32;
        numbers = wanted;
      }
      if (is_written) break;
    }
    return numbers;
  }

  Numbers hold(uint16_t slot, size_t writer) { return held_[slot] = narrowed(slot, writer); }

  Numbers held(uint16_t slot) const {
    const auto found = held_.find(slot);
    return found == held_.end() ? Numbers::f32 : found->second;
  }

  // [q_norm] [q_rope] [k_norm] [k_rope] [q_scale] kv_append attention, in the order of the forward
  // program. Norms over all heads together come before, as dispatches of their own.
  size_t take_attention(size_t first) {
    AttentionParts parts;
    size_t at = first;
    const auto next = [&](Kernel kernel) -> const Launch* {
      return at < program_.launches.size() && program_.launches[at].kernel == kernel
                 ? &program_.launches[at++]
                 : nullptr;
    };
    parts.q_norm = next(Kernel::rmsnorm);
    parts.q_rope = next(Kernel::rope);
    parts.k_norm = next(Kernel::rmsnorm);
    parts.k_rope = next(Kernel::rope);
    parts.q_scale = next(Kernel::scale);
    parts.append = next(Kernel::kv_append);
    parts.attention = next(Kernel::attention);
    if (parts.append == nullptr || parts.attention == nullptr) return 0;
    const Launch *q_norm = parts.q_norm, *k_norm = parts.k_norm;
    if (q_norm != nullptr && k_norm != nullptr && is_wide(*q_norm) && is_wide(*k_norm))
      parts.q_norm = parts.k_norm = nullptr;
    if (!fit_together(parts, at - 1)) return 0;
    if (q_norm != parts.q_norm) {
      for (const Launch* norm : {q_norm, k_norm})
        add(norm_call(site_, *norm, Numbers::f32, nullptr), first, at - first);
    }
    if (is_few() && form_.has_single_rows) {
      add_few_rows_attention(parts, first, at - first);
    } else {
      add(rope_append_call(site_, parts), first, at - first - 1);
      add_attention({.q_scale = parts.q_scale, .attention = parts.attention}, at - 1);
    }
    return at - first;
  }

  // In place, over all of a row.
  bool is_wide(const Launch& norm) const {
    return norm.args[0].slot == norm.args[2].slot &&
           site_.slot(norm, 0).cols == site_.slot(norm, 1).cols;
  }

  bool fit_together(const AttentionParts& parts, size_t last) const {
    const uint64_t head_dim = parts.attention->shape.head_dim;
    const auto slot = [](const Launch& launch, size_t arg) { return launch.args[arg].slot; };
    const auto rotated = [&](const Launch& rope) {
      return rope.shape.rotated != 0 ? rope.shape.rotated : head_dim;
    };
    const auto is_rope_of = [&](const Launch* rope, uint16_t x) {
      return rope == nullptr || (rope->args.size() == 2 && slot(*rope, 0) == x &&
                                 site_.slot(*rope, 1).cols == rotated(*rope));
    };
    const auto is_norm_of = [&](const Launch* norm, uint16_t x) {
      return norm == nullptr || (slot(*norm, 0) == x && slot(*norm, 2) == x &&
                                 site_.slot(*norm, 1).cols == head_dim && !norm->shape.bf16_sums);
    };
    const auto turn_alike = [&](const Launch* q, const Launch* k) {
      return q == nullptr || k == nullptr
                 ? q == k
                 : slot(*q, 1) == slot(*k, 1) && q->shape.rope_pairs == k->shape.rope_pairs;
    };
    const auto is_scale_of = [&](const Launch* scale) {
      return scale == nullptr ||
             (scale->args.size() == 2 && slot(*scale, 1) == slot(*parts.attention, 0) &&
              is_dead_after(program_, slot(*scale, 1), last));
    };
    const uint16_t q = parts.queries(), k = slot(*parts.append, 0);
    return (parts.q_norm == nullptr) == (parts.k_norm == nullptr) &&
           turn_alike(parts.q_rope, parts.k_rope) && is_rope_of(parts.q_rope, q) &&
           is_rope_of(parts.k_rope, k) && is_norm_of(parts.q_norm, q) &&
           is_norm_of(parts.k_norm, k) && is_scale_of(parts.q_scale) &&
           slot(*parts.append, 2) == slot(*parts.attention, 1) &&
           slot(*parts.append, 3) == slot(*parts.attention, 2) &&
           is_dead_after(program_, q, last) && is_dead_after(program_, k, last) &&
           is_dead_after(program_, slot(*parts.append, 1), last);
  }

  void add_few_rows_attention(const AttentionParts& parts, size_t first, size_t count) {
    const AttentionSplit split = attention_split(site_, *parts.attention);
    const Operand partial = temporary(0, split.partial_bytes);
    const Operand counters = temporary(1, split.counter_bytes);
    add(few_rows_attention_call(site_, parts, partial, counters), first, count);
  }

  void add_attention(const AttentionParts& parts, size_t index) {
    if (is_few())
      add_few_rows_attention(parts, index, 1);
    else
      add(many_rows_attention_call(site_, parts, hold(parts.attention->args[3].slot, index)), index,
          1);
  }

  void add_top_k(const Launch& launch, size_t index) {
    const Operand found = temporary(2, top_k_bytes(site_, launch));
    add(top_k_groups_call(site_, launch, found), index, 1);
    add(top_k_choose_call(site_, launch, found), index, 1);
  }

  // With the addition of what it gives to the residual stream, if that is all it is for.
  size_t add_norm(const Launch& launch, size_t index) {
    const Launch* next =
        index + 1 < program_.launches.size() ? &program_.launches[index + 1] : nullptr;
    const uint16_t y = launch.args[2].slot;
    const bool adds = next != nullptr && next->kernel == Kernel::add && next->args.size() == 2 &&
                      next->args[1].slot == y && next->args[0].slot != y &&
                      next->args[0].slot != launch.args[0].slot &&
                      is_dead_after(program_, y, index + 1);
    const Numbers out = adds ? Numbers::f32 : hold(y, index);
    add(norm_call(site_, launch, out, adds ? next : nullptr), index, adds ? 2 : 1);
    return adds ? 2 : 1;
  }

  // [rmsnorm] route gate up swiglu down mix_experts [add], in the order of the forward program.
  size_t take_experts(size_t first) {
    ExpertParts parts;
    size_t at = first;
    const auto next = [&](Kernel kernel) -> const Launch* {
      return at < program_.launches.size() && program_.launches[at].kernel == kernel
                 ? &program_.launches[at++]
                 : nullptr;
    };
    if (is_few()) parts.norm = next(Kernel::rmsnorm);
    const size_t route = at;
    parts.route = next(Kernel::route);
    parts.gate = next(Kernel::expert_matmul);
    parts.up = next(Kernel::expert_matmul);
    parts.gating = next(Kernel::swiglu);
    parts.down = next(Kernel::expert_matmul);
    parts.mix = next(Kernel::mix_experts);
    if (parts.route == nullptr || parts.mix == nullptr || parts.up == nullptr ||
        parts.gating == nullptr || parts.down == nullptr)
      return 0;
    if (!fit_together(parts, at - 1)) return 0;
    parts.add = next(Kernel::add);
    if (parts.add != nullptr && !adds_only(*parts.add, parts.mix->args[2].slot, at - 1))
      parts.add = nullptr, --at;
    const ExpertProduct inner{parts.gate, parts.up, parts.gating, parts.norm};
    add_route(*parts.route, parts.norm, first, route + 1 - first);
    const ExpertPlan plan = add_expert_product(inner, parts.gating->args[2].slot, route + 1, 3);
    if (is_few()) {
      add(mixed_experts_call(site_, parts), route + 4, at - route - 4);
    } else {
      add_expert_product({.matmul = parts.down}, parts.down->args[3].slot, route + 4, 1, plan);
      add(mix_experts_call(site_, *parts.mix, parts.add), route + 5, at - route - 5);
    }
    return at - first;
  }

  bool fit_together(const ExpertParts& parts, size_t last) const {
    const auto slot = [](const Launch* launch, size_t arg) { return launch->args[arg].slot; };
    const auto form = [&](const Launch* product) {
      return weight_form(site_.slot(*product, 1).dtype);
    };
    const uint16_t x = slot(parts.route, 0);
    const auto reads = [&](const Launch* product, uint16_t from) {
      return slot(product, 0) == from && slot(product, 2) == slot(parts.route, 2);
    };
    const bool has_norm = parts.norm == nullptr ||
                          (site_.slot(*parts.norm, 0).cols == site_.slot(*parts.norm, 1).cols &&
                           !parts.norm->shape.bf16_sums && slot(parts.norm, 2) == x &&
                           slot(parts.norm, 0) != x && is_dead_after(program_, x, last));
    const auto is_inner = [&](uint16_t y) {
      return y == slot(parts.gating, 2) || is_dead_after(program_, y, last);
    };
    return has_norm && reads(parts.gate, x) && reads(parts.up, x) &&
           form(parts.gate) == form(parts.up) && parts.gate->args.size() == parts.up->args.size() &&
           slot(parts.gating, 0) == slot(parts.gate, 3) &&
           slot(parts.gating, 1) == slot(parts.up, 3) && is_inner(slot(parts.gate, 3)) &&
           is_inner(slot(parts.up, 3)) && reads(parts.down, slot(parts.gating, 2)) &&
           slot(parts.mix, 0) == slot(parts.down, 3) &&
           slot(parts.mix, 1) == slot(parts.route, 3) &&
           is_dead_after(program_, slot(parts.down, 3), last);
  }

  // x += y, and nothing else wants y.
  bool adds_only(const Launch& add, uint16_t y, size_t index) const {
    return add.kernel == Kernel::add && add.args.size() == 2 && add.args[1].slot == y &&
           add.args[0].slot != y && is_dead_after(program_, y, index);
  }

  void add_route(const Launch& launch, const Launch* norm, size_t first, size_t count) {
    const Operand scores = temporary(3, route_scores_bytes(site_, launch));
    add(route_scores_call(site_, launch, norm, scores), first, count);
    add(choose_experts_call(site_, launch, scores), first, count);
  }

  // The result is in slot `y`. With many rows returns the plan; `made` is the one in memory.
  ExpertPlan add_expert_product(const ExpertProduct& product, uint16_t y, size_t first,
                                size_t count, const ExpertPlan& made = {}) {
    if (is_few()) {
      add(chosen_experts_call(site_, product), first, count);
      return {};
    }
    const ExpertPlan plan = expert_plan(site_, *product.matmul);
    const Operand memory = temporary(4, plan.bytes);
    if (plan.tile != made.tile)
      add(group_experts_call(site_, *product.matmul, plan, memory), first, count);
    add(grouped_experts_call(site_, product, plan, memory, held(product.matmul->args[0].slot),
                             hold(y, first + count - 1)),
        first, count);
    return plan;
  }

  size_t take_products(size_t first) {
    const Products products = match_products(program_, first, has_few_products_);
    if (products.count == 0) return 0;
    const Numbers x = held(products.x);
    Numbers y = Numbers::f32;
    if (!has_few_products_ && products.ending == Ending::gated)
      y = hold(products.result, first + products.count - 1);
    // One dispatch per form of weight: of q, k and v often two.
    std::vector<const Launch*> left = products.matmuls;
    while (!left.empty()) {
      const auto form = [&](const Launch* matmul) {
        return weight_form(site_.slot(*matmul, 1).dtype);
      };
      const WeightForm chosen = form(left.front());
      const bool has_bias = left.front()->args.size() > 3;
      std::vector<const Launch*> same, others;
      for (const Launch* matmul : left)
        (form(matmul) == chosen && (matmul->args.size() > 3) == has_bias ? same : others)
            .push_back(matmul);
      add(has_few_products_ ? few_rows_products_call(site_, products, same)
                            : many_rows_products_call(site_, products, same, x, y),
          first, products.count);
      left = others;
    }
    return products.count;
  }

  size_t take_alone(size_t index) {
    const Launch& launch = program_.launches[index];
    switch (launch.kernel) {
      case Kernel::embed:
        add(embed_call(site_, launch), index, 1);
        break;
      case Kernel::rope_table:
        add(rope_table_call(site_, launch), index, 1);
        break;
      case Kernel::rmsnorm:
      case Kernel::layernorm:
        return add_norm(launch, index);
      case Kernel::rope:
        add(rope_call(site_, launch), index, 1);
        break;
      case Kernel::kv_append:
        add(kv_append_call(site_, launch), index, 1);
        break;
      case Kernel::attention:
        add_attention({.attention = &launch}, index);
        break;
      case Kernel::add:
        add(add_call(site_, launch), index, 1);
        break;
      case Kernel::swiglu:
        add(swiglu_call(site_, launch), index, 1);
        break;
      case Kernel::gather_rows:
        add(gather_rows_call(site_, launch), index, 1);
        break;
      case Kernel::cast:
        add(cast_call(site_, launch), index, 1);
        break;
      case Kernel::scale:
      case Kernel::soft_cap:
        add(factor_call(site_, launch), index, 1);
        break;
      case Kernel::top_k:
        add_top_k(launch, index);
        break;
      case Kernel::route:
        add_route(launch, nullptr, index, 1);
        break;
      case Kernel::expert_matmul:
        add_expert_product({.matmul = &launch}, launch.args[3].slot, index, 1);
        break;
      case Kernel::mix_experts:
        add(mix_experts_call(site_, launch, nullptr), index, 1);
        break;
      case Kernel::matmul:  // take_products() took it
      case Kernel::prompt_attention:
      case Kernel::matmul_i8:
      case Kernel::matmul_q8:
      case Kernel::causal_conv:
      case Kernel::split:
      case Kernel::add_gated:
      case Kernel::delta_rule:
      case Kernel::mamba2:
        TYTO_ASSERT(false);  // why_not() refused it
    }
    return 1;
  }

  const Program& program_;
  const CallForm& form_;
  Site site_;
  const bool has_few_products_;
  std::map<uint16_t, Numbers> held_;  // by slots that were written
  Lowered result_;
};

}  // namespace

uint32_t row_bucket(uint32_t rows) {
  if (rows <= kFewRows) return std::bit_ceil(rows);
  constexpr uint32_t kStep = 64;
  return (rows + kStep - 1) / kStep * kStep;
}

// Neither this switch nor the one of take_alone() has a default: a new kernel does not compile
// until both say what becomes of it.
std::optional<std::string> why_not(const Program& program, const Launch& launch) {
  const auto type = [&](size_t arg) { return program.slots[launch.args[arg].slot].dtype; };
  switch (launch.kernel) {
    case Kernel::prompt_attention:
    case Kernel::matmul_i8:
    case Kernel::matmul_q8:
    case Kernel::causal_conv:
    case Kernel::split:
    case Kernel::add_gated:
    case Kernel::delta_rule:
    case Kernel::mamba2:
      return "it has no such kernel";
    case Kernel::cast:
      if (is_number(type(0)) && is_number(type(1))) return std::nullopt;
      return "it casts only between f32, f16 and bf16";
    case Kernel::rmsnorm:
      if (launch.shape.bf16_sums) return "it adds squares up in f32";
      if (launch.shape.groups > 1) return "its norms have one weight for all groups";
      break;
    case Kernel::rope:
      if (launch.args.size() > 2 && launch.shape.rotated != 0) return "it rotates parts in place";
      break;
    case Kernel::embed:
    case Kernel::matmul:
    case Kernel::kv_append:
    case Kernel::attention:
    case Kernel::add:
    case Kernel::gather_rows:
    case Kernel::top_k:
    case Kernel::rope_table:
    case Kernel::swiglu:
    case Kernel::scale:
    case Kernel::soft_cap:
    case Kernel::layernorm:
    case Kernel::mix_experts:
      break;
    case Kernel::route:
      if (launch.shape.sigmoid_scores || launch.shape.groups > 0 || launch.shape.factor != 1)
        return "it routes by softmax alone, without groups and factors";
      if (program.slots[launch.args[1].slot].rows <= kMostExperts) break;
      return fmt::format("it chooses among {} experts at most", kMostExperts);
    case Kernel::expert_matmul:
      if (launch.shape.experts > kMostExperts)
        return fmt::format("it chooses among {} experts at most", kMostExperts);
      if (weight_form(type(1)) == WeightForm::i8) return "its experts have no weights of i8";
      break;
  }
  if (const size_t cache = cache_arg(launch); cache != kNoArg) {
    if (launch.shape.page == 0) return "its cache lies in pages";
    if (!is_number(type(cache)))
      return fmt::format("it keeps no cache of {}", info(type(cache)).name);
    if (launch.shape.head_dim % 8 != 0 || launch.shape.head_dim > 256)
      return fmt::format("head_dim {} is not a multiple of 8 up to 256", launch.shape.head_dim);
  }
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const ArgKind kind = arg_spec(launch, i).kind;
    if ((kind == ArgKind::rows || kind == ArgKind::gathered) && type(i) != DType::f32)
      return fmt::format("its activations are f32, not {}", info(type(i)).name);
  }
  return std::nullopt;
}

Lowered lower(const Program& program, const CallForm& form, const GpuFacts& gpu) {
  return Lowering(program, form, gpu).run();
}

namespace {

constexpr size_t kMostProducts = 3;

uint16_t slot_of(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

bool is(const Program& program, size_t index, Kernel kernel) {
  return index < program.launches.size() && program.launches[index].kernel == kernel;
}

WeightForm form_of(const Program& program, const Launch& matmul) {
  return weight_form(program.slots[slot_of(matmul, 1)].dtype);
}

// Over whole rows, not over heads.
bool is_row_norm(const Program& program, size_t index) {
  if (!is(program, index, Kernel::rmsnorm)) return false;
  const Launch& launch = program.launches[index];
  return program.slots[slot_of(launch, 0)].cols == program.slots[slot_of(launch, 1)].cols &&
         !launch.shape.bf16_sums;
}

// What comes before the products, if the products are all that want it.
size_t match_norm(const Program& program, Products& found) {
  size_t at = found.first;
  if (is(program, at, Kernel::gather_rows)) {
    found.gather = &program.launches[at++];
    if (!is_row_norm(program, at) ||
        slot_of(program.launches[at], 0) != slot_of(*found.gather, 1) ||
        !is_dead_after(program, slot_of(*found.gather, 1), at))
      return found.first;
  }
  if (is_row_norm(program, at)) found.norm = &program.launches[at++];
  return at;
}

void match_ending(const Program& program, Products& found) {
  const size_t at = found.first + found.count;
  if (at >= program.launches.size()) return;
  const Launch& next = program.launches[at];
  const auto y = [&](size_t i) { return slot_of(*found.matmuls[i], 2); };
  const bool is_pair = found.matmuls.size() == 2 && found.matmuls[0]->args.size() == 3 &&
                       found.matmuls[1]->args.size() == 3 &&
                       form_of(program, *found.matmuls[0]) == form_of(program, *found.matmuls[1]);
  if (is_pair && next.kernel == Kernel::swiglu && slot_of(next, 0) == y(0) &&
      slot_of(next, 1) == y(1)) {
    const uint16_t result = slot_of(next, 2);
    for (size_t i : {0, 1})
      if (y(i) != result && !is_dead_after(program, y(i), at)) return;
    found.ending = Ending::gated;
    found.activation = next.shape.activation;
    found.result = result;
  } else if (found.matmuls.size() == 1 && next.kernel == Kernel::add && next.args.size() == 2 &&
             slot_of(next, 1) == y(0) && slot_of(next, 0) != found.x &&
             is_dead_after(program, y(0), at)) {
    found.ending = Ending::add;
    found.result = slot_of(next, 0);
  } else {
    return;
  }
  ++found.count;
}

}  // namespace

bool is_dead_after(const Program& program, uint16_t slot, size_t last) {
  if (program.slots[slot].kind != SlotKind::scratch) return false;
  for (size_t i = last + 1; i < program.launches.size(); ++i) {
    bool is_written = false;
    for (const Arg& arg : program.launches[i].args) {
      if (arg.slot != slot) continue;
      if (arg.reads) return false;
      is_written = arg.writes;
    }
    if (is_written) return true;
  }
  return true;
}

Products match_products(const Program& program, size_t first, bool takes_norm) {
  Products found{.first = first};
  size_t at = takes_norm ? match_norm(program, found) : first;
  if (!is(program, at, Kernel::matmul)) return {};
  found.x = slot_of(program.launches[at], 0);
  const uint16_t multiplied = found.x;
  while (is(program, at, Kernel::matmul) && slot_of(program.launches[at], 0) == multiplied &&
         found.matmuls.size() < kMostProducts)
    found.matmuls.push_back(&program.launches[at++]);
  found.count = at - first;
  if (found.norm != nullptr) {
    const bool is_its =
        slot_of(*found.norm, 2) == multiplied && slot_of(*found.norm, 0) != multiplied;
    if (!is_its || !is_dead_after(program, multiplied, at - 1)) return {};
    found.x = slot_of(found.gather != nullptr ? *found.gather : *found.norm, 0);
  } else if (found.gather != nullptr) {
    return {};
  }
  match_ending(program, found);
  return found;
}

}  // namespace tyto::vulkan
