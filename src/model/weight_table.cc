#include "model/weight_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "base/utf8.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

enum class Extent : uint8_t {
  none,
  emb,
  hidden,
  q_width,
  kv_width,
  qkv_width,
  two_hidden,
  q_norm,
  k_norm,
  vocab,
  heads,
  experts,
  expert_hidden,
  hidden_of_all,  // experts
  emb_of_all,
  three_emb,
  conv_taps,
  q_rows,
  channels,
  values,
  recurrent_heads,
  two_recurrent_heads,
  recurrent_width,
  shared_hidden,
  recur_all,
  one,
  recurrent_norms,
  recurrent_norm_width,
};
enum class Presence : uint8_t {
  always,
  untied_head,
  qkv_bias,
  qk_norm,
  norms_before,
  norms_after,
  norms_both,
  apart,
  fused,
  sinks,
  ffn_norm,
  dense,
  dense_apart,
  experts,
  expert_bias,
  o_bias,
  ffn_norm_of_attention,
  short_conv,
  delta_rule,
  delta_apart,
  delta_joint,
  mamba2,
  shared_expert,
  shared_gate,
  choice_bias,
};

struct Entry {
  TensorPart part;
  std::string_view gguf;
  std::string_view hugging_face;
  Extent rows;  // none: a vector
  Extent cols;
  Presence presence = Presence::always;
  bool stays_f32 = false;
};

constexpr std::array kTop = {
    Entry{TensorPart::embedding, "token_embd.weight", "model.embed_tokens.weight", Extent::vocab,
          Extent::emb},
    Entry{TensorPart::final_norm, "output_norm.weight", "model.norm.weight", Extent::none,
          Extent::emb},
    Entry{TensorPart::head, "output.weight", "lm_head.weight", Extent::vocab, Extent::emb,
          Presence::untied_head},
};

