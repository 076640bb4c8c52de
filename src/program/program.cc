#include "program/program.h"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "base/error.h"

namespace tyto {
namespace {

class Serialiser {
 public:
  template <typename T>
  void add(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  Hash128 hash() const { return hash_bytes(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Names every field, so that a new one does not compile until it is part of the identity.
void add_shape(Serialiser& out, const LaunchShape& shape) {
  const auto& [heads, kv_heads, head_dim, context, page, kv_group, rope_pairs, eps, bf16_sums,
               factor, rotated, window, score_cap, activation, experts, weighs_chosen_alone] =
      shape;
  for (uint32_t size : {heads, kv_heads, head_dim, context, page, kv_group}) out.add(size);
  out.add(rope_pairs);
  out.add(eps);
  out.add(bf16_sums);
  out.add(factor);
  out.add(rotated);
  out.add(window);
  out.add(score_cap);
  out.add(activation);
  out.add(experts);
  out.add(weighs_chosen_alone);
}

constexpr std::array<std::string_view, 87> kRoleNames = {"none",
                                                         "tokens",
                                                         "embed",
                                                         "frequencies",
                                                         "rope_table",
                                                         "x",
                                                         "normed",
                                                         "attn_norm",
                                                         "q",
                                                         "k",
                                                         "v",
                                                         "q_bias",
                                                         "k_bias",
                                                         "v_bias",
                                                         "q_norm",
                                                         "k_norm",
                                                         "q_rope",
                                                         "k_rope",
                                                         "kv_append",
                                                         "k_cache",
                                                         "v_cache",
                                                         "attention",
                                                         "o",
                                                         "attn_residual",
                                                         "ffn_norm",
                                                         "gate",
                                                         "up",
                                                         "swiglu",
                                                         "down",
                                                         "ffn_residual",
                                                         "delta",
                                                         "gather_rows",
                                                         "final_norm",
                                                         "head_normed",
                                                         "lm_head",
                                                         "logits",
                                                         "top_k",
                                                         "embed_scale",
                                                         "q_scale",
                                                         "attn_post_norm",
                                                         "attn_scale",
                                                         "ffn_post_norm",
                                                         "ffn_scale",
                                                         "logit_scale",
                                                         "sinks",
                                                         "window_frequencies",
                                                         "window_rope_table",
                                                         "logit_cap",
                                                         "q_lora",
                                                         "q_lora_a",
                                                         "q_lora_b",
                                                         "k_lora",
                                                         "k_lora_a",
                                                         "k_lora_b",
                                                         "v_lora",
                                                         "v_lora_a",
                                                         "v_lora_b",
                                                         "o_lora",
                                                         "o_lora_a",
                                                         "o_lora_b",
                                                         "gate_lora",
                                                         "gate_lora_a",
                                                         "gate_lora_b",
                                                         "up_lora",
                                                         "up_lora_a",
                                                         "up_lora_b",
                                                         "down_lora",
                                                         "down_lora_a",
                                                         "down_lora_b",
                                                         "lm_head_lora",
                                                         "lm_head_lora_a",
                                                         "lm_head_lora_b",
                                                         "o_bias",
                                                         "router",
                                                         "router_bias",
                                                         "expert_ids",
                                                         "expert_weights",
                                                         "expert_gate",
                                                         "expert_gate_bias",
                                                         "expert_up",
                                                         "expert_up_bias",
                                                         "expert_swiglu",
                                                         "expert_down",
                                                         "expert_down_bias",
                                                         "expert_mix",
                                                         "attn_gate",
                                                         "attn_gated"};
static_assert(kRoleNames.size() == static_cast<size_t>(kLastRole) + 1);

constexpr std::array<std::string_view, 8> kBlockNames = {
    "none",  "embed",      "rms_qkv_rope", "attention", "prompt_attention",
    "o_ffn", "final_norm", "lm_head"};
static_assert(kBlockNames.size() == static_cast<size_t>(kLastBlock) + 1);

constexpr std::array<LoraRoles, 8> kLoraRoles = {{
    {Role::q, Role::q_lora, Role::q_lora_a, Role::q_lora_b},
    {Role::k, Role::k_lora, Role::k_lora_a, Role::k_lora_b},
    {Role::v, Role::v_lora, Role::v_lora_a, Role::v_lora_b},
    {Role::o, Role::o_lora, Role::o_lora_a, Role::o_lora_b},
    {Role::gate, Role::gate_lora, Role::gate_lora_a, Role::gate_lora_b},
    {Role::up, Role::up_lora, Role::up_lora_a, Role::up_lora_b},
    {Role::down, Role::down_lora, Role::down_lora_a, Role::down_lora_b},
    {Role::lm_head, Role::lm_head_lora, Role::lm_head_lora_a, Role::lm_head_lora_b},
}};

}  // namespace

const LoraRoles& lora_roles(Role projection) {
  const auto* const found = std::ranges::find(kLoraRoles, projection, &LoraRoles::projection);
  TYTO_ASSERT(found != kLoraRoles.end());
  return *found;
}

bool is_lora(Role role) {
  return std::ranges::any_of(kLoraRoles, [&](const LoraRoles& roles) {
    return role == roles.sum || role == roles.a || role == roles.b;
  });
}

std::string_view name(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::string_view name(Block block) {
  return kBlockNames[static_cast<size_t>(block)];
}

std::string layer_name(std::string_view what, uint16_t layer) {
  return layer == kNoLayer ? std::string(what) : fmt::format("L{:02}.{}", layer, what);
}

Hash128 program_hash(const Program& program) {
  Serialiser out;
  out.add(program.slots.size());
  for (const Slot& slot : program.slots) {
    const bool activation = slot.kind != SlotKind::weight && slot.kind != SlotKind::kv;
    out.add(activation ? SlotKind::scratch : slot.kind);
    out.add(slot.dtype);
    out.add(slot.rows);
    out.add(slot.cols);
  }
  out.add(program.launches.size());
  for (const Launch& launch : program.launches) {
    out.add(launch.kernel);
    out.add(launch.role);
    out.add(launch.args.size());
    for (const Arg& arg : launch.args) {
      out.add(arg.slot);
      out.add(arg.reads);
      out.add(arg.writes);
    }
    add_shape(out, launch.shape);
  }
  return out.hash();
}

}  // namespace tyto
