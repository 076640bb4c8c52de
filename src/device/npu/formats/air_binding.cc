#include "device/npu/formats/air_binding.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"

namespace tyto {
namespace {

// What one argument is to the forward pass: argument `arg` of the launch called `step`.
struct Link {
  std::string_view argument;
  std::string_view step;
  size_t arg;
};

// clang-format off
constexpr Link kRmsQkvRope[] = {
    {"x_in",    "attn_norm", 0}, {"norm_w",  "attn_norm", 1},
    {"wq",      "q",         1}, {"wk",      "k",         1}, {"wv", "v", 1},
    {"lut_q",   "q_rope",    1}, {"lut_k",   "k_rope",    1},
    {"q_roped", "q_rope",    0}, {"k_roped", "k_rope",    0}, {"v",  "v", 2}};
constexpr Link kFlashAttn[] = {
    {"q", "attention", 0}, {"k", "attention", 1}, {"v", "attention", 2}, {"out", "attention", 3}};
// The residual stream is read and written in place: the program reads its old value in the third of
// its launches and writes the new one in the last.
constexpr Link kOFfn[] = {
    {"attn_out",   "o",             0}, {"wo",     "o",            1},
    {"x_residual", "attn_residual", 0}, {"output", "ffn_residual", 0},
    {"ffn_norm_w", "ffn_norm",      1}, {"packed_rms", "ffn_norm", 1},
    {"w_gate",     "gate",          1}, {"w_up",   "up",           1}, {"w_gateup", "gate", 1},
    {"w_down",     "down",          1}, {"wdown",  "down",         1}};
constexpr Link kLmHead[] = {{"x", "lm_head", 0}};

using K = Kernel;
constexpr K kRmsQkvRopeKernels[] = {K::rmsnorm, K::matmul, K::matmul, K::matmul, K::rope, K::rope};
constexpr K kFlashAttnKernels[] = {K::prompt_attention};
constexpr K kOFfnKernels[] = {K::matmul, K::add, K::rmsnorm, K::matmul,
                              K::matmul, K::swiglu, K::matmul, K::add};
constexpr K kLmHeadKernels[] = {K::matmul};
// clang-format on

struct Block {
  std::string_view name;  // of Launch::block, less the layer
  std::string_view prefill, decode;
  std::span<const Kernel> kernels;
  std::span<const Link> links;
};

constexpr Block kBlocks[] = {
    {"rms_qkv_rope", "rms_gemms_rope", "rms_gemv_rope", kRmsQkvRopeKernels, kRmsQkvRope},
    {"prompt_attention", "flash_attn", "", kFlashAttnKernels, kFlashAttn},
    {"o_ffn", "o_ffn", "o_gemv_ffn", kOFfnKernels, kOFfn},
    {"lm_head", "", "lm_head_gemv", kLmHeadKernels, kLmHead},
};

std::string_view without_layer(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

const Block* find_block(const Launch& launch) {
  for (const Block& block : kBlocks)
    if (block.name == without_layer(launch.block)) return &block;
  return nullptr;
}

uint64_t call_rows(const Program& program, const Launch& launch) {
  return program.slots[launch.args[0].slot].rows;
}

const Link* find_link(const Block& block, std::string_view argument) {
  for (const Link& link : block.links)
    if (link.argument == argument) return &link;
  return nullptr;
}

const Launch& launch_called(const Program& piece, std::string_view step) {
  for (const Launch& launch : piece.launches)
    if (without_layer(launch.step) == step) return launch;
  TYTO_ASSERT(false);
}

AirPart whole(const Program& piece, uint16_t slot, Pattern place = {}) {
  return {slot, 0, piece.slots[slot].rows, std::move(place)};
}

std::vector<AirPart> weight_parts(const Program& piece, const AirArgument& argument,
                                  const Link& link) {
  const Launch& launch = launch_called(piece, link.step);
  const uint16_t slot = launch.args[link.arg].slot;
  const Slot& weight = piece.slots[slot];
  const bool is_rotated = link.step == "q" || link.step == "k";
  switch (argument.layout) {
    case AirLayout::transposed:
    case AirLayout::as_stored: {
      const bool is_transposed = argument.layout == AirLayout::transposed;
      if (is_rotated && launch_called(piece, "q_rope").shape.rope_pairs)
        return {whole(
            piece, slot,
            halves_from_pairs(weight.rows, weight.cols, launch.shape.head_dim, is_transposed))};
      if (is_transposed) return {whole(piece, slot, transposed(weight.rows, weight.cols))};
      return {whole(piece, slot)};
    }
    case AirLayout::gate_up_rows: {
      const uint16_t up = launch_called(piece, "up").args[1].slot;
      const uint64_t cols = weight.cols;
      return {whole(piece, slot, rows_apart(0, weight.rows, cols, 2 * cols)),
              whole(piece, up, rows_apart(cols, weight.rows, cols, 2 * cols))};
    }
    case AirLayout::norm_in_row_1:
      return {whole(piece, slot, {weight.cols, {}})};
    default:
      return {whole(piece, slot)};
  }
}

// Weight and logits of the head's partitions, in turn.
void bind_head(const Program& piece, AirBinding& binding) {
  const Launch& head = launch_called(piece, "lm_head");
  for (size_t i = 1; i < binding.program.arguments.size(); ++i) {
    const AirArgument& argument = binding.program.arguments[i];
    const uint64_t first = uint64_t{argument.partition} * kAirHeadRows;
    if (argument.role == AirRole::weight)
      binding.parts[i] = {{head.args[1].slot, first, argument.real_rows, {}}};
    else
      binding.parts[i] = {{head.args[2].slot, 0, 1, {first, {}}}};
  }
}

}  // namespace

std::vector<const Launch*> block_of(const Program& program, const Launch& launch) {
  std::vector<const Launch*> block;
  for (const Launch& other : program.launches)
    if (other.block == launch.block) block.push_back(&other);
  return block;
}

std::optional<std::string_view> air_program_for(const Program& program, const Launch& launch) {
  const Block* block = find_block(launch);
  if (block == nullptr) return std::nullopt;
  const std::string_view name = call_rows(program, launch) > 1 ? block->prefill : block->decode;
  if (name.empty()) return std::nullopt;
  return name;
}

std::optional<std::string> air_problem(const Program& program, const Launch& launch) {
  const Block* block = find_block(launch);
  TYTO_ASSERT(block != nullptr);
  const std::vector<const Launch*> launches = block_of(program, launch);
  for (const Launch* other : launches)
    if (other->kernel == Kernel::matmul && other->args.size() > 3)
      return "its kernels add no bias to a projection";
  const bool same =
      std::equal(launches.begin(), launches.end(), block->kernels.begin(), block->kernels.end(),
                 [](const Launch* a, Kernel kernel) { return a->kernel == kernel; });
  if (!same) return "its kernels have no norm per head";
  return std::nullopt;
}

Pattern halves_from_pairs(uint64_t rows, uint64_t cols, uint64_t head_dim, bool is_transposed) {
  const uint64_t heads = rows / head_dim, half = head_dim / 2;
  const uint64_t row = is_transposed ? 1 : cols;
  const uint64_t col = is_transposed ? rows : 1;
  return {0, {{heads, head_dim * row}, {half, row}, {2, half * row}, {cols, col}}};
}

AirBinding bind_to_air(const Program& piece, const AirDims& dims) {
  const Launch& first = piece.launches.front();
  const Block& block = *find_block(first);
  AirBinding binding;
  binding.program = air_program(*air_program_for(piece, first), dims);
  binding.parts.resize(binding.program.arguments.size());
  for (size_t i = 0; i < binding.parts.size(); ++i) {
    const AirArgument& argument = binding.program.arguments[i];
    const Link* link = find_link(block, argument.name);
    if (link == nullptr) continue;
    if (argument.role == AirRole::weight && argument.layout != AirLayout::rope_per_head)
      binding.parts[i] = weight_parts(piece, argument, *link);
    else
      binding.parts[i] = {whole(piece, launch_called(piece, link->step).args[link->arg].slot)};
  }
  if (binding.program.name == "lm_head_gemv") bind_head(piece, binding);
  return binding;
}

}  // namespace tyto