constexpr std::array kLayer = {
    Entry{TensorPart::attn_norm, "attn_norm.weight", "input_layernorm.weight", Extent::none,
          Extent::emb, Presence::norms_before},
    Entry{TensorPart::qkv, "attn_qkv.weight", "self_attn.qkv_proj.weight", Extent::qkv_width,
          Extent::emb, Presence::fused},
    Entry{TensorPart::q, "attn_q.weight", "self_attn.q_proj.weight", Extent::q_rows, Extent::emb,
          Presence::apart},
    Entry{TensorPart::q_bias, "attn_q.bias", "self_attn.q_proj.bias", Extent::none, Extent::q_width,
          Presence::qkv_bias},
    Entry{TensorPart::k, "attn_k.weight", "self_attn.k_proj.weight", Extent::kv_width, Extent::emb,
          Presence::apart},
    Entry{TensorPart::k_bias, "attn_k.bias", "self_attn.k_proj.bias", Extent::none,
          Extent::kv_width, Presence::qkv_bias},
    Entry{TensorPart::v, "attn_v.weight", "self_attn.v_proj.weight", Extent::kv_width, Extent::emb,
          Presence::apart},
    Entry{TensorPart::v_bias, "attn_v.bias", "self_attn.v_proj.bias", Extent::none,
          Extent::kv_width, Presence::qkv_bias},
    Entry{TensorPart::q_norm, "attn_q_norm.weight", "self_attn.q_norm.weight", Extent::none,
          Extent::q_norm, Presence::qk_norm},
    Entry{TensorPart::k_norm, "attn_k_norm.weight", "self_attn.k_norm.weight", Extent::none,
          Extent::k_norm, Presence::qk_norm},
    Entry{TensorPart::o, "attn_output.weight", "self_attn.o_proj.weight", Extent::emb,
          Extent::q_width},
    Entry{TensorPart::conv_in, "shortconv.in_proj.weight", "conv.in_proj.weight", Extent::three_emb,
          Extent::emb, Presence::short_conv},
    Entry{TensorPart::conv, "shortconv.conv.weight", "conv.conv.weight", Extent::emb,
          Extent::conv_taps, Presence::short_conv, true},
    Entry{TensorPart::o, "shortconv.out_proj.weight", "conv.out_proj.weight", Extent::emb,
          Extent::emb, Presence::short_conv},
    Entry{TensorPart::recur_in, "attn_qkv.weight", "linear_attn.in_proj_qkv.weight",
          Extent::channels, Extent::emb, Presence::delta_rule},
    Entry{TensorPart::recur_gate, "attn_gate.weight", "linear_attn.in_proj_z.weight",
          Extent::values, Extent::emb, Presence::delta_rule},
    Entry{TensorPart::conv, "ssm_conv1d.weight", "linear_attn.conv1d.weight", Extent::channels,
          Extent::conv_taps, Presence::delta_rule, true},
    Entry{TensorPart::recur_time_bias, "ssm_dt.bias", "linear_attn.dt_bias", Extent::none,
          Extent::recurrent_heads, Presence::delta_rule},
    Entry{TensorPart::recur_rates, "ssm_a", "linear_attn.A_log", Extent::none,
          Extent::recurrent_heads, Presence::delta_rule},
    Entry{TensorPart::recur_strength, "ssm_beta.weight", "linear_attn.in_proj_b.weight",
          Extent::recurrent_heads, Extent::emb, Presence::delta_apart},
    Entry{TensorPart::recur_time, "ssm_alpha.weight", "linear_attn.in_proj_a.weight",
          Extent::recurrent_heads, Extent::emb, Presence::delta_apart},
    Entry{TensorPart::recur_both, "ssm_ba.weight", "linear_attn.in_proj_ba.weight",
          Extent::two_recurrent_heads, Extent::emb, Presence::delta_joint},
    Entry{TensorPart::recur_norm, "ssm_norm.weight", "linear_attn.norm.weight", Extent::none,
          Extent::recurrent_width, Presence::delta_rule},
    Entry{TensorPart::o, "ssm_out.weight", "linear_attn.out_proj.weight", Extent::emb,
          Extent::values, Presence::delta_rule},
    Entry{TensorPart::recur_all, "ssm_in.weight", "mamba.in_proj.weight", Extent::recur_all,
          Extent::emb, Presence::mamba2},
    Entry{TensorPart::conv, "ssm_conv1d.weight", "mamba.conv1d.weight", Extent::channels,
          Extent::conv_taps, Presence::mamba2, true},
    Entry{TensorPart::conv_bias, "ssm_conv1d.bias", "mamba.conv1d.bias", Extent::none,
          Extent::channels, Presence::mamba2},
    Entry{TensorPart::recur_time_bias, "ssm_dt.bias", "mamba.dt_bias", Extent::none,
          Extent::recurrent_heads, Presence::mamba2},
    Entry{TensorPart::recur_rates, "ssm_a", "mamba.A_log", Extent::recurrent_heads, Extent::one,
          Presence::mamba2, true},
    Entry{TensorPart::recur_skip, "ssm_d", "mamba.D", Extent::recurrent_heads, Extent::one,
          Presence::mamba2, true},
    Entry{TensorPart::recur_norm, "ssm_norm.weight", "mamba.norm.weight", Extent::recurrent_norms,
          Extent::recurrent_norm_width, Presence::mamba2, true},
    Entry{TensorPart::o, "ssm_out.weight", "mamba.out_proj.weight", Extent::emb, Extent::values,
          Presence::mamba2},
    Entry{TensorPart::attn_post_norm, "post_attention_norm.weight",
          "post_attention_layernorm.weight", Extent::none, Extent::emb, Presence::norms_after},
    Entry{TensorPart::ffn_norm, "ffn_norm.weight", "post_attention_layernorm.weight", Extent::none,
          Extent::emb, Presence::ffn_norm},
    // gpt-oss and Qwen3.5: its name in GGUFs is that of a norm behind attention.
    Entry{TensorPart::ffn_norm, "post_attention_norm.weight", "post_attention_layernorm.weight",
          Extent::none, Extent::emb, Presence::ffn_norm_of_attention},
    Entry{TensorPart::ffn_norm, "ffn_norm.weight", "pre_feedforward_layernorm.weight", Extent::none,
          Extent::emb, Presence::norms_both},
    Entry{TensorPart::gate_up, "ffn_up.weight", "mlp.gate_up_proj.weight", Extent::two_hidden,
          Extent::emb, Presence::fused},
    Entry{TensorPart::gate, "ffn_gate.weight", "mlp.gate_proj.weight", Extent::hidden, Extent::emb,
          Presence::dense_apart},
    Entry{TensorPart::up, "ffn_up.weight", "mlp.up_proj.weight", Extent::hidden, Extent::emb,
          Presence::dense_apart},
    Entry{TensorPart::down, "ffn_down.weight", "mlp.down_proj.weight", Extent::emb, Extent::hidden,
          Presence::dense},
    Entry{TensorPart::ffn_post_norm, "post_ffw_norm.weight", "post_feedforward_layernorm.weight",
          Extent::none, Extent::emb, Presence::norms_after},
    Entry{TensorPart::sinks, "attn_sinks.weight", "self_attn.sinks", Extent::none, Extent::heads,
          Presence::sinks},
    Entry{TensorPart::o_bias, "attn_output.bias", "self_attn.o_proj.bias", Extent::none,
          Extent::emb, Presence::o_bias},
    Entry{TensorPart::router, "ffn_gate_inp.weight", "mlp.gate.weight", Extent::experts,
          Extent::emb, Presence::experts, true},
    Entry{TensorPart::router_bias, "ffn_gate_inp.bias", "mlp.gate.bias", Extent::none,
          Extent::experts, Presence::expert_bias},
    Entry{TensorPart::router_bias, "exp_probs_b.bias", "feed_forward.expert_bias", Extent::none,
          Extent::experts, Presence::choice_bias},
    Entry{TensorPart::gate, "ffn_gate_exps.weight", "mlp.experts.*.gate_proj.weight",
          Extent::hidden_of_all, Extent::emb, Presence::experts},
    Entry{TensorPart::shared_gate, "ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight",
          Extent::shared_hidden, Extent::emb, Presence::shared_expert},
    Entry{TensorPart::shared_up, "ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight",
          Extent::shared_hidden, Extent::emb, Presence::shared_expert},
    Entry{TensorPart::shared_down, "ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight",
          Extent::emb, Extent::shared_hidden, Presence::shared_expert},
    Entry{TensorPart::shared_share, "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight",
          Extent::none, Extent::emb, Presence::shared_gate},
    Entry{TensorPart::expert_gate_bias, "ffn_gate_exps.bias", "mlp.experts.*.gate_proj.bias",
          Extent::experts, Extent::expert_hidden, Presence::expert_bias, true},
    Entry{TensorPart::up, "ffn_up_exps.weight", "mlp.experts.*.up_proj.weight",
          Extent::hidden_of_all, Extent::emb, Presence::experts},
    Entry{TensorPart::expert_up_bias, "ffn_up_exps.bias", "mlp.experts.*.up_proj.bias",
          Extent::experts, Extent::expert_hidden, Presence::expert_bias, true},
    Entry{TensorPart::down, "ffn_down_exps.weight", "mlp.experts.*.down_proj.weight",
          Extent::emb_of_all, Extent::expert_hidden, Presence::experts},
    Entry{TensorPart::expert_down_bias, "ffn_down_exps.bias", "mlp.experts.*.down_proj.bias",
          Extent::experts, Extent::emb, Presence::expert_bias, true},
};

