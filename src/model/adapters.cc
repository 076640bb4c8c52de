#include "model/adapters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "tensor/compare.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr double kLargestScale = 1e4;

// A projection of the forward pass, which may be some rows of what a file has.
enum class Target : uint8_t { q, k, v, o, gate, up, down, conv_gate, conv_out_gate, conv_x, head };

struct TargetRows {
  Target target;
  uint64_t first = 0, count = 0;
};

std::vector<TargetRows> targets_of(const WeightSpec& spec, const Config& config) {
  const uint64_t q = config.q_rows(), kv = config.kv_width(), hidden = config.hidden;
  if (spec.part == TensorPart::q) return {{Target::q, 0, q}};
  if (spec.part == TensorPart::k) return {{Target::k, 0, kv}};
  if (spec.part == TensorPart::v) return {{Target::v, 0, kv}};
  if (spec.part == TensorPart::qkv)
    return {{Target::q, 0, q}, {Target::k, q, kv}, {Target::v, q + kv, kv}};
  if (spec.part == TensorPart::o) return {{Target::o, 0, spec.rows}};
  if (spec.part == TensorPart::gate) return {{Target::gate, 0, hidden}};
  if (spec.part == TensorPart::up) return {{Target::up, 0, hidden}};
  if (spec.part == TensorPart::gate_up)
    return {{Target::gate, 0, hidden}, {Target::up, hidden, hidden}};
  if (spec.part == TensorPart::down) return {{Target::down, 0, spec.rows}};
  const uint64_t emb = config.emb;
  if (spec.part == TensorPart::conv_in)
    return {{Target::conv_gate, 0, emb},
            {Target::conv_out_gate, emb, emb},
            {Target::conv_x, 2 * emb, emb}};
  TYTO_ASSERT(spec.part == TensorPart::head);
  return {{Target::head, 0, spec.rows}};
}

LowRank& low_rank_of(Weights& weights, Target target, uint32_t layer) {
  constexpr LowRank LayerWeights::* kFields[] = {
      &LayerWeights::q_lora,     &LayerWeights::k_lora,         &LayerWeights::v_lora,
      &LayerWeights::o_lora,     &LayerWeights::gate_lora,      &LayerWeights::up_lora,
      &LayerWeights::down_lora,  &LayerWeights::conv_gate_lora, &LayerWeights::conv_out_gate_lora,
      &LayerWeights::conv_x_lora};
  if (target == Target::head) return weights.head_lora;
  return weights.layers[layer].*kFields[static_cast<size_t>(target)];
}

// What one adapter adds to one projection.
struct Addend {
  const AdapterPair* pair;
  TargetRows rows;
  double factor;
  // Where the adapter has rows of heads in another order than the model.
  RopeLayout from, to;
};

using Addends = std::map<std::pair<Target, uint32_t>, std::vector<Addend>>;

uint64_t rank_of(const std::vector<Addend>& addends) {
  uint64_t rank = 0;
  for (const Addend& each : addends) rank += each.pair->a.rows;
  return rank;
}

// Row of the adapter's b that stands at `row` of the model's projection.
uint64_t source_row(const Addend& addend, uint64_t row, uint32_t head_dim) {
  const bool is_rotated = addend.rows.target == Target::q || addend.rows.target == Target::k;
  if (!is_rotated || addend.from == addend.to) return row;
  if (addend.to == RopeLayout::pairs) return unpermuted_row(row, head_dim);
  const uint64_t half = head_dim / 2, within = row % head_dim;
  return row - within + within % half * 2 + within / half;
}

std::span<float> new_matrix(uint64_t rows, uint64_t cols, Model& model, TensorView& view) {
  std::vector<std::byte>& bytes = model.copies.emplace_back(rows * cols * sizeof(float));
  view = {DType::f32, rows, cols, bytes};
  return {reinterpret_cast<float*>(bytes.data()), rows * cols};
}

