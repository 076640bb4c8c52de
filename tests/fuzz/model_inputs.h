// What the model fuzz targets do with one input; the unit tests replay the corpus through it.
// Anything but an Error that leaves these functions is a finding.
#pragma once

#include <span>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "model/gguf.h"
#include "model/hf_config.h"
#include "model/safetensors.h"
#include "model/weight_table.h"
#include "tensor/quant.h"

namespace tyto {

// Reads every weight, so that a view outside its file would be seen.
inline void touch_weights(const Model& model) {
  if (!model.has_weights()) return;
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::gguf)) {
    const TensorView& view = view_of(model.weights, spec);
    std::vector<float> row(view.cols);
    for (uint64_t i = 0; i < view.rows; ++i) dequantize(view.dtype, view.row(i), row);
  }
  if (model.config.head_dim != 0) rope_frequencies(model.config);
}

inline void run_gguf_input(std::span<const std::byte> bytes) {
  for (const Need need : {Need::weights, Need::vocabulary}) {
    try {
      const Gguf gguf = parse_gguf(bytes, "input.gguf");
      Model model;
      fill_model_from_gguf(gguf, need, model);
      touch_weights(model);
    } catch (const Error&) {
    }
  }
}

// The first byte chooses among the three formats of a checkpoint folder.
inline void run_safetensors_input(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto rest = bytes.subspan(1);
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  try {
    switch (static_cast<unsigned char>(bytes[0])) {
      case 'i': parse_safetensors_index(text, "index.json"); break;
      case 'c': {
        const Json root = Json::parse(text, "config.json");
        const Config config = config_from_hf(root);
        eos_ids_from_hf(root, config.vocab);
        generation_defaults_from_hf(root);
        rope_frequencies(config);
        break;
      }
      default: {
        Model model;
        model.config.architecture = "llama";
        model.config.layers = 1;
        model.config.emb = 4;
        model.config.hidden = 4;
        model.config.heads = 2;
        model.config.kv_heads = 1;
        model.config.head_dim = 2;
        model.config.vocab = 3;
        model.config.tied_head = true;
        model.tensors = parse_safetensors(rest, "model.safetensors");
        bind_weights(model.tensors, model.config, NameStyle::hugging_face, "folder", model.weights);
        touch_weights(model);
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace tyto