// Tensors some writers leave in the file although the config already says what they hold.
constexpr std::array<std::string_view, 5> kRedundantSuffixes = {
    "rope_freqs.weight", "attn_rot_embd.weight", "rotary_emb.inv_freq", kShortFactors,
    kLongFactors};

uint64_t extent(const Config& config, Extent which) {
  switch (which) {
    case Extent::none:
      return 0;
    case Extent::emb:
      return config.emb;
    case Extent::hidden:
      return config.hidden;
    case Extent::q_width:
      return config.q_width();
    case Extent::kv_width:
      return config.kv_width();
    case Extent::qkv_width:
      return config.q_width() + uint64_t{2} * config.kv_width();
    case Extent::two_hidden:
      return uint64_t{2} * config.hidden;
    case Extent::q_norm:
      return config.wide_qk_norm ? config.q_width() : config.head_dim;
    case Extent::k_norm:
      return config.wide_qk_norm ? config.kv_width() : config.head_dim;
    case Extent::vocab:
      return config.vocab;
    case Extent::heads:
      return config.heads;
    case Extent::experts:
      return config.experts;
    case Extent::expert_hidden:
      return config.expert_hidden;
    case Extent::hidden_of_all:
      return uint64_t{config.experts} * config.expert_hidden;
    case Extent::emb_of_all:
      return uint64_t{config.experts} * config.emb;
    case Extent::three_emb:
      return uint64_t{3} * config.emb;
    case Extent::conv_taps:
      return config.conv_taps;
    case Extent::q_rows:
      return config.q_rows();
    case Extent::channels:
      return config.recurrent.channels();
    case Extent::values:
      return config.recurrent.values();
    case Extent::recurrent_heads:
      return config.recurrent.heads;
    case Extent::two_recurrent_heads:
      return uint64_t{2} * config.recurrent.heads;
    case Extent::recurrent_width:
      return config.recurrent.head_dim;
    case Extent::shared_hidden:
      return config.shared_hidden;
    case Extent::recur_all:
      return uint64_t{config.recurrent.values()} + config.recurrent.channels() +
             config.recurrent.heads;
    case Extent::one:
      return 1;
    case Extent::recurrent_norms:
      return config.recurrent.key_heads;
    case Extent::recurrent_norm_width:
      return config.recurrent.values() / config.recurrent.key_heads;
  }
  return 0;
}

// Whether GGUFs call the norm in front of the feed-forward after attention.
bool names_after_attention(const Config& config) {
  return config.sinks || config.attention_gate;
}

bool present(const Config& config, Presence presence) {
  switch (presence) {
    case Presence::always:
      return true;
    case Presence::untied_head:
      return !config.tied_head;
    case Presence::qkv_bias:
      return config.qkv_bias;
    case Presence::qk_norm:
      return config.qk_norm;
    case Presence::apart:
      return !config.fused_projections;
    case Presence::fused:
      return config.fused_projections;
    case Presence::norms_before:
      return config.norms != Norms::after;
    case Presence::norms_after:
      return config.norms != Norms::before;
    case Presence::norms_both:
      return config.norms == Norms::both;
    case Presence::sinks:
      return config.sinks;
    case Presence::ffn_norm:
      return config.norms == Norms::before && !config.parallel_residual &&
             !names_after_attention(config);
    case Presence::dense:
      return !config.has_experts();
    case Presence::dense_apart:
      return !config.has_experts() && !config.fused_projections;
    case Presence::experts:
      return config.has_experts();
    case Presence::expert_bias:
      return config.expert_bias;
    case Presence::o_bias:
      return config.o_bias;
    case Presence::ffn_norm_of_attention:
      return config.norms == Norms::before && names_after_attention(config);
    case Presence::short_conv:
      return config.has_kind(LayerKind::short_conv);
    case Presence::delta_rule:
      return config.has_kind(LayerKind::delta_rule);
    case Presence::delta_apart:
      return config.has_kind(LayerKind::delta_rule) && !config.recurrent.is_joint;
    case Presence::delta_joint:
      return config.has_kind(LayerKind::delta_rule) && config.recurrent.is_joint;
    case Presence::mamba2:
      return config.has_kind(LayerKind::mamba2);
    case Presence::shared_expert:
      return config.shared_hidden != 0;
    case Presence::choice_bias:
      return config.choice_bias;
    case Presence::shared_gate:
      return config.shared_hidden != 0 && config.shared_gate;
  }
  return false;
}

// The parts of attention, which other layers have not.
constexpr TensorPart kAttentionParts[] = {
    TensorPart::qkv,    TensorPart::q,      TensorPart::k,      TensorPart::v,
    TensorPart::q_bias, TensorPart::k_bias, TensorPart::v_bias, TensorPart::q_norm,
    TensorPart::k_norm, TensorPart::o,      TensorPart::sinks,  TensorPart::o_bias};

