#include "model/model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/gguf.h"
#include "model/hf_model.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"
#include "model/weight_table.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> ignored;
  return files_below(folder, 1, ignored);
}

void open_gguf(const fs::path& path, Need need, Model& model) {
  fill_model_from_gguf(open_gguf_files(path, model.files), need, model);
}

void open_folder(const fs::path& folder, Need need, const Progress& progress, Model& model) {
  add_inputs_of(folder);
  const std::vector<RepoModel> models = models_of_repository(files_in(folder));
  // Repositories of GGUFs may have a config.json, too, which says nothing that the GGUFs do not.
  const bool has_ggufs_alone = !models.empty() && !models.front().asked.empty();
  if (!has_ggufs_alone && (is_there(folder / "config.json") || is_there(folder / "tokenizer.json")))
    return fill_model_from_folder(folder, need, progress, model);
  if (models.empty() && is_there(folder / "adapter_config.json")) fail_adapter(folder.string());
  if (models.empty())
    fail_input(folder.string(), "holds neither config.json nor a GGUF: not a model");
  if (models.size() > 1)
    fail_input(folder.string(), "holds several GGUFs, name one: {}",
               joined(models, " ", [](const RepoModel& each) { return each.files.front(); }));
  open_gguf(folder / models.front().files.front(), need, model);
}

}  // namespace

uint64_t Model::weight_bytes() const {
  if (!has_weights()) return 0;
  uint64_t total = 0;
  for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf))
    total += view_of(weights, spec).bytes.size();
  return total;
}

DType main_weight_type(const Model& model) {
  std::map<DType, size_t> bytes;
  for (const LayerWeights& layer : model.weights.layers)
    for (const TensorView* view : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up,
                                   &layer.down, &layer.conv_in})
      bytes[view->dtype] += view->bytes.size();
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::f32 : most->first;
}

uint64_t Model::parameters() const {
  uint64_t count = 0;
  for (const NamedTensor& tensor : tensors) count += tensor.view.values();
  return count;
}

uint64_t Model::active_parameters() const {
  if (!config.has_experts() || !has_weights()) return parameters();
  uint64_t idle = 0;
  for (const LayerWeights& layer : weights.layers)
    for (const TensorView* view : {&layer.gate, &layer.up, &layer.down})
      if (!layer.router.empty())
        idle += view->values() / config.experts * (config.experts - config.experts_used);
  return parameters() - idle;
}

std::string Model::place_of(const TensorView& weight) const {
  const std::byte* const data = weight.bytes.data();
  const auto has_data = [&](std::span<const std::byte> bytes) {
    return data >= bytes.data() && data < bytes.data() + bytes.size();
  };
  // A weight may be some rows of a tensor.
  const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& each) {
    return has_data(each.view.bytes);
  });
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const MappedFile& each) { return has_data(each.bytes()); });
  return fmt::format("{}: tensor {}", (file == files.end() ? path : file->path()).string(),
                     tensor == tensors.end() ? "of no name" : printable_name(tensor->name));
}

Model open_model(const fs::path& path, Need need, const Progress& progress) {
  Model model;
  model.path = path;
  std::error_code error;
  if (!is_there(path)) fail_input(path.string(), "no such file or folder");
  if (fs::is_directory(path, error))
    open_folder(path, need, progress, model);
  else if (path.extension() == ".safetensors" || path.extension() == ".q4nx")
    fail_input(path.string(), "give the folder it is in, which also holds config.json");
  else
    open_gguf(path, need, model);
  return model;
}

