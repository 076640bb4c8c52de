#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/spelling.h"

namespace tyto {
namespace {

// Llama 3.1's rule: long wavelengths are slowed by `factor`, short ones are kept, and the band
// between them is interpolated.
double llama3_scale(double frequency, const Rope& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double longest_wave = rope.original_context / static_cast<double>(rope.low_freq_factor);
  const double shortest_wave = rope.original_context / static_cast<double>(rope.high_freq_factor);
  if (wavelength < shortest_wave) return frequency;
  if (wavelength > longest_wave) return frequency / rope.factor;
  const double smooth = (rope.original_context / wavelength - rope.low_freq_factor) /
                        (static_cast<double>(rope.high_freq_factor) - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Yarn's rule, by how often a frequency turns in the original context. The band between those that
// are kept and those that are slowed is told by the numbers of its first and last frequency.
double yarn_scale(size_t number, const Rope& rope, uint32_t width) {
  const auto number_of = [&](double turns) {
    return width * std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(static_cast<double>(rope.theta)));
  };
  double first = number_of(rope.beta_fast), last = number_of(rope.beta_slow);
  if (rope.whole_band) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, width - 1.0);
  if (first == last) last += 0.001;
  const double slowed =
      std::clamp((static_cast<double>(number) - first) / (last - first), 0.0, 1.0);
  return 1 - slowed + slowed / rope.factor;
}

// Dynamic scaling's: the rope base grows with the length of the sequence.
std::vector<float> dynamic_divisors(const Rope& rope, uint32_t width, uint32_t positions) {
  if (positions <= rope.original_context) return {};
  const double length = static_cast<double>(rope.factor) * positions / rope.original_context;
  const double growth = std::pow(length - (rope.factor - 1.0), width / (width - 2.0));
  std::vector<float> divisors(width / 2);
  for (size_t i = 0; i < divisors.size(); ++i)
    divisors[i] = static_cast<float>(std::pow(growth, 2.0 * static_cast<double>(i) / width));
  return divisors;
}

struct Bound {
  const char* name;
  uint32_t Config::* field;
  uint32_t limit;  // far above any public model, low enough for 64-bit products of any three
};

constexpr Bound kBounds[] = {
    {"layer count", &Config::layers, kMostLayers},
    {"embedding width", &Config::emb, 1u << 20},
    {"feed-forward width", &Config::hidden, 1u << 22},
    {"head count", &Config::heads, 4096},
    {"key/value head count", &Config::kv_heads, 4096},
    {"head width", &Config::head_dim, 4096},
    {"vocabulary size", &Config::vocab, 1u << 24},
    {"context length", &Config::context, 1u << 27},
};

void check_experts(const Config& config, const std::string& where) {
  constexpr uint32_t kMostExperts = 4096;
  if (config.experts > kMostExperts)
    fail_input(where, "{} experts are more than {}", config.experts, kMostExperts);
  if (config.experts_used == 0 || config.experts_used > config.experts)
    fail_input(where, "a token takes {} of {} experts", config.experts_used, config.experts);
  if (config.shared_hidden > 1u << 22)
    fail_input(where, "a shared expert of a width of {}", config.shared_hidden);
  if (config.dense_layers >= config.layers)
    fail_input(where, "{} of {} layers have no experts", config.dense_layers, config.layers);
  if (config.expert_hidden == 0 || config.expert_hidden > 1u << 22)
    fail_input(where, "experts of a width of {}", config.expert_hidden);
}

void check_heads(const Config& config, const std::string& where) {
  const RecurrentHeads& shape = config.recurrent;
  constexpr uint32_t kMostHeads = 4096, kMostWidth = 1024;
  for (const uint32_t count : {shape.key_heads, shape.heads})
    if (count == 0 || count > kMostHeads)
      fail_input(where, "recurrent layers with {} and {} heads, outside 1..{}", shape.key_heads,
                 shape.heads, kMostHeads);
  if (shape.heads % shape.key_heads != 0)
    fail_input(where, "{} value heads of recurrent layers cannot share {} key heads evenly",
               shape.heads, shape.key_heads);
  for (const uint32_t width : {shape.key_dim, shape.head_dim})
    if (width == 0 || width > kMostWidth)
      fail_input(where, "heads of recurrent layers have widths {} and {}, outside 1..{}",
                 shape.key_dim, shape.head_dim, kMostWidth);
  if (config.recurrent_norms == 0 || shape.values() % config.recurrent_norms != 0)
    fail_input(where, "{} values of recurrent layers are normed in {} parts", shape.values(),
               config.recurrent_norms);
  if (!(config.least_time >= 0 && config.least_time <= config.most_time))
    fail_input(where, "times of recurrent layers from {} to {}", config.least_time,
               config.most_time);
}

// Attention is what tells positions apart, so a model without any is none that is known here.
void check_layer_kinds(const Config& config, const std::string& where) {
  constexpr uint32_t kMostTaps = 4;
  if (config.layer_kinds.size() != config.layers)
    fail_input(where, "says of {} layers what they are, and has {}", config.layer_kinds.size(),
               config.layers);
  if (config.attention_layers() == 0) fail_unsupported(where, "none of its layers attends");
  if (config.has_kind(LayerKind::delta_rule) || config.has_kind(LayerKind::mamba2))
    check_heads(config, where);
  if (config.conv_taps < 2 || config.conv_taps > kMostTaps)
    fail_unsupported(where, "convolutions over {} positions; 2 to {} are supported",
                     config.conv_taps, kMostTaps);
  if (config.norms != Norms::before || config.parallel_residual)
    fail_unsupported(where, "recurrent layers with norms behind them, or beside the feed-forward");
}

}  // namespace

uint32_t Config::attention_layers() const {
  if (layer_kinds.empty()) return layers;
  return static_cast<uint32_t>(std::ranges::count(layer_kinds, LayerKind::attention));
}

bool Config::has_kind(LayerKind kind) const {
  return std::ranges::find(layer_kinds, kind) != layer_kinds.end();
}

float Config::score_scale() const {
  return attention_scale == 0 ? 1.0f / std::sqrt(static_cast<float>(head_dim)) : attention_scale;
}

float Config::query_scale() const {
  return attention_scale == 0 ? 1.0f : attention_scale * std::sqrt(static_cast<float>(head_dim));
}

std::string differences_from_llama(const Config& config) {
  std::vector<std::string> found;
  if (config.embedding_scale != 1 || config.residual_scale != 1 || config.attention_scale != 0 ||
      config.logit_divisor != 1)
    found.emplace_back("multipliers");
  if (config.layer_norm) found.emplace_back("LayerNorms");
  if (config.parallel_residual) found.emplace_back("attention beside the feed-forward");
  if (config.norms != Norms::before) found.emplace_back("norms behind attention and feed-forward");
  if (config.wide_qk_norm) found.emplace_back("a norm over all heads of Q and K");
  if (config.rope.rotated != 0) found.emplace_back("heads that rotate in part");
  if (config.rope.attention_factor != 1) found.emplace_back("a factor of rotated values");
  if (!config.unrotated.empty()) found.emplace_back("layers without rope");
  if (config.window != 0) found.emplace_back("sliding windows");
  if (config.score_cap != 0 || config.logit_cap != 0)
    found.emplace_back("bounds of scores and logits");
  if (config.activation == Activation::gelu_tanh) found.emplace_back("gates through GELU");
  if (config.activation == Activation::swiglu_oai) found.emplace_back("bounded gates");
  if (config.sinks) found.emplace_back("attention sinks");
  if (config.adapted) found.emplace_back("LoRA adapters");
  if (config.has_experts()) found.emplace_back("experts");
  if (config.o_bias) found.emplace_back("a bias of the attention's output");
  if (config.attention_gate) found.emplace_back("a gate of the attention's output");
  if (config.has_states()) found.emplace_back("recurrent layers");
  return joined(found, ", ");
}

float checked(double value, const RealRange& range, const std::string& where) {
  if (!(value >= range.least && value <= range.most))  // true for NaN
    fail_input(where, "{} is outside {}..{}", value, range.least, range.most);
  return static_cast<float>(value);
}

void check(const Config& config, const std::string& where) {
  for (const Bound& bound : kBounds) {
    const uint32_t value = config.*bound.field;
    if (value == 0 || value > bound.limit)
      fail_input(where, "{} {} is outside 1..{}", bound.name, value, bound.limit);
  }
  if (config.heads % config.kv_heads != 0)
    fail_input(where, "{} query heads cannot share {} key/value heads evenly", config.heads,
               config.kv_heads);
  if (config.head_dim % 2 != 0)
    fail_input(where, "head width {} is odd, rotation needs pairs", config.head_dim);
  if (config.layer_norm && config.qk_norm)
    fail_unsupported(where, "LayerNorms of each head of Q and K");
  if (config.parallel_residual && config.norms != Norms::before)
    fail_input(where, "has no norm that attention and feed-forward could share");
  if (!config.unrotated.empty() && config.unrotated.size() != config.layers)
    fail_input(where, "says of {} layers whether they rotate, and has {}", config.unrotated.size(),
               config.layers);
  if (!config.windowed.empty() && config.windowed.size() != config.layers)
    fail_input(where, "says of {} layers whether they have a window, and has {}",
               config.windowed.size(), config.layers);
  if (config.has_experts()) check_experts(config, where);
  if (config.has_states()) check_layer_kinds(config, where);
  const Rope& rope = config.rope;
  const bool has_original =
      rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::dynamic;
  if (has_original && (rope.original_context == 0 || rope.factor < 1 || config.rope_width() < 4))
    fail_input(where, "a rope scaling by {} of {} positions, of {} values of a head", rope.factor,
               rope.original_context, config.rope_width());
  if (rope.scaling == RopeScaling::yarn && rope.beta_fast < rope.beta_slow)
    fail_input(where, "yarn rope scaling has beta_fast {} and beta_slow {}", rope.beta_fast,
               rope.beta_slow);
  if (rope.scaling == RopeScaling::llama3 &&
      (rope.high_freq_factor <= rope.low_freq_factor || rope.original_context == 0))
    fail_input(where, "llama3 rope scaling has frequency factors {} and {} over a context of {}",
               rope.low_freq_factor, rope.high_freq_factor, rope.original_context);
  if (rope.rotated > config.head_dim || rope.rotated % 2 != 0)
    fail_input(where, "{} of {} values of a head rotate", rope.rotated, config.head_dim);
  for (const auto* divisors : {&rope.frequency_divisors, &rope.short_divisors, &rope.long_divisors})
    if (!divisors->empty() && divisors->size() != config.rope_width() / 2)
      fail_input(where, "{} rope divisors for {} values that rotate", divisors->size(),
                 config.rope_width());
  if (rope.short_divisors.empty() != rope.long_divisors.empty())
    fail_input(where, "has rope factors for either short or long sequences, not for both");
}

void set_windowed(Config& config, std::vector<bool> windowed) {
  const auto has = [&](bool value) { return std::ranges::find(windowed, value) != windowed.end(); };
  if (has(false) && !has(true)) config.window = 0;
  if (has(false) && has(true))
    config.windowed = std::move(windowed);
  else
    config.windowed.clear();
}

std::vector<StateSize> state_sizes(const Config& config, uint32_t layer) {
  switch (config.kind_of(layer)) {
    case LayerKind::attention:
      return {};
    case LayerKind::short_conv:
      return {{config.conv_taps - 1, config.emb}};
    case LayerKind::delta_rule:
    case LayerKind::mamba2:
      return {{config.conv_taps - 1, config.recurrent.channels()},
              {config.recurrent.heads * config.recurrent.key_dim, config.recurrent.head_dim}};
  }
  return {};
}

uint64_t state_bytes(const Config& config) {
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < config.layers && config.has_states(); ++layer)
    for (const StateSize& size : state_sizes(config, layer))
      bytes += sizeof(float) * size.rows * size.cols;
  return bytes;
}