constexpr Presence kOfDeltaRule[] = {Presence::delta_rule, Presence::delta_apart,
                                     Presence::delta_joint};

// What a layer with experts has, and what one without them has in its place.
constexpr Presence kOfExperts[] = {Presence::experts, Presence::expert_bias, Presence::choice_bias,
                                   Presence::shared_expert, Presence::shared_gate};

bool present(const Config& config, uint32_t layer, const Entry& entry) {
  if (config.has_experts() && !config.has_experts_in(layer)) {
    if (entry.presence == Presence::dense) return true;
    if (entry.presence == Presence::dense_apart) return !config.fused_projections;
    if (std::ranges::find(kOfExperts, entry.presence) != std::end(kOfExperts)) return false;
  }
  if (!present(config, entry.presence)) return false;
  if (entry.presence == Presence::short_conv) return config.kind_of(layer) == LayerKind::short_conv;
  if (std::ranges::find(kOfDeltaRule, entry.presence) != std::end(kOfDeltaRule))
    return config.kind_of(layer) == LayerKind::delta_rule;
  if (entry.presence == Presence::mamba2) return config.kind_of(layer) == LayerKind::mamba2;
  const bool is_attentions =
      std::ranges::find(kAttentionParts, entry.part) != std::end(kAttentionParts);
  return !is_attentions || config.attends(layer);
}

// What LFM2's files call tensors that other families have, too.
struct OwnName {
  NameStyle style;
  std::string_view usual, own;
};
constexpr OwnName kLfm2Names[] = {
    {NameStyle::gguf, "output_norm.weight", "token_embd_norm.weight"},
    {NameStyle::hugging_face, "model.norm.weight", "model.embedding_norm.weight"},
    {NameStyle::hugging_face, "input_layernorm.weight", "operator_norm.weight"},
    {NameStyle::hugging_face, "post_attention_layernorm.weight", "ffn_norm.weight"},
    {NameStyle::hugging_face, "self_attn.q_norm.weight", "self_attn.q_layernorm.weight"},
    {NameStyle::hugging_face, "self_attn.k_norm.weight", "self_attn.k_layernorm.weight"},
    {NameStyle::hugging_face, "self_attn.o_proj.weight", "self_attn.out_proj.weight"},
    {NameStyle::hugging_face, "mlp.gate_proj.weight", "feed_forward.w1.weight"},
    {NameStyle::hugging_face, "mlp.up_proj.weight", "feed_forward.w3.weight"},
    {NameStyle::hugging_face, "mlp.down_proj.weight", "feed_forward.w2.weight"},
};

std::string_view name_of(const Entry& entry, const Config& config, NameStyle style) {
  const std::string_view usual = style == NameStyle::gguf ? entry.gguf : entry.hugging_face;
  if (!config.architecture.starts_with("lfm2")) return usual;
  for (const OwnName& name : kLfm2Names)
    if (name.style == style && name.usual == usual) return name.own;
  return usual;
}

// Null for weights that no layer has.
TensorView LayerWeights::* layer_field(TensorPart part) {
  switch (part) {
    case TensorPart::attn_norm:
      return &LayerWeights::attn_norm;
    case TensorPart::qkv:
      return &LayerWeights::qkv;
    case TensorPart::gate_up:
      return &LayerWeights::gate_up;
    case TensorPart::q:
      return &LayerWeights::q;
    case TensorPart::k:
      return &LayerWeights::k;
    case TensorPart::v:
      return &LayerWeights::v;
    case TensorPart::q_bias:
      return &LayerWeights::q_bias;
    case TensorPart::k_bias:
      return &LayerWeights::k_bias;
    case TensorPart::v_bias:
      return &LayerWeights::v_bias;
    case TensorPart::q_norm:
      return &LayerWeights::q_norm;
    case TensorPart::k_norm:
      return &LayerWeights::k_norm;
    case TensorPart::o:
      return &LayerWeights::o;
    case TensorPart::attn_post_norm:
      return &LayerWeights::attn_post_norm;
    case TensorPart::ffn_norm:
      return &LayerWeights::ffn_norm;
    case TensorPart::gate:
      return &LayerWeights::gate;
    case TensorPart::up:
      return &LayerWeights::up;
    case TensorPart::down:
      return &LayerWeights::down;
    case TensorPart::ffn_post_norm:
      return &LayerWeights::ffn_post_norm;
    case TensorPart::sinks:
      return &LayerWeights::sinks;
    case TensorPart::router:
      return &LayerWeights::router;
    case TensorPart::router_bias:
      return &LayerWeights::router_bias;
    case TensorPart::expert_gate_bias:
      return &LayerWeights::expert_gate_bias;
    case TensorPart::expert_up_bias:
      return &LayerWeights::expert_up_bias;
    case TensorPart::expert_down_bias:
      return &LayerWeights::expert_down_bias;
    case TensorPart::o_bias:
      return &LayerWeights::o_bias;
    case TensorPart::conv_in:
      return &LayerWeights::conv_in;
    case TensorPart::conv:
      return &LayerWeights::conv;
    case TensorPart::recur_in:
      return &LayerWeights::recur_in;
    case TensorPart::recur_gate:
      return &LayerWeights::recur_gate;
    case TensorPart::recur_time:
      return &LayerWeights::recur_time;
    case TensorPart::recur_strength:
      return &LayerWeights::recur_strength;
    case TensorPart::recur_both:
      return &LayerWeights::recur_both;
    case TensorPart::recur_time_bias:
      return &LayerWeights::recur_time_bias;
    case TensorPart::recur_rates:
      return &LayerWeights::recur_rates;
    case TensorPart::recur_norm:
      return &LayerWeights::recur_norm;
    case TensorPart::recur_all:
      return &LayerWeights::recur_all;
    case TensorPart::recur_skip:
      return &LayerWeights::recur_skip;
    case TensorPart::conv_bias:
      return &LayerWeights::conv_bias;
    case TensorPart::shared_gate:
      return &LayerWeights::shared_gate;
    case TensorPart::shared_up:
      return &LayerWeights::shared_up;
    case TensorPart::shared_down:
      return &LayerWeights::shared_down;
    case TensorPart::shared_share:
      return &LayerWeights::shared_share;
    case TensorPart::embedding:
    case TensorPart::final_norm:
    case TensorPart::head:
      break;
  }
  return nullptr;
}

