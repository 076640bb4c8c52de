#include "device/npu/formats/air_binding.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/error.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

bool has(const std::vector<Role>& roles, Role role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

bool is_prompt(const Program& program, const Launch& launch) {
  return program.slots[launch.args[0].slot].rows > 1;
}

const Launch* find_launch(const Program& piece, Role role) {
  for (const Launch& launch : piece.launches)
    if (launch.role == role) return &launch;
  return nullptr;
}

bool rotates_pairs(const Program& piece) {
  const Launch* rope = find_launch(piece, Role::q_rope);
  return rope != nullptr && rope->shape.rope_pairs;
}

// The piece's slot of a role. The head's weight may be the embedding's, and what attention takes as
// queries may be scaled ones.
uint16_t slot_with(const Program& piece, Role role, bool is_weight) {
  if (is_weight && role == Role::lm_head) return find_launch(piece, role)->args[1].slot;
  const Launch* attention = find_launch(piece, Role::attention);
  if (!is_weight && role == Role::q && attention != nullptr) return attention->args[0].slot;
  for (uint16_t i = 0; i < piece.slots.size(); ++i)
    if (piece.slots[i].role == role && (piece.slots[i].kind == SlotKind::weight) == is_weight)
      return i;
  TYTO_ASSERT(false);
}

AirPart whole(const Program& piece, uint16_t slot, Pattern place = {}) {
  return {slot, 0, piece.slots[slot].rows, std::move(place)};
}

// A projection as a GEMM or a GEMV wants it; columns of the argument that the weight has not are
// padding.
AirPart projection_part(const Program& piece, const AirArgument& argument, uint16_t slot) {
  const Slot& weight = piece.slots[slot];
  const bool is_transposed = argument.layout == AirLayout::transposed;
  const bool is_rotated = argument.slot == Role::q || argument.slot == Role::k;
  Pattern place;
  if (is_rotated && rotates_pairs(piece))
    place = halves_from_pairs(weight.rows, weight.cols,
                              find_launch(piece, Role::q_rope)->shape.head_dim, is_transposed);
  else if (is_transposed)
    place = transposed(weight.rows, weight.cols);
  if (is_transposed) place.dims.back().stride = argument.cols;
  return whole(piece, slot, std::move(place));
}

std::vector<AirPart> weight_parts(const Program& piece, const AirArgument& argument) {
  const uint16_t slot = slot_with(piece, argument.slot, true);
  const uint64_t rows = piece.slots[slot].rows, cols = piece.slots[slot].cols;
  switch (argument.layout) {
    case AirLayout::gate_up_rows: {
      const uint16_t up = slot_with(piece, Role::up, true);
      return {whole(piece, slot, rows_apart(0, rows, cols, 2 * cols)),
              whole(piece, up, rows_apart(cols, rows, cols, 2 * cols))};
    }
    case AirLayout::norm_in_row_1:
      return {whole(piece, slot, {cols, {}})};
    case AirLayout::head_partition:
      return {{slot, std::min(argument.partition * argument.rows, rows), argument.real_rows, {}}};
    case AirLayout::none:
    case AirLayout::as_stored:
    case AirLayout::transposed:
    case AirLayout::rope_per_head:
    case AirLayout::heads_first:
    case AirLayout::q4nx:
    case AirLayout::q4nx_norms:
      break;
  }
  return {projection_part(piece, argument, slot)};
}

std::vector<AirPart> parts_of(const Program& piece, const AirArgument& argument) {
  if (argument.slot == Role::none) return {};
  if (argument.role == AirRole::weight && argument.layout != AirLayout::rope_per_head)
    return weight_parts(piece, argument);
  const uint16_t slot = slot_with(piece, argument.slot, false);
  return {whole(piece, slot, {argument.partition * argument.cols, {}})};
}

bool is_steps_of(std::span<const Launch> launches, const AirProgram& air) {
  return std::equal(launches.begin(), launches.end(), air.steps.begin(), air.steps.end(),
                    [&](const Launch& launch, Role role) {
                      return launch.role == role && launch.layer == launches.front().layer;
                    });
}

// As many launches as the program has steps, with the one at `index`, whose role is such a step, in
// its place among them.
std::span<const Launch> neighbours(const AirProgram& air, const Program& program, size_t index) {
  const auto step = static_cast<size_t>(
      std::find(air.steps.begin(), air.steps.end(), program.launches[index].role) -
      air.steps.begin());
  if (step > index || index - step + air.steps.size() > program.launches.size()) return {};
  return std::span(program.launches).subspan(index - step, air.steps.size());
}

size_t index_of(const Program& program, const Launch& launch) {
  const auto is_launch = [&](const Launch& other) {
    return other.role == launch.role && other.layer == launch.layer;
  };
  return static_cast<size_t>(
      std::find_if(program.launches.begin(), program.launches.end(), is_launch) -
      program.launches.begin());
}

// Two rows of one argument may hold two weights.
bool takes_weight(const AirProgram& air, Role role) {
  return std::any_of(air.arguments.begin(), air.arguments.end(), [&](const AirArgument& argument) {
    const bool is_second = role == Role::up && argument.layout == AirLayout::gate_up_rows;
    return argument.role == AirRole::weight && (argument.slot == role || is_second);
  });
}

// The argument with the weight of a product; a partition's logits lie behind it.
size_t weight_argument(const AirProgram& program, const AirProductPlace& product) {
  if (product.role == Role::lm_head) return product.result - 1;
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].role == AirRole::weight && program.arguments[i].slot == product.role)
      return i;
  TYTO_ASSERT(false);
}

}  // namespace

