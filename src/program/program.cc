#include "program/program.h"

#include <array>
#include <map>
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
               factor, rotated, window, score_cap, activation, experts, weighs_chosen_alone,
               sigmoid_scores, groups, groups_used, state_rows, tiled_heads, least_time,
               most_time] = shape;
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
  out.add(state_rows);
  out.add(tiled_heads);
  out.add(least_time);
  out.add(most_time);
  out.add(sigmoid_scores);
  out.add(groups);
  out.add(groups_used);
}

constexpr std::string_view kPartNames[] = {"none",
                                           "tokens",
                                           "embed",
                                           "frequencies",
                                           "rope_table",
                                           "window_frequencies",
                                           "window_rope_table",
                                           "x",
                                           "embed_scale",
                                           "normed",
                                           "attn_norm",
                                           "q",
                                           "k",
                                           "v",
                                           "q_rope",
                                           "k_rope",
                                           "q_scale",
                                           "kv_append",
                                           "k_cache",
                                           "v_cache",
                                           "sinks",
                                           "attention",
                                           "attn_gate",
                                           "attn_gated",
                                           "conv_gate",
                                           "conv_x",
                                           "conv_out_gate",
                                           "conv_in",
                                           "conv",
                                           "conv_state",
                                           "conv_gated",
                                           "recur_in",
                                           "recur_gate",
                                           "recur_both",
                                           "recur_time",
                                           "recur_rates",
                                           "recur_strength",
                                           "recur_skip",
                                           "recur_state",
                                           "recur",
                                           "recur_gated",
                                           "q_and_gate",
                                           "o",
                                           "attn_post_norm",
                                           "attn_scale",
                                           "attn_residual",
                                           "ffn_norm",
                                           "gate",
                                           "up",
                                           "swiglu",
                                           "down",
                                           "router",
                                           "expert_ids",
                                           "expert_weights",
                                           "expert_gate",
                                           "expert_up",
                                           "expert_swiglu",
                                           "expert_down",
                                           "expert_mix",
                                           "shared_gate",
                                           "shared_up",
                                           "shared_swiglu",
                                           "shared_down",
                                           "shared_share",
                                           "shared_mix",
                                           "ffn_post_norm",
                                           "ffn_scale",
                                           "ffn_residual",
                                           "delta",
                                           "gather_rows",
                                           "final_norm",
                                           "head_normed",
                                           "logit_scale",
                                           "lm_head",
                                           "logits",
                                           "logit_cap",
                                           "top_k"};
static_assert(std::size(kPartNames) == static_cast<size_t>(kLastPart) + 1);

constexpr std::string_view kFacetNames[] = {"", "_bias", "_norm", "_lora_a", "_lora_b", "_lora"};
static_assert(std::size(kFacetNames) == static_cast<size_t>(kLastFacet) + 1);

constexpr std::array<std::string_view, 9> kBlockNames = {
    "none",  "embed",      "rms_qkv_rope", "attention", "prompt_attention",
    "o_ffn", "final_norm", "lm_head",      "recurrence"};
static_assert(kBlockNames.size() == static_cast<size_t>(kLastBlock) + 1);

}  // namespace

std::string name(Role role) {
  return fmt::format("{}{}", kPartNames[static_cast<size_t>(role.part)],
                     kFacetNames[static_cast<size_t>(role.facet)]);
}

Role role_named(std::string_view name) {
  static const std::map<std::string, Role, std::less<>> kRoles = [] {
    std::map<std::string, Role, std::less<>> roles;
    for (size_t part = 0; part < std::size(kPartNames); ++part)
      for (size_t facet = 0; facet < std::size(kFacetNames); ++facet) {
        const Role role = Role(static_cast<Role::Part>(part)) | static_cast<Facet>(facet);
        roles.emplace(tyto::name(role), role);
      }
    return roles;
  }();
  const auto found = kRoles.find(name);
  return found == kRoles.end() ? Role() : found->second;
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
    const bool stays =
        slot.kind == SlotKind::weight || slot.kind == SlotKind::kv || slot.kind == SlotKind::state;
    out.add(stays ? slot.kind : SlotKind::scratch);
    out.add(slot.dtype);
    out.add(slot.rows);
    out.add(slot.cols);
  }
  out.add(program.launches.size());
  for (const Launch& launch : program.launches) {
    out.add(launch.kernel);
    out.add(launch.role.part);
    out.add(launch.role.facet);
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
