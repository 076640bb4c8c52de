#include "llama/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "llama/logits.h"
#include "tensor/compare.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

using Vector = std::vector<float>;

Vector values_of(const TensorView& view, uint64_t row = 0) {
  Vector out(view.cols);
  dequantize(view.dtype, view.row(row), out);
  return out;
}

// As the model's family has it. LayerNorm is RMSNorm of what is left when each value is less the
// mean. Each group of weight.cols values is normed by itself; without a weight there is no norm.
Vector normed_by(const Config& config, const Vector& x, const TensorView& weight) {
  Vector y = x;
  if (weight.empty()) return y;
  const Vector w = values_of(weight);
  const auto count = static_cast<double>(w.size());
  TYTO_ASSERT(x.size() % w.size() == 0);
  for (size_t group = 0; group < x.size(); group += w.size()) {
    double total = 0, squares = 0;
    for (size_t i = 0; config.layer_norm && i < w.size(); ++i) total += x[group + i];
    const double mean = total / count;
    for (size_t i = 0; i < w.size(); ++i) squares += (x[group + i] - mean) * (x[group + i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + config.norm_eps);
    for (size_t i = 0; i < w.size(); ++i)
      y[group + i] = static_cast<float>((x[group + i] - mean) * scale) * w[i];
  }
  return y;
}

// Each part of x by itself, with a part of the weight.
Vector normed_in_parts(const Config& config, const Vector& x, const Vector& weight) {
  const size_t width = weight.size() / config.recurrent_norms;
  Vector y;
  for (size_t first = 0; first < x.size(); first += width) {
    const auto part = std::as_bytes(std::span(weight).subspan(first, width));
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
    const Vector normed = normed_by(config, {begin, begin + static_cast<std::ptrdiff_t>(width)},
                                    {DType::f32, 1, width, part});
    y.insert(y.end(), normed.begin(), normed.end());
  }
  return y;
}

// y[r] = dot(weight[r], x) + bias[r]
Vector matmul(const TensorView& weight, const Vector& x, const TensorView& bias = {}) {
  Vector y(weight.rows);
  for (uint64_t r = 0; r < weight.rows; ++r) {
    const Vector row = values_of(weight, r);
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) total += static_cast<double>(row[i]) * x[i];
    y[r] = static_cast<float>(total);
  }
  if (!bias.empty()) {
    const Vector b = values_of(bias);
    for (size_t r = 0; r < y.size(); ++r) y[r] += b[r];
  }
  return y;
}

// A sink, where there is one, takes a share of its own.
void softmax(Vector& scores, const float* sink) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  double total = sink == nullptr ? 0 : std::exp(static_cast<double>(*sink) - largest);
  for (float& score : scores) total += score = std::exp(score - largest);
  for (float& score : scores) score = static_cast<float>(score / total);
}

float capped(float value, float cap) {
  return cap == 0 ? value : static_cast<float>(cap * std::tanh(double{value} / cap));
}

float activated(float x, Activation activation) {
  if (activation == Activation::sigmoid)
    return static_cast<float>(1.0 / (1.0 + std::exp(-double{x})));
  if (activation == Activation::none) return x;
  if (activation == Activation::relu) return std::max(x, 0.0f);
  if (activation == Activation::silu) return x / (1.0f + std::exp(-x));
  constexpr double kRootOfTwoOverPi = 0.79788456080286536;
  const double inner = kRootOfTwoOverPi * (x + 0.044715 * x * x * x);
  return static_cast<float>(0.5 * x * (1.0 + std::tanh(inner)));
}

Vector gated(const Vector& gate, const Vector& up, Activation activation) {
  Vector y(up.size());
  for (size_t i = 0; i < y.size(); ++i) {
    if (activation != Activation::swiglu_oai) {
      y[i] = activated(gate[i], activation) * up[i];
      continue;
    }
    const float bounded = std::min(gate[i], 7.0f);
    y[i] = bounded / (1.0f + std::exp(-1.702f * bounded)) * (std::clamp(up[i], -7.0f, 7.0f) + 1);
  }
  return y;
}

