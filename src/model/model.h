// An opened model: config, weight views into mapped files, vocabulary. Immutable; knows no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "model/config.h"
#include "tensor/dtype.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// One named tensor as the file has it.
struct NamedTensor {
  std::string name;
  TensorView view;
};

// A tensor as a file's header has it: its type is only a name, its bytes need not fit its shape.
struct StoredTensor {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
};

// What all LoRA adapters together add to a projection: b (a x), their strength in b.
struct LowRank {
  TensorView a;  // [rank, width of x]
  TensorView b;  // [width of the projection, rank]

  bool empty() const { return a.empty(); }
};

struct LayerWeights {
  TensorView qkv, gate_up;            // what q, k, v and gate, up are rows of, or empty
  TensorView attn_norm;               // [1, emb]; empty without norms in front
  TensorView q, k, v;                 // [q_rows, emb], [kv_width, emb] twice
  TensorView q_bias, k_bias, v_bias;  // [1, width] or empty
  TensorView q_norm, k_norm;          // [1, head_dim], [1, width] where they are wide, or empty
  TensorView o;                       // [emb, q_width]
  TensorView attn_post_norm;          // [1, emb]; empty without norms behind
  TensorView ffn_norm;                // as attn_norm
  TensorView gate, up;                // [hidden, emb]; with experts [experts * hidden, emb]
  TensorView down;                    // [emb, hidden]; with experts [experts * emb, hidden]
  TensorView ffn_post_norm;           // as attn_post_norm
  TensorView sinks;                   // [1, heads] or empty
  LowRank q_lora, k_lora, v_lora, o_lora, gate_lora, up_lora, down_lora;
  LowRank conv_gate_lora, conv_out_gate_lora, conv_x_lora;
  TensorView router;       // [experts, emb] or empty
  TensorView router_bias;  // [1, experts] or empty
  // [1, experts * width], each expert's behind the one's before; or empty
  TensorView expert_gate_bias, expert_up_bias, expert_down_bias;
  TensorView o_bias;  // [1, emb] or empty
  // Short convolutions have these, [emb, emb] each: the gates before and behind the convolution and
  // its input, which are rows of conv_in. The convolution's own weights are [1, emb * taps]. Its
  // output's projection is `o`.
  TensorView conv_in, conv_gate, conv_out_gate, conv_x;
  TensorView conv;
  // Layers with a recurrence have these, others none: projections of the norm's result to what is
  // convolved, [channels, emb], to the gate, [values, emb], and to a token's time and strength,
  // [heads, emb]; biases of the times and rates of fading, [1, heads]; the norm of the result, [1,
  // head_dim].
  TensorView recur_in, recur_gate, recur_time, recur_strength;
  TensorView recur_time_bias, recur_rates, recur_norm;
  // Instead of strength and time: [2 * heads, emb], each key head's strengths and then its times.
  TensorView recur_both;
  TensorView recur_all;   // Mamba-2: what gate, in and time are rows of, or empty
  TensorView recur_skip;  // Mamba-2: [1, heads] or empty; its norm is [1, values]
  TensorView conv_bias;   // [1, channels] or empty
  // The expert of every token, as gate, up and down, and [1, emb], or empty.
  TensorView shared_gate, shared_up, shared_down, shared_share;
};

struct Weights {
  TensorView embedding;   // [vocab, emb]
  TensorView final_norm;  // [1, emb]
  TensorView head;        // [vocab, emb]; the embedding's view when tied
  std::vector<LayerWeights> layers;
  LowRank head_lora;
};

// A LoRA adapter that was added to a model.
struct Adapter {
  MappedFile file;        // with its matrices
  double scale = 1;       // what the user asked for
  double alpha = 0;       // what its own file says of its strength; 0: nothing
  bool by_root = false;   // it is divided by the root of the rank, not by the rank
  uint32_t rank = 0;      // the largest of its matrices
  uint32_t matrices = 0;  // the model's that it adds to
};

struct GenerationDefaults {  // generation_config.json, where present
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<uint32_t> top_k;
};

struct Model {
  std::filesystem::path path;
  std::string format;                      // "gguf v3", "safetensors", "q4nx"
  std::optional<uint64_t> file_type = {};  // what a GGUF says it is (model/description.h)
  Config config;
  Weights weights;                       // empty layers in a vocabulary-only file
  std::vector<NamedTensor> tensors;      // in file order, for `inspect`
  std::optional<Vocabulary> vocabulary;  // absent: no tokenizer beside the weights
  GenerationDefaults defaults;
  std::vector<MappedFile> files;  // what the views point into
  // Tensors that stand at an odd place in their file, or in an order of its own; every view is
  // aligned to its element.
  std::vector<std::vector<std::byte>> copies;
  std::vector<Adapter> adapters;
  std::vector<std::string> notes;  // parts of the files that were left out, a line each

  uint64_t weight_bytes() const;
  uint64_t parameters() const;         // values in all tensors
  uint64_t active_parameters() const;  // those without the experts that a token does not take
  // "FILE: tensor NAME", for errors about one of the weights.
  std::string place_of(const TensorView& weight) const;
  bool has_weights() const { return !weights.layers.empty(); }
};

// What must be there. The other part is filled in too where it is present and understood.
enum class Need { weights, vocabulary };

// Opens a GGUF file, a Hugging Face checkpoint folder (of safetensors or a q4nx bundle), or a
// folder with a single GGUF in it. Shapes are checked against the config.
Model open_model(const std::filesystem::path& path, Need need = Need::weights,
                 const Progress& progress = {});

// The type that most bytes of the layers' matrices have.
DType main_weight_type(const Model& model);

// Which model it is that runs: everything that decides what it computes and how it is spoken to.

struct ModelIdentity {
  std::string hash;        // 32 hexadecimal digits
  std::string form;        // what was hashed, in words
  double seconds = 0;      // that it took
  bool is_cached = false;  // no weights were read for it: all hashes of files were kept
  std::vector<std::string> adapters = {};  // the hashes of their files
};

// Covers every byte of the mapped files, every field of the config that decides the forward pass,
// the vocabulary with all settings of the tokenizer, the chat template, and LoRA adapters with
// their scales. Hashes of files are kept in `kept` (base/hash.h). An Error when a file has changed
// since it was mapped.
ModelIdentity identity_of(const Model& model, const std::filesystem::path& kept,
                          const Progress& progress = {});

// Files that end before what they announce, as after a download that was not finished.

// An input Error with the next step. `least` is what the file would have to have as far as it can
// be read, in bytes; more than any disk holds is damage of another kind, and is called so.
[[noreturn]] void fail_cut_off(const std::string& file, uint64_t has, uint64_t least);

// What a clone without git-lfs has in place of a large file: a short text that names its hash.

// An input Error with the next step, where a file that begins with `bytes` is such a text.
void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file);

// Weights that are no finite numbers.

// What to throw about the first value of a weight that is infinite or not a number, by file, tensor
// and place; none: all are finite.
std::optional<Error> non_finite_value(const Model& model, const TensorView& weight);

// The same of all weights. It reads them all, so this is for when something has gone wrong.
std::optional<Error> non_finite_weight(const Model& model);

}  // namespace tyto