// Side by side along the rank: the sum over it is the sum over the adapters. `rank` may be more
// than they have; the rest is zero.
void combine(const std::vector<Addend>& addends, uint64_t rank, Model& model, LowRank& result) {
  const Addend& any = addends.front();
  const uint64_t width = any.pair->a.cols, rows = any.rows.count;
  const std::span<float> a = new_matrix(rank, width, model, result.a);
  const std::span<float> b = new_matrix(rows, rank, model, result.b);
  uint64_t first = 0;
  for (const Addend& each : addends) {
    const TensorView &from_a = each.pair->a, &from_b = each.pair->b;
    for (uint64_t r = 0; r < from_a.rows; ++r)
      dequantize(from_a.dtype, from_a.row(r), a.subspan((first + r) * width, width));
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t source = each.rows.first + source_row(each, row, model.config.head_dim);
      const std::span<float> values = b.subspan(row * rank + first, from_b.cols);
      dequantize(from_b.dtype, from_b.row(source), values);
      for (float& value : values) value = static_cast<float>(value * each.factor);
    }
    first += from_a.rows;
  }
}

}  // namespace

AdapterChoice parse_adapter(const std::string& text) {
  const size_t equals = text.rfind('=');
  std::error_code ignored;
  if (equals == std::string::npos || std::filesystem::exists(text, ignored)) return {text, 1};
  double scale = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + equals + 1, end, scale);
  if (error != std::errc() || rest != end || equals == 0 || !(std::abs(scale) <= kLargestScale))
    throw Error(ErrorCode::usage, "--lora " + text, "expected FILE or FILE=SCALE",
                "like --lora adapter.gguf=0.5");
  return {text.substr(0, equals), scale};
}

std::string adapter_text(const AdapterChoice& choice) {
  std::error_code ignored;
  const std::string file = choice.path.string();
  const bool needs_scale = choice.scale != 1 || (file.find('=') != std::string::npos &&
                                                 !std::filesystem::exists(file, ignored));
  return needs_scale ? fmt::format("{}={}", file, choice.scale) : file;
}

void add_adapters(const std::vector<AdapterChoice>& choices, Model& model) {
  if (choices.empty()) return;
  std::vector<AdapterFile> files;
  for (const AdapterChoice& choice : choices)
    files.push_back(read_adapter(choice.path, model.config));
  Addends addends;
  for (size_t i = 0; i < files.size(); ++i) {
    Adapter added{.file = {},
                  .scale = choices[i].scale,
                  .alpha = files[i].alpha,
                  .by_root = files[i].by_root,
                  .matrices = static_cast<uint32_t>(files[i].pairs.size())};
    for (const AdapterPair& pair : files[i].pairs) {
      added.rank = std::max(added.rank, static_cast<uint32_t>(pair.a.rows));
      for (const TargetRows& rows : targets_of(pair.target, model.config))
        addends[{rows.target, pair.target.layer}].push_back(
            {&pair, rows, pair.factor * choices[i].scale, files[i].layout,
             model.config.rope.layout});
    }
    model.adapters.push_back(std::move(added));
  }
  // Layers share their buffers, so that a projection has one rank in all of them.
  std::map<Target, uint64_t> ranks;
  for (const auto& [key, each] : addends)
    ranks[key.first] = std::max(ranks[key.first], rank_of(each));
  for (const auto& [key, each] : addends)
    combine(each, ranks[key.first], model, low_rank_of(model.weights, key.first, key.second));
  for (size_t i = 0; i < files.size(); ++i) model.adapters[i].file = std::move(files[i].file);
  model.config.adapted = true;
}

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestAdapterConfig = 1 << 20;
constexpr const char* kMerge = "merge the adapter into its model with the tool that made it";

// How a file's tensors are called by the model's names: PREFIX module TAIL.
struct Naming {
  NameStyle style;
  std::string_view prefix;
  bool keeps_weight;  // "blk.0.attn_q.weight" keeps it; else a module's name ends before it
  std::array<std::string_view, 2> a_tails, b_tails;
};
constexpr Naming kGgufNames = {
    NameStyle::gguf, "", true, {".lora_a", ".lora_a"}, {".lora_b", ".lora_b"}};