// Some values of a row, as a vector of length one.
Vector of_length_one(const Vector& row, size_t first, size_t count) {
  double squares = 1e-6;
  for (size_t i = 0; i < count; ++i)
    squares += static_cast<double>(row[first + i]) * row[first + i];
  Vector y;
  for (size_t i = 0; i < count; ++i)
    y.push_back(static_cast<float>(row[first + i] / std::sqrt(squares)));
  return y;
}

void add(Vector& x, const Vector& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

Reference::Reference(const Model& model, OnStep on_step)
    : model_(model),
      on_step_(std::move(on_step)),
      frequencies_(rope_frequencies(model.config)),
      layers_(model.config.layers) {
  TYTO_ASSERT(model.has_weights());
}

std::vector<float> Reference::forward(Token token) {
  const Weights& weights = model_.weights;
  const Config& config = model_.config;

  Vector x = values_of(weights.embedding, static_cast<uint64_t>(token));
  show(Role::embedding, x);
  scale(Role::embed_scale, x, config.embedding_scale);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const LayerWeights& layer = weights.layers[l];
    layer_ = static_cast<uint16_t>(l);
    Vector in = norm(Role::attn_norm, x, layer.attn_norm);
    Vector delta = mixed(layer, layers_[l], in);
    delta = norm(Role::attn_post_norm, delta, layer.attn_post_norm);
    scale(Role::attn_scale, delta, config.residual_scale);
    add(x, delta);
    show(Role::attn_residual, x);
    if (!config.parallel_residual) in = norm(Role::ffn_norm, x, layer.ffn_norm);
    delta = feed_forward(layer, in);
    delta = norm(Role::ffn_post_norm, delta, layer.ffn_post_norm);
    scale(Role::ffn_scale, delta, config.residual_scale);
    add(x, delta);
    show(Role::ffn_residual, x);
  }
  layer_ = kNoLayer;
  ++position_;
  show(Role::head_rows, x);
  Vector normed = normed_by(config, x, weights.final_norm);
  show(Role::final_norm, normed);
  scale(Role::logit_scale, normed, 1 / config.logit_divisor);
  Vector logits = project(Role::lm_head, weights.head, weights.head_lora, normed);
  if (config.logit_cap != 0) {
    for (float& logit : logits) logit = capped(logit, config.logit_cap);
    show(Role::logit_cap, logits);
  }
  if (!all_finite(logits)) fail_non_finite("logits", model_, ErrorCode::input, "the f32 reference");
  return logits;
}

void Reference::show(Role role, const Vector& values) const {
  if (on_step_) on_step_(role, layer_, values);
}

std::vector<float> Reference::norm(Role role, const Vector& x, const TensorView& weight) const {
  if (weight.empty()) return x;
  Vector y = normed_by(model_.config, x, weight);
  show(role, y);
  return y;
}

std::vector<float> Reference::project(Role role, const TensorView& weight, const LowRank& lora,
                                      const Vector& x, const TensorView& bias) const {
  Vector y = matmul(weight, x, bias);
  show(role, y);
  if (lora.empty()) return y;
  const Vector inner = matmul(lora.a, x);
  show(role | Facet::lora_a, inner);
  const Vector more = matmul(lora.b, inner);
  show(role | Facet::lora_b, more);
  add(y, more);
  show(role | Facet::lora_sum, y);
  return y;
}

void Reference::scale(Role role, Vector& x, float factor) const {
  if (factor == 1) return;
  for (float& value : x) value *= factor;
  show(role, x);
}

