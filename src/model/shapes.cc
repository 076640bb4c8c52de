#include "model/shapes.h"

#include <strings.h>

#include <cmath>

#include "base/error.h"
#include "base/spelling.h"
#include "model/families.h"

namespace tyto {
namespace {

struct Shape {
  std::string_view name;
  std::string_view architecture;
  uint32_t layers, emb, hidden, heads, kv_heads, head_dim, vocab, context;
  uint32_t theta;
  uint32_t llama3_factor;  // 0: no rope scaling
  bool tied;
  void (*change)(Config&) = nullptr;  // what the columns do not say
};

void granite_2b(Config& config) {
  config.embedding_scale = 12;
  config.residual_scale = 0.22f;
  config.attention_scale = 0.015625f;
  config.logit_divisor = 8;
}

// As published, a few of their factors apart: what they are costs no time.
void phi_long(Config& config, uint32_t original) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::longrope;
  rope.original_context = original;
  for (uint32_t i = 0; i < config.rope_width() / 2; ++i) {
    const float at = static_cast<float>(i) / static_cast<float>(config.rope_width() / 2);
    rope.short_divisors.push_back(1 + at);
    rope.long_divisors.push_back(1 + 60 * at * at);
  }
  const double scale = static_cast<double>(config.context) / original;
  rope.attention_factor =
      static_cast<float>(std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original))));
}

void phi_35_mini(Config& config) {
  phi_long(config, 4096);
}

void phi_4_mini(Config& config) {
  config.rope.rotated = config.head_dim / 4 * 3;
  phi_long(config, 4096);
}

void tiny_phi(Config& config) {
  config.rope.rotated = config.head_dim / 4 * 3;
  phi_long(config, 256);
}

void gemma(Config& config, uint32_t window) {
  const Family& family = *family_of_model_type(config.architecture);
  config.window = window;
  set_windowed(config, windowed_layers(config.layers, family.global_step));
  config.window_theta = family.window_theta;
  config.score_cap = family.score_cap;
  config.logit_cap = family.logit_cap;
}

void gemma_2_2b(Config& config) {
  gemma(config, 4096);
}

void gemma_3_1b(Config& config) {
  gemma(config, 512);
}

// Windows that texts of a test are longer than.
void tiny_gemma2(Config& config) {
  gemma(config, 24);
}

// The factor of Gemma 3's larger models.
void tiny_gemma3(Config& config) {
  gemma(config, 24);
  config.rope.scaling = RopeScaling::linear;
  config.rope.factor = 8;
}

void tiny_window(Config& config) {
  config.window = 24;
}

void tiny_yarn(Config& config) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  rope.factor = 4;
  rope.original_context = config.context / 4;
  rope.attention_factor = static_cast<float>(1 + 0.1 * std::log(4.0));
}

void aya_23(Config& config) {
  config.norm_eps = 1e-5f;
  config.logit_divisor = 16;
}

void experts(Config& config, uint32_t count, uint32_t used, uint32_t width) {
  config.experts = count;
  config.experts_used = used;
  config.expert_hidden = width;
}

void qwen3_30b(Config& config) {
  experts(config, 128, 8, 768);
}

void tiny_moe(Config& config) {
  experts(config, 16, 4, 256);
}

void tiny_mixtral(Config& config) {
  experts(config, 4, 2, config.hidden);
}

// YaRN as GGUF has it: the published model's band is not rounded to whole frequencies.
void gpt_oss(Config& config, uint32_t window, float factor) {
  const Family& family = *family_of_model_type(config.architecture);
  config.window = window;
  set_windowed(config, windowed_layers(config.layers, family.global_step));
  config.norm_eps = family.norm_eps;
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  rope.factor = factor;
  rope.original_context = static_cast<uint32_t>(static_cast<float>(config.context) / factor);
  rope.attention_factor = static_cast<float>(1 + 0.1 * std::log(factor));
}

void gpt_oss_20b(Config& config) {
  experts(config, 32, 4, config.hidden);
  gpt_oss(config, 128, 32);
}

void tiny_gpt_oss(Config& config) {
  experts(config, 8, 2, config.hidden);
  gpt_oss(config, 24, 4);
}