std::string shape_text(uint64_t rows, uint64_t cols) {
  return rows <= 1 ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", rows, cols);
}

void check_view(const TensorView& view, const WeightSpec& spec, const std::string& where) {
  const uint64_t rows = spec.is_vector() ? 1 : spec.rows;
  if (view.rows != rows || view.cols != spec.cols)
    fail_input(where, "shape {}, the config asks for {}", shape_text(view.rows, view.cols),
               shape_text(rows, spec.cols));
  if (view.dtype == DType::i32) fail_input(where, "integers cannot be weights");
  if (spec.is_vector() && info(view.dtype).block_values != 1)
    fail_unsupported(where, "a vector of type {}; f32, f16 and bf16 are supported",
                     info(view.dtype).name);
}

TensorView rows_of(const TensorView& matrix, uint64_t first, uint64_t count) {
  const uint64_t row = row_bytes(matrix.dtype, matrix.cols);
  return {matrix.dtype, count, matrix.cols, matrix.bytes.subspan(first * row, count * row)};
}

void split_fused(const Config& config, LayerWeights& layer) {
  const uint32_t q = config.q_width(), kv = config.kv_width();
  layer.q = rows_of(layer.qkv, 0, q);
  layer.k = rows_of(layer.qkv, q, kv);
  layer.v = rows_of(layer.qkv, uint64_t{q} + kv, kv);
  layer.gate = rows_of(layer.gate_up, 0, config.hidden);
  layer.up = rows_of(layer.gate_up, config.hidden, config.hidden);
}

void split_mamba2(const RecurrentHeads& shape, LayerWeights& layer) {
  layer.recur_gate = rows_of(layer.recur_all, 0, shape.values());
  layer.recur_in = rows_of(layer.recur_all, shape.values(), shape.channels());
  layer.recur_time =
      rows_of(layer.recur_all, uint64_t{shape.values()} + shape.channels(), shape.heads);
}

// A row of all experts' values, as kernels take biases.
TensorView flattened(const TensorView& view, const std::string& where) {
  if (info(view.dtype).block_values != 1)
    fail_unsupported(where, "biases of type {}; f32, f16 and bf16 are supported",
                     info(view.dtype).name);
  return {view.dtype, 1, view.values(), view.bytes};
}

