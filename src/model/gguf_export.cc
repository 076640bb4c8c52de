// The metadata Tyto writes, from a config and a vocabulary.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/gguf_metadata.h"
#include "text/tokenizer.h"

namespace tyto {
namespace {

// Pre-tokeniser names to try against a vocabulary's rules, the commonest first.
constexpr const char* kPreNames[] = {"llama-bpe", "qwen2",          "gpt-2",  "smollm",
                                     "tekken",    "smaug-bpe",      "qwen35", "stablelm2",
                                     "falcon",    "deepseek-coder", "default"};

// tokenizer.ggml.token_type
enum : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// Collects entries with the value type spelt out, where a bare literal would pick the wrong one.
struct Entries {
  GgufMetadata list;

  void integer(const std::string& key, uint64_t value) { list.push_back({key, GgufValue{value}}); }
  void real(const std::string& key, double value) { list.push_back({key, GgufValue{value}}); }
  void flag(const std::string& key, bool value) { list.push_back({key, GgufValue{value}}); }
  void text(const std::string& key, std::string value) {
    list.push_back({key, GgufValue{std::move(value)}});
  }
  template <typename T>
  void array(const std::string& key, std::vector<T> values) {
    list.push_back({key, GgufValue{std::move(values)}});
  }
  void token(const std::string& key, Token id) {
    if (id >= 0) integer(key, static_cast<uint64_t>(id));
  }
};

std::string pre_name(const Vocabulary& vocabulary, const std::string& where) {
  // Normalisation is compared first but does not decide: GGUF readers disagree about it.
  for (const bool compare_nfc : {true, false})
    for (const char* name : kPreNames) {
      const PreTokenizer rules = pre_tokenizer_by_name(name, where);
      if (rules.split_patterns == vocabulary.split_patterns &&
          rules.ignore_merges == vocabulary.ignore_merges &&
          (!compare_nfc || rules.normalize_nfc == vocabulary.normalize_nfc))
        return name;
    }
  fail_unsupported(where, "GGUF has no name for this vocabulary's pre-tokeniser");
}

// SentencePiece GGUFs merge by score: the best rank that makes a piece, negated, orders the same.
std::vector<double> scores_of(const Vocabulary& vocabulary, size_t count) {
  if (vocabulary.merges.empty()) {
    std::vector<double> scores(vocabulary.scores.begin(), vocabulary.scores.end());
    scores.resize(count, 0.0);
    return scores;
  }
  const double last = -static_cast<double>(vocabulary.merges.size()) - 1.0;
  std::vector<double> scores(count, last);
  for (size_t rank = vocabulary.merges.size(); rank-- > 0;)
    scores[static_cast<size_t>(vocabulary.merge_results[rank])] = -static_cast<double>(rank);
  return scores;
}

std::vector<int64_t> token_types(const Vocabulary& vocabulary, size_t count) {
  std::vector<int64_t> types(count, kNormal);
  for (size_t id = 0; id < count; ++id)
    if (id >= vocabulary.pieces.size() || vocabulary.pieces[id].empty()) types[id] = kUnused;
  for (const Token id : vocabulary.byte_tokens)
    if (id >= 0) types[static_cast<size_t>(id)] = kByte;
  for (const AddedToken& token : vocabulary.added)
    types[static_cast<size_t>(token.id)] = token.special ? kControl : kUserDefined;
  if (vocabulary.unknown >= 0) types[static_cast<size_t>(vocabulary.unknown)] = kUnknown;
  return types;
}

std::vector<std::string> padded_pieces(const Vocabulary& vocabulary, size_t count) {
  std::vector<std::string> pieces = vocabulary.pieces;
  pieces.resize(count);
  for (size_t id = 0; id < count; ++id)
    if (pieces[id].empty()) pieces[id] = fmt::format("[PAD{}]", id);
  return pieces;
}

// GGUF has three keys for ends; readers find the well-known ones by their text besides.
void add_ends(const Vocabulary& vocabulary, Entries& entries, std::vector<std::string>& notes) {
  const char* free_key = "tokenizer.ggml.eot_token_id";
  for (size_t i = 0; i < vocabulary.eos.size(); ++i) {
    const Token id = vocabulary.eos[i];
    const std::string& piece = vocabulary.pieces[static_cast<size_t>(id)];
    if (i == 0) {
      entries.token("tokenizer.ggml.eos_token_id", id);
    } else if (ends_turn(piece)) {
      continue;
    } else if (free_key != nullptr) {
      entries.token(free_key, id);
      free_key = nullptr;
    } else {
      notes.push_back(fmt::format("token {} ends a generation, which GGUF has no key for", id));
    }
  }
}

}  // namespace

std::string gguf_architecture(const Config& config) {
  return config.architecture == "mistral" ? "llama" : config.architecture;
}

GgufMetadata config_to_gguf(const Config& config, uint32_t file_type) {
  const std::string arch = gguf_architecture(config);
  Entries entries;
  entries.text("general.architecture", arch);
  entries.text("general.type", "model");
  if (!config.name.empty()) entries.text("general.name", config.name);
  entries.integer("general.file_type", file_type);
  entries.integer("general.quantization_version", 2);
  entries.integer(arch + ".context_length", config.context);
  entries.integer(arch + ".embedding_length", config.emb);
  entries.integer(arch + ".block_count", config.layers);
  entries.integer(arch + ".feed_forward_length", config.hidden);
  entries.integer(arch + ".attention.head_count", config.heads);
  entries.integer(arch + ".attention.head_count_kv", config.kv_heads);
  entries.integer(arch + ".attention.key_length", config.head_dim);
  entries.integer(arch + ".attention.value_length", config.head_dim);
  entries.real(arch + ".attention.layer_norm_rms_epsilon", config.norm_eps);
  entries.integer(arch + ".rope.dimension_count", config.head_dim);
  entries.real(arch + ".rope.freq_base", config.rope.theta);
  if (config.rope.scaling == RopeScaling::linear) {
    entries.text(arch + ".rope.scaling.type", "linear");
    entries.real(arch + ".rope.scaling.factor", config.rope.factor);
  }
  entries.integer(arch + ".vocab_size", config.vocab);
  return std::move(entries.list);
}

GgufMetadata vocabulary_to_gguf(const Vocabulary& vocabulary, uint32_t vocab,
                                const std::string& where, std::vector<std::string>& notes) {
  const bool sentencepiece = vocabulary.algorithm == Vocabulary::Algorithm::sentencepiece;
  if (vocabulary.pieces.size() > vocab)
    fail_input(where, "{} tokens, but the embedding has {} rows", vocabulary.pieces.size(), vocab);
  Entries entries;
  entries.text("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
  entries.text("tokenizer.ggml.pre", sentencepiece ? "default" : pre_name(vocabulary, where));
  entries.array("tokenizer.ggml.tokens", padded_pieces(vocabulary, vocab));
  entries.array("tokenizer.ggml.token_type", token_types(vocabulary, vocab));
  if (sentencepiece) {
    entries.array("tokenizer.ggml.scores", scores_of(vocabulary, vocab));
    entries.flag("tokenizer.ggml.add_space_prefix", vocabulary.prepend_space);
    if (vocabulary.prepend_once)
      notes.push_back(
          "GGUF cannot say that the leading space is added once, not after each "
          "special token");
  } else {
    std::vector<std::string> merges;
    merges.reserve(vocabulary.merges.size());
    for (const auto& [left, right] : vocabulary.merges)
      merges.push_back(vocabulary.pieces[static_cast<size_t>(left)] + " " +
                       vocabulary.pieces[static_cast<size_t>(right)]);
    entries.array("tokenizer.ggml.merges", std::move(merges));
  }
  entries.token("tokenizer.ggml.bos_token_id", vocabulary.bos);
  entries.token("tokenizer.ggml.unknown_token_id", vocabulary.unknown);
  add_ends(vocabulary, entries, notes);
  entries.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  entries.flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  if (!vocabulary.chat_template.empty())
    entries.text("tokenizer.chat_template", vocabulary.chat_template);
  return std::move(entries.list);
}

}  // namespace tyto
