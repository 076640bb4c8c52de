#include "device/cpu/fused_launches.h"

#include <array>

#include "device/cpu/experts.h"
#include "device/cpu/matmul.h"

namespace tyto::cpu {
namespace {

uint16_t slot_of(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

// Nothing has to be widened first; matrices and ids are read as they are.
bool all_f32(const Program& program, const Launch& launch) {
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const ArgKind kind = arg_spec(launch, i).kind;
    const bool is_exact = kind == ArgKind::matrix || kind == ArgKind::integers;
    if (!is_exact && program.slots[slot_of(launch, i)].dtype != DType::f32) return false;
  }
  return true;
}

bool is_matmul(const Program& program, size_t index) {
  return index < program.launches.size() && program.launches[index].kernel == Kernel::matmul &&
         all_f32(program, program.launches[index]);
}

// A matmul on the same activations, which it leaves as they are.
bool joins(const Program& program, size_t first, size_t index) {
  return is_matmul(program, index) &&
         slot_of(program.launches[index], 0) == slot_of(program.launches[first], 0) &&
         slot_of(program.launches[index], 2) != slot_of(program.launches[first], 0);
}

bool is(const Program& program, size_t index, Kernel kernel) {
  return index < program.launches.size() && program.launches[index].kernel == kernel &&
         all_f32(program, program.launches[index]);
}

// swiglu of what the two products before it gave in their argument `y`.
bool gates(const Program& program, size_t index, size_t y) {
  if (!is(program, index, Kernel::swiglu)) return false;
  const Launch& gate = program.launches[index - 2];
  const Launch& up = program.launches[index - 1];
  const Launch& swiglu = program.launches[index];
  return slot_of(swiglu, 0) == slot_of(gate, y) && slot_of(swiglu, 1) == slot_of(up, y) &&
         slot_of(swiglu, 2) != slot_of(gate, 0);
}

// add of what the matmul before it gave.
bool adds(const Program& program, size_t index) {
  if (!is(program, index, Kernel::add)) return false;
  const Launch& matmul = program.launches[index - 1];
  const Launch& add = program.launches[index];
  return add.args.size() == 2 && slot_of(add, 1) == slot_of(matmul, 2) &&
         slot_of(add, 0) != slot_of(matmul, 0) && slot_of(add, 0) != slot_of(matmul, 2);
}

// Two products of the same experts with the same activations, or one and the sum over them.
size_t fused_experts(const Program& program, size_t first) {
  const Launch& product = program.launches[first];
  const auto same = [&](size_t arg) {
    return slot_of(program.launches[first + 1], arg) == slot_of(product, arg);
  };
  if (slot_of(product, 3) == slot_of(product, 0)) return 1;
  if (is(program, first + 1, Kernel::expert_matmul) && same(0) && same(2) && !same(3) &&
      slot_of(program.launches[first + 1], 3) != slot_of(product, 0) &&
      gates(program, first + 2, 3))
    return 3;
  if (!is(program, first + 1, Kernel::mix_experts)) return 1;
  const Launch& mix = program.launches[first + 1];
  const bool is_apart =
      slot_of(mix, 2) != slot_of(product, 0) && slot_of(mix, 2) != slot_of(product, 3);
  return slot_of(mix, 0) == slot_of(product, 3) && is_apart ? 2 : 1;
}

void run_fused_experts(std::span<const Operation> operations) {
  const Operation& first = operations.front();
  const Operation& last = operations.back();
  std::array<MatmulTarget, 2> targets = {expert_target(first)};
  ExpertGroup group = expert_group(first);
  if (last.kernel == Kernel::swiglu) {
    targets[1] = expert_target(operations[1]);
    group.gated = last.data(2);
    group.activation = last.shape.activation;
  } else {
    group.weights = last.data(1);
    group.mixed = last.data(2);
  }
  group.targets = std::span(targets).first(last.kernel == Kernel::swiglu ? 2 : 1);
  *first.experts_read = multiply_experts(group, first.pool, first.loops);
}

}  // namespace

size_t fused_launches(const Program& program, size_t first) {
  if (is(program, first, Kernel::expert_matmul)) return fused_experts(program, first);
  if (!is_matmul(program, first) ||
      slot_of(program.launches[first], 2) == slot_of(program.launches[first], 0))
    return 1;
  size_t matmuls = 1;
  while (matmuls < kMostFused && joins(program, first, first + matmuls)) ++matmuls;
  if (matmuls == 2 && gates(program, first + 2, 2)) return 3;
  if (matmuls == 1 && adds(program, first + 1)) return 2;
  return matmuls;
}

void run_fused(std::span<const Operation> operations) {
  const Operation& first = operations.front();
  if (first.kernel == Kernel::expert_matmul) return run_fused_experts(operations);
  const Operation& last = operations.back();
  MatmulGroup group{first.data(0), first.call.rows, first.args[1].cols, {}, takes_blocks(first)};
  std::array<MatmulTarget, kMostFused> targets;
  size_t matmuls = 0;
  for (const Operation& op : operations)
    if (op.kernel == Kernel::matmul) targets[matmuls++] = matmul_target(op);
  group.targets = std::span(targets).first(matmuls);
  if (last.kernel == Kernel::add) {
    group.epilogue = Epilogue::add;
    group.other = last.data(0);
  } else if (last.kernel == Kernel::swiglu) {
    group.epilogue = Epilogue::swiglu;
    group.other = last.data(2);
    group.activation = last.shape.activation;
  }
  multiply(group, first.pool, first.loops);
}

}  // namespace tyto::cpu
