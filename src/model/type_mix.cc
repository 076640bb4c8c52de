#include "model/type_mix.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/spelling.h"
#include "model/gguf.h"

namespace tyto {
namespace {

constexpr TypeMix kMixes[] = {
    {"f32", DType::f32, 0},      {"f16", DType::f16, 1},      {"bf16", DType::bf16, 32},
    {"q8_0", DType::q8_0, 7},    {"q4_0", DType::q4_0, 2},    {"q4_1", DType::q4_1, 3},
    {"q5_0", DType::q5_0, 8},    {"q5_1", DType::q5_1, 9},    {"q4_k_s", DType::q4_k, 14},
    {"q4_k_m", DType::q4_k, 15}, {"q5_k_s", DType::q5_k, 16}, {"q5_k_m", DType::q5_k, 17},
    {"q6_k", DType::q6_k, 18},
};

// Short names, for the mix that llama-quantize means by them.
struct Alias {
  std::string_view name;
  std::string_view mix;
};
constexpr Alias kAliases[] = {{"q4_k", "q4_k_m"}, {"q5_k", "q5_k_m"}};

// llama-quantize's mixes of types that Tyto reads and does not write.
constexpr std::string_view kMixesOfOthers[] = {"q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l",
                                               "iq2_m",  "iq3_xs", "iq3_m"};

bool is_of_first_four(uint32_t layer, uint32_t) {
  return layer < 4;
}

bool is_of_all(uint32_t, uint32_t) {
  return true;
}

bool is_of_first_eighth(uint32_t layer, uint32_t layers) {
  return layer < layers / 8;
}

// The first and the last eighth of the layers and every third between. Each division rounds down,
// which makes the last eighth the larger one.
bool is_of_sensitive(uint32_t layer, uint32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// Matrices in which errors hurt most get a better type than the rest of their mix, in the layers
// that llama.cpp's mixes of the same names choose.
struct Raise {
  std::string_view mix;
  TensorPart part;
  bool (*in_layer)(uint32_t layer, uint32_t layers);
  DType type;
  bool with_importance_only = false;
};
constexpr Raise kRaises[] = {
    {"q4_0", TensorPart::down, is_of_first_eighth, DType::q4_1, true},
    {"q5_0", TensorPart::down, is_of_first_eighth, DType::q5_1, true},
    {"q4_k_s", TensorPart::v, is_of_first_four, DType::q5_k},
    {"q4_k_s", TensorPart::down, is_of_first_eighth, DType::q5_k},
    {"q4_k_m", TensorPart::v, is_of_sensitive, DType::q6_k},
    {"q4_k_m", TensorPart::down, is_of_sensitive, DType::q6_k},
    {"q4_k_m", TensorPart::qkv, is_of_all, DType::q5_k},
    {"q5_k_m", TensorPart::qkv, is_of_all, DType::q6_k},
    {"q5_k_m", TensorPart::v, is_of_sensitive, DType::q6_k},
    {"q5_k_m", TensorPart::down, is_of_sensitive, DType::q6_k},
};

// llama.cpp's rule for Mixtral, which it knows by its experts: what all of them share costs little.
constexpr uint32_t kMixtralExperts = 8;
struct ExpertRaise {
  TensorPart part;
  bool in_all;  // mixes, else in those of `base`
  DType base;
  DType type;
};
constexpr ExpertRaise kExpertRaises[] = {
    {TensorPart::v, true, DType::q4_k, DType::q8_0},
    {TensorPart::k, true, DType::q4_k, DType::q8_0},
    {TensorPart::o, false, DType::q4_k, DType::q5_k},
};

// The matrix that makes logits; an embedding that is also the head counts as one.
bool is_head(const Config& config, const WeightSpec& spec) {
  return spec.part == TensorPart::head || (spec.part == TensorPart::embedding && config.tied_head);
}

// llama.cpp's "70B", known by its layers: eight heads share a value, so more bits cost little.
bool is_70b(const Config& config) {
  if (config.layers != 80) return false;
  const std::string architecture = gguf_architecture(config);
  return architecture == "qwen2" || (architecture == "llama" && config.kv_heads != config.heads);
}

// From 8 bits on codes are simply the nearest ones, and the head needs no better type.
bool has_few_bits(DType type) {
  return info(type).block_values > 1 && type != DType::q8_0;
}

DType wanted_type(const TypeMix& mix, const Config& config, const WeightSpec& spec,
                  Importance importance) {
  if (spec.is_vector() || spec.stays_f32) return DType::f32;
  if (!has_few_bits(mix.base)) return mix.base;
  if (is_head(config, spec)) return DType::q6_k;
  if (config.experts == kMixtralExperts) {
    for (const ExpertRaise& raise : kExpertRaises)
      if (raise.part == spec.part && (raise.base == mix.base || raise.in_all)) return raise.type;
  }
  for (const Raise& raise : kRaises)
    if (raise.mix == mix.name && raise.part == spec.part &&
        raise.in_layer(spec.layer, config.layers) &&
        (importance == Importance::known || !raise.with_importance_only))
      return raise.type;
  const bool is_shared_value = spec.part == TensorPart::v && is_70b(config);
  return is_shared_value && mix.base == DType::q4_k ? DType::q5_k : mix.base;
}

bool divides(DType dtype, uint64_t cols) {
  return cols % info(dtype).block_values == 0;
}

// Where rows are no whole blocks of 256: a type with blocks of 32 and at least as many bits.
DType fallback_of(DType wanted, uint64_t cols) {
  const DType smaller = wanted == DType::q4_k   ? DType::q5_0
                        : wanted == DType::q5_k ? DType::q5_1
                        : wanted == DType::q6_k ? DType::q8_0
                                                : DType::f16;
  return divides(smaller, cols) ? smaller : DType::f16;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// "blk.3.ffn_down.weight" is one of many "ffn_down.weight".
std::string kind_of(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  return name.substr(name.find('.', 4) + 1);
}

}  // namespace

std::string why_not_written(std::string_view name) {
  const std::string lower = lower_case(name);
  const std::optional<DType> type = dtype_from_name(lower);
  const bool is_type = type && info(*type).block_values > 1 && !is_encodable(*type);
  if (!is_type && std::ranges::find(kMixesOfOthers, lower) == std::end(kMixesOfOthers)) return "";
  return "is read and not written by Tyto; llama-quantize writes it";
}

const TypeMix& find_type_mix(std::string_view name) {
  std::string lower = lower_case(name);
  for (const Alias& alias : kAliases)
    if (alias.name == lower) lower = alias.mix;
  for (const TypeMix& mix : kMixes)
    if (mix.name == lower) return mix;
  const std::string reason = why_not_written(lower);
  throw Error(ErrorCode::usage, "type " + std::string(name),
              reason.empty() ? "does not exist" : reason,
              "the types are " + joined(kMixes, ", ", &TypeMix::name));
}

std::vector<std::string> type_mix_names() {
  std::vector<std::string> names;
  for (const TypeMix& mix : kMixes) names.emplace_back(mix.name);
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  return names;
}

bool takes_importance(const TypeMix& mix) {
  return has_few_bits(mix.base);
}

std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes, Importance importance) {
  std::vector<TensorPlan> plans;
  std::map<std::string, uint32_t> fallbacks;  // note without its count
  for (const WeightSpec& spec : specs) {
    const DType wanted = wanted_type(mix, config, spec, importance);
    DType given = wanted;
    if (!divides(wanted, spec.cols)) {
      given = fallback_of(wanted, spec.cols);
      ++fallbacks[fmt::format("{}: rows of {} are not whole {} blocks of {}, written as {}",
                              kind_of(spec.name), spec.cols, info(wanted).name,
                              info(wanted).block_values, info(given).name)];
    }
    plans.push_back({spec.name, given, spec.rows, spec.cols, spec.slices});
  }
  for (const auto& [note, count] : fallbacks) notes.push_back(fmt::format("{} x {}", count, note));
  return plans;
}

}  // namespace tyto
