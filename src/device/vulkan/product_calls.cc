#include <bit>

#include "base/round_up.h"
#include "device/vulkan/gemm_shape.h"
#include "device/vulkan/gemv_shape.h"
#include "device/vulkan/kernel_calls.h"

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

// Workgroups for the rows of all matrices; of swiglu's two the pairs.
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

}  // namespace

Dispatch few_rows_products_call(const Site& site, const Products& products,
                                std::span<const Launch* const> matmuls) {
  const Slot& weight = site.slot(*matmuls.front(), 1);
  const Sides sides = sides_of(site, products, matmuls);
  GemvProblem problem{.form = weight_form(weight.dtype),
                      .rows = site.form.rows,
                      .k = weight.cols,
                      .is_pairs = products.ending == Ending::swiglu};
  for (const uint32_t rows : sides.rows) problem.outputs += rows;
  if (problem.is_pairs) problem.outputs /= 2;
  const GemvShape cut = gemv_shape(problem, {.subgroup_size = site.gpu.subgroup_size,
                                             .shared_bytes = site.gpu.shared_bytes,
                                             .compute_units = site.gpu.compute_units,
                                             .multiplies_bytes = site.gpu.multiplies_bytes});
  const bool has_bias = matmuls.front()->args.size() > 3;
  std::vector<uint32_t> constants = {cut.threads,
                                     site.form.rows,
                                     cut.outputs,
                                     u32(uint64_t(products.ending)),
                                     products.norm != nullptr,
                                     products.gather != nullptr,
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
      .rows = site.form.rows, .k = weight.cols, .is_pair = products.ending == Ending::swiglu};
  for (const uint32_t rows : sides.rows) product.columns += rows;
  const GemmMachine machine{site.gpu.subgroup_size, site.gpu.compute_units, site.gpu.shared_bytes};
  const GemmShape cut =
      coop ? cooperative_gemm_shape(product, machine) : tiled_gemm_shape(product, machine);
  const uint32_t reads = x != Numbers::f32 ? 2 : weight.cols % 32 == 0 ? 1 : 0;
  const std::vector<uint32_t> constants = {cut.threads,
                                           cut.bm,
                                           cut.bn,
                                           cut.bk,
                                           u32(uint64_t(products.ending)),
                                           reads,
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

}  // namespace tyto::vulkan
