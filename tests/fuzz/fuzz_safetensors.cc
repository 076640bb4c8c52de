// Opens arbitrary bytes as one of the files of a checkpoint folder.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "fuzz/touch_weights.h"
#include "model/hf_model.h"
#include "model/q4nx_bundle.h"
#include "model/safetensors.h"

namespace tyto {
namespace {

Model small_model(uint32_t vocab, uint32_t width) {
  Model model;
  model.config.architecture = "llama";
  model.config.layers = 1;
  model.config.emb = width;
  model.config.hidden = width;
  model.config.heads = 2;
  model.config.kv_heads = 1;
  model.config.head_dim = width / 2;
  model.config.vocab = vocab;
  model.config.tied_head = true;
  return model;
}

// The first byte chooses among the formats of a checkpoint folder.
void run(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto rest = bytes.subspan(1);
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  try {
    switch (static_cast<unsigned char>(bytes[0])) {
      case 'i':
        parse_safetensors_index(text, "index.json");
        break;
      case 'c': {
        const Json root = Json::parse(text, "config.json");
        const Config config = config_from_hf(root);
        eos_ids_from_hf(root, config.vocab);
        generation_defaults_from_hf(root);
        rope_frequencies(config);
        break;
      }
      case 'q': {
        Model model = small_model(32, 256);
        read_q4nx_bundle(rest, "model.q4nx", {}, model);
        bind_weights(model.tensors, model.config, NameStyle::hugging_face, "folder", model.weights);
        touch_weights(model);
        break;
      }
      default: {
        Model model = small_model(3, 4);
        std::vector<TensorAlias> aliases;
        model.tensors = parse_safetensors(rest, "model.safetensors", &aliases);
        add_aliases(aliases, model.config, model.tensors);
        bind_weights(model.tensors, model.config, NameStyle::hugging_face, "folder", model.weights);
        touch_weights(model);
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