bool is_redundant(std::string_view name, const Config& config, NameStyle style) {
  const Entry& head = kTop[2];
  if (config.tied_head && name == (style == NameStyle::gguf ? head.gguf : head.hugging_face))
    return true;
  return std::any_of(kRedundantSuffixes.begin(), kRedundantSuffixes.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

std::vector<WeightSpec> weight_specs(const Config& config, NameStyle style) {
  std::vector<WeightSpec> specs;
  const auto add = [&](const Entry& entry, uint32_t layer, const std::string& prefix) {
    if (!present(config, layer, entry)) return;
    const std::string_view name = name_of(entry, config, style);
    const bool is_sliced = entry.rows == Extent::hidden_of_all || entry.rows == Extent::emb_of_all;
    specs.push_back({entry.part, layer, prefix + std::string(name), extent(config, entry.rows),
                     extent(config, entry.cols), is_sliced ? config.experts : 0, entry.stays_f32});
  };
  for (const Entry& entry : kTop) add(entry, 0, "");
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = style == NameStyle::gguf ? fmt::format("blk.{}.", layer)
                                                        : fmt::format("model.layers.{}.", layer);
    for (const Entry& entry : kLayer) add(entry, layer, prefix);
  }
  return specs;
}

TensorView& view_of(Weights& weights, const WeightSpec& spec) {
  if (TensorView LayerWeights::* const field = layer_field(spec.part); field != nullptr)
    return weights.layers[spec.layer].*field;
  if (spec.part == TensorPart::embedding) return weights.embedding;
  if (spec.part == TensorPart::final_norm) return weights.final_norm;
  TYTO_ASSERT(spec.part == TensorPart::head);
  return weights.head;
}

const TensorView& view_of(const Weights& weights, const WeightSpec& spec) {
  return view_of(const_cast<Weights&>(weights), spec);
}

void split_short_conv(const Config& config, LayerWeights& layer) {
  layer.conv_gate = rows_of(layer.conv_in, 0, config.emb);
  layer.conv_out_gate = rows_of(layer.conv_in, config.emb, config.emb);
  layer.conv_x = rows_of(layer.conv_in, uint64_t{2} * config.emb, config.emb);
}

void bind_weights(const std::vector<NamedTensor>& tensors, const Config& config, NameStyle style,
                  const std::string& where, Weights& weights) {
  std::unordered_map<std::string_view, const TensorView*> unused;
  for (const NamedTensor& tensor : tensors) unused.emplace(tensor.name, &tensor.view);
  weights.layers.resize(config.layers);
  for (const WeightSpec& spec : weight_specs(config, style)) {
    const auto found = unused.find(spec.name);
    if (found == unused.end()) fail_input(where, "tensor {} is missing", spec.name);
    check_view(*found->second, spec, where + ": tensor " + spec.name);
    view_of(weights, spec) = spec.part != TensorPart::router && spec.stays_f32
                                 ? flattened(*found->second, where + ": tensor " + spec.name)
                                 : *found->second;
    unused.erase(found);
  }
  if (config.tied_head) weights.head = weights.embedding;
  if (config.fused_projections)
    for (LayerWeights& layer : weights.layers) split_fused(config, layer);
  for (LayerWeights& layer : weights.layers)
    if (!layer.conv_in.empty()) split_short_conv(config, layer);
  for (LayerWeights& layer : weights.layers)
    if (!layer.recur_all.empty()) split_mamba2(config.recurrent, layer);
  // A tensor that was not asked for is a part of the architecture that would silently be left out.
  for (const NamedTensor& tensor : tensors)
    if (unused.contains(tensor.name) && !is_redundant(tensor.name, config, style))
      fail_unsupported(where, "tensor {}: a {} model with such a part is not supported",
                       printable_name(tensor.name), config.architecture);
}

uint64_t unpermuted_row(uint64_t row, uint32_t head_dim) {
  const uint64_t head = row / head_dim;
  const uint64_t within = row % head_dim;
  return head * head_dim + (within % 2) * (head_dim / 2) + within / 2;
}

void check_layout(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data,
                  uint64_t alignment, const std::string& file) {
  const auto begin_of = [&](const NamedTensor* tensor) {
    return static_cast<uint64_t>(tensor->view.bytes.data() - data.data());
  };
  std::vector<const NamedTensor*> in_order;
  for (const NamedTensor& tensor : tensors) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [&](const auto* a, const auto* b) {
    return std::pair(begin_of(a), a->view.bytes.size()) <
           std::pair(begin_of(b), b->view.bytes.size());
  });
  const NamedTensor* before = nullptr;
  uint64_t end = 0;
  for (const NamedTensor* tensor : in_order) {
    const uint64_t begin = begin_of(tensor);
    const std::string where = file + ": tensor " + printable_name(tensor->name);
    if (begin < end)
      fail_input(where, "begins at byte {} of the data, inside tensor {}, which ends at byte {}",
                 begin, printable_name(before->name), end);
    if (begin > round_up(end, alignment))
      fail_input(where,
                 "begins at byte {} of the data, but the {} bytes before it belong to no tensor",
                 begin, begin - end);
    before = tensor;
    end = begin + tensor->view.bytes.size();
  }
  if (data.size() > round_up(end, alignment))
    fail_input(
        file,
        "the {} bytes after the last tensor, from byte {} of the data on, belong to no tensor",
        data.size() - end, end);
}