void set_layer_kinds(Config& config, std::vector<LayerKind> kinds) {
  const bool all_attend =
      std::ranges::all_of(kinds, [](LayerKind kind) { return kind == LayerKind::attention; });
  config.layer_kinds = all_attend ? std::vector<LayerKind>() : std::move(kinds);
}

void choose_divisors(Config& config, uint32_t context) {
  Rope& rope = config.rope;
  if (rope.scaling == RopeScaling::dynamic) {
    const double most = static_cast<double>(rope.factor) * rope.original_context;
    config.context =
        static_cast<uint32_t>(std::min<double>(most, std::max(context, rope.original_context)));
    rope.frequency_divisors = dynamic_divisors(rope, config.rope_width(), config.context);
  }
  if (rope.scaling != RopeScaling::longrope) return;
  const uint32_t positions = context == 0 ? config.context : context;
  rope.frequency_divisors =
      positions > rope.original_context ? rope.long_divisors : rope.short_divisors;
}

std::vector<float> rope_frequencies(const Config& config) {
  const Rope& rope = config.rope;
  const uint32_t width = config.rope_width();
  std::vector<float> frequencies(width / 2);
  TYTO_ASSERT(rope.frequency_divisors.empty() ||
              rope.frequency_divisors.size() == frequencies.size());
  const auto plain = [&](float theta, size_t i) {
    return std::pow(static_cast<double>(theta), -2.0 * static_cast<double>(i) / width);
  };
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double frequency = plain(rope.theta, i);
    if (!rope.frequency_divisors.empty())
      frequency /= rope.frequency_divisors[i];
    else if (rope.scaling == RopeScaling::llama3)
      frequency = llama3_scale(frequency, rope);
    if (rope.scaling == RopeScaling::linear) frequency /= rope.factor;
    if (rope.scaling == RopeScaling::yarn) frequency *= yarn_scale(i, rope, width);
    frequencies[i] = static_cast<float>(frequency);
  }
  if (config.window_theta != 0)
    for (size_t i = 0; i < width / 2; ++i)
      frequencies.push_back(static_cast<float>(plain(config.window_theta, i)));
  return frequencies;
}

}  // namespace tyto
