#include "device/vulkan/kernel_calls.h"

#include <bit>

#include "base/error.h"
#include "base/round_up.h"
#include "device/vulkan/kernel_shapes.h"
#include "device/vulkan/vulkan_device.h"

namespace tyto::vulkan {
namespace {

// Up to three matrices side by side, as the kernels' arguments have them.
struct Sides {
  std::vector<Operand> weights, results, biases;
  std::vector<uint32_t> rows;
};

Sides sides_of(const Site& site, const Products& products, std::span<const Launch* const> matmuls) {
  Sides sides;
  for (const Launch* matmul : matmuls) {
    sides.weights.push_back(matmul->args[1].slot);
    sides.results.push_back(products.ending == Ending::store ? matmul->args[2].slot
                                                             : products.result);
    sides.biases.push_back(matmul->args.size() > 3 ? matmul->args[3].slot : kNothing);
    sides.rows.push_back(u32(site.slot(*matmul, 1).rows));
  }
  for (auto* operands : {&sides.weights, &sides.results, &sides.biases})
    operands->resize(3, kNothing);
  sides.rows.resize(3, 0);
  return sides;
}

void append(std::vector<Operand>& to, const std::vector<Operand>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Workgroups for the rows of all matrices; with a gate for the pairs of two.
uint32_t output_groups(const Products& products, const Sides& sides, uint32_t each) {
  if (products.ending != Ending::store) return workgroups(sides.rows[0], each);
  uint32_t total = 0;
  for (const uint32_t rows : sides.rows) total += workgroups(rows, each);
  return total;
}

std::vector<Operand> written(const Products& products, const Sides& sides) {
  if (products.ending != Ending::store) return {products.result};
  std::vector<Operand> slots;
  for (const Operand slot : sides.results)
    if (slot != kNothing) slots.push_back(slot);
  return slots;
}

// MODE of the kernels: gates follow the other endings, one for each activation.
uint32_t mode_of(const Products& products) {
  const uint32_t mode = u32(uint64_t(products.ending));
  return products.ending == Ending::gated ? mode + u32(uint64_t(products.activation)) : mode;
}

// X of the kernels for many rows.
uint32_t reads_of(const Slot& weight, Numbers x) {
  return x != Numbers::f32 ? 2 : weight.cols % 32 == 0 ? 1 : 0;
}

}  // namespace

Dispatch few_rows_products_call(const Site& site, const Products& products,
                                std::span<const Launch* const> matmuls) {
  const Slot& weight = site.slot(*matmuls.front(), 1);
  const Sides sides = sides_of(site, products, matmuls);
  GemvProblem problem{.form = weight_form(weight.dtype),
                      .rows = site.form.rows,
                      .k = weight.cols,
                      .is_pairs = products.ending == Ending::gated};
  for (const uint32_t rows : sides.rows) problem.outputs += rows;
  if (problem.is_pairs) problem.outputs /= 2;
  const GemvShape cut = gemv_shape(problem, {.subgroup_size = site.gpu.subgroup_size,
                                             .shared_bytes = site.gpu.shared_bytes,
                                             .compute_units = site.gpu.compute_units,
                                             .multiplies_bytes = site.gpu.multiplies_bytes});
  const bool has_bias = matmuls.front()->args.size() > 3;
  std::vector<uint32_t> constants = {
      cut.threads,       site.form.rows,           cut.outputs,
      mode_of(products), products.norm != nullptr, products.gather != nullptr,
      has_bias};
  if (cut.in_integers) constants.push_back(u32(round_up(weight.cols, 32)));
  Dispatch dispatch{
      .kernel = {fmt::format("gemv_{}{}", cut.in_integers ? "dot_" : "", name(problem.form)),
                 std::move(constants)},
      .operands = {products.x, kCallData,
                   products.norm != nullptr ? products.norm->args[1].slot : kNothing},
      .values = {u32(weight.cols), sides.rows[0], sides.rows[1], sides.rows[2],
                 std::bit_cast<uint32_t>(products.norm != nullptr ? products.norm->shape.eps
                                                                  : 0.0f),
                 0},
      .groups = {std::min(output_groups(products, sides, cut.outputs), cut.most_workgroups), 1, 1},
      .writes = written(products, sides)};
  append(dispatch.operands, sides.weights);
  append(dispatch.operands, sides.results);
  append(dispatch.operands, sides.biases);
  return dispatch;
}

bool is_cooperative(const Site& site, const Launch& matmul) {
  const WeightForm form = weight_form(site.slot(matmul, 1).dtype);
  if (form == WeightForm::f32) return false;
  return form == WeightForm::bf16 ? site.gpu.multiplies_bf16 : site.gpu.multiplies_f16;
}

Dispatch many_rows_products_call(const Site& site, const Products& products,
                                 std::span<const Launch* const> matmuls, Numbers x, Numbers y) {
  const Slot& weight = site.slot(*matmuls.front(), 1);
  const Sides sides = sides_of(site, products, matmuls);
  const bool has_bias = matmuls.front()->args.size() > 3;
  const bool coop = is_cooperative(site, *matmuls.front());
  GemmProduct product{
      .rows = site.form.rows, .k = weight.cols, .is_pair = products.ending == Ending::gated};
  for (const uint32_t rows : sides.rows) product.columns += rows;
  const GemmMachine machine{site.gpu.subgroup_size, site.gpu.compute_units, site.gpu.shared_bytes};
  const GemmShape cut =
      coop ? cooperative_gemm_shape(product, machine) : tiled_gemm_shape(product, machine);
  const std::vector<uint32_t> constants = {cut.threads,
                                           cut.bm,
                                           cut.bn,
                                           cut.bk,
                                           mode_of(products),
                                           reads_of(weight, x),
                                           y != Numbers::f32,
                                           has_bias,
                                           cut.part_rows,
                                           cut.part_columns};
  const uint32_t columns = product.is_pair ? cut.bn / 2 : cut.bn;
  Dispatch dispatch{
      .kernel = {fmt::format("gemm_{}_{}", coop ? "coop" : "tiled",
                             name(weight_form(weight.dtype))),
                 constants},
      .operands = {products.x, kCallData},
      .values = {u32(weight.cols), sides.rows[0], sides.rows[1], sides.rows[2]},
      .groups = {workgroups(site.form.rows, cut.bm), output_groups(products, sides, columns), 1},
      .writes = written(products, sides)};
  append(dispatch.operands, sides.weights);
  append(dispatch.operands, sides.results);
  append(dispatch.operands, sides.biases);
  return dispatch;
}

namespace {

constexpr uint32_t kThreads = 128;  // for kernels that do little

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

Operand operand(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

Numbers numbers_of(DType type) {
  if (type == DType::bf16) return Numbers::bf16;
  if (type == DType::f16) return Numbers::f16;
  TYTO_ASSERT(type == DType::f32);
  return Numbers::f32;
}

// Dimensions of a head that a rope turns.
uint32_t rotated_of(const Launch* rope, uint32_t head_dim) {
  if (rope == nullptr) return 0;
  return rope->shape.rotated != 0 ? rope->shape.rotated : head_dim;
}

Operand sinks_of(const Launch& attention) {
  return attention.args.size() > 4 ? operand(attention, 4) : kNothing;
}

AttentionSite attention_site(const Site& site, const LaunchShape& shape) {
  return {.heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .subgroup_size = site.gpu.subgroup_size,
          .shared_bytes = site.gpu.shared_bytes};
}

enum class Elementwise : uint32_t { add, gate, gather_rows, cast, scale, soft_cap };

struct ElementwiseKind {
  Elementwise operation;
  Numbers in = Numbers::f32, out = Numbers::f32;
  Activation activation = Activation::silu;
  float factor = 1;
};

Dispatch elementwise(const Site& site, const ElementwiseKind& kind, std::vector<Operand> operands,
                     uint64_t cols) {
  const Operand z = operands[2];
  operands.push_back(kCallData);
  const uint64_t rows = site.form.rows;
  const uint64_t quads =
      kind.operation == Elementwise::gather_rows ? rows * ((cols + 3) / 4) : (rows * cols + 3) / 4;
  return {.kernel = {"elementwise",
                     {kThreads, u32(uint64_t(kind.operation)), u32(uint64_t(kind.in)),
                      u32(uint64_t(kind.out)), u32(uint64_t(kind.activation))}},
          .operands = std::move(operands),
          .values = {u32(cols), bits(kind.factor)},
          .groups = {workgroups(quads, kThreads), 1, 1},
          .writes = {z}};
}

}  // namespace

Dispatch embed_call(const Site& site, const Launch& launch) {
  const Slot& table = site.slot(launch, 1);
  return {.kernel = {fmt::format("embed_{}", name(weight_form(table.dtype))), {kThreads}},
          .operands = {operand(launch, 0), operand(launch, 1), operand(launch, 2), kCallData},
          .values = {u32(table.cols), u32(table.rows)},
          .groups = {site.form.rows, 1, 1},
          .writes = {operand(launch, 2)}};
}

Dispatch rope_table_call(const Site& site, const Launch& launch) {
  const uint32_t head_dim = u32(site.slot(launch, 1).cols);
  return {.kernel = {"rope_table", {kThreads, head_dim}},
          .operands = {operand(launch, 0), operand(launch, 1), kCallData},
          .values = {bits(launch.shape.factor)},
          .groups = {workgroups(uint64_t{site.form.rows} * head_dim / 2, kThreads), 1, 1},
          .writes = {operand(launch, 1)}};
}

Dispatch norm_call(const Site& site, const Launch& launch, Numbers out, const Launch* add) {
  const uint64_t cols = site.slot(launch, 0).cols, group = site.slot(launch, 1).cols;
  const uint32_t threads = group >= 1024 ? 256 : kThreads;
  // A head's values are few: a part of a subgroup takes each.
  const uint32_t team = group > 256 ? threads : std::min<uint32_t>(site.gpu.subgroup_size, 8);
  const Operand y = add != nullptr ? operand(*add, 0) : operand(launch, 2);
  return {.kernel = {"rmsnorm",
                     {threads, u32(uint64_t(out)), team, launch.kernel == Kernel::layernorm,
                      add != nullptr}},
          .operands = {operand(launch, 0), operand(launch, 1), y, kCallData},
          .values = {u32(cols), u32(group), bits(launch.shape.eps)},
          .groups = {workgroups(site.form.rows * (cols / group), threads / team), 1, 1},
          .writes = {y}};
}

Dispatch add_call(const Site& site, const Launch& launch) {
  const Operand z = operand(launch, launch.args.size() == 2 ? 0 : 2);
  return elementwise(site, {Elementwise::add}, {operand(launch, 0), operand(launch, 1), z},
                     site.slot(launch, 0).cols);
}

Dispatch swiglu_call(const Site& site, const Launch& launch) {
  return elementwise(site, {.operation = Elementwise::gate, .activation = launch.shape.activation},
                     {operand(launch, 0), operand(launch, 1), operand(launch, 2)},
                     site.slot(launch, 0).cols);
}

Dispatch gather_rows_call(const Site& site, const Launch& launch) {
  return elementwise(site, {Elementwise::gather_rows},
                     {operand(launch, 0), kNothing, operand(launch, 1)}, site.slot(launch, 0).cols);
}

Dispatch cast_call(const Site& site, const Launch& launch) {
  return elementwise(site,
                     {.operation = Elementwise::cast,
                      .in = numbers_of(site.slot(launch, 0).dtype),
                      .out = numbers_of(site.slot(launch, 1).dtype)},
                     {operand(launch, 0), kNothing, operand(launch, 1)}, site.slot(launch, 0).cols);
}

Dispatch factor_call(const Site& site, const Launch& launch) {
  const bool is_scale = launch.kernel == Kernel::scale;
  return elementwise(site,
                     {.operation = is_scale ? Elementwise::scale : Elementwise::soft_cap,
                      .factor = launch.shape.factor},
                     {operand(launch, 0), kNothing, operand(launch, launch.args.size() - 1)},
                     site.slot(launch, 0).cols);
}

Dispatch rope_call(const Site& site, const Launch& launch) {
  const LaunchShape& shape = launch.shape;
  const Operand y = operand(launch, launch.args.size() == 2 ? 0 : 2);
  const uint32_t rotated = rotated_of(&launch, shape.head_dim);
  return {
      .kernel = {"rope", {kThreads, shape.head_dim, 0, 0, shape.rope_pairs, 0, rotated}},
      .operands = {operand(launch, 0), operand(launch, 1), y, kCallData},
      .values = {shape.heads, u32(site.slot(launch, 1).cols)},
      .groups = {workgroups(uint64_t{site.form.rows} * shape.heads * rotated / 2, kThreads), 1, 1},
      .writes = {y}};
}

Dispatch kv_append_call(const Site& site, const Launch& launch) {
  const LaunchShape& shape = launch.shape;
  const uint32_t cache = u32(uint64_t(numbers_of(site.slot(launch, 2).dtype)));
  return {
      .kernel = {"kv_append", {kThreads, shape.head_dim, shape.page, cache, 0, 0, 0, shape.window}},
      .operands = {operand(launch, 0), operand(launch, 1), operand(launch, 2), operand(launch, 3),
                   kCallData},
      .values = {shape.kv_heads},
      .groups = {workgroups(uint64_t{site.form.rows} * shape.kv_heads * shape.head_dim / 2,
                            kThreads),
                 1, 1},
      .writes = {operand(launch, 2), operand(launch, 3)}};
}

Dispatch rope_append_call(const Site& site, const AttentionParts& parts) {
  const LaunchShape& shape = parts.attention->shape;
  const uint32_t cache = u32(uint64_t(numbers_of(site.slot(*parts.append, 2).dtype)));
  const uint32_t team = std::min(site.gpu.subgroup_size, 32u), teams = kThreads / team;
  const bool has_norm = parts.q_norm != nullptr;
  const Operand q = parts.queries(), k = operand(*parts.append, 0);
  const Operand k_cache = operand(*parts.append, 2), v_cache = operand(*parts.append, 3);
  return {
      .kernel = {"rope_append",
                 {kThreads, shape.head_dim, shape.page, cache, parts.turns_pairs(), has_norm,
                  rotated_of(parts.q_rope, shape.head_dim), shape.window, team}},
      .operands = {q, k, operand(*parts.append, 1),
                   parts.q_rope != nullptr ? operand(*parts.q_rope, 1) : kNothing,
                   has_norm ? operand(*parts.q_norm, 1) : kNothing,
                   has_norm ? operand(*parts.k_norm, 1) : kNothing, k_cache, v_cache, kCallData},
      .values = {shape.heads, shape.kv_heads, bits(has_norm ? parts.q_norm->shape.eps : 0)},
      .groups = {workgroups(shape.heads + 2 * shape.kv_heads, teams), site.form.rows, 1},
      .writes = {q, k_cache, v_cache}};
}

AttentionSplit attention_split(const Site& site, const Launch& attention) {
  const LaunchShape& shape = attention.shape;
  const AttentionSite heads = attention_site(site, shape);
  const uint64_t rows = site.form.rows;
  // Two for each unit: an H200 took 12.2 us so for 4000 positions, 13.0 us with one.
  const uint32_t seen = shape.window == 0 ? shape.context : std::min(shape.context, shape.window);
  const uint32_t splits = attention_splits(heads, site.form.rows, seen, 2 * site.gpu.compute_units);
  return {.splits = splits,
          .partial_bytes = rows * shape.heads * splits * (shape.head_dim + 1) * sizeof(float),
          .counter_bytes = rows * shape.heads * sizeof(uint32_t)};
}

Dispatch few_rows_attention_call(const Site& site, const AttentionParts& parts, Operand partial,
                                 Operand counters) {
  const Launch& attention = *parts.attention;
  const LaunchShape& shape = attention.shape;
  const bool is_fused = parts.append != nullptr, has_norm = parts.q_norm != nullptr;
  const uint32_t cache = u32(uint64_t(numbers_of(site.slot(attention, 1).dtype)));
  const FewRowsShape cut = few_rows_shape(attention_site(site, shape));
  const uint32_t splits = attention_split(site, attention).splits;
  const auto part = [&](const Launch* launch, size_t arg) {
    return launch != nullptr ? operand(*launch, arg) : kNothing;
  };
  Dispatch dispatch{
      .kernel = {"attention_decode",
                 {cut.threads, shape.head_dim, shape.page, cache, parts.turns_pairs(), has_norm,
                  rotated_of(parts.q_rope, shape.head_dim), shape.window,
                  u32(uint64_t(Numbers::f32)), cut.group, cut.lanes, is_fused, cut.unroll,
                  site.gpu.subgroup_size, bits(shape.score_cap), attention.args.size() > 4}},
      .operands = {parts.queries(), part(parts.append, 0), part(parts.append, 1),
                   part(parts.q_rope, 1), part(parts.q_norm, 1), part(parts.k_norm, 1),
                   operand(attention, 1), operand(attention, 2), operand(attention, 3), partial,
                   counters, sinks_of(attention), kCallData},
      .values = {shape.heads, shape.kv_heads, splits, bits(has_norm ? parts.q_norm->shape.eps : 0),
                 bits(parts.q_factor())},
      .groups = {shape.heads / cut.group, splits, site.form.rows},
      .writes = {operand(attention, 3), partial, counters}};
  if (is_fused) {
    dispatch.writes.push_back(operand(attention, 1));
    dispatch.writes.push_back(operand(attention, 2));
  }
  return dispatch;
}

Dispatch many_rows_attention_call(const Site& site, const AttentionParts& parts, Numbers out) {
  const Launch& attention = *parts.attention;
  const LaunchShape& shape = attention.shape;
  const ManyRowsShape cut = many_rows_shape(attention_site(site, shape), kTileRows,
                                            site.gpu.multiplies_f16, site.gpu.matrix_layout);
  const uint32_t cache = u32(uint64_t(numbers_of(site.slot(attention, 1).dtype)));
  return {.kernel = {cut.is_cooperative ? "attention_prefill_coop" : "attention_prefill",
                     {cut.threads, shape.head_dim, shape.page, cache, 0, 0, 0, shape.window,
                      u32(uint64_t(out)), cut.group, cut.tile, cut.keys, cut.rows, cut.columns,
                      cut.parts, bits(shape.score_cap), attention.args.size() > 4}},
          .operands = {parts.queries(), operand(attention, 1), operand(attention, 2),
                       operand(attention, 3), sinks_of(attention), kCallData},
          .values = {shape.heads, shape.kv_heads, bits(parts.q_factor())},
          .groups = {shape.heads / cut.group, site.form.tiles * cut.parts, 1},
          .writes = {operand(attention, 3)}};
}

namespace {

struct TopKCut {
  uint32_t best = 0;      // in a row
  uint32_t lanes = 0;     // threads that share a group of neighbours
  uint32_t groups = 0;    // in a row
  uint32_t choosing = 0;  // values for each thread of the second dispatch
};
constexpr uint32_t kGroupsThreads = 128, kChoosingThreads = 512;

TopKCut top_k_cut(const Site& site, const Launch& launch) {
  const uint32_t best = u32(site.slot(launch, 1).cols / 2 - 1);
  const uint32_t lanes = std::min(8u, std::bit_floor(site.gpu.subgroup_size));
  const uint32_t count = workgroups(site.slot(launch, 0).cols, uint64_t{4} * lanes);
  return {best, lanes, count, workgroups(std::max(count, 8 * best * lanes), kChoosingThreads)};
}

}  // namespace

uint64_t top_k_bytes(const Site& site, const Launch& launch) {
  return uint64_t{site.form.rows} * top_k_cut(site, launch).groups * 3 * sizeof(uint32_t);
}

Dispatch top_k_groups_call(const Site& site, const Launch& launch, Operand found) {
  const TopKCut cut = top_k_cut(site, launch);
  return {
      .kernel = {"top_k",
                 {kGroupsThreads, 0, cut.lanes, cut.best, cut.choosing, site.gpu.subgroup_size}},
      .operands = {operand(launch, 0), found, kNothing, kCallData},
      .values = {u32(site.slot(launch, 0).cols), cut.groups},
      .groups = {workgroups(uint64_t{cut.groups} * cut.lanes, kGroupsThreads), site.form.rows, 1},
      .writes = {found}};
}

Dispatch top_k_choose_call(const Site& site, const Launch& launch, Operand found) {
  const TopKCut cut = top_k_cut(site, launch);
  return {
      .kernel = {"top_k",
                 {kChoosingThreads, 1, cut.lanes, cut.best, cut.choosing, site.gpu.subgroup_size}},
      .operands = {operand(launch, 0), found, operand(launch, 1), kCallData},
      .values = {u32(site.slot(launch, 0).cols), cut.groups},
      .groups = {1, site.form.rows, 1},
      .writes = {operand(launch, 1)}};
}

Numbers operand_numbers(const Site& site, const Launch& matmul) {
  return weight_form(site.slot(matmul, 1).dtype) == WeightForm::bf16 ? Numbers::bf16 : Numbers::f16;
}

// Experts.

namespace {

uint32_t used_of(const Site& site, const Launch& expert_matmul) {
  return u32(site.slot(expert_matmul, 2).cols);
}

uint32_t rows_of_expert(const Site& site, const Launch& expert_matmul) {
  return u32(site.slot(expert_matmul, 1).rows / expert_matmul.shape.experts);
}

// Each choice has a row of x, or all of a row's have one.
bool has_x_of_choice(const Site& site, const Launch& expert_matmul) {
  return site.slot(expert_matmul, 0).cols != site.slot(expert_matmul, 1).cols;
}

Operand bias_of(const Launch* expert_matmul) {
  return expert_matmul != nullptr && expert_matmul->args.size() > 4 ? operand(*expert_matmul, 4)
                                                                    : kNothing;
}

Products gated_products(const ExpertProduct& product) {
  Products products;
  if (product.gating == nullptr) return products;
  products.ending = Ending::gated;
  products.activation = product.gating->shape.activation;
  return products;
}

enum class Experts : uint32_t { none, chosen, mixed };

struct ExpertGemv {
  const Launch& matmul;
  Experts experts;
  uint64_t k;        // a sum's values
  uint64_t outputs;  // all workgroups'
  uint32_t mode;
  const Launch* norm;
  bool is_pairs;
};

PipelineKey expert_kernel(const Site& site, const ExpertGemv& product, uint32_t& outputs) {
  const GemvShape cut = gemv_shape({.form = weight_form(site.slot(product.matmul, 1).dtype),
                                    .k = product.k,
                                    .outputs = product.outputs,
                                    .is_pairs = product.is_pairs},
                                   {.subgroup_size = site.gpu.subgroup_size,
                                    .shared_bytes = site.gpu.shared_bytes,
                                    .compute_units = site.gpu.compute_units});
  outputs = cut.outputs;
  return {fmt::format("gemv_{}", name(weight_form(site.slot(product.matmul, 1).dtype))),
          {cut.threads, 1, cut.outputs, product.mode, product.norm != nullptr, 0,
           bias_of(&product.matmul) != kNothing, 0, u32(uint64_t(product.experts))}};
}

}  // namespace

uint64_t route_scores_bytes(const Site& site, const Launch& route) {
  return uint64_t{site.form.rows} * site.slot(route, 1).rows * sizeof(float);
}

Dispatch route_scores_call(const Site& site, const Launch& route, const Launch* norm,
                           Operand scores) {
  Launch product{
      .kernel = Kernel::matmul, .name = route.name, .args = {route.args[0], route.args[1]}};
  product.args.push_back({static_cast<uint16_t>(scores), false, true});
  if (route.args.size() > 4) product.args.push_back(route.args[4]);
  Products products;
  products.norm = norm;
  products.x = norm != nullptr ? norm->args[0].slot : route.args[0].slot;
  const Launch* const matmuls[] = {&product};
  return site.form.rows <= kFewRows
             ? few_rows_products_call(site, products, matmuls)
             : many_rows_products_call(site, products, matmuls, Numbers::f32, Numbers::f32);
}

Dispatch choose_experts_call(const Site& site, const Launch& route, Operand scores) {
  return {.kernel = {"choose_experts",
                     {kThreads, u32(site.slot(route, 1).rows), route.shape.weighs_chosen_alone}},
          .operands = {scores, operand(route, 2), operand(route, 3), kCallData},
          .values = {u32(site.slot(route, 2).cols)},
          .groups = {site.form.rows, 1, 1},
          .writes = {operand(route, 2), operand(route, 3)}};
}

Dispatch chosen_experts_call(const Site& site, const ExpertProduct& product) {
  const Launch& matmul = *product.matmul;
  const uint32_t used = used_of(site, matmul), rows = rows_of_expert(site, matmul);
  const uint32_t choices = site.form.rows * used;
  const Operand y = product.gating != nullptr ? operand(*product.gating, 2) : operand(matmul, 3);
  uint32_t outputs = 1;
  PipelineKey kernel = expert_kernel(site,
                                     {.matmul = matmul,
                                      .experts = Experts::chosen,
                                      .k = site.slot(matmul, 1).cols,
                                      .outputs = uint64_t{rows} * choices,
                                      .mode = mode_of(gated_products(product)),
                                      .norm = product.norm,
                                      .is_pairs = product.up != nullptr},
                                     outputs);
  const Launch* const norm = product.norm;
  return {
      .kernel = std::move(kernel),
      .operands = {norm != nullptr ? operand(*norm, 0) : operand(matmul, 0), kCallData,
                   norm != nullptr ? operand(*norm, 1) : kNothing, operand(matmul, 1),
                   product.up != nullptr ? operand(*product.up, 1) : kNothing, operand(matmul, 2),
                   y, kNothing, kNothing, bias_of(&matmul), bias_of(product.up), kNothing},
      .values = {u32(site.slot(matmul, 1).cols), rows, used, matmul.shape.experts,
                 bits(norm != nullptr ? norm->shape.eps : 0), has_x_of_choice(site, matmul)},
      .groups = {workgroups(rows, outputs), choices, 1},
      .writes = {y}};
}

Dispatch mixed_experts_call(const Site& site, const ExpertParts& parts) {
  const Launch& matmul = *parts.down;
  const uint32_t used = used_of(site, matmul), rows = rows_of_expert(site, matmul);
  const uint32_t k = u32(site.slot(matmul, 1).cols);
  const Operand y = parts.add != nullptr ? operand(*parts.add, 0) : operand(*parts.mix, 2);
  uint32_t outputs = 1;
  PipelineKey kernel =
      expert_kernel(site,
                    {.matmul = matmul,
                     .experts = Experts::mixed,
                     .k = uint64_t{k} * used,
                     .outputs = uint64_t{rows} * site.form.rows,
                     .mode = u32(uint64_t(parts.add != nullptr ? Ending::add : Ending::store)),
                     .norm = nullptr,
                     .is_pairs = false},
                    outputs);
  return {.kernel = std::move(kernel),
          .operands = {operand(matmul, 0), kCallData, kNothing, operand(matmul, 1), kNothing,
                       operand(matmul, 2), y, operand(*parts.mix, 1), kNothing, bias_of(&matmul),
                       kNothing, kNothing},
          .values = {k, rows, used, matmul.shape.experts, 0, 1},
          .groups = {workgroups(rows, outputs), site.form.rows, 1},
          .writes = {y}};
}

// Tiles about as high as experts have rows, on average.
ExpertPlan expert_plan(const Site& site, const Launch& matmul) {
  const uint32_t choices = site.form.rows * used_of(site, matmul), experts = matmul.shape.experts;
  const uint32_t each = choices / experts;
  ExpertPlan plan;
  if (is_cooperative(site, matmul))
    plan.tile = each > 40 ? 64 : each > 16 ? 32 : 16;
  else
    plan.tile = 32;
  plan.tiles = choices / plan.tile + std::min(experts, choices);
  plan.bytes = (uint64_t{4} * plan.tiles + choices) * sizeof(uint32_t);
  return plan;
}

Dispatch group_experts_call(const Site& site, const Launch& matmul, const ExpertPlan& plan,
                            Operand memory) {
  constexpr uint32_t kGroupingThreads = 512;
  const uint32_t threads = std::min(kGroupingThreads, site.gpu.most_invocations);
  return {.kernel = {"group_experts", {threads, matmul.shape.experts, plan.tile}},
          .operands = {operand(matmul, 2), memory, kCallData},
          .values = {used_of(site, matmul), plan.tiles},
          .writes = {memory}};
}

Dispatch grouped_experts_call(const Site& site, const ExpertProduct& product,
                              const ExpertPlan& plan, Operand memory, Numbers x, Numbers y) {
  const Launch& matmul = *product.matmul;
  const Slot& weight = site.slot(matmul, 1);
  const bool coop = is_cooperative(site, matmul), is_pair = product.up != nullptr;
  const uint32_t rows = rows_of_expert(site, matmul), used = used_of(site, matmul);
  const GemmProduct size{.rows = uint64_t{site.form.rows} * used,
                         .columns = uint64_t{rows} * (is_pair ? 2 : 1),
                         .k = weight.cols,
                         .is_pair = is_pair,
                         .tile_rows = plan.tile};
  const GemmMachine machine{site.gpu.subgroup_size, site.gpu.compute_units, site.gpu.shared_bytes};
  const GemmShape cut =
      coop ? cooperative_gemm_shape(size, machine) : tiled_gemm_shape(size, machine);
  TYTO_ASSERT(cut.bm == plan.tile);
  const Operand result =
      product.gating != nullptr ? operand(*product.gating, 2) : operand(matmul, 3);
  return {
      .kernel = {fmt::format("gemm_{}_{}", coop ? "coop" : "tiled",
                             name(weight_form(weight.dtype))),
                 {cut.threads, cut.bm, cut.bn, cut.bk, mode_of(gated_products(product)),
                  reads_of(weight, x), y != Numbers::f32, bias_of(&matmul) != kNothing,
                  cut.part_rows, cut.part_columns, has_x_of_choice(site, matmul) ? 1 : 1 + used}},
      .operands = {operand(matmul, 0), kCallData, operand(matmul, 1),
                   is_pair ? operand(*product.up, 1) : kNothing, memory, result, kNothing, kNothing,
                   bias_of(&matmul), bias_of(product.up), kNothing},
      .values = {u32(weight.cols), rows, plan.tiles, matmul.shape.experts},
      .groups = {plan.tiles, workgroups(rows, is_pair ? cut.bn / 2 : cut.bn), 1},
      .writes = {result}};
}

Dispatch mix_experts_call(const Site& site, const Launch& mix, const Launch* add) {
  const Operand y = add != nullptr ? operand(*add, 0) : operand(mix, 2);
  const uint32_t cols = u32(site.slot(mix, 2).cols);
  return {.kernel = {"mix_experts", {kThreads, add != nullptr}},
          .operands = {operand(mix, 0), operand(mix, 1), y, kCallData},
          .values = {cols, u32(site.slot(mix, 1).cols)},
          .groups = {workgroups((cols + 3) / 4, kThreads), site.form.rows, 1},
          .writes = {y}};
}

}  // namespace tyto::vulkan