namespace {

// The end of a name, a star in the place of the expert's number, and what weight_specs() has there.
struct Rename {
  NameStyle style;
  std::string_view stored;
  std::string_view together;
};
constexpr Rename kRenames[] = {
    // Files of before GGUF had tensors of three dimensions for them.
    {NameStyle::gguf, "ffn_gate.*.weight", "ffn_gate_exps.weight"},
    {NameStyle::gguf, "ffn_up.*.weight", "ffn_up_exps.weight"},
    {NameStyle::gguf, "ffn_down.*.weight", "ffn_down_exps.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.gate_proj.weight", "mlp.experts.*.gate_proj.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.up_proj.weight", "mlp.experts.*.up_proj.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.down_proj.weight", "mlp.experts.*.down_proj.weight"},
    // gpt-oss's.
    {NameStyle::hugging_face, "mlp.router.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "mlp.router.bias", "mlp.gate.bias"},
    // LFM2's.
    {NameStyle::hugging_face, "feed_forward.gate.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "feed_forward.experts.*.w1.weight", "mlp.experts.*.gate_proj.weight"},
    {NameStyle::hugging_face, "feed_forward.experts.*.w3.weight", "mlp.experts.*.up_proj.weight"},
    {NameStyle::hugging_face, "feed_forward.experts.*.w2.weight", "mlp.experts.*.down_proj.weight"},
    // Granite's.
    {NameStyle::hugging_face, "block_sparse_moe.router.layer.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "shared_mlp.output_linear.weight",
     "mlp.shared_expert.down_proj.weight"},
    // Mixtral's.
    {NameStyle::hugging_face, "block_sparse_moe.gate.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w1.weight",
     "mlp.experts.*.gate_proj.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w3.weight",
     "mlp.experts.*.up_proj.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w2.weight",
     "mlp.experts.*.down_proj.weight"},
};

// "blk.3." and "model.layers.3." are what stands before the names of a layer.
std::string_view layer_prefix(std::string_view name, NameStyle style) {
  const std::string_view begin = style == NameStyle::gguf ? "blk." : "model.layers.";
  if (!name.starts_with(begin)) return {};
  const size_t dot = name.find('.', begin.size());
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot + 1);
}

// The number that stands for the star; nothing: the name is another. A pattern without a star
// matches itself as number 0.
std::optional<uint32_t> number_in(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos)
    return name == pattern ? std::optional<uint32_t>(0) : std::nullopt;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  const std::string_view digits =
      name.substr(before.size(), name.size() - before.size() - after.size());
  constexpr size_t kMostDigits = 5;
  if (digits.size() > kMostDigits || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  uint32_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  return number;
}

// Which of all experts' matrices a tensor belongs to.
struct Place {
  std::string together;
  uint32_t expert = 0;
  bool is_of_one = false;  // expert
};

Place place_of(std::string_view name, NameStyle style) {
  const std::string_view prefix = layer_prefix(name, style);
  if (prefix.empty()) return {std::string(name)};
  for (const Rename& rename : kRenames) {
    if (rename.style != style) continue;
    if (const auto number = number_in(name.substr(prefix.size()), rename.stored))
      return {std::string(prefix) + std::string(rename.together), *number,
              rename.stored.find('*') != std::string_view::npos};
  }
  return {std::string(name)};
}

bool lie_together(const std::vector<const NamedTensor*>& experts) {
  for (size_t i = 1; i < experts.size(); ++i) {
    const auto before = experts[i - 1]->view.bytes;
    if (before.data() + before.size() != experts[i]->view.bytes.data()) return false;
  }
  return true;
}

TensorView together(const std::vector<const NamedTensor*>& experts, Model& model) {
  TensorView all = experts.front()->view;
  const size_t each = all.bytes.size();
  all.rows *= experts.size();
  if (lie_together(experts)) {
    all.bytes = {all.bytes.data(), each * experts.size()};
    return all;
  }
  std::vector<std::byte>& copy = model.copies.emplace_back(each * experts.size());
  for (size_t i = 0; i < experts.size(); ++i)
    std::memcpy(copy.data() + i * each, experts[i]->view.bytes.data(), each);
  all.bytes = copy;
  return all;
}

// As GGUFs have routers: with bf16 weights kernels may round what they multiply to bf16, and a
// router's scores decide.
TensorView in_f32(const TensorView& view, Model& model) {
  if (view.dtype == DType::f32) return view;
  std::vector<float> values(view.values());
  dequantize(view.dtype, view.bytes, values);
  const auto bytes = std::as_bytes(std::span(values));
  model.copies.emplace_back(bytes.begin(), bytes.end());
  return {DType::f32, view.rows, view.cols, model.copies.back()};
}

void check_experts(const std::vector<const NamedTensor*>& experts, const std::string& name,
                   const std::string& where) {
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] == nullptr) fail_input(where, "{}: expert {} is missing", name, i);
    const TensorView &view = experts[i]->view, &first = experts.front()->view;
    if (view.dtype != first.dtype || view.rows != first.rows || view.cols != first.cols)
      fail_input(where + ": tensor " + experts[i]->name,
                 "differs from expert 0's in shape or type");
  }
}

// gpt-oss's tensors, [experts, columns, rows] with every `step`-th row from `first` on of one
// matrix; biases [experts, rows].
struct Turned {
  std::string_view stored;
  std::string_view together;
  uint32_t first;
  uint32_t step;
  bool is_bias;
};
constexpr Turned kTurned[] = {
    {"mlp.experts.gate_up_proj", "mlp.experts.*.gate_proj.weight", 0, 2, false},
    {"mlp.experts.gate_up_proj", "mlp.experts.*.up_proj.weight", 1, 2, false},
    {"mlp.experts.gate_up_proj_bias", "mlp.experts.*.gate_proj.bias", 0, 2, true},
    {"mlp.experts.gate_up_proj_bias", "mlp.experts.*.up_proj.bias", 1, 2, true},
    {"mlp.experts.down_proj", "mlp.experts.*.down_proj.weight", 0, 1, false},
    {"mlp.experts.down_proj_bias", "mlp.experts.*.down_proj.bias", 0, 1, true},
};

template <typename T>
void turn(const TensorView& in, uint64_t experts, const Turned& how, std::byte* out) {
  const T* from = reinterpret_cast<const T*>(in.bytes.data());
  T* to = reinterpret_cast<T*>(out);
  const uint64_t inner = how.is_bias ? 1 : in.rows / experts;
  for (uint64_t e = 0; e < experts; ++e)
    for (uint64_t row = how.first; row < in.cols; row += how.step)
      for (uint64_t i = 0; i < inner; ++i) *to++ = from[(e * inner + i) * in.cols + row];
}

TensorView turned(const TensorView& in, const Config& config, const Turned& how,
                  const std::string& where, Model& model) {
  const DTypeInfo& type = info(in.dtype);
  if (type.block_values != 1 || in.rows % config.experts != 0 || in.cols % how.step != 0 ||
      (how.is_bias && in.rows != config.experts))
    fail_input(where, "{} rows and {} columns of {} are not those of {} experts", in.rows, in.cols,
               type.name, config.experts);
  std::vector<std::byte>& copy = model.copies.emplace_back(in.bytes.size() / how.step);
  if (type.block_bytes == sizeof(uint16_t))
    turn<uint16_t>(in, config.experts, how, copy.data());
  else
    turn<uint32_t>(in, config.experts, how, copy.data());
  const uint64_t width = in.cols / how.step;
  if (how.is_bias) return {in.dtype, config.experts, width, copy};
  return {in.dtype, config.experts * width, in.rows / config.experts, copy};
}

