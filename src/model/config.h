// The shape of a Llama-family model, whichever file it came from.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensor/activation.h"

namespace tyto {

enum class RopeLayout : uint8_t {
  halves,  // rotates (i, i + head_dim/2): Hugging Face checkpoints, Qwen GGUFs
  pairs,   // rotates (2i, 2i + 1): GGUFs of architecture "llama", whose Q/K rows are permuted
};

// Where a layer's RMSNorms stand: before attention and feed-forward (Llama), after them, on what
// they add to the residual stream (OLMo 2), or in both places (Gemma).
enum class Norms : uint8_t { before, after, both };

// What a layer has between its norm and its projection back to the residual stream: attention, or
// what keeps a state of fixed size instead of keys and values.
enum class LayerKind : uint8_t {
  attention,
  short_conv,  // LFM2: a gated convolution over the last few positions
  delta_rule,  // Qwen3.5: a convolution, then the gated delta rule
  mamba2,      // Granite 4, Nemotron: a convolution, then the state-space recurrence of Mamba-2
};

// The heads of layers whose state is a matrix per head, [key_dim, head_dim].
struct RecurrentHeads {
  uint32_t key_heads = 0;  // that several heads share
  uint32_t heads = 0;
  uint32_t key_dim = 0;
  uint32_t head_dim = 0;
  // Head h has the key of h % key_heads, as GGUFs of Qwen3.5 have them; else that of
  // h / (heads / key_heads).
  bool is_tiled = false;
  bool is_joint = false;  // Qwen3-Next: strengths and times come out of one matrix

  uint32_t keys() const { return key_heads * key_dim; }
  uint32_t values() const { return heads * head_dim; }
  uint32_t channels() const { return 2 * keys() + values(); }  // that go through the convolution
};

enum class RopeScaling : uint8_t { none, linear, llama3, longrope, yarn, dynamic };

struct Rope {
  float theta = 10000.0f;
  RopeLayout layout = RopeLayout::halves;
  RopeScaling scaling = RopeScaling::none;
  float factor = 1.0f;  // linear, llama3, yarn and dynamic
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  uint32_t original_context = 8192;
  // GGUF files carry llama3 scaling as one divisor per frequency; when present it wins.
  // Of longrope it is one of the two below, of dynamic scaling what choose_divisors() makes.
  std::vector<float> frequency_divisors;  // [rotated pairs] or empty
  uint32_t rotated = 0;                   // values of a head that rotate, the first; 0: all
  // Phi-3's longrope: by how much rotated values grow, and divisors for sequences of up to
  // `original_context` positions and for longer ones.
  float attention_factor = 1.0f;  // yarn's, too
  std::vector<float> short_divisors, long_divisors;
  // Yarn: frequencies that turn more often than beta_fast in the original context are kept, those
  // that turn less often than beta_slow are slowed by `factor`, the band between is interpolated.
  float beta_fast = 32.0f;
  float beta_slow = 1.0f;
  bool whole_band = true;  // the band's ends are rounded to whole frequencies
};

struct Config {
  std::string architecture;  // a name of model/families.h; the forward pass does not ask for it
  std::string name;          // what the file calls the model, may be empty
  uint32_t layers = 0;
  uint32_t emb = 0;     // width of the residual stream
  uint32_t hidden = 0;  // width of the feed-forward layer
  uint32_t heads = 0;   // query heads
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // independent of emb / heads in Qwen3
  uint32_t vocab = 0;     // rows of the embedding
  uint32_t context = 0;   // longest sequence the model was made for
  float norm_eps = 1e-5f;
  bool tied_head = false;     // the LM head is the embedding
  bool qkv_bias = false;      // Qwen2
  bool qk_norm = false;       // Qwen3: RMSNorm over each head of Q and K
  bool wide_qk_norm = false;  // OLMo 2: the same over all heads of Q, and of K, at once
  Norms norms = Norms::before;
  // Granite's multipliers.
  float embedding_scale = 1;  // times an embedding's row
  float residual_scale = 1;   // times what attention and feed-forward add to the residual stream
  float attention_scale = 0;  // times q k^T; 0: 1 / sqrt(head_dim)
  float logit_divisor = 1;
  // Phi-3: files have Q, K and V in one matrix, and gate and up in another.
  bool fused_projections = false;
  // SmolLM3: layers whose heads are not rotated. [layers], or empty: all are
  std::vector<bool> unrotated;
  Rope rope;
  // Mistral, Gemma: positions that a query of a windowed layer attends to, its own included; 0: all
  uint32_t window = 0;
  std::vector<bool> windowed;  // [layers], or empty: all are where there is a window
  // Gemma 3: rope base of the windowed layers, whose rope then is not scaled; 0: rope is theirs,
  // too
  float window_theta = 0;
  Activation activation = Activation::silu;
  // Gemma 2: what bounds scores and logits, as cap * tanh(value / cap); 0: nothing
  float score_cap = 0;
  float logit_cap = 0;
  bool sinks =
      false;  // gpt-oss: a logit per head that takes a share of attention and gives nothing
  bool layer_norm = false;  // norms are LayerNorms: the mean is taken away first
  // Cohere: attention and feed-forward read the same normed row, and both are added to the stream.
  bool parallel_residual = false;
  bool adapted = false;  // LoRA adapters add to its projections (model/adapters.h)
  // Mixtures of experts: a layer has `experts` feed-forward parts, each `expert_hidden` wide, and a
  // token takes `experts_used` of them, added up by their weights. 0: it has one, `hidden` wide
  uint32_t experts = 0;
  uint32_t experts_used = 0;
  uint32_t expert_hidden = 0;
  // The weights of the experts that a token takes add up to one: their softmax. Else it is over all
  // experts, as Qwen3-MoE's config may say.
  bool weighs_chosen_alone = true;
  uint32_t dense_layers = 0;     // the first ones, which have no experts where others do
  bool sigmoid_routing = false;  // experts are weighed by sigmoids of their scores
  bool choice_bias = false;      // added to the sigmoids for the choice, and not for the weights
  float expert_scale = 1;        // times the weights
  bool expert_bias = false;      // gpt-oss: router and experts have biases
  bool o_bias = false;           // gpt-oss: so has the attention's output
  // Qwen3.5: what attention gives is multiplied by the sigmoid of another projection of its input.
  bool attention_gate = false;