std::vector<AirProduct> air_products(const AirBinding& binding) {
  std::vector<AirProduct> products;
  for (const AirProductPlace& product : binding.program.products) {
    const AirPart& weight = binding.parts[weight_argument(binding.program, product)].front();
    if (weight.rows > 0)
      products.push_back({product.role, weight.slot, weight.first_row, weight.rows, product.operand,
                          product.result});
  }
  return products;
}

const AirProgram* air_program_for(const AirModel& model, const Program& program,
                                  const Launch& launch) {
  if (launch.kernel == Kernel::attention) return nullptr;  // over a cache
  for (const AirProgram& air : model.programs)
    if ((air.phase == AirPhase::prompt) == is_prompt(program, launch) &&
        has(air.steps, launch.role))
      return &air;
  return nullptr;
}

bool is_whole(const Program& piece, const AirProgram& air) {
  return is_steps_of(piece.launches, air);
}

std::optional<std::string> air_problem(const AirProgram& air, const Program& program,
                                       const Launch& launch) {
  const std::span<const Launch> together = neighbours(air, program, index_of(program, launch));
  if (!is_steps_of(together, air))
    return fmt::format("its image {} computes other steps together", air.name);
  // Where one of its steps is the host's in one layer, all are in all layers. Layers share their
  // buffers, and the device must not write what the host's cache still holds; and a head that the
  // host projects lies in pairs, which the device would rotate as halves.
  for (size_t i = 0; i < program.launches.size(); ++i)
    if (has(air.steps, program.launches[i].role) && !is_steps_of(neighbours(air, program, i), air))
      return fmt::format("its image {} has other steps than layer {}", air.name,
                         program.launches[i].layer);
  for (const Launch& other : program.launches)
    if (has(air.steps, other.role) && std::ranges::any_of(other.args, [&](const Arg& arg) {
          return program.slots[arg.slot].role == Role::window_rope_table;
        }))
      return fmt::format("its image {} takes one table of rotations for all layers", air.name);
  const bool has_pairs = std::any_of(together.begin(), together.end(), [](const Launch& other) {
    return other.role == Role::q_rope && other.shape.rope_pairs;
  });
  for (const Launch& other : together) {
    if (other.shape.rotated != 0) return fmt::format("its image {} rotates whole heads", air.name);
    if (other.role == Role::o && program.slots[other.args.front().slot].role != Role::attention)
      return fmt::format("its image {} projects what attention gives, and nothing else", air.name);
    for (const Arg& arg : other.args) {
      const Slot& slot = program.slots[arg.slot];
      if (slot.role.facet >= Facet::lora_a)
        return fmt::format("its image {} leaves no room for LoRA adapters", air.name);
      if (slot.kind != SlotKind::weight || air.phase == AirPhase::head) continue;
      if (!takes_weight(air, slot.role))
        return fmt::format("its image {} takes no {}", air.name, name(slot.role));
      if (has_pairs && slot.rows == 1 && slot.role != Role::attn_norm)
        return fmt::format("its image {} takes {} of heads that are rotated by halves", air.name,
                           name(slot.role));
    }
  }
  return std::nullopt;
}