std::vector<float> Reference::attention(const LayerWeights& weights, Layer& layer,
                                        const Vector& x) {
  const Config& config = model_.config;
  const size_t dim = config.head_dim;

  Vector q = project(Role::q, weights.q, weights.q_lora, x, weights.q_bias), gate;
  if (config.attention_gate) {
    const Vector both = std::exchange(q, {});
    for (size_t i = 0; i < both.size(); ++i) (i / dim % 2 == 0 ? q : gate).push_back(both[i]);
    show(Role::attn_gate, gate);
  }
  Vector k = project(Role::k, weights.k, weights.k_lora, x, weights.k_bias);
  const Vector v = project(Role::v, weights.v, weights.v_lora, x, weights.v_bias);
  q = norm(Role::q | Facet::norm, q, weights.q_norm);
  k = norm(Role::k | Facet::norm, k, weights.k_norm);
  if (config.rotates(layer_)) {
    rotate(q);
    rotate(k);
    show(Role::q_rope, q);
    show(Role::k_rope, k);
  }
  scale(Role::q_scale, q, config.query_scale());
  show(Role::k_cache, k);
  show(Role::v_cache, v);
  layer.keys.insert(layer.keys.end(), k.begin(), k.end());
  layer.values.insert(layer.values.end(), v.begin(), v.end());

  const size_t first =
      config.is_windowed(layer_) && position_ >= config.window ? position_ + 1 - config.window : 0;
  const Vector sinks = weights.sinks.empty() ? Vector() : values_of(weights.sinks);
  Vector mixed(config.q_width(), 0.0f);
  for (size_t head = 0; head < config.heads; ++head) {
    const size_t kv_head = head / (config.heads / config.kv_heads);
    const auto at = [&](size_t p, size_t i) {
      return ((first + p) * config.kv_heads + kv_head) * dim + i;
    };
    Vector scores(position_ + 1 - first);
    for (size_t p = 0; p < scores.size(); ++p) {
      double dot = 0;
      for (size_t i = 0; i < dim; ++i)
        dot += static_cast<double>(q[head * dim + i]) * layer.keys[at(p, i)];
      scores[p] =
          capped(static_cast<float>(dot / std::sqrt(static_cast<double>(dim))), config.score_cap);
    }
    softmax(scores, sinks.empty() ? nullptr : &sinks[head]);
    for (size_t p = 0; p < scores.size(); ++p)
      for (size_t i = 0; i < dim; ++i) mixed[head * dim + i] += scores[p] * layer.values[at(p, i)];
  }
  show(Role::attention, mixed);
  if (config.attention_gate) {
    mixed = gated(gate, mixed, Activation::sigmoid);
    show(Role::attn_gated, mixed);
  }
  return project(Role::o, weights.o, weights.o_lora, mixed, weights.o_bias);
}

std::vector<float> Reference::mixed(const LayerWeights& weights, Layer& layer, const Vector& x) {
  switch (model_.config.kind_of(layer_)) {
    case LayerKind::attention:
      break;
    case LayerKind::short_conv:
      return short_conv(weights, layer, x);
    case LayerKind::delta_rule:
      return delta_rule(weights, layer, x);
    case LayerKind::mamba2:
      return mamba2(weights, layer, x);
  }
  return attention(weights, layer, x);
}

