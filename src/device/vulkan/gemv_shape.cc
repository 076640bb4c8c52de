#include "device/vulkan/gemv_shape.h"

#include <algorithm>
#include <bit>

#include "base/round_up.h"

namespace tyto::vulkan {
namespace {

constexpr uint64_t kMostSums = 64;  // in a thread's registers
constexpr uint32_t kUnitsIfUnknown = 16;

bool is_plain(WeightForm form) {
  return form == WeightForm::f32 || form == WeightForm::f16 || form == WeightForm::bf16;
}

// Values that a thread reads at once: UNIT_VALUES in shaders/gemv_units.glsl.
uint64_t unit_values(WeightForm form, bool in_integers) {
  switch (form) {
    case WeightForm::f32:
      return 4;
    case WeightForm::f16:
    case WeightForm::bf16:
      return 8;
    case WeightForm::q8_0:
    case WeightForm::i8:
      return in_integers ? 16 : 8;
    case WeightForm::q4_0:
    case WeightForm::q4_k:
      return in_integers ? 32 : 16;
    case WeightForm::q6_k:
      return 32;
  }
  return 8;
}

uint64_t rows_of_weights(const GemvProblem& problem) {
  return problem.outputs * (problem.is_pairs ? 2 : 1);
}

// A small matrix has too few rows to give each workgroup many: all compute units shall read.
bool is_small(const GemvProblem& problem, const GemvGpu& gpu) {
  return rows_of_weights(problem) < uint64_t{64} * gpu.compute_units;
}

// Enough reads under way in each thread, and no long chain of sums. With many rows of x fewer
// threads, whose sums need less shared memory.
uint32_t threads_along_k(const GemvProblem& problem, const GemvGpu& gpu, bool in_integers) {
  const uint32_t most = problem.rows < 8 ? 256 : 128;
  const uint32_t least = std::max(gpu.subgroup_size, gpu.subgroup_size < 16 ? 32u : 64u);
  const uint64_t units = problem.k / unit_values(problem.form, in_integers);
  const uint64_t values = is_small(problem, gpu) ? 16 : 32;
  const uint64_t wanted = is_plain(problem.form) ? units / 2 : std::min(units, problem.k / values);
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(std::max<uint64_t>(wanted, 1)),
                                                    least, std::max(least, most)));
}

// Rows of weights that a thread of a float kernel reads beside each other, of a small matrix and of
// a large one. More rows share x; the forms that are dear to unpack have no registers for many.
struct SideBySide {
  uint64_t small, large;
};

SideBySide side_by_side(WeightForm form) {
  switch (form) {
    case WeightForm::q4_0:
    case WeightForm::i8:
      return {4, 8};
    case WeightForm::q4_k:
      return {4, 4};
    case WeightForm::f32:
    case WeightForm::f16:
    case WeightForm::bf16:
    case WeightForm::q8_0:
    case WeightForm::q6_k:
      return {2, 4};
  }
  return {2, 4};
}

uint64_t rows_side_by_side(const GemvProblem& problem, const GemvGpu& gpu, bool in_integers) {
  if (in_integers) return problem.is_pairs ? 4 : 8;
  const SideBySide rows = side_by_side(problem.form);
  const uint64_t wanted = is_small(problem, gpu) ? rows.small : rows.large;
  if (problem.rows == 1) return wanted;
  return std::clamp<uint64_t>(kMostSums / problem.rows, 1, std::min<uint64_t>(wanted, 4));
}

uint32_t units_of(const GemvGpu& gpu) {
  return gpu.compute_units > 0 ? gpu.compute_units : kUnitsIfUnknown;
}

// Writing x down as bytes takes as long as integers then save, unless a compute unit has many rows:
// so measured on an H200, where i8, whose codes are bytes already, never gained anything.
bool pays_in_integers(const GemvProblem& problem, const GemvGpu& gpu) {
  constexpr uint64_t kRowsOfUnit = 100;
  return !is_plain(problem.form) && problem.form != WeightForm::i8 && problem.rows == 1 &&
         rows_of_weights(problem) >= kRowsOfUnit * units_of(gpu);
}

// As many as compute units hold with enough reads under way: each begins by writing x down as
// bytes, which is work that more of them would only repeat.
uint32_t workgroups_at_once(uint32_t threads, const GemvGpu& gpu) {
  constexpr uint32_t kThreadsOfUnit = 512;
  return units_of(gpu) * (kThreadsOfUnit / threads);
}

GemvShape shape_of(const GemvProblem& problem, const GemvGpu& gpu, bool in_integers) {
  const uint64_t rows = rows_side_by_side(problem, gpu, in_integers);
  GemvShape shape;
  shape.in_integers = in_integers;
  shape.threads = threads_along_k(problem, gpu, in_integers);
  shape.outputs = static_cast<uint32_t>(std::max<uint64_t>(problem.is_pairs ? rows / 2 : rows, 1));
  if (in_integers) shape.most_workgroups = workgroups_at_once(shape.threads, gpu);
  return shape;
}

// Of gemv_dot_*: x as bytes with scales and sums, then what subgroups add up.
uint64_t shared_bytes(const GemvProblem& problem, const GemvShape& shape) {
  const uint64_t k = round_up(problem.k, 32), subgroups = shape.threads / 4;
  const uint64_t sums = problem.rows * shape.outputs * (problem.is_pairs ? 2 : 1);
  return problem.rows * (2 * k + k / 8 + k / 4) + 4 * subgroups * (2 * sums + problem.rows);
}

}  // namespace

GemvShape gemv_shape(const GemvProblem& problem, const GemvGpu& gpu) {
  if (gpu.multiplies_bytes && gpu.subgroup_size >= 8 && pays_in_integers(problem, gpu)) {
    const GemvShape shape = shape_of(problem, gpu, true);
    if (shared_bytes(problem, shape) <= gpu.shared_bytes) return shape;
  }
  return shape_of(problem, gpu, false);
}

}  // namespace tyto::vulkan