// The second of each is what PEFT calls an adapter that was given no name.
constexpr Naming kPeftNames = {NameStyle::hugging_face,
                               "base_model.model.",
                               false,
                               {".lora_A.weight", ".lora_A.default.weight"},
                               {".lora_B.weight", ".lora_B.default.weight"}};

// Whether every token passes it: experts are left out, each of which would need its own matrices.
bool is_projection(const WeightSpec& spec, const Config& config) {
  const TensorPart part = spec.part;
  const bool is_gated =
      part == TensorPart::gate || part == TensorPart::up || part == TensorPart::down;
  if (is_gated && config.has_experts_in(spec.layer)) return false;
  constexpr TensorPart kProjections[] = {TensorPart::q,    TensorPart::k,      TensorPart::v,
                                         TensorPart::qkv,  TensorPart::o,      TensorPart::up,
                                         TensorPart::gate, TensorPart::down,   TensorPart::gate_up,
                                         TensorPart::head, TensorPart::conv_in};
  return std::ranges::find(kProjections, part) != std::end(kProjections);
}

// By the names that the file would have for them.
std::map<std::string, WeightSpec, std::less<>> targets_of(Config config, const Naming& naming) {
  config.tied_head = false;  // an adapter of the head leaves the embedding alone
  std::map<std::string, WeightSpec, std::less<>> targets;
  for (const WeightSpec& spec : weight_specs(config, naming.style)) {
    std::string name = spec.name;
    constexpr std::string_view kWeight = ".weight";
    if (!naming.keeps_weight && name.ends_with(kWeight)) name.resize(name.size() - kWeight.size());
    targets.emplace(std::string(naming.prefix) + name, spec);
  }
  return targets;
}

struct AdapterHalf {
  std::string module;
  bool is_a = false;
};

std::optional<AdapterHalf> half_of(std::string_view name, const Naming& naming) {
  for (const bool is_a : {true, false})
    for (const std::string_view tail : is_a ? naming.a_tails : naming.b_tails)
      if (name.ends_with(tail))
        return AdapterHalf{std::string(name.substr(0, name.size() - tail.size())), is_a};
  return std::nullopt;
}

[[noreturn]] void fail_part(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::unsupported, where, what + ", which is not supported", kMerge);
}

void check_shapes(const AdapterPair& pair, std::string_view architecture) {
  const auto [rows, cols] = std::pair(pair.target.rows, pair.target.cols);
  if (pair.a.cols != cols || pair.b.rows != rows || pair.a.rows != pair.b.cols || pair.a.rows == 0)
    throw Error(
        ErrorCode::input, pair.where,
        fmt::format("matrices of [{}, {}] and [{}, {}] for a projection from {} to {} values "
                    "of this {} model",
                    pair.a.rows, pair.a.cols, pair.b.rows, pair.b.cols, cols, rows, architecture),
        "take the model that the adapter was made for");
}

void check_values(const TensorView& view, const std::string& where) {
  if (view.dtype == DType::i32) fail_input(where, "integers cannot be weights");
  if (const auto found = find_non_finite(view))
    fail_input(where, "{} at row {}, column {} cannot be a weight", found->value, found->row,
               found->column);
}

void pair_up(const std::vector<NamedTensor>& tensors, const Config& config, const Naming& naming,
             const std::string& file, AdapterFile& adapter) {
  const auto targets = targets_of(config, naming);
  std::map<std::string, AdapterPair> pairs;
  for (const NamedTensor& tensor : tensors) {
    const std::string where = fmt::format("{}: tensor {}", file, printable_name(tensor.name));
    if (tensor.name.find("lora_magnitude_vector") != std::string::npos)
      fail_part(where, "a part of DoRA");
    const auto half = half_of(tensor.name, naming);
    if (!half) fail_part(where, "an adapter with more than LoRA's two matrices");
    const auto target = targets.find(half->module);
    if (target == targets.end())
      throw Error(ErrorCode::input, where,
                  fmt::format("this {} model of {} layers has no such projection",
                              config.architecture, config.layers),
                  "take the model that the adapter was made for");
    if (!is_projection(target->second, config))
      fail_part(where, fmt::format("an adapter of {}", target->second.name));
    check_values(tensor.view, where);
    AdapterPair& pair = pairs[half->module];
    pair.target = target->second;
    pair.where = fmt::format("{}: {}", file, printable_name(half->module));
    TensorView& view = half->is_a ? pair.a : pair.b;
    if (!view.empty()) fail_input(where, "is there twice");
    view = tensor.view;
  }
  if (pairs.empty()) fail_input(file, "has no LoRA matrices");
  for (auto& [module, pair] : pairs) {
    if (pair.a.empty() || pair.b.empty())
      fail_input(pair.where, "has one of LoRA's two matrices, and not the other");
    check_shapes(pair, config.architecture);
    const auto rank = static_cast<double>(pair.a.rows);
    if (adapter.alpha != 0)
      pair.factor = adapter.alpha / (adapter.by_root ? std::sqrt(rank) : rank);
    adapter.pairs.push_back(pair);
  }
}