  // What each layer is. [layers], or empty: all attend
  std::vector<LayerKind> layer_kinds;
  uint32_t conv_taps = 0;  // positions that a convolution adds up, its own included
  RecurrentHeads recurrent;
  // Width of the expert that every token takes beside those that the router chooses; 0: there is
  // none. What it gives is multiplied by a sigmoid of its own.
  uint32_t shared_hidden = 0;
  bool shared_gate = true;  // else what it gives is added as it is
  // Mamba-2: parts of what a layer's recurrence gives, each with a norm of its own.
  uint32_t recurrent_norms = 1;
  float least_time = 0;  // what a token's time is bounded to
  float most_time = std::numeric_limits<float>::infinity();

  LayerKind kind_of(uint32_t layer) const {
    return layer_kinds.empty() ? LayerKind::attention : layer_kinds[layer];
  }
  bool attends(uint32_t layer) const { return kind_of(layer) == LayerKind::attention; }
  bool has_states() const { return !layer_kinds.empty(); }  // set_layer_kinds() sees to it
  uint32_t attention_layers() const;
  bool has_kind(LayerKind kind) const;
  uint32_t q_width() const { return heads * head_dim; }
  // Its projection has each head's gate behind the head.
  uint32_t q_rows() const { return attention_gate ? 2 * q_width() : q_width(); }
  uint32_t kv_width() const { return kv_heads * head_dim; }
  uint32_t rope_width() const { return rope.rotated == 0 ? head_dim : rope.rotated; }
  bool rotates(uint32_t layer) const { return unrotated.empty() || !unrotated[layer]; }
  bool is_windowed(uint32_t layer) const {
    return window != 0 && (windowed.empty() || windowed[layer]);
  }
  bool has_experts() const { return experts > 0; }
  bool has_experts_in(uint32_t layer) const { return has_experts() && layer >= dense_layers; }
  float score_scale() const;  // times q k^T
  // What makes the scores of queries that are multiplied with it, divided by sqrt(head_dim) as in
  // Llama, this model's.
  float query_scale() const;
};

// In what the forward pass of a model differs from that of Llama, Qwen2 and Qwen3, which NPU images
// compute: "multipliers". Empty: in nothing.
std::string differences_from_llama(const Config& config);

// What real numbers of a model file may be. Generous on both sides of what published models have:
// outside, a number is damage or a mistake in its unit, and would compute nonsense in silence.
struct RealRange {
  double least, most;
};
constexpr RealRange kRopeThetas = {2, 1e12};       // published: 1e4 to 4.5e10
constexpr RealRange kRopeFactors = {1e-3, 1e6};    // published: 1 to 64
constexpr RealRange kScales = {1e-6, 1e6};         // published: 0.0078 to 24
constexpr RealRange kCaps = {1e-3, 1e6};           // published: 30 and 50
constexpr RealRange kNormEpsilons = {1e-20, 0.1};  // published: 1e-12 to 1e-5

constexpr uint32_t kMostLayers = 1024;  // far above any public model

// The value, which must be within the range. `where` names file and field.
float checked(double value, const RealRange& range, const std::string& where);

// Throws when a whole number is out of any plausible range or two of them contradict each other, so
// that products of them can be formed without overflow. `where` is how errors call the file.
void check(const Config& config, const std::string& where);

// Says which layers have the window. Where all or none of them do there is no list.
void set_windowed(Config& config, std::vector<bool> windowed);

// What a layer keeps of a sequence beside keys and values, in f32. Nothing: it attends.
struct StateSize {
  uint32_t rows, cols;
};
std::vector<StateSize> state_sizes(const Config& config, uint32_t layer);
// All layers' of one sequence.
uint64_t state_bytes(const Config& config);

// Says what each layer is. Where all attend there is no list.
void set_layer_kinds(Config& config, std::vector<LayerKind> kinds);

// Takes the divisors of longrope or dynamic scaling that sequences of up to `context` positions
// want; 0: the model's own. Keys are kept rotated, so a session keeps to one choice. Dynamic
// scaling is what makes `config.context` as long as that, up to its factor.
void choose_divisors(Config& config, uint32_t context);

// Rotation frequency of each pair of a head, scaling applied. [rope_width / 2], and where windowed
// layers have a rope of their own as many more, which are theirs.
std::vector<float> rope_frequencies(const Config& config);

}  // namespace tyto