// Keys and queries of length one, then each head's state: it fades, what it has under the key is
// moved towards the value, and the query reads it.
std::vector<float> Reference::delta_rule(const LayerWeights& weights, Layer& layer,
                                         const Vector& x) {
  const RecurrentHeads& shape = model_.config.recurrent;
  const Vector in = project(Role::recur_in, weights.recur_in, {}, x);
  const Vector gate = project(Role::recur_gate, weights.recur_gate, {}, x);
  Vector times, strengths;
  if (shape.is_joint) {
    const Vector both = project(Role::recur_both, weights.recur_both, {}, x);
    const size_t group = shape.heads / shape.key_heads;
    for (size_t i = 0; i < both.size(); ++i)
      (i / group % 2 == 0 ? strengths : times).push_back(both[i]);
    show(Role::recur_time, times);
  } else {
    times = project(Role::recur_time, weights.recur_time, {}, x);
    strengths = project(Role::recur_strength, weights.recur_strength, {}, x);
  }
  const Vector biases = values_of(weights.recur_time_bias), rates = values_of(weights.recur_rates);
  Vector row = convolved(weights.conv, layer, in);
  for (float& value : row) value = activated(value, Activation::silu);
  show(Role::conv, row);
  const size_t keys = shape.keys(), width = shape.head_dim;
  layer.state.resize(size_t{shape.heads} * shape.key_dim * width);
  Vector y(shape.values());
  for (size_t h = 0; h < shape.heads; ++h) {
    const size_t key_head =
        shape.is_tiled ? h % shape.key_heads : h / (shape.heads / shape.key_heads);
    const Vector query = of_length_one(row, key_head * shape.key_dim, shape.key_dim);
    const Vector key = of_length_one(row, keys + key_head * shape.key_dim, shape.key_dim);
    const double time = std::log1p(std::exp(static_cast<double>(times[h]) + biases[h]));
    const double decay = std::exp(rates[h] * time),
                 strength = 1 / (1 + std::exp(-double{strengths[h]}));
    for (size_t c = 0; c < width; ++c) {
      const auto at = [&](size_t i) -> double& {
        return layer.state[(h * shape.key_dim + i) * width + c];
      };
      double found = 0, answer = 0;
      for (size_t i = 0; i < key.size(); ++i) found += (at(i) *= decay) * key[i];
      const double added = strength * (row[2 * keys + h * width + c] - found);
      for (size_t i = 0; i < key.size(); ++i) answer += (at(i) += key[i] * added) * query[i];
      y[h * width + c] = static_cast<float>(answer / std::sqrt(static_cast<double>(key.size())));
    }
  }
  show(Role::recur, y);
  y = norm(Role::recur | Facet::norm, y, weights.recur_norm);
  y = gated(gate, y, Activation::silu);
  show(Role::recur_gated, y);
  return project(Role::o, weights.o, weights.o_lora, y);
}

// Each head's state fades, takes in its values under B, and answers C; a share of the values is
// added.
std::vector<float> Reference::mamba2(const LayerWeights& weights, Layer& layer, const Vector& x) {
  const RecurrentHeads& shape = model_.config.recurrent;
  const Vector gate = project(Role::recur_gate, weights.recur_gate, {}, x);
  const Vector in = project(Role::recur_in, weights.recur_in, {}, x);
  const Vector times = project(Role::recur_time, weights.recur_time, {}, x);
  const Vector biases = values_of(weights.recur_time_bias), rates = values_of(weights.recur_rates);
  const Vector skips = values_of(weights.recur_skip);
  Vector row = convolved(weights.conv, layer, in);
  if (!weights.conv_bias.empty()) add(row, values_of(weights.conv_bias));
  for (float& value : row) value = activated(value, Activation::silu);
  show(Role::conv, row);
  const size_t width = shape.head_dim, group = shape.heads / shape.key_heads;
  layer.state.resize(size_t{shape.heads} * shape.key_dim * width);
  Vector y(shape.values());
  for (size_t h = 0; h < shape.heads; ++h) {
    const float* b = row.data() + shape.values() + h / group * shape.key_dim;
    const float* c = b + shape.keys();
    const double time =
        std::clamp(std::log1p(std::exp(static_cast<double>(times[h]) + biases[h])),
                   double{model_.config.least_time}, double{model_.config.most_time});
    for (size_t i = 0; i < width; ++i) {
      const double value = row[h * width + i];
      double answer = skips[h] * value;
      for (size_t n = 0; n < shape.key_dim; ++n) {
        double& state = layer.state[(h * shape.key_dim + n) * width + i];
        state = std::exp(rates[h] * time) * state + time * value * b[n];
        answer += state * c[n];
      }
      y[h * width + i] = static_cast<float>(answer);
    }
  }
  show(Role::recur, y);
  y = gated(gate, y, Activation::silu);
  show(Role::recur_gated, y);
  y = normed_in_parts(model_.config, y, values_of(weights.recur_norm));
  show(Role::recur | Facet::norm, y);
  return project(Role::o, weights.o, weights.o_lora, y);
}

