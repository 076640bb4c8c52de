// Every tensor of a Llama-family model, once: its role, its name in each file format, its shape.
// Readers bind views by this table; writers walk it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/model.h"
#include "tensor/dtype.h"

namespace tyto {

// Phi-3's rope divisors in a GGUF (Rope::short_divisors and long_divisors).
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";

enum class NameStyle : uint8_t { gguf, hugging_face };

enum class TensorPart : uint8_t {
  embedding,
  final_norm,
  head,
  attn_norm,
  qkv,
  q,
  k,
  v,
  q_bias,
  k_bias,
  v_bias,
  q_norm,
  k_norm,
  o,
  attn_post_norm,
  ffn_norm,
  gate_up,
  gate,
  up,
  down,
  ffn_post_norm,
  sinks,
  router,
  router_bias,
  expert_gate_bias,
  expert_up_bias,
  expert_down_bias,
  o_bias,
  conv_in,
  conv,
  recur_in,
  recur_gate,
  recur_time,
  recur_strength,
  recur_both,
  recur_time_bias,
  recur_rates,
  recur_norm,
  recur_all,
  recur_skip,
  conv_bias,
  shared_gate,
  shared_up,
  shared_down,
  shared_share,
};

struct WeightSpec {
  TensorPart part = TensorPart::embedding;
  uint32_t layer = 0;  // meaningless for embedding, head and the final norm
  std::string name;
  uint64_t rows = 0;  // 0: a vector
  uint64_t cols = 0;
  uint64_t slices = 0;     // experts whose matrices follow each other, `rows` of all; 0: it is one
  bool stays_f32 = false;  // a matrix that no mix of types rounds

  bool is_vector() const { return rows == 0; }
};

// The tensors a model of this config has, in file order. A tied head is not among them.
std::vector<WeightSpec> weight_specs(const Config& config, NameStyle style);

// Where the weight of a role lives; weights.layers must already reach spec.layer.
TensorView& view_of(Weights& weights, const WeightSpec& spec);
const TensorView& view_of(const Weights& weights, const WeightSpec& spec);

// Fills `weights` with views of `tensors`. An absent tensor, one of another shape, one whose type
// cannot be a weight, and one that no part of the model would use are errors naming it.
void bind_weights(const std::vector<NamedTensor>& tensors, const Config& config, NameStyle style,
                  const std::string& where, Weights& weights);

// Makes the views of a short convolution's projections those of the rows of conv_in.
void split_short_conv(const Config& config, LayerWeights& layer);

// Row of a Hugging Face Q or K (or their biases) that stands at `row` of a "llama" GGUF: within a
// head, pairs (i, i + head_dim/2) become neighbours (2i, 2i + 1).
uint64_t unpermuted_row(uint64_t row, uint32_t head_dim);

// Where tensors may lie in the data section of a model file.

// Throws unless the tensors, whose views lie in `data`, fill it: none overlaps another, and between
// them and after the last there is nothing but padding to `alignment`, which may be absent at the
// end. Offsets that are wrong but stay inside the file show here, and nowhere else.
void check_layout(const std::vector<NamedTensor>& tensors, std::span<const std::byte> data,
                  uint64_t alignment, const std::string& file);

// What a writer is told about a tensor before its bytes arrive.

struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  uint64_t rows = 0;  // 0: a vector
  uint64_t cols = 0;
  uint64_t slices = 0;  // the third dimension, a part of `rows`; 0: there is none

  uint64_t row_count() const { return rows == 0 ? 1 : rows; }
  uint64_t bytes() const { return row_count() * row_bytes(dtype, cols); }
};

// Experts of a layer as one matrix, where files have a tensor of each, or gates and ups in one.

// `tensors` with those of single experts, under any of the names that files give them, replaced by
// matrices of all experts, as weight_specs() calls them. They are copies, which model.copies gets,
// unless the experts lie one after the other. gpt-oss's checkpoints have them together, turned, and
// gates and ups in turn: copies as well. An expert that is missing, or differs from the others
// in shape or type, is an error naming it.
std::vector<NamedTensor> with_experts_together(const std::vector<NamedTensor>& tensors,
                                               const Config& config, NameStyle style,
                                               const std::string& where, Model& model);

// The tensors that a checkpoint folder of this config has: those of `specs`, in the style of
// hugging_face, with a tensor of each expert in the place of all of them. gpt-oss's are refused.
std::vector<WeightSpec> specs_of_each_expert(const Config& config,
                                             const std::vector<WeightSpec>& specs);

}  // namespace tyto
