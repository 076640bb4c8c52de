#include "model/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <utility>

#include "base/hash.h"

namespace tyto {
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
  void add(const Config& config) {
    const auto& [architecture, name, layers, emb, hidden, heads, kv_heads, head_dim, vocab, context,
                 norm_eps, tied_head, qkv_bias, qk_norm, wide_qk_norm, norms, embedding_scale,
                 residual_scale, attention_scale, logit_divisor, fused_projections, unrotated, rope,
                 window, windowed, window_theta, activation, score_cap, logit_cap, sinks,
                 layer_norm, parallel_residual, adapted, experts, experts_used, expert_hidden,
                 weighs_chosen_alone, expert_bias, o_bias, attention_gate] = config;
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

}  // namespace tyto
