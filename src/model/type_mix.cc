#include "model/type_mix.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "base/joined.h"

namespace tyto {
namespace {

constexpr TypeMix kMixes[] = {
    {"f32", DType::f32, 0, false},    {"f16", DType::f16, 1, false},
    {"bf16", DType::bf16, 32, false}, {"q8_0", DType::q8_0, 7, false},
    {"q4_0", DType::q4_0, 2, false},  {"q4_1", DType::q4_1, 3, false},
    {"q5_0", DType::q5_0, 8, false},  {"q5_1", DType::q5_1, 9, false},
    {"q4_k", DType::q4_k, 14, false}, {"q4_k_m", DType::q4_k, 15, true},
    {"q5_k", DType::q5_k, 16, false}, {"q6_k", DType::q6_k, 18, false},
};

// Q4_K_M spends more bits where errors hurt most: the head, and attention values and the second
// feed-forward matrix in the first and last eighth of the layers and every third between.
bool deserves_more_bits(const Config& config, const WeightSpec& spec) {
  if (spec.part == TensorPart::head) return true;
  if (spec.part == TensorPart::embedding) return config.tied_head;
  if (spec.part != TensorPart::v && spec.part != TensorPart::down) return false;
  const uint32_t eighth = config.layers / 8;
  return spec.layer < eighth || spec.layer >= config.layers - eighth ||
         (spec.layer - eighth) % 3 == 2;
}

DType wanted_type(const TypeMix& mix, const Config& config, const WeightSpec& spec) {
  if (spec.is_vector()) return DType::f32;
  return mix.mixed && deserves_more_bits(config, spec) ? DType::q6_k : mix.base;
}

bool divides(DType dtype, uint64_t cols) {
  return cols % info(dtype).block_values == 0;
}

// "blk.3.ffn_down.weight" is one of many "ffn_down.weight".
std::string kind_of(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  return name.substr(name.find('.', 4) + 1);
}

}  // namespace

const TypeMix& find_type_mix(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const TypeMix& mix : kMixes)
    if (mix.name == lower) return mix;
  throw Error(ErrorCode::usage, "type " + std::string(name), "does not exist",
              "the types are " + joined(kMixes, ", ", &TypeMix::name));
}

std::vector<std::string> type_mix_names() {
  std::vector<std::string> names;
  for (const TypeMix& mix : kMixes) names.emplace_back(mix.name);
  return names;
}

std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes) {
  std::vector<TensorPlan> plans;
  std::map<std::string, uint32_t> fallbacks;  // note without its count
  for (const WeightSpec& spec : specs) {
    const DType wanted = wanted_type(mix, config, spec);
    DType given = wanted;
    if (!divides(wanted, spec.cols)) {
      given = divides(DType::q8_0, spec.cols) ? DType::q8_0 : DType::f16;
      ++fallbacks[fmt::format("{}: rows of {} are not whole {} blocks of {}, written as {}",
                              kind_of(spec.name), spec.cols, info(wanted).name,
                              info(wanted).block_values, info(given).name)];
    }
    plans.push_back({spec.name, given, spec.rows, spec.cols});
  }
  for (const auto& [note, count] : fallbacks) notes.push_back(fmt::format("{} x {}", count, note));
  return plans;
}

}  // namespace tyto
