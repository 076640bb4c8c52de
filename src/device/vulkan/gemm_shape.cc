#include "device/vulkan/gemm_shape.h"

#include <algorithm>
#include <array>
#include <span>

namespace tyto::vulkan {
namespace {

constexpr uint64_t kBlock = 16;  // a cooperative matrix is kBlock x kBlock

uint64_t groups(uint64_t work, uint64_t each) {
  return (work + each - 1) / each;
}

// A tile with how fast a compute unit is at it, relative to the others: when it has one tile and
// each step waits for memory, when it has several, and when those are of swiglu.
struct Candidate {
  GemmShape shape;
  float alone;
  float several;
  float pairs;
};

// Measured on an H200 with bf16 weights (16 to 2048 rows of a model with 1.2 billion weights).
// Parts of 64 x 64 read least from shared memory for what they multiply. Where a unit has one tile,
// each step waits for memory: long steps do so less often. Smaller tiles are for products that have
// few of the large ones.
constexpr std::array kCooperative = {
    Candidate{
        {.bm = 128, .bn = 128, .bk = 32, .part_rows = 64, .part_columns = 64}, 0.62f, 0.80f, 1.0f},
    Candidate{
        {.bm = 128, .bn = 64, .bk = 64, .part_rows = 64, .part_columns = 32}, 0.59f, 0.64f, 0.65f},
    Candidate{
        {.bm = 64, .bn = 64, .bk = 128, .part_rows = 32, .part_columns = 32}, 0.47f, 0.50f, 0.52f},
    Candidate{
        {.bm = 64, .bn = 64, .bk = 64, .part_rows = 32, .part_columns = 32}, 0.35f, 0.60f, 0.65f},
    Candidate{
        {.bm = 32, .bn = 64, .bk = 128, .part_rows = 16, .part_columns = 32}, 0.28f, 0.31f, 0.27f},
    Candidate{
        {.bm = 16, .bn = 64, .bk = 128, .part_rows = 16, .part_columns = 16}, 0.15f, 0.25f, 0.0f},
    Candidate{
        {.bm = 16, .bn = 64, .bk = 128, .part_rows = 16, .part_columns = 32}, 0.12f, 0.18f, 0.18f},
    Candidate{
        {.bm = 16, .bn = 32, .bk = 256, .part_rows = 16, .part_columns = 16}, 0.09f, 0.10f, 0.0f},
    Candidate{
        {.bm = 64, .bn = 64, .bk = 32, .part_rows = 32, .part_columns = 32}, 0.15f, 0.25f, 0.25f},
};

// Few registers per thread and little shared memory: these run everywhere. Speeds by reasoning, not
// measured.
constexpr std::array kTiled = {
    Candidate{{.bm = 64, .bn = 64, .bk = 32, .part_rows = 8, .part_columns = 8}, 1.0f, 1.0f, 1.0f},
    Candidate{{.bm = 32, .bn = 64, .bk = 32, .part_rows = 4, .part_columns = 8}, 0.7f, 0.7f, 0.7f},
};

// The time of the compute unit that has most to do. More tiles than units cost a whole further
// tile.
double estimate(const Candidate& candidate, const GemmProduct& product,
                const GemmMachine& machine) {
  const GemmShape& shape = candidate.shape;
  const uint64_t tiles = groups(product.rows, shape.bm) * groups(product.columns, shape.bn);
  const uint64_t most = groups(tiles, machine.compute_units);
  const double speed = most == 1         ? candidate.alone
                       : product.is_pair ? candidate.pairs
                                         : candidate.several;
  return double(most) * double(shape.bm) * double(shape.bn) / speed;
}

template <typename Fits>
GemmShape best_of(std::span<const Candidate> candidates, const GemmProduct& product,
                  const GemmMachine& machine, const Fits& fits) {
  const Candidate* best = &candidates.back();
  for (const Candidate& one : candidates) {
    if (!fits(one.shape)) continue;
    if (!fits(best->shape) || estimate(one, product, machine) < estimate(*best, product, machine))
      best = &one;
  }
  return best->shape;
}

uint32_t parts(const GemmShape& shape) {
  return shape.bm / shape.part_rows * (shape.bn / shape.part_columns);
}

}  // namespace

uint64_t cooperative_shared_bytes(const GemmShape& shape, bool is_pair) {
  constexpr uint64_t kQuad = 16;
  const uint64_t tile = (shape.bm + shape.bn) * (shape.bk / 8 + 1) * kQuad;
  const uint64_t block = kBlock * (kBlock / 4 + 1) * kQuad;
  return std::max(tile, parts(shape) * block * (is_pair ? 2 : 1));
}

uint64_t tiled_shared_bytes(const GemmShape& shape) {
  return uint64_t{shape.bk} * (shape.bm + shape.bn + 8) * sizeof(float);
}

GemmShape cooperative_gemm_shape(const GemmProduct& product, const GemmMachine& machine) {
  const uint64_t padded = groups(product.k, 32) * 32;
  GemmShape shape = best_of(kCooperative, product, machine, [&](const GemmShape& one) {
    const bool has_both = !product.is_pair || one.part_columns % (2 * kBlock) == 0;
    return has_both && padded % one.bk == 0 &&
           cooperative_shared_bytes(one, product.is_pair) <= machine.shared_bytes;
  });
  shape.threads = parts(shape) * machine.subgroup_size;
  return shape;
}

GemmShape tiled_gemm_shape(const GemmProduct& product, const GemmMachine& machine) {
  GemmShape shape = best_of(kTiled, product, machine, [&](const GemmShape& one) {
    return tiled_shared_bytes(one) <= machine.shared_bytes;
  });
  shape.threads = parts(shape);
  return shape;
}

}  // namespace tyto::vulkan