Pattern halves_from_pairs(uint64_t rows, uint64_t cols, uint64_t head_dim, bool is_transposed) {
  const uint64_t heads = rows / head_dim, half = head_dim / 2;
  const uint64_t row = is_transposed ? 1 : cols;
  const uint64_t col = is_transposed ? rows : 1;
  return {0, {{heads, head_dim * row}, {half, row}, {2, half * row}, {cols, col}}};
}

AirBinding bind_to_air(const Program& piece, const AirModel& model) {
  AirBinding binding;
  binding.program = *air_program_for(model, piece, piece.launches.front());
  for (const AirArgument& argument : binding.program.arguments)
    binding.parts.push_back(parts_of(piece, argument));
  return binding;
}

namespace {

// As many columns side by side fill two cache lines, and the rows stay in the second-level cache.
constexpr uint64_t kPlacedRows = 64;

void narrow_row(const TensorView& tensor, uint64_t row, std::vector<float>& wide, uint16_t* out) {
  if (tensor.dtype == DType::bf16) {
    std::memcpy(out, tensor.row(row).data(), tensor.cols * sizeof(uint16_t));
    return;
  }
  wide.resize(tensor.cols);
  dequantize(tensor.dtype, tensor.row(row), wide);
  for (uint64_t c = 0; c < tensor.cols; ++c) out[c] = f32_to_bf16(wide[c]);
}

// Where each row begins. Every pattern of a weight ends in a dimension of whole columns.
std::vector<uint64_t> row_starts(const Pattern& place, uint64_t rows, uint64_t cols) {
  std::vector<uint64_t> starts;
  starts.reserve(rows);
  for_each_stretch(place, rows * cols, [&](const Stretch& stretch) {
    if (place.is_contiguous())
      for (uint64_t r = 0; r < rows; ++r) starts.push_back(stretch.at + r * cols);
    else
      starts.push_back(stretch.at);
  });
  TYTO_ASSERT(starts.size() == rows);
  return starts;
}

// Turns rows [first_row, first_row + order.size()) into columns. `order` is room for as many
// indices, `narrow` for as many rows.
void place_columns(const TensorView& tensor, uint64_t first_row, const uint64_t* starts,
                   uint64_t stride, std::span<uint32_t> order, std::vector<float>& wide,
                   std::span<uint16_t> narrow, uint16_t* argument) {
  const uint64_t cols = tensor.cols;
  // Rows that lie in pairs in the file become columns far apart: those that end up side by side are
  // brought together first.
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return starts[a] < starts[b]; });
  for (size_t i = 0; i < order.size(); ++i)
    narrow_row(tensor, first_row + order[i], wide, narrow.data() + i * cols);
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    for (end = begin + 1; end < order.size(); ++end)
      if (starts[order[end]] != starts[order[end - 1]] + 1) break;
    transpose_16bit(narrow.data() + begin * cols, cols, end - begin, cols,
                    argument + starts[order[begin]], stride);
  }
}

}  // namespace

void place_rows(const TensorView& tensor, uint64_t first_row, uint64_t rows, const Pattern& place,
                std::span<uint16_t> argument, ThreadPool& pool) {
  const uint64_t cols = tensor.cols;
  const std::vector<uint64_t> starts = row_starts(place, rows, cols);
  const uint64_t stride = place.is_contiguous() ? 1 : place.dims.back().stride;
  TYTO_ASSERT(end_of(place, rows * cols) <= argument.size());
  pool.parallel_for(rows, kPlacedRows, [&](size_t begin, size_t end) {
    std::vector<float> wide;
    for (size_t r = begin; stride == 1 && r < end; ++r)
      narrow_row(tensor, first_row + r, wide, argument.data() + starts[r]);
    if (stride == 1) return;
    std::array<uint32_t, kPlacedRows> order;
    std::vector<uint16_t> narrow(kPlacedRows * cols);
    for (size_t r = begin; r < end; r += kPlacedRows)
      place_columns(tensor, first_row + r, starts.data() + r, stride,
                    std::span(order).first(std::min<size_t>(kPlacedRows, end - r)), wide, narrow,
                    argument.data());
  });
}

}  // namespace tyto