constexpr RealRange kAlphas = {1e-6, 1e6};  // published: 1 to 512

AdapterFile read_gguf_adapter(const fs::path& path, const Config& config) {
  AdapterFile adapter;
  adapter.file = MappedFile(path);
  const Gguf gguf = parse_gguf(adapter.file.bytes(), path.string());
  const GgufKeys keys(gguf);
  const std::string* type = keys.text("general.type");
  if (type == nullptr || *type != "adapter")
    throw Error(ErrorCode::input, path.string(), "is not an adapter (general.type)",
                "give models with -m");
  const std::string* kind = keys.text("adapter.type");
  if (kind == nullptr || *kind != "lora")
    fail_unsupported(keys.where("adapter.type"), "{}; lora is supported",
                     kind == nullptr ? "is missing" : printable_name(*kind));
  if (keys.has("adapter.alora.invocation_tokens"))
    fail_unsupported(keys.where("adapter.alora.invocation_tokens"),
                     "an adapter that begins at certain tokens");
  const std::string own = gguf_architecture(config);
  const std::string* architecture = keys.text("general.architecture");
  if (architecture == nullptr || *architecture != own)
    throw Error(
        ErrorCode::input, keys.where("general.architecture"),
        fmt::format("{}, and the model is {}",
                    architecture == nullptr ? "missing" : printable_name(*architecture), own),
        "take the model that the adapter was made for");
  const double alpha = keys.real("adapter.lora.alpha").value_or(0);
  if (alpha != 0) adapter.alpha = checked(alpha, kAlphas, keys.where("adapter.lora.alpha"));
  if (const Family* family = family_of_gguf(own)) adapter.layout = family->gguf_layout;
  pair_up(gguf.tensors, config, kGgufNames, path.string(), adapter);
  return adapter;
}

// A field that is there and says something else than that a feature is not used.
bool is_used(const Json& root, std::string_view key) {
  const auto field = root.find(key);
  if (!field) return false;
  switch (field->type()) {
    case Json::Type::boolean:
      return field->as_bool();
    case Json::Type::array:
    case Json::Type::object:
      return field->size() > 0;
    case Json::Type::string:
    case Json::Type::integer:
    case Json::Type::number:
    case Json::Type::null:
      break;
  }
  return true;
}

struct Feature {
  std::string_view key;
  const char* what;
};
constexpr Feature kRefused[] = {
    {"use_dora", "DoRA"},
    {"modules_to_save", "modules that were trained as a whole"},
    {"lora_bias", "biases beside the matrices"},
    {"fan_in_fan_out", "matrices of transposed layers"},
    {"alpha_pattern", "a strength of its own for some modules"},
    {"trainable_token_indices", "rows of the embedding"},
    {"target_parameters", "matrices of experts"},
    {"megatron_config", "Megatron's layers"},
    {"layer_replication", "layers that are repeated"},
    {"alora_invocation_tokens", "an adapter that begins at certain tokens"},
};

