#include "device/vulkan/kernel_shapes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/float16.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto::vulkan {
namespace {

constexpr uint32_t kEdge = 16;  // rows and columns of a cooperative matrix

uint32_t largest_divisor(uint32_t value, uint32_t most) {
  uint32_t divisor = std::min(value, most);
  while (value % divisor != 0) --divisor;
  return divisor;
}

uint32_t few_rows_bytes(const AttentionSite& site, const FewRowsShape& shape) {
  const uint32_t slices = shape.threads / std::min(4 * shape.lanes, site.subgroup_size);
  const uint32_t heads = (shape.group + 1) * (site.head_dim + 2) + 3 * site.head_dim;
  const uint32_t weights = shape.positions_at_once() * ((shape.group + 3) / 4 * 4);
  return 4 * (heads + weights + slices * shape.group * (site.head_dim + 4)) + 32;
}

uint32_t plain_bytes(const AttentionSite& site, const ManyRowsShape& shape) {
  return 4 * ((shape.tile + shape.keys) * (site.head_dim + 1) + shape.tile * (shape.keys + 1));
}

uint32_t cooperative_bytes(const AttentionSite& site, const ManyRowsShape& shape) {
  const uint32_t tiles = 2 * shape.keys * (site.head_dim / 8 + 1) * 16;
  if (shape.columns != 0) return 2 * tiles + 128;
  const uint32_t subgroup =
      kEdge * ((shape.keys + 4) * 4 + (shape.keys + 8) * 2 + kEdge * 4) + kEdge * shape.rows * 8;
  return tiles + shape.threads / site.subgroup_size * subgroup + 128;
}

ManyRowsShape cooperative_shape(const AttentionSite& site, uint32_t table_tile, uint32_t layout) {
  ManyRowsShape shape{.is_cooperative = true, .rows = 1, .columns = layout};
  // An H200 took 72 us for 2048 rows of 32 heads of 64 with four heads and two blocks of rows for
  // each subgroup, which is all its registers; 92 us with one of each. Larger heads do not fit so.
  const bool is_shared = layout != 0 && site.head_dim <= 64 &&
                         site.heads / site.kv_heads % 4 == 0 && table_tile >= 2 * kEdge;
  if (is_shared) shape.group = 4, shape.rows = 2;
  for (shape.keys = 32; shape.keys >= kEdge; shape.keys /= 2) {
    shape.tile = is_shared ? 2 * kEdge : std::min({table_tile, 2 * shape.keys, 4 * kEdge});
    shape.threads = site.subgroup_size * (shape.group * shape.tile / kEdge) / shape.rows;
    shape.parts = table_tile / shape.tile;
    shape.shared_bytes = cooperative_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

ManyRowsShape plain_shape(const AttentionSite& site, uint32_t table_tile) {
  ManyRowsShape shape{.columns = 4};
  for (shape.tile = std::min(table_tile, 32u); shape.tile > 0; shape.tile /= 2) {
    shape.keys = std::clamp(shape.tile, 8u, 32u);
    shape.rows = shape.tile >= 16 ? 2 : 1;
    shape.threads = shape.tile / shape.rows * (shape.keys / shape.columns);
    shape.parts = table_tile / shape.tile;
    shape.shared_bytes = plain_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

}  // namespace

FewRowsShape few_rows_shape(const AttentionSite& site) {
  // An H200 took 6.9 us for 512 positions of 8 KV heads of 64 and 10.9 us for 2200 with two in
  // flight (80 registers of a thread), 7.9 and 11.0 us with four (112 registers).
  FewRowsShape shape{.unroll = 2};
  shape.lanes =
      std::min(std::bit_floor(site.subgroup_size), std::bit_ceil((site.head_dim + 7) / 8));
  // Sums and q of a thread's heads are in registers: at most 32 values of each.
  const uint32_t pieces = (site.head_dim + 8 * shape.lanes - 1) / (8 * shape.lanes);
  shape.group = largest_divisor(site.heads / site.kv_heads, std::max(1u, 4 / pieces));
  for (shape.threads = 256; shape.threads >= site.subgroup_size; shape.threads /= 2) {
    shape.shared_bytes = few_rows_bytes(site, shape);
    if (shape.shared_bytes <= site.shared_bytes) return shape;
  }
  return {};
}

uint32_t attention_splits(const AttentionSite& site, uint32_t rows, uint32_t positions,
                          uint32_t workgroups) {
  const FewRowsShape shape = few_rows_shape(site);
  const uint32_t own = rows * site.heads / shape.group;
  const uint32_t at_once = shape.positions_at_once();
  const uint32_t most = std::clamp((positions + at_once - 1) / at_once, 1u, 64u);
  return std::clamp((workgroups + own - 1) / own, 1u, most);
}

ManyRowsShape many_rows_shape(const AttentionSite& site, uint32_t table_tile, bool has_matrices,
                              uint32_t layout) {
  if (has_matrices && site.head_dim % kEdge == 0 && table_tile >= kEdge) {
    const ManyRowsShape shape = cooperative_shape(site, table_tile, layout);
    if (shape.is_cooperative) return shape;
  }
  return plain_shape(site, table_tile);
}

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
                  const GemmMachine& machine, const Fits& fits_machine) {
  const auto fits = [&](const GemmShape& shape) {
    return fits_machine(shape) && (product.tile_rows == 0 || shape.bm == product.tile_rows);
  };
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

namespace {

constexpr uint64_t kPlaneAlignment = 256;
constexpr uint64_t kPaddedValues = 32;

// A run of bytes inside a block of a file's type that a plane holds for each block.
struct Field {
  size_t offset = 0;
  size_t bytes = 0;
};

// Rows of a plane: `row_bytes`, and `bytes` for each unit of `values` values.
struct PlaneShape {
  uint64_t values = 1;
  uint64_t bytes = 0;
  uint64_t row_bytes = 0;
  Field field = {};  // where a block of the file holds them; of no bytes in forms of no blocks
};

struct FormShape {
  std::string_view name;
  uint64_t padded_to = 1;  // values
  std::vector<PlaneShape> planes;
};

template <typename Block>
constexpr PlaneShape of_block(size_t offset, size_t bytes) {
  return {Block::kValues, bytes, 0, {offset, bytes}};
}

const FormShape& shape(WeightForm form) {
  static const std::array<FormShape, 17> kShapes = {{
      {"f32", kPaddedValues, {{1, 4, 0}}},
      {"f16", kPaddedValues, {{1, 2, 0}}},
      {"bf16", kPaddedValues, {{1, 2, 0}}},
      {"q8_0",
       1,
       {of_block<BlockQ8_0>(offsetof(BlockQ8_0, code), 32),
        of_block<BlockQ8_0>(offsetof(BlockQ8_0, d), 2)}},
      {"q4_0",
       1,
       {of_block<BlockQ4_0>(offsetof(BlockQ4_0, code), 16),
        of_block<BlockQ4_0>(offsetof(BlockQ4_0, d), 2)}},
      {"q4_k",
       1,
       {of_block<BlockQ4K>(offsetof(BlockQ4K, code), 128),
        of_block<BlockQ4K>(offsetof(BlockQ4K, d), 16)}},
      {"q6_k",
       1,
       {of_block<BlockQ6K>(offsetof(BlockQ6K, low), 128),
        of_block<BlockQ6K>(offsetof(BlockQ6K, high), 64),
        of_block<BlockQ6K>(offsetof(BlockQ6K, scale), 16),
        of_block<BlockQ6K>(offsetof(BlockQ6K, d), 2)}},
      {"q4_1",
       1,
       {of_block<BlockQ4_1>(offsetof(BlockQ4_1, code), 16),
        of_block<BlockQ4_1>(offsetof(BlockQ4_1, d), 4)}},
      {"q5_0",
       1,
       {of_block<BlockQ5_0>(offsetof(BlockQ5_0, code), 16),
        of_block<BlockQ5_0>(offsetof(BlockQ5_0, high), 4),
        of_block<BlockQ5_0>(offsetof(BlockQ5_0, d), 2)}},
      {"q5_1",
       1,
       {of_block<BlockQ5_1>(offsetof(BlockQ5_1, code), 16),
        of_block<BlockQ5_1>(offsetof(BlockQ5_1, high), 4),
        of_block<BlockQ5_1>(offsetof(BlockQ5_1, d), 4)}},
      {"q2_k",
       1,
       {of_block<BlockQ2K>(offsetof(BlockQ2K, code), 64),
        of_block<BlockQ2K>(offsetof(BlockQ2K, scales), 16),
        of_block<BlockQ2K>(offsetof(BlockQ2K, d), 4)}},
      {"q3_k",
       1,
       {of_block<BlockQ3K>(offsetof(BlockQ3K, code), 64),
        of_block<BlockQ3K>(offsetof(BlockQ3K, high), 32),
        of_block<BlockQ3K>(offsetof(BlockQ3K, scales), 12),
        of_block<BlockQ3K>(offsetof(BlockQ3K, d), 2)}},
      {"q5_k",
       1,
       {of_block<BlockQ5K>(offsetof(BlockQ5K, code), 128),
        of_block<BlockQ5K>(offsetof(BlockQ5K, d), 16),
        of_block<BlockQ5K>(offsetof(BlockQ5K, high), 32)}},
      {"iq4_nl",
       1,
       {of_block<BlockIQ4NL>(offsetof(BlockIQ4NL, code), 16),
        of_block<BlockIQ4NL>(offsetof(BlockIQ4NL, d), 2)}},
      {"iq4_xs",
       1,
       {of_block<BlockIQ4XS>(offsetof(BlockIQ4XS, code), 128),
        of_block<BlockIQ4XS>(offsetof(BlockIQ4XS, d), 8)}},
      {"mxfp4",
       1,
       {of_block<BlockMXFP4>(offsetof(BlockMXFP4, code), 16),
        of_block<BlockMXFP4>(offsetof(BlockMXFP4, exponent), 1)}},
      {"i8", kPaddedValues, {{1, 1, 0}, {1, 0, 4}}},
  }};
  return kShapes.at(static_cast<size_t>(form));
}

uint64_t plane_row_bytes(const FormShape& form, const PlaneShape& plane, uint64_t cols) {
  return plane.row_bytes + round_up(cols, form.padded_to) / plane.values * plane.bytes;
}

// One field of every block of a row.
void write_fields(const TensorView& view, Field field, uint64_t row, std::span<std::byte> to) {
  const std::byte* block = view.row(row).data() + field.offset;
  const size_t stride = info(view.dtype).block_bytes;
  for (size_t at = 0; at < to.size(); at += field.bytes, block += stride)
    std::memcpy(to.data() + at, block, field.bytes);
}

void write_padded(std::span<const std::byte> values, std::span<std::byte> to) {
  std::memcpy(to.data(), values.data(), values.size());
  std::ranges::fill(to.subspan(values.size()), std::byte{0});
}

void write_f16(std::span<const float> values, std::span<std::byte> to) {
  const size_t bytes = row_bytes(DType::f16, values.size());
  quantize(DType::f16, values, to.first(bytes));
  std::ranges::fill(to.subspan(bytes), std::byte{0});
}

void write_i8(std::span<const float> values, size_t plane, std::span<std::byte> to) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const Int8RowScale chosen = int8_row_scale(largest);
  if (plane == 1) {
    std::memcpy(to.data(), &chosen.scale, sizeof chosen.scale);
    return;
  }
  encode_int8(values, chosen.inverse, reinterpret_cast<int8_t*>(to.data()));
  std::ranges::fill(to.subspan(values.size()), std::byte{0});
}

}  // namespace

std::string_view name(WeightForm form) {
  return shape(form).name;
}

WeightForm weight_form(DType type) {
  using Kept = std::pair<DType, WeightForm>;
  constexpr Kept kKept[] = {
      {DType::f32, WeightForm::f32},       {DType::bf16, WeightForm::bf16},
      {DType::q8_0, WeightForm::q8_0},     {DType::q4_0, WeightForm::q4_0},
      {DType::q4_k, WeightForm::q4_k},     {DType::q6_k, WeightForm::q6_k},
      {DType::q4_1, WeightForm::q4_1},     {DType::q5_0, WeightForm::q5_0},
      {DType::q5_1, WeightForm::q5_1},     {DType::q2_k, WeightForm::q2_k},
      {DType::q3_k, WeightForm::q3_k},     {DType::q5_k, WeightForm::q5_k},
      {DType::iq4_nl, WeightForm::iq4_nl}, {DType::iq4_xs, WeightForm::iq4_xs},
      {DType::mxfp4, WeightForm::mxfp4},   {DType::i8, WeightForm::i8},
  };
  const auto found = std::ranges::find(kKept, type, &Kept::first);
  return found == std::end(kKept) ? WeightForm::f16 : found->second;
}

WeightLayout weight_layout(WeightForm form, uint64_t rows, uint64_t cols) {
  WeightLayout layout;
  for (const PlaneShape& plane : shape(form).planes) {
    const uint64_t bytes = plane_row_bytes(shape(form), plane, cols);
    layout.planes.push_back({layout.bytes, bytes});
    layout.bytes += round_up(rows * bytes, kPlaneAlignment);
  }
  return layout;
}

void write_plane(const TensorView& view, WeightForm form, size_t plane, uint64_t first_row,
                 std::span<std::byte> to) {
  const PlaneShape& of = shape(form).planes.at(plane);
  const uint64_t bytes = plane_row_bytes(shape(form), of, view.cols);
  const uint64_t rows = to.size() / bytes;
  TYTO_ASSERT(to.size() == rows * bytes && first_row + rows <= view.rows);
  const bool as_it_is = weight_form(view.dtype) == form && info(view.dtype).name == name(form);
  TYTO_ASSERT(as_it_is ? form != WeightForm::i8 || plane == 0
                       : form == WeightForm::f16 || form == WeightForm::i8);
  std::vector<float> values(as_it_is ? 0 : view.cols);
  for (uint64_t i = 0; i < rows; ++i) {
    const std::span<std::byte> row = to.subspan(i * bytes, bytes);
    if (as_it_is) {
      if (of.field.bytes > 0)
        write_fields(view, of.field, first_row + i, row);
      else
        write_padded(view.row(first_row + i), row);
      continue;
    }
    dequantize(view.dtype, view.row(first_row + i), values);
    if (form == WeightForm::f16)
      write_f16(values, row);
    else
      write_i8(values, plane, row);
  }
}

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
    case WeightForm::q4_1:
    case WeightForm::q5_0:
    case WeightForm::q5_1:
    case WeightForm::q5_k:
    case WeightForm::iq4_nl:
    case WeightForm::iq4_xs:
    case WeightForm::mxfp4:
      return 16;
    case WeightForm::q2_k:
    case WeightForm::q3_k:
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
    case WeightForm::q4_1:
    case WeightForm::q5_0:
    case WeightForm::q5_1:
    case WeightForm::q2_k:
    case WeightForm::q3_k:
    case WeightForm::q5_k:
    case WeightForm::iq4_nl:
    case WeightForm::iq4_xs:
    case WeightForm::mxfp4:
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

bool has_integer_kernel(WeightForm form) {
  return form == WeightForm::q8_0 || form == WeightForm::q4_0 || form == WeightForm::q4_k ||
         form == WeightForm::q6_k;
}

// Writing x down as bytes takes as long as integers then save, unless a compute unit has many rows:
// so measured on an H200, where i8, whose codes are bytes already, never gained anything.
bool pays_in_integers(const GemvProblem& problem, const GemvGpu& gpu) {
  constexpr uint64_t kRowsOfUnit = 100;
  return has_integer_kernel(problem.form) && problem.rows == 1 &&
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

// For gemv_dot_*: x as bytes with scales and sums, then what subgroups add up.
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