namespace {

// Values one after another, each so that it cannot be taken for its neighbour.
class Digest {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(const T& value) {
    hasher_.add(std::as_bytes(std::span(&value, 1)));
  }
  void add(const std::string& text) {
    add(text.size());
    hasher_.add(std::as_bytes(std::span(text)));
  }
  template <typename A, typename B>
  void add(const std::pair<A, B>& both) {
    add(both.first);
    add(both.second);
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  // Structs are taken apart into all their fields: one that is added later does not compile until
  // it is decided here whether it belongs to the identity.
  void add(const AddedToken& token) {
    const auto& [id, text, special, strip_left, strip_right, normalized] = token;
    add_all(id, text, special, strip_left, strip_right, normalized);
  }
  void add(const Rope& rope) {
    const auto& [theta, layout, scaling, factor, low, high, original, divisors, rotated, attention,
                 short_divisors, long_divisors, beta_fast, beta_slow, whole_band] = rope;
    add_all(theta, layout, scaling, factor, low, high, original, divisors, rotated, attention,
            short_divisors, long_divisors, beta_fast, beta_slow, whole_band);
  }
  void add(const RecurrentHeads& heads) {
    const auto& [key_heads, all, key_dim, head_dim, is_tiled, is_joint] = heads;
    add_all(key_heads, all, key_dim, head_dim, is_tiled, is_joint);
  }
  void add(const Config& config) {
    const auto& [architecture, name, layers, emb, hidden, heads, kv_heads, head_dim, vocab, context,
                 norm_eps, tied_head, qkv_bias, qk_norm, wide_qk_norm, norms, embedding_scale,
                 residual_scale, attention_scale, logit_divisor, fused_projections, unrotated, rope,
                 window, windowed, window_theta, activation, score_cap, logit_cap, sinks,
                 layer_norm, parallel_residual, adapted, experts, experts_used, expert_hidden,
                 weighs_chosen_alone, dense_layers, sigmoid_routing, choice_bias, expert_scale,
                 expert_bias, o_bias, attention_gate, layer_kinds, conv_taps, recurrent,
                 shared_hidden, shared_gate, recurrent_norms, least_time, most_time] = config;
    (void)name;  // computes nothing
    // Biases of norms, which no model has; identities that were written down have the field.
    constexpr bool kNormBias = false;
    add_all(architecture, layers, emb, hidden, heads, kv_heads, head_dim, vocab, context, norm_eps,
            tied_head, qkv_bias, qk_norm, wide_qk_norm, norms, embedding_scale, residual_scale,
            attention_scale, logit_divisor, fused_projections, unrotated, rope, window, windowed,
            window_theta, activation, score_cap, logit_cap, sinks, layer_norm, kNormBias,
            parallel_residual, adapted, experts, experts_used, expert_hidden, weighs_chosen_alone,
            expert_bias, o_bias);
    // Most models have none, and keep the identity that they had before it.
    if (attention_gate) add(attention_gate);
    if (!layer_kinds.empty()) add_all(layer_kinds, conv_taps, recurrent);
    if (dense_layers != 0 || sigmoid_routing || expert_scale != 1)
      add_all(dense_layers, sigmoid_routing, choice_bias, expert_scale);
    if (shared_hidden != 0) add_all(shared_hidden, shared_gate);
    if (recurrent_norms != 1 || least_time != 0 || std::isfinite(most_time))
      add_all(recurrent_norms, least_time, most_time);
  }
  void add(const Adapter& adapter) {
    const auto& [file, scale, alpha, by_root, rank, matrices] = adapter;
    (void)file;  // hashed as a whole
    add_all(scale, alpha, by_root, rank, matrices);
  }
  void add(const Vocabulary& vocabulary) {
    const auto& [algorithm, pieces, scores, merges, merge_results, split_patterns, added,
                 byte_tokens, normalizers, charsmap, prepend_space, prepend_once, prepend_if_absent,
                 drops_space, fuses_unknown, ignore_merges, longest_word, bos, unknown, eos,
                 add_bos, add_eos, chat_template, more_templates, ignores_system] = vocabulary;
    (void)ignores_system;  // changes no answer
    add_all(algorithm, pieces, scores, merges, merge_results, split_patterns, added, byte_tokens,
            normalizers, charsmap, prepend_space, prepend_once, prepend_if_absent, ignore_merges,
            longest_word, bos, unknown, eos, add_bos, add_eos, chat_template);
    // Most vocabularies have none of these, and keep the identity that they had before them.
    if (!drops_space && !fuses_unknown && more_templates.empty()) return;
    add_all(drops_space, fuses_unknown);
    for (const auto& [name, source] : more_templates) add_all(name, source);
  }
  std::string hex() const { return to_hex(hasher_.hash()); }

 private:
  template <typename... Values>
  void add_all(const Values&... values) {
    (add(values), ...);
  }

  Hasher hasher_;
};

}  // namespace

ModelIdentity identity_of(const Model& model, const std::filesystem::path& kept,
                          const Progress& progress) {
  const auto begin = std::chrono::steady_clock::now();
  uint64_t total = 0, done = 0;
  for (const MappedFile& file : model.files) total += file.bytes().size();
  for (const Adapter& adapter : model.adapters) total += adapter.file.bytes().size();
  const auto on_bytes = [&](uint64_t bytes) {
    done += bytes;
    if (progress && done < total) progress("hashing the model", done, total);
  };
  Digest digest;
  ModelIdentity result;
  result.is_cached = true;
  const auto add_file = [&](const MappedFile& file) {
    const FileHash whole = hash_of_file(file, kept, on_bytes);
    digest.add(whole.hash);
    if (whole.is_kept) done += file.bytes().size();
    result.is_cached = result.is_cached && whole.is_kept;
    return whole.hash;
  };
  digest.add(model.files.size());
  for (const MappedFile& file : model.files) add_file(file);
  for (const Adapter& adapter : model.adapters) {
    result.adapters.push_back(add_file(adapter.file));
    digest.add(adapter);
  }
  if (progress && !result.is_cached) progress("hashing the model", total, total);
  digest.add(model.config);
  digest.add(model.vocabulary.has_value());
  if (model.vocabulary) digest.add(*model.vocabulary);
  result.hash = digest.hex();
  result.form = fmt::format(
      "XXH3-128 over the XXH3-128 of every byte of {} weight file{}{}, every field of the config "
      "but its name{}",
      model.files.size(), model.files.size() == 1 ? "" : "s",
      model.adapters.empty() ? "" : " and of every LoRA adapter, their scales",
      model.vocabulary ? ", the vocabulary, the tokenizer's settings and the chat template"
                       : "; there is no tokenizer");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  result.seconds = took.count();
  return result;
}

namespace {

constexpr uint64_t kMoreThanAnyDisk = 1'000'000'000'000'000;

// It says "5.0 of at least 7.3 MB", in the unit of the larger number, or in a smaller one where it
// would look as if nothing was missing.
std::string sizes(uint64_t has, uint64_t least) {
  struct Unit {
    uint64_t bytes;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1'000'000'000, "GB"}, {1'000'000, "MB"}, {1000, "kB"}};
  for (const auto& [bytes, name] : kUnits) {
    if (least < bytes || least - has < bytes / 5) continue;
    const auto in_units = [bytes = bytes](uint64_t size) {
      return fmt::format("{:.1f}", static_cast<double>(size) / static_cast<double>(bytes));
    };
    const std::string present = has < bytes / 20 ? "less than 0.1" : in_units(has);
    return fmt::format("{} of at least {} {}", present, in_units(least), name);
  }
  return fmt::format("{} of at least {} bytes", has, least);
}

}  // namespace

void fail_cut_off(const std::string& file, uint64_t has, uint64_t least) {
  constexpr const char* kAgain = "download it again";
  if (has == 0) throw Error(ErrorCode::input, file, "the file is empty", kAgain);
  if (least > kMoreThanAnyDisk)
    throw Error(ErrorCode::input, file,
                fmt::format("the file is damaged: by its header it would have {} bytes", least),
                kAgain);
  throw Error(ErrorCode::input, file, "the file is cut off: " + sizes(has, least), kAgain);
}

void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs.github.com/spec/"))
    throw Error(ErrorCode::input, file, "is a git-LFS pointer, not the file itself",
                "run `git lfs pull` in its repository, or get the model with `tyto pull NAME`");
}

std::optional<Error> non_finite_value(const Model& model, const TensorView& weight) {
  const auto found = find_non_finite(weight);
  if (!found) return std::nullopt;
  return Error(ErrorCode::input, model.place_of(weight),
               fmt::format("{} at row {}, column {} cannot be a weight", found->value, found->row,
                           found->column),
               "the file is damaged, or was so before it was converted");
}

std::optional<Error> non_finite_weight(const Model& model) {
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::gguf))
    if (auto error = non_finite_value(model, view_of(model.weights, spec))) return error;
  return std::nullopt;
}

}  // namespace tyto
