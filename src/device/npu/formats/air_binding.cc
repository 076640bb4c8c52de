#include "device/npu/formats/air_binding.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"

namespace tyto {
namespace {

// What one argument is to the forward pass: argument `arg` of the launch with this role.
struct Link {
  std::string_view argument;
  Role role;
  size_t arg;
};

// clang-format off
constexpr Link kRmsQkvRope[] = {
    {"x_in",    Role::attn_norm, 0}, {"norm_w",  Role::attn_norm, 1},
    {"wq",      Role::q,         1}, {"wk",      Role::k,         1}, {"wv", Role::v, 1},
    {"lut_q",   Role::q_rope,    1}, {"lut_k",   Role::k_rope,    1},
    {"q_roped", Role::q_rope,    0}, {"k_roped", Role::k_rope,    0}, {"v",  Role::v, 2}};
constexpr Link kFlashAttn[] = {
    {"q", Role::attention, 0}, {"k", Role::attention, 1}, {"v", Role::attention, 2}, {"out", Role::attention, 3}};
// The residual stream is read and written in place: the program reads its old value in the third of
// its launches and writes the new one in the last.
constexpr Link kOFfn[] = {
    {"attn_out",   Role::o,             0}, {"wo",     Role::o,            1},
    {"x_residual", Role::attn_residual, 0}, {"output", Role::ffn_residual, 0},
    {"ffn_norm_w", Role::ffn_norm,      1}, {"packed_rms", Role::ffn_norm, 1},
    {"w_gate",     Role::gate,          1}, {"w_up",   Role::up,           1}, {"w_gateup", Role::gate, 1},
    {"w_down",     Role::down,          1}, {"wdown",  Role::down,         1}};
constexpr Link kLmHead[] = {{"x", Role::lm_head, 0}};

using K = Kernel;
constexpr K kRmsQkvRopeKernels[] = {K::rmsnorm, K::matmul, K::matmul, K::matmul, K::rope, K::rope};
constexpr K kFlashAttnKernels[] = {K::prompt_attention};
constexpr K kOFfnKernels[] = {K::matmul, K::add, K::rmsnorm, K::matmul,
                              K::matmul, K::swiglu, K::matmul, K::add};
constexpr K kLmHeadKernels[] = {K::matmul};
// clang-format on

// Products between arguments. Those of o_gemv_ffn pass from core to core and are in none.
struct ProductLink {
  std::string_view program;
  Role role;
  std::string_view operand, result;
};
constexpr ProductLink kProducts[] = {
    {"rms_gemms_rope", Role::q, "normed", "q"}, {"rms_gemms_rope", Role::k, "normed", "k"},
    {"rms_gemms_rope", Role::v, "normed", "v"}, {"o_ffn", Role::o, "attn_out", "proj"},
    {"o_ffn", Role::gate, "normed2", "gate"},   {"o_ffn", Role::up, "normed2", "up"},
    {"o_ffn", Role::down, "swiglu", "down"},    {"rms_gemv_rope", Role::q, "normed", "q"},
    {"rms_gemv_rope", Role::k, "normed", "k"},  {"rms_gemv_rope", Role::v, "normed", "v"},
};

struct AirBlock {
  Block block;
  std::string_view prefill, decode;
  std::span<const Kernel> kernels;
  std::span<const Link> links;
};

constexpr AirBlock kBlocks[] = {
    {Block::rms_qkv_rope, "rms_gemms_rope", "rms_gemv_rope", kRmsQkvRopeKernels, kRmsQkvRope},
    {Block::prompt_attention, "flash_attn", "", kFlashAttnKernels, kFlashAttn},
    {Block::o_ffn, "o_ffn", "o_gemv_ffn", kOFfnKernels, kOFfn},
    {Block::lm_head, "", "lm_head_gemv", kLmHeadKernels, kLmHead},
};

const AirBlock* find_block(const Launch& launch) {
  for (const AirBlock& block : kBlocks)
    if (block.block == launch.block) return &block;
  return nullptr;
}

uint64_t call_rows(const Program& program, const Launch& launch) {
  return program.slots[launch.args[0].slot].rows;
}

const Link* find_link(const AirBlock& block, std::string_view argument) {
  for (const Link& link : block.links)
    if (link.argument == argument) return &link;
  return nullptr;
}

const Launch& launch_of(const Program& piece, Role role) {
  for (const Launch& launch : piece.launches)
    if (launch.role == role) return launch;
  TYTO_ASSERT(false);
}

AirPart whole(const Program& piece, uint16_t slot, Pattern place = {}) {
  return {slot, 0, piece.slots[slot].rows, std::move(place)};
}

std::vector<AirPart> weight_parts(const Program& piece, const AirArgument& argument,
                                  const Link& link) {
  const Launch& launch = launch_of(piece, link.role);
  const uint16_t slot = launch.args[link.arg].slot;
  const Slot& weight = piece.slots[slot];
  const bool is_rotated = link.role == Role::q || link.role == Role::k;
  switch (argument.layout) {
    case AirLayout::transposed:
    case AirLayout::as_stored: {
      const bool is_transposed = argument.layout == AirLayout::transposed;
      if (is_rotated && launch_of(piece, Role::q_rope).shape.rope_pairs)
        return {whole(
            piece, slot,
            halves_from_pairs(weight.rows, weight.cols, launch.shape.head_dim, is_transposed))};
      if (is_transposed) return {whole(piece, slot, transposed(weight.rows, weight.cols))};
      return {whole(piece, slot)};
    }
    case AirLayout::gate_up_rows: {
      const uint16_t up = launch_of(piece, Role::up).args[1].slot;
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
  const Launch& head = launch_of(piece, Role::lm_head);
  for (size_t i = 1; i < binding.program.arguments.size(); ++i) {
    const AirArgument& argument = binding.program.arguments[i];
    const uint64_t first = uint64_t{argument.partition} * binding.program.arguments[1].rows;
    if (argument.role == AirRole::weight)
      binding.parts[i] = {{head.args[1].slot, first, argument.real_rows, {}}};
    else
      binding.parts[i] = {{head.args[2].slot, 0, 1, {first, {}}}};
  }
}

size_t argument_named(const AirProgram& program, std::string_view name) {
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].name == name) return i;
  TYTO_ASSERT(false);
}

}  // namespace

std::vector<AirProduct> air_products(const Program& piece, const AirBinding& binding) {
  std::vector<AirProduct> products;
  const AirProgram& program = binding.program;
  for (const ProductLink& link : kProducts) {
    if (link.program != program.name) continue;
    const uint16_t weight = launch_of(piece, link.role).args[1].slot;
    products.push_back({link.role, weight, 0, piece.slots[weight].rows,
                        argument_named(program, link.operand),
                        argument_named(program, link.result)});
  }
  if (piece.launches.front().block != Block::lm_head) return products;
  for (size_t i = 1; i < program.arguments.size(); i += 2) {  // a partition's weight, its logits
    const AirPart& rows = binding.parts[i].front();
    products.push_back({Role::lm_head, rows.slot, rows.first_row, rows.rows, 0, i + 1});
  }
  return products;
}

std::vector<const Launch*> block_of(const Program& program, const Launch& launch) {
  std::vector<const Launch*> block;
  for (const Launch& other : program.launches)
    if (other.block == launch.block && other.layer == launch.layer) block.push_back(&other);
  return block;
}

std::optional<std::string_view> air_program_for(const Program& program, const Launch& launch) {
  const AirBlock* block = find_block(launch);
  if (block == nullptr) return std::nullopt;
  const std::string_view name = call_rows(program, launch) > 1 ? block->prefill : block->decode;
  if (name.empty()) return std::nullopt;
  return name;
}

std::optional<std::string> air_problem(const Program& program, const Launch& launch) {
  const AirBlock* block = find_block(launch);
  TYTO_ASSERT(block != nullptr);
  const std::vector<const Launch*> launches = block_of(program, launch);
  for (const Launch* other : launches)
    if (other->kernel == Kernel::matmul && other->args.size() > 3)
      return "its kernels add no bias to a projection";
  const bool same =
      std::equal(launches.begin(), launches.end(), block->kernels.begin(), block->kernels.end(),
                 [](const Launch* a, Kernel kernel) { return a->kernel == kernel; });
  if (same) return std::nullopt;
  const bool has_head_norm = std::any_of(launches.begin(), launches.end(), [](const Launch* other) {
    return other->role == Role::q_norm || other->role == Role::k_norm;
  });
  return has_head_norm ? "its kernels have no norm per head"
                       : "its kernels compute the block from other operations";
}

Pattern halves_from_pairs(uint64_t rows, uint64_t cols, uint64_t head_dim, bool is_transposed) {
  const uint64_t heads = rows / head_dim, half = head_dim / 2;
  const uint64_t row = is_transposed ? 1 : cols;
  const uint64_t col = is_transposed ? rows : 1;
  return {0, {{heads, head_dim * row}, {half, row}, {2, half * row}, {cols, col}}};
}

AirBinding bind_to_air(const Program& piece, const AirDims& dims) {
  const Launch& first = piece.launches.front();
  const AirBlock& block = *find_block(first);
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
      binding.parts[i] = {whole(piece, launch_of(piece, link->role).args[link->arg].slot)};
  }
  if (block.block == Block::lm_head) bind_head(piece, binding);
  return binding;
}

}  // namespace tyto