// clang-format off
constexpr Shape kShapes[] = {
    // name             family     lay.  emb hidden hd. kv dim   vocab context     theta l3 tied
    {"llama-3.2-1b",   "llama",   16, 2048,  8192, 32,  8,  64, 128256, 131072,   500000, 32, true},
    {"llama-3.2-3b",   "llama",   28, 3072,  8192, 24,  8, 128, 128256, 131072,   500000, 32, true},
    {"llama-3.1-8b",   "llama",   32, 4096, 14336, 32,  8, 128, 128256, 131072,   500000,  8, false},
    {"tinyllama-1.1b", "llama",   22, 2048,  5632, 32,  4,  64,  32000,   2048,    10000,  0, false},
    {"smollm2-1.7b",   "llama",   24, 2048,  8192, 32, 32,  64,  49152,   8192,   130000,  0, true},
    {"qwen2.5-0.5b",   "qwen2",   24,  896,  4864, 14,  2,  64, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-1.5b",   "qwen2",   28, 1536,  8960, 12,  2, 128, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-3b",     "qwen2",   36, 2048, 11008, 16,  2, 128, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-7b",     "qwen2",   28, 3584, 18944, 28,  4, 128, 152064,  32768,  1000000,  0, false},
    {"qwen3-0.6b",     "qwen3",   28, 1024,  3072, 16,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-1.7b",     "qwen3",   28, 2048,  6144, 16,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-4b",       "qwen3",   36, 2560,  9728, 32,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-8b",       "qwen3",   36, 4096, 12288, 32,  8, 128, 151936,  40960,  1000000,  0, false},
    {"granite-3.3-2b", "granite", 40, 2048,  8192, 32,  8,  64,  49159, 131072, 10000000,  0, true, granite_2b},
    {"olmo-2-1b",      "olmo2",   16, 2048,  8192, 16, 16, 128, 100352,   4096,   500000,  0, false},
    {"smollm3-3b",     "smollm3", 36, 2048, 11008, 16,  4, 128, 128256,  65536,  5000000,  0, true},
    {"phi-3.5-mini",   "phi3",    32, 3072,  8192, 32, 32,  96,  32064, 131072,    10000,  0, false, phi_35_mini},
    {"phi-4-mini",     "phi3",    32, 3072,  8192, 24,  8, 128, 200064, 131072,    10000,  0, true, phi_4_mini},
    {"aya-23-8b",      "cohere",  32, 4096, 14336, 32,  8, 128, 256000,   8192,    10000,  0, true, aya_23},
    // No public models: small enough for a test, wide enough for every block type.
    {"tiny",           "llama",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true},
    {"tiny-granite",   "granite",  2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, granite_2b},
    {"tiny-olmo2",     "olmo2",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false},
    {"tiny-smollm3",   "smollm3",  4,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true},
    {"tiny-phi",       "phi3",     2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_phi},
    {"gemma-2-2b",     "gemma2",  26, 2304,  9216,  8,  4, 256, 256000,   8192,    10000,  0, true, gemma_2_2b},
    {"gemma-3-1b", "gemma3_text", 26, 1152,  6912,  4,  1, 256, 262144,  32768,  1000000,  0, true, gemma_3_1b},
    {"tiny-gemma2",    "gemma2",   4,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, tiny_gemma2},
    {"tiny-gemma3", "gemma3_text", 7,  256,   512,  4,  2,  64,    512,    512,  1000000,  0, true, tiny_gemma3},
    {"tiny-mistral-window", "mistral", 2, 256, 512, 4,  2,  64,    512,    512,    10000,  0, false, tiny_window},
    {"tiny-yarn",      "llama",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, tiny_yarn},
    {"tiny-cohere",    "cohere",   2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, aya_23},
    {"tiny-moe",       "qwen3_moe", 2, 256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_moe},
    {"tiny-mixtral",   "mixtral",  2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_mixtral},
    {"tiny-gpt-oss",   "gpt_oss",  4,  256,   512,  4,  2,  64,    512,    512,   150000,  0, false, tiny_gpt_oss},
    {"gpt-oss-20b",    "gpt_oss", 24, 2880,  2880, 64,  8,  64, 201088, 131072,   150000,  0, false, gpt_oss_20b},
    // Six layers of the public model's 48, to fit the memory of a small machine.
    {"qwen3-30b-a3b-small", "qwen3_moe", 6, 2048, 6144, 32, 4, 128, 151936, 40960, 1000000, 0, false, qwen3_30b},
};
// clang-format on

}  // namespace

Config shape_by_name(std::string_view name) {
  for (const Shape& shape : kShapes) {
    const bool is_it = shape.name.size() == name.size() &&
                       ::strncasecmp(shape.name.data(), name.data(), name.size()) == 0;
    if (!is_it) continue;
    Config config;
    config.architecture = shape.architecture;
    config.name = shape.name;
    config.layers = shape.layers;
    config.emb = shape.emb;
    config.hidden = shape.hidden;
    config.heads = shape.heads;
    config.kv_heads = shape.kv_heads;
    config.head_dim = shape.head_dim;
    config.vocab = shape.vocab;
    config.context = shape.context;
    const Family* family = family_of_model_type(shape.architecture);
    TYTO_ASSERT(family != nullptr);
    apply(*family, config);
    config.unrotated = unrotated_layers(config.layers, family->unrotated_step);
    const bool is_older = shape.architecture == "llama" || shape.architecture == "granite";
    config.norm_eps = is_older ? 1e-5f : 1e-6f;
    config.tied_head = shape.tied;
    config.rope.theta = static_cast<float>(shape.theta);
    if (shape.llama3_factor != 0) {
      config.rope.scaling = RopeScaling::llama3;
      config.rope.factor = static_cast<float>(shape.llama3_factor);
    }
    if (shape.change != nullptr) shape.change(config);
    choose_divisors(config, 0);
    return config;
  }
  throw Error(ErrorCode::usage, "shape " + std::string(name), "does not exist",
              "the shapes are " + joined(kShapes, ", ", &Shape::name));
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace tyto