// Qwen3.5's published checkpoints have the experts in two tensors, [experts, rows, columns], the
// first with the gate's rows before those of up: a view of each expert's matrices.
bool add_stacked(const NamedTensor& tensor, const Config& config, const std::string& where,
                 std::vector<NamedTensor>& result) {
  const std::string_view prefix = layer_prefix(tensor.name, NameStyle::hugging_face);
  std::string_view name = std::string_view(tensor.name).substr(prefix.size());
  if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
  const bool is_first =
      name == "mlp.experts.gate_up_proj" || name == "block_sparse_moe.input_linear";
  const bool is_second =
      name == "mlp.experts.down_proj" || name == "block_sparse_moe.output_linear";
  if (prefix.empty() || (!is_first && !is_second)) return false;
  const std::vector<std::string_view> parts =
      is_first ? std::vector<std::string_view>{"gate_proj", "up_proj"}
               : std::vector<std::string_view>{"down_proj"};
  const uint64_t matrices = config.experts * parts.size();
  if (tensor.view.rows % matrices != 0)
    fail_input(where + ": tensor " + printable_name(tensor.name),
               "has {} rows, which are not those of {} experts", tensor.view.rows, config.experts);
  const uint64_t rows = tensor.view.rows / matrices;
  for (uint64_t i = 0; i < matrices; ++i)
    result.push_back({fmt::format("{}mlp.experts.{}.{}.weight", prefix, i / parts.size(),
                                  parts[i % parts.size()]),
                      rows_of(tensor.view, i * rows, rows)});
  return true;
}

std::vector<NamedTensor> unstacked(const std::vector<NamedTensor>& tensors, const Config& config,
                                   NameStyle style, const std::string& where) {
  std::vector<NamedTensor> result;
  for (const NamedTensor& tensor : tensors)
    if (style == NameStyle::gguf || config.expert_bias ||
        !add_stacked(tensor, config, where, result))
      result.push_back(tensor);
  return result;
}

bool add_turned(const NamedTensor& tensor, const Config& config, const std::string& where,
                Model& model, std::vector<NamedTensor>& result) {
  const std::string_view prefix = layer_prefix(tensor.name, NameStyle::hugging_face);
  bool found = false;
  for (const Turned& how : kTurned) {
    if (prefix.empty() || tensor.name.substr(prefix.size()) != how.stored) continue;
    result.push_back({std::string(prefix) + std::string(how.together),
                      turned(tensor.view, config, how, where + ": tensor " + tensor.name, model)});
    found = true;
  }
  return found;
}

}  // namespace

std::vector<NamedTensor> with_experts_together(const std::vector<NamedTensor>& stored,
                                               const Config& config, NameStyle style,
                                               const std::string& where, Model& model) {
  if (!config.has_experts()) return stored;
  const std::vector<NamedTensor> tensors = unstacked(stored, config, style, where);
  std::vector<NamedTensor> result;
  std::vector<std::string> order;
  std::unordered_map<std::string, std::vector<const NamedTensor*>> apart;
  for (const NamedTensor& tensor : tensors) {
    if (config.expert_bias && style == NameStyle::hugging_face &&
        add_turned(tensor, config, where, model, result))
      continue;
    Place place = place_of(tensor.name, style);
    if (!place.is_of_one) {
      const bool is_router = place.together.ends_with(".mlp.gate.weight");
      result.push_back(
          {std::move(place.together), is_router ? in_f32(tensor.view, model) : tensor.view});
      continue;
    }
    if (place.expert >= config.experts)
      fail_input(where + ": tensor " + printable_name(tensor.name), "there are {} experts",
                 config.experts);
    std::vector<const NamedTensor*>& experts = apart[place.together];
    if (experts.empty()) order.push_back(place.together);
    experts.resize(config.experts);
    experts[place.expert] = &tensor;
  }
  for (const std::string& name : order) {
    check_experts(apart[name], name, where);
    result.push_back({name, together(apart[name], model)});
  }
  return result;
}

std::vector<WeightSpec> specs_of_each_expert(const Config& config,
                                             const std::vector<WeightSpec>& specs) {
  if (config.expert_bias)
    throw Error(ErrorCode::unsupported, config.name,
                "checkpoint folders of this family are read, and not written", "write a GGUF");
  const bool is_mixtral = config.architecture == "mixtral";
  const auto stored_name = [&](const std::string& name) {
    const std::string_view prefix = layer_prefix(name, NameStyle::hugging_face);
    for (const Rename& rename : kRenames)
      if (is_mixtral && rename.stored.starts_with("block_sparse_moe.") &&
          name.substr(prefix.size()) == rename.together)
        return std::string(prefix) + std::string(rename.stored);
    return name;
  };
  std::vector<WeightSpec> result;
  for (const WeightSpec& spec : specs) {
    const std::string name = stored_name(spec.name);
    const size_t star = name.find('*');
    const uint32_t count = star == std::string::npos ? 1 : config.experts;
    for (uint32_t i = 0; i < count; ++i) {
      WeightSpec& each = result.emplace_back(spec);
      each.name = name;
      each.rows = spec.rows / count;
      each.slices = 0;
      if (star != std::string::npos) each.name.replace(star, 1, std::to_string(i));
    }
  }
  return result;
}

}  // namespace tyto
