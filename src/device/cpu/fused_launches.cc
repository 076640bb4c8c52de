#include "device/cpu/fused_launches.h"

#include <array>

#include "device/cpu/matmul.h"

namespace tyto::cpu {
namespace {

uint16_t slot_of(const Launch& launch, size_t arg) {
  return launch.args[arg].slot;
}

// Nothing has to be widened first; a matmul's matrix is read as it is.
bool all_f32(const Program& program, const Launch& launch) {
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const bool is_matrix = launch.kernel == Kernel::matmul && i == 1;
    if (!is_matrix && program.slots[slot_of(launch, i)].dtype != DType::f32) return false;
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

// swiglu of what the two matmuls before it gave.
bool gates(const Program& program, size_t index) {
  if (!is(program, index, Kernel::swiglu)) return false;
  const Launch& gate = program.launches[index - 2];
  const Launch& up = program.launches[index - 1];
  const Launch& swiglu = program.launches[index];
  return slot_of(swiglu, 0) == slot_of(gate, 2) && slot_of(swiglu, 1) == slot_of(up, 2) &&
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

}  // namespace

size_t fused_launches(const Program& program, size_t first) {
  if (!is_matmul(program, first) ||
      slot_of(program.launches[first], 2) == slot_of(program.launches[first], 0))
    return 1;
  size_t matmuls = 1;
  while (matmuls < kMostFused && joins(program, first, first + matmuls)) ++matmuls;
  if (matmuls == 2 && gates(program, first + 2)) return 3;
  if (matmuls == 1 && adds(program, first + 1)) return 2;
  return matmuls;
}

void run_fused(std::span<const Operation> operations) {
  const Operation& first = operations.front();
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