std::vector<float> Reference::short_conv(const LayerWeights& weights, Layer& layer,
                                         const Vector& x) {
  const Vector gate = project(Role::conv_gate, weights.conv_gate, weights.conv_gate_lora, x);
  const Vector inner = project(Role::conv_x, weights.conv_x, weights.conv_x_lora, x);
  const Vector out_gate =
      project(Role::conv_out_gate, weights.conv_out_gate, weights.conv_out_gate_lora, x);
  const Vector let_in = gated(gate, inner, Activation::none);
  show(Role::conv_in, let_in);
  const Vector mixed = convolved(weights.conv, layer, let_in);
  show(Role::conv, mixed);
  const Vector let_out = gated(out_gate, mixed, Activation::none);
  show(Role::conv_gated, let_out);
  return project(Role::o, weights.o, weights.o_lora, let_out);
}

// The last weight of each value is for the row itself.
std::vector<float> Reference::convolved(const TensorView& weight, Layer& layer,
                                        const Vector& x) const {
  const size_t taps = model_.config.conv_taps;
  const Vector weights = values_of(weight);  // [values][taps]
  layer.rows.resize(taps - 1, Vector(x.size()));
  layer.rows.push_back(x);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    double sum = 0;
    for (size_t tap = 0; tap < taps; ++tap)
      sum += static_cast<double>(weights[i * taps + tap]) * layer.rows[tap][i];
    y[i] = static_cast<float>(sum);
  }
  layer.rows.erase(layer.rows.begin());
  return y;
}

std::vector<Reference::Choice> Reference::choose_by_sigmoid(const LayerWeights& weights,
                                                            const Vector& x) const {
  const Config& config = model_.config;
  Vector shares = matmul(weights.router, x);
  for (float& share : shares) share = activated(share, Activation::sigmoid);
  Vector merits = shares;
  if (!weights.router_bias.empty()) add(merits, values_of(weights.router_bias));
  std::vector<uint32_t> order(config.experts);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return merits[a] > merits[b]; });
  order.resize(config.experts_used);
  std::ranges::sort(order);
  double total = 0;
  for (const uint32_t expert : order) total += shares[expert];
  if (!config.weighs_chosen_alone) total = 1;
  std::vector<Choice> chosen;
  for (const uint32_t expert : order)
    chosen.push_back({expert, static_cast<float>(config.expert_scale * shares[expert] / total)});
  return chosen;
}