// Such a beginning is taken from the model's own weights, which are then no longer the model's.
bool changes_the_base(const Json& root) {
  const auto field = root.find("init_lora_weights");
  if (!field || !field->is(Json::Type::string)) return false;
  constexpr std::string_view kHarmless[] = {"gaussian", "eva", "orthogonal"};
  return std::ranges::find(kHarmless, field->as_string()) == std::end(kHarmless);
}

void check_peft(const Json& root) {
  const auto field = [&](std::string_view key) { return fmt::format("{}: {}", root.path(), key); };
  if (const std::string type = root.string_or("peft_type", "LORA"); type != "LORA")
    throw Error(ErrorCode::unsupported, field("peft_type"),
                printable_name(type) + "; LORA is supported", kMerge);
  for (const Feature& feature : kRefused)
    if (is_used(root, feature.key)) fail_part(field(feature.key), feature.what);
  if (const std::string bias = root.string_or("bias", "none"); bias != "none")
    fail_part(field("bias"), "biases that were trained, too (" + printable_name(bias) + ")");
  if (changes_the_base(root))
    fail_part(field("init_lora_weights"),
              fmt::format("an adapter that changes the model it begins with ({})",
                          printable_name(root.at("init_lora_weights").as_string())));
}

// What was meant to be adapted and is not in the file would be left out in silence.
void check_targets(const Json& root, const std::vector<NamedTensor>& tensors) {
  const auto modules = root.find("target_modules");
  if (!modules || !modules->is(Json::Type::array)) return;
  modules->for_each_element([&](size_t, const Json& module) {
    const std::string name(module.as_string());
    if (std::ranges::none_of(tensors, [&](const NamedTensor& tensor) {
          return tensor.name.find("." + name + ".lora_") != std::string::npos;
        }))
      module.fail(
          fmt::format("{} has no matrices in adapter_model.safetensors", printable_name(name)));
  });
}

void check_ranks(const Json& root, const AdapterFile& adapter) {
  if (is_used(root, "rank_pattern")) return;
  const uint64_t rank = root.at("r").as_uint(UINT32_MAX);
  for (const AdapterPair& pair : adapter.pairs)
    if (pair.a.rows != rank)
      fail_input(pair.where, "is of rank {}, and adapter_config.json says {}", pair.a.rows, rank);
}

AdapterFile read_peft_adapter(const fs::path& folder, const Config& config) {
  add_inputs_of(folder);
  const fs::path path = folder / "adapter_model.safetensors";
  const Json root =
      Json::parse_file((folder / "adapter_config.json").string(), kLongestAdapterConfig);
  check_peft(root);
  if (!fs::exists(path))
    throw Error(ErrorCode::input, folder.string(), "has no adapter_model.safetensors",
                "adapter_model.bin is not read: save the adapter as safetensors");
  AdapterFile adapter;
  adapter.file = MappedFile(path);
  adapter.alpha = checked(root.at("lora_alpha").as_double(), kAlphas, root.path() + ": lora_alpha");
  adapter.by_root = root.bool_or("use_rslora", false);
  if (const Family* family = family_of_gguf(gguf_architecture(config)))
    adapter.layout = family->hf_layout;
  Model holder;
  std::vector<NamedTensor> tensors = parse_safetensors(adapter.file.bytes(), path.string());
  align_views(tensors, holder);
  adapter.copies = std::move(holder.copies);
  check_targets(root, tensors);
  pair_up(tensors, config, kPeftNames, path.string(), adapter);
  check_ranks(root, adapter);
  return adapter;
}

}  // namespace

AdapterFile read_adapter(const fs::path& path, const Config& config) {
  std::error_code error;
  if (!fs::exists(path, error)) fail_input(path.string(), "no such adapter");
  if (!fs::is_directory(path, error)) {
    if (path.extension() == ".safetensors")
      fail_input(path.string(), "give the folder it is in, which also holds adapter_config.json");
    return read_gguf_adapter(path, config);
  }
  if (!fs::exists(path / "adapter_config.json", error))
    throw Error(ErrorCode::input, path.string(), "has no adapter_config.json: not an adapter",
                "give a folder that PEFT has saved, or an adapter as GGUF");
  return read_peft_adapter(path, config);
}

}  // namespace tyto
