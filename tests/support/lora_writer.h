// LoRA adapters of random values: written as llama.cpp and as PEFT write them, and merged into the
// weights of a model, which is what they mean.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "model/adapters.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/weight_table.h"
#include "tensor/quant.h"

namespace tyto::testing_support {

struct LoraPair {
  WeightSpec target;  // by its GGUF name
  uint64_t rank = 0;
  std::vector<float> a, b;  // [rank, target.cols], [target.rows, rank]
};

struct Lora {
  double alpha = 8;
  std::vector<LoraPair> pairs;

  double factor(const LoraPair& pair) const { return alpha / static_cast<double>(pair.rank); }
};

// Matrices for every projection for which `rank` is not 0.
template <typename RankOf>
Lora random_lora(Config config, uint32_t seed, const RankOf& rank) {
  config.tied_head = false;
  std::mt19937 random(seed);
  const auto values = [&](uint64_t count) {
    std::vector<float> result(count);
    for (float& value : result) value = static_cast<float>(random() % 2001) / 4000.0f - 0.25f;
    return result;
  };
  Lora lora;
  for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf)) {
    if (spec.is_vector() || spec.part == TensorPart::embedding) continue;
    const uint64_t of_this = rank(spec);
    if (of_this == 0) continue;
    lora.pairs.push_back({spec, of_this, values(of_this * spec.cols), values(spec.rows * of_this)});
  }
  return lora;
}

inline std::span<const std::byte> bytes_of_floats(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

inline GgufMetadata lora_metadata(const Lora& lora, const std::string& architecture) {
  return {{"general.architecture", {architecture}},
          {"general.type", {std::string("adapter")}},
          {"adapter.type", {std::string("lora")}},
          {"adapter.lora.alpha", {lora.alpha}}};
}

inline void write_gguf_lora(const std::filesystem::path& path, const Lora& lora,
                            const GgufMetadata& metadata) {
  std::vector<TensorPlan> plans;
  for (const LoraPair& pair : lora.pairs) {
    plans.push_back({pair.target.name + ".lora_a", DType::f32, pair.rank, pair.target.cols});
    plans.push_back({pair.target.name + ".lora_b", DType::f32, pair.target.rows, pair.rank});
  }
  GgufWriter writer(path, metadata, std::move(plans));
  for (const LoraPair& pair : lora.pairs)
    for (const auto* values : {&pair.a, &pair.b}) writer.append(bytes_of_floats(*values));
  writer.commit();
}

// Rows of Q and K in the order of a checkpoint, where the pairs are for a GGUF that has others.
inline void write_peft_lora(const std::filesystem::path& folder, const Lora& lora, Config config,
                            const std::string& config_json) {
  config.tied_head = false;
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << config_json;
  const auto gguf = weight_specs(config, NameStyle::gguf);
  const auto theirs = weight_specs(config, NameStyle::hugging_face);
  std::vector<TensorPlan> plans;
  std::vector<std::vector<float>> values;
  for (const LoraPair& pair : lora.pairs) {
    std::string module;
    for (size_t i = 0; i < gguf.size(); ++i)
      if (gguf[i].name == pair.target.name)
        module = "base_model.model." + theirs[i].name.substr(0, theirs[i].name.rfind('.'));
    const bool turns = config.rope.layout == RopeLayout::pairs &&
                       (pair.target.part == TensorPart::q || pair.target.part == TensorPart::k);
    std::vector<float> b = pair.b;
    for (uint64_t row = 0; turns && row < pair.target.rows; ++row)
      for (uint64_t r = 0; r < pair.rank; ++r)
        b[unpermuted_row(row, config.head_dim) * pair.rank + r] = pair.b[row * pair.rank + r];
    plans.push_back({module + ".lora_A.weight", DType::f32, pair.rank, pair.target.cols});
    plans.push_back({module + ".lora_B.weight", DType::f32, pair.target.rows, pair.rank});
    values.push_back(pair.a);
    values.push_back(std::move(b));
  }
  SafetensorsWriter writer(folder / "adapter_model.safetensors", std::move(plans));
  for (const auto& each : values) writer.append(bytes_of_floats(each));
  writer.commit();
}

// W + scale * factor * b a, in place of W. Models with fused matrices have them in `q`, `k`, `v`.
inline void merge_lora(const Lora& lora, double scale, Model& model) {
  for (const LoraPair& pair : lora.pairs) {
    TensorView& weight = view_of(model.weights, pair.target);
    std::vector<float> merged(weight.values());
    dequantize(weight.dtype, weight.bytes, merged);
    for (uint64_t row = 0; row < weight.rows; ++row)
      for (uint64_t col = 0; col < weight.cols; ++col) {
        double sum = 0;
        for (uint64_t r = 0; r < pair.rank; ++r)
          sum += static_cast<double>(pair.b[row * pair.rank + r]) * pair.a[r * weight.cols + col];
        merged[row * weight.cols + col] += static_cast<float>(scale * lora.factor(pair) * sum);
      }
    const auto bytes = bytes_of_floats(merged);
    model.copies.emplace_back(bytes.begin(), bytes.end());
    weight = {DType::f32, weight.rows, weight.cols, model.copies.back()};
  }
  for (LayerWeights& layer : model.weights.layers)
    if (!layer.conv_in.empty()) split_short_conv(model.config, layer);
}

}  // namespace tyto::testing_support