// The experts of the largest scores in ascending order, and their weights.
std::vector<Reference::Choice> Reference::choose_experts(const LayerWeights& weights,
                                                         const Vector& x) const {
  const Config& config = model_.config;
  if (config.sigmoid_routing) return choose_by_sigmoid(weights, x);
  const Vector scores = matmul(weights.router, x, weights.router_bias);
  std::vector<uint32_t> order(config.experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  double total = 0;
  const uint32_t counted = config.weighs_chosen_alone ? config.experts_used : config.experts;
  for (uint32_t i = 0; i < counted; ++i)
    total += std::exp(static_cast<double>(scores[order[i]]) - scores[order[0]]);
  std::vector<Choice> chosen;
  for (uint32_t i = 0; i < config.experts_used; ++i)
    chosen.push_back({order[i], static_cast<float>(std::exp(static_cast<double>(scores[order[i]]) -
                                                            scores[order[0]]) /
                                                   total)});
  std::sort(chosen.begin(), chosen.end(),
            [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
  return chosen;
}

std::vector<float> Reference::expert_product(const TensorView& weight, const TensorView& bias,
                                             uint32_t expert, const Vector& x) const {
  const uint64_t rows = weight.rows / model_.config.experts;
  Vector y = matmul(
      {weight.dtype, rows, weight.cols,
       weight.bytes.subspan(expert * rows * weight.row_stride(), rows * weight.row_stride())},
      x);
  if (bias.empty()) return y;
  const Vector of_all = values_of(bias);
  for (uint64_t i = 0; i < rows; ++i) y[i] += of_all[expert * rows + i];
  return y;
}

// What each chosen expert gives, one after the other as devices have them.
std::vector<float> Reference::mixture(const LayerWeights& weights, const Vector& x) {
  const std::vector<Choice> chosen = choose_experts(weights, x);
  Vector ids, shares, gates, ups, products, downs, out(x.size(), 0.0f);
  const auto append = [](Vector& to, const Vector& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  for (const Choice& choice : chosen) {
    const Vector gate = expert_product(weights.gate, weights.expert_gate_bias, choice.expert, x);
    const Vector up = expert_product(weights.up, weights.expert_up_bias, choice.expert, x);
    const Vector hidden = gated(gate, up, model_.config.activation);
    const Vector down =
        expert_product(weights.down, weights.expert_down_bias, choice.expert, hidden);
    for (size_t i = 0; i < out.size(); ++i) out[i] += choice.weight * down[i];
    ids.push_back(static_cast<float>(choice.expert));
    shares.push_back(choice.weight);
    append(gates, gate);
    append(ups, up);
    append(products, hidden);
    append(downs, down);
  }
  show(Role::expert_ids, ids);
  show(Role::router, shares);
  show(Role::expert_gate, gates);
  show(Role::expert_up, ups);
  show(Role::expert_swiglu, products);
  show(Role::expert_down, downs);
  show(Role::expert_mix, out);
  return out;
}

// The expert of every token, times a sigmoid of its own.
void Reference::add_shared(const LayerWeights& weights, const Vector& x, Vector& sum) const {
  const Vector gate = project(Role::shared_gate, weights.shared_gate, {}, x);
  const Vector up = project(Role::shared_up, weights.shared_up, {}, x);
  const Vector hidden = gated(gate, up, model_.config.activation);
  show(Role::shared_swiglu, hidden);
  const Vector down = project(Role::shared_down, weights.shared_down, {}, hidden);
  float share = 1;
  if (model_.config.shared_gate)
    share = activated(project(Role::shared_share, weights.shared_share, {}, x).front(),
                      Activation::sigmoid);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * down[i];
  show(Role::shared_mix, sum);
}

std::vector<float> Reference::feed_forward(const LayerWeights& weights, const Vector& x) {
  if (model_.config.has_experts_in(layer_)) {
    Vector sum = mixture(weights, x);
    if (model_.config.shared_hidden != 0) add_shared(weights, x, sum);
    return sum;
  }
  const Vector gate = project(Role::gate, weights.gate, weights.gate_lora, x);
  const Vector up = project(Role::up, weights.up, weights.up_lora, x);
  const Vector hidden = gated(gate, up, model_.config.activation);
  show(Role::swiglu, hidden);
  return project(Role::down, weights.down, weights.down_lora, hidden);
}

void Reference::rotate(Vector& heads) const {
  const size_t dim = model_.config.head_dim, half = model_.config.rope_width() / 2;
  // Windowed layers may have a rope of their own, whose frequencies follow.
  const bool is_own = frequencies_.size() > half && model_.config.is_windowed(layer_);
  const float factor = is_own ? 1.0f : model_.config.rope.attention_factor;
  const float* frequencies = frequencies_.data() + (is_own ? half : 0);
  const bool pairs = model_.config.rope.layout == RopeLayout::pairs;
  for (size_t head = 0; head < heads.size(); head += dim)
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position_) * frequencies[i];
      float& a = heads[head + (pairs ? 2 * i : i)];
      float& b = heads[head + (pairs ? 2 * i + 1 : i + half)];
      const float first = a, second = b;
      a = factor * (first * std::cos(angle) - second * std::sin(angle));
      b = factor * (second * std::cos(angle) + first * std::sin(angle));
    }
}

}  // namespace tyto
