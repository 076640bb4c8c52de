#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/round_up.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/gguf.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"

namespace tyto {
namespace {

constexpr uint64_t kAlignment = 32;

// Type numbers of the format.
enum : uint32_t {
  kTypeU8 = 0,
  kTypeU32 = 4,
  kTypeI32 = 5,
  kTypeF32 = 6,
  kTypeBool = 7,
  kTypeString = 8,
  kTypeArray = 9,
  kTypeU64 = 10,
};

// Collects the header; it is small next to the tensors.
class Header {
 public:
  template <typename T>
  void number(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    text_.append(raw, sizeof value);
  }
  void string(const std::string& value) {
    number<uint64_t>(value.size());
    text_ += value;
  }
  const std::string& text() const { return text_; }

  void operator()(uint64_t value) {
    number<uint32_t>(value <= UINT32_MAX ? kTypeU32 : kTypeU64);
    if (value <= UINT32_MAX)
      number(static_cast<uint32_t>(value));
    else
      number(value);
  }
  void operator()(int64_t value) {
    number<uint32_t>(kTypeI32);
    number(narrow(value));
  }
  void operator()(double value) {
    number<uint32_t>(kTypeF32);
    number(static_cast<float>(value));
  }
  void operator()(bool value) {
    number<uint32_t>(kTypeBool);
    number<uint8_t>(value ? 1 : 0);
  }
  void operator()(const std::string& value) {
    number<uint32_t>(kTypeString);
    string(value);
  }
  void operator()(const std::vector<int64_t>& values) {
    array(kTypeI32, values.size());
    for (const int64_t value : values) number(narrow(value));
  }
  void operator()(const std::vector<uint8_t>& values) {
    array(kTypeU8, values.size());
    for (const uint8_t value : values) number(value);
  }
  void operator()(const std::vector<double>& values) {
    array(kTypeF32, values.size());
    for (const double value : values) number(static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) {
    array(kTypeString, values.size());
    for (const std::string& value : values) string(value);
  }

 private:
  static int32_t narrow(int64_t value) {
    TYTO_ASSERT(value >= INT32_MIN && value <= INT32_MAX);
    return static_cast<int32_t>(value);
  }
  void array(uint32_t type, uint64_t count) {
    number<uint32_t>(kTypeArray);
    number(type);
    number(count);
  }

  std::string text_;
};

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<TensorPlan> tensors, Replace replace)
    : file_(path, replace, {"a GGUF"}), tensors_(std::move(tensors)) {
  Header header;
  header.number<uint32_t>(0x46554747);
  header.number<uint32_t>(3);
  header.number<uint64_t>(tensors_.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.string(key);
    std::visit(header, value.value);
  }
  uint64_t offset = 0;
  for (const TensorPlan& tensor : tensors_) {
    header.string(tensor.name);
    header.number<uint32_t>(tensor.rows == 0 ? 1 : tensor.slices == 0 ? 2 : 3);
    header.number<uint64_t>(tensor.cols);
    if (tensor.rows != 0)
      header.number<uint64_t>(tensor.rows / std::max<uint64_t>(1, tensor.slices));
    if (tensor.slices != 0) header.number<uint64_t>(tensor.slices);
    header.number<uint32_t>(info(tensor.dtype).ggml_id);
    header.number<uint64_t>(offset);
    offset += round_up(tensor.bytes(), kAlignment);
  }
  file_.write(header.text());
  file_.pad_to(kAlignment);
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  TYTO_ASSERT(current_ < tensors_.size());
  const uint64_t expected = tensors_[current_].bytes();
  TYTO_ASSERT(bytes.size() <= expected - written_);
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ < expected) return;
  file_.pad_to(kAlignment);
  ++current_;
  written_ = 0;
}

void GgufWriter::commit() {
  TYTO_ASSERT(current_ == tensors_.size());
  file_.commit();
}

// The metadata Tyto writes, from a config and a vocabulary.

namespace {

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

std::vector<std::string> spelled_out(const std::vector<std::string>& patterns) {
  std::vector<std::string> result;
  for (const std::string& pattern : patterns) result.push_back(tyto::spelled_out(pattern));
  return result;
}

std::string pre_name(const Vocabulary& vocabulary, const std::string& where) {
  const std::vector<std::string> patterns = spelled_out(vocabulary.split_patterns);
  // Normalisation is compared first but does not decide: GGUF readers disagree about it.
  for (const bool compare_nfc : {true, false})
    for (const std::string& name : pre_tokenizer_names()) {
      const PreTokenizer rules = pre_tokenizer_by_name(name, where);
      if (spelled_out(rules.split_patterns) == patterns &&
          rules.ignore_merges == vocabulary.ignore_merges && !rules.marks_spaces &&
          (!compare_nfc || rules.normalizers == vocabulary.normalizers))
        return name;
    }
  fail_unsupported(where, "GGUF has no name for this vocabulary's pre-tokeniser");
}

// SentencePiece GGUFs merge by score: the best rank that makes a piece, negated, orders the same.
std::vector<double> scores_of(const Vocabulary& vocabulary, size_t count) {
  if (vocabulary.merges.empty()) {
    std::vector<double> scores(vocabulary.scores.begin(), vocabulary.scores.end());
    const double lowest = scores.empty() ? 0.0 : std::ranges::min(scores);
    scores.resize(count, lowest);
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

// Readers print a token that users defined as it is, and look for it in the text before they mark
// spaces. A text that another token has already stays as it is.
void unmark_user_defined(const Vocabulary& vocabulary, std::vector<std::string>& pieces) {
  constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  const PieceIndex index(vocabulary.pieces);
  std::set<std::string> taken;
  for (const AddedToken& token : vocabulary.added) {
    if (token.special) continue;
    std::string text = token.text;
    for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
      text.replace(at, kSpaceMark.size(), " ");
    if (index.find(text) < 0 && taken.insert(text).second)
      pieces[static_cast<size_t>(token.id)] = std::move(text);
  }
}

std::vector<std::string> padded_pieces(const Vocabulary& vocabulary, size_t count) {
  std::vector<std::string> pieces = vocabulary.pieces;
  if (vocabulary.algorithm == Vocabulary::Algorithm::sentencepiece)
    unmark_user_defined(vocabulary, pieces);
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

void add_byte_level(const Vocabulary& vocabulary, const std::string& where, Entries& entries) {
  entries.text("tokenizer.ggml.model", "gpt2");
  entries.text("tokenizer.ggml.pre", pre_name(vocabulary, where));
  std::vector<std::string> merges;
  merges.reserve(vocabulary.merges.size());
  for (const auto& [left, right] : vocabulary.merges)
    merges.push_back(vocabulary.pieces[static_cast<size_t>(left)] + " " +
                     vocabulary.pieces[static_cast<size_t>(right)]);
  entries.array("tokenizer.ggml.merges", std::move(merges));
}

void add_sentencepiece(const Vocabulary& vocabulary, size_t vocab, Entries& entries,
                       std::vector<std::string>& notes) {
  entries.text("tokenizer.ggml.model", "llama");
  entries.text("tokenizer.ggml.pre", "default");
  entries.array("tokenizer.ggml.scores", scores_of(vocabulary, vocab));
  entries.flag("tokenizer.ggml.add_space_prefix", vocabulary.prepend_space);
  if (vocabulary.prepend_once)
    notes.push_back(
        "GGUF cannot say that the leading space is added once, not after each special token");
  if (vocabulary.drops_space && !vocabulary.prepend_space)
    notes.push_back("GGUF cannot say that a space at the beginning of an answer is dropped");
  if (!vocabulary.fuses_unknown && vocabulary.byte_tokens.empty())
    notes.push_back("GGUF cannot say that each unknown character is a token of its own");
}

bool does(const Vocabulary& vocabulary, Normalizer step) {
  return std::ranges::find(vocabulary.normalizers, step) != vocabulary.normalizers.end();
}

void add_unigram(const Vocabulary& vocabulary, size_t vocab, const std::string& where,
                 Entries& entries, std::vector<std::string>& notes) {
  for (const Normalizer step : vocabulary.normalizers)
    if (step != Normalizer::charsmap && step != Normalizer::merge_spaces &&
        step != Normalizer::trim_left && step != Normalizer::trim_right &&
        step != Normalizer::spaces)
      fail_unsupported(where, "GGUF has no keys for this vocabulary's normalizers");
  entries.text("tokenizer.ggml.model", "t5");
  entries.text("tokenizer.ggml.pre", "default");
  entries.array("tokenizer.ggml.scores", scores_of(vocabulary, vocab));
  entries.flag("tokenizer.ggml.add_space_prefix", vocabulary.prepend_space);
  entries.flag("tokenizer.ggml.remove_extra_whitespaces",
               does(vocabulary, Normalizer::merge_spaces));
  if (does(vocabulary, Normalizer::charsmap))
    entries.array("tokenizer.ggml.precompiled_charsmap",
                  std::vector<uint8_t>(vocabulary.charsmap.begin(), vocabulary.charsmap.end()));
  if (does(vocabulary, Normalizer::spaces) && !does(vocabulary, Normalizer::charsmap))
    notes.push_back("GGUF cannot say that all white space is a space");
  if (!vocabulary.byte_tokens.empty())
    notes.push_back("llama.cpp takes the unknown token where this vocabulary has bytes");
}

void add_word_piece(const Vocabulary& vocabulary, const std::string& where, Entries& entries,
                    std::vector<std::string>& notes) {
  const BertText text = {.strip_accents = does(vocabulary, Normalizer::strip_accents),
                         .lower_case = does(vocabulary, Normalizer::lower_case)};
  const std::vector<std::string> patterns = {std::string(kWhiteSpacePattern),
                                             std::string(kPunctuationPattern)};
  if (vocabulary.normalizers != bert_normalizers(text) || vocabulary.split_patterns != patterns)
    fail_unsupported(where, "GGUF has no keys for this vocabulary's normalizers");
  entries.text("tokenizer.ggml.model", "bert");
  entries.text("tokenizer.ggml.pre", "default");
  entries.flag("tokenizer.ggml.normalizer.lowercase", text.lower_case);
  entries.flag("tokenizer.ggml.normalizer.strip_accents", text.strip_accents);
  if (!vocabulary.eos.empty())
    entries.token("tokenizer.ggml.seperator_token_id", vocabulary.eos.front());
  entries.flag("tokenizer.ggml.add_sep_token", vocabulary.add_eos);
  if (vocabulary.longest_word > 0)
    notes.push_back(fmt::format("GGUF cannot say that words of more than {} characters are unknown",
                                vocabulary.longest_word));
}

// As gguf-py writes several: their names are letters, digits and underscores.
void add_chat_templates(const Vocabulary& vocabulary, Entries& entries,
                        std::vector<std::string>& notes) {
  if (!vocabulary.chat_template.empty())
    entries.text("tokenizer.chat_template", vocabulary.chat_template);
  if (vocabulary.ignores_system) entries.flag("tyto.ignores_system_messages", true);
  std::set<std::string> names;
  for (const ChatSource& each : vocabulary.more_templates) {
    std::string name = each.name;
    for (char& c : name)
      if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z')) c = '_';
    if (name.empty() || !names.insert(name).second) {
      notes.push_back(fmt::format("the chat template \"{}\" is left out: GGUF has no key for it",
                                  printable_name(each.name)));
      continue;
    }
    entries.text("tokenizer.chat_template." + name, each.source);
  }
  if (!names.empty())
    entries.array("tokenizer.chat_templates", std::vector<std::string>(names.begin(), names.end()));
}

void add_rope_scaling(const Config& config, const std::string& arch, Entries& entries) {
  const Rope& rope = config.rope;
  const std::string prefix = arch + ".rope.scaling.";
  if (rope.scaling == RopeScaling::linear || rope.scaling == RopeScaling::yarn) {
    entries.text(prefix + "type", rope.scaling == RopeScaling::yarn ? "yarn" : "linear");
    entries.real(prefix + "factor", rope.factor);
  }
  if (rope.scaling == RopeScaling::longrope || rope.scaling == RopeScaling::yarn)
    entries.integer(prefix + "original_context_length", rope.original_context);
  if (rope.scaling == RopeScaling::longrope)
    entries.real(prefix + "attn_factor", rope.attention_factor);
  if (rope.scaling != RopeScaling::yarn) return;
  // A key of our own: llama.cpp rounds the band to whole frequencies, gpt-oss's own code does not.
  if (!rope.whole_band) entries.flag(prefix + "yarn_truncate", false);
  // Readers take it times what yarn itself gives.
  const double own = 1 + 0.1 * std::log(static_cast<double>(rope.factor));
  entries.real(prefix + "attn_factor", rope.attention_factor / own);
  entries.real(prefix + "yarn_beta_fast", rope.beta_fast);
  entries.real(prefix + "yarn_beta_slow", rope.beta_slow);
}

void add_multipliers(const Config& config, const std::string& arch, Entries& entries) {
  if (config.embedding_scale != 1) entries.real(arch + ".embedding_scale", config.embedding_scale);
  if (config.residual_scale != 1) entries.real(arch + ".residual_scale", config.residual_scale);
  if (config.attention_scale != 0) entries.real(arch + ".attention.scale", config.attention_scale);
  entries.real(arch + ".logit_scale", config.logit_divisor);  // readers want it even if it is one
}

void add_caps(const Config& config, const Family& family, const std::string& arch,
              Entries& entries) {
  // No published model needs it: readers that do not look go by the number of layers.
  if (config.attention_scale != gguf_attention_scale(family, config))
    entries.real(arch + ".attention.scale", config.score_scale());
  if (config.score_cap != family.score_cap)
    entries.real(arch + ".attn_logit_softcapping", config.score_cap);
  if (config.logit_cap != family.logit_cap)
    entries.real(arch + ".final_logit_softcapping", config.logit_cap);
}

// The step of the layers without a window, as readers know it for some families; or every layer.
void add_window(const Config& config, const Family& family, const std::string& arch,
                Entries& entries) {
  entries.integer(arch + ".attention.sliding_window", config.window);
  if (family.window_theta != 0)
    entries.real(arch + ".rope.freq_base_swa",
                 config.window_theta != 0 ? config.window_theta : config.rope.theta);
  if (config.windowed == windowed_layers(config.layers, family.global_step)) return;
  const std::string key = arch + ".attention.sliding_window_pattern";
  for (uint32_t step = 0; step <= config.layers; ++step)
    if (config.windowed == windowed_layers(config.layers, step)) return entries.integer(key, step);
  entries.array(key, std::vector<int64_t>(config.windowed.begin(), config.windowed.end()));
}

void add_experts(const Config& config, const std::string& arch, Entries& entries) {
  if (!config.weighs_chosen_alone)
    throw Error(ErrorCode::unsupported, config.name,
                fmt::format("GGUF cannot say that weights of chosen experts do not add up to one: "
                            "readers of {} take it that they do",
                            arch),
                "use the checkpoint as it is");
  entries.integer(arch + ".expert_count", config.experts);
  entries.integer(arch + ".expert_used_count", config.experts_used);
  if (config.sigmoid_routing) {
    constexpr uint64_t kSigmoid = 2;
    entries.integer(arch + ".expert_gating_func", kSigmoid);
    entries.integer(arch + ".leading_dense_block_count", config.dense_layers);
    entries.flag(arch + ".expert_weights_norm", config.weighs_chosen_alone);
    entries.real(arch + ".expert_weights_scale", config.expert_scale);
  }
  if (config.shared_hidden != 0)
    entries.integer(arch + ".expert_shared_feed_forward_length", config.shared_hidden);
  if (config.expert_hidden != config.hidden || config.expert_bias || config.shared_hidden != 0 ||
      config.sigmoid_routing)
    entries.integer(arch + ".expert_feed_forward_length", config.expert_hidden);
}

void add_heads(const Config& config, const std::string& arch, Entries& entries) {
  const RecurrentHeads& shape = config.recurrent;
  entries.integer(arch + ".ssm.conv_kernel", config.conv_taps);
  entries.integer(arch + ".ssm.state_size", shape.key_dim);
  entries.integer(arch + ".ssm.group_count", shape.key_heads);
  entries.integer(arch + ".ssm.time_step_rank", shape.heads);
  entries.integer(arch + ".ssm.inner_size", shape.values());
}

// Readers of these files take each layer whose number is a multiple of a step as one that attends.
void add_delta_rule(const Config& config, const Family& family, const std::string& arch,
                    Entries& entries) {
  uint32_t step = 1;
  while (step < config.layers && !config.attends(step - 1)) ++step;
  if (config.layer_kinds != recurrent_layers(family, config.layers, step))
    throw Error(ErrorCode::unsupported, config.name,
                fmt::format("GGUF cannot say which layers attend: readers of {} take every {}th",
                            arch, step),
                "use the checkpoint as it is");
  entries.integer(arch + ".full_attention_interval", step);
  add_heads(config, arch, entries);
  if (!family.tiled_heads) return;
  // Which pairs of a head turn by time, height and width: in a text all three are the position.
  const int64_t pairs = config.rope_width() / 2;
  constexpr int64_t kAxes = 3;
  entries.array(arch + ".rope.dimension_sections",
                std::vector<int64_t>{(pairs + 2) / kAxes, (pairs + 1) / kAxes, pairs / kAxes, 0});
}

void add_kv_heads(const Config& config, const std::string& arch, Entries& entries) {
  const std::string key = arch + ".attention.head_count_kv";
  if (!config.has_kind(LayerKind::short_conv) && !config.has_kind(LayerKind::mamba2))
    return entries.integer(key, config.kv_heads);
  std::vector<int64_t> counts;
  for (uint32_t layer = 0; layer < config.layers; ++layer)
    counts.push_back(config.attends(layer) ? config.kv_heads : 0);
  entries.array(key, std::move(counts));
}

}  // namespace

std::string gguf_architecture(const Config& config) {
  const Family* family = family_of_model_type(config.architecture);
  return family == nullptr ? config.architecture : std::string(family->gguf);
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
  add_kv_heads(config, arch, entries);
  entries.integer(arch + ".attention.key_length", config.head_dim);
  entries.integer(arch + ".attention.value_length", config.head_dim);
  const char* eps_key =
      config.layer_norm ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon";
  entries.real(arch + eps_key, config.norm_eps);
  entries.integer(arch + ".rope.dimension_count", config.rope_width());
  entries.real(arch + ".rope.freq_base", config.rope.theta);
  const Family* family = family_of_gguf(arch);
  TYTO_ASSERT(family != nullptr);
  add_rope_scaling(config, arch, entries);
  if (family->has_multipliers) add_multipliers(config, arch, entries);
  if (family->has_caps) add_caps(config, *family, arch, entries);
  if (config.window != 0) add_window(config, *family, arch, entries);
  if (family->scales_logits) entries.real(arch + ".logit_scale", 1 / config.logit_divisor);
  const uint32_t step = family->unrotated_step;
  if (!family->rotates)
    entries.flag(arch + ".rope.scaling.finetuned", false);
  else if (config.unrotated != unrotated_layers(config.layers, step))
    throw Error(
        ErrorCode::unsupported, config.name,
        fmt::format("GGUF cannot say which layers have no rope: readers of {} take every {}th",
                    arch, step),
        "use the checkpoint as it is");
  if (config.has_experts()) add_experts(config, arch, entries);
  if (family->recurrent == LayerKind::delta_rule) add_delta_rule(config, *family, arch, entries);
  if (config.has_kind(LayerKind::mamba2)) add_heads(config, arch, entries);
  if (family->recurrent == LayerKind::short_conv)
    entries.integer(arch + ".shortconv.l_cache", config.conv_taps);
  entries.integer(arch + ".vocab_size", config.vocab);
  return std::move(entries.list);
}

GgufMetadata vocabulary_to_gguf(const Vocabulary& vocabulary, uint32_t vocab,
                                const std::string& where, std::vector<std::string>& notes) {
  if (vocabulary.pieces.size() > vocab)
    fail_input(where, "{} tokens, but the embedding has {} rows", vocabulary.pieces.size(), vocab);
  Entries entries;
  switch (vocabulary.algorithm) {
    case Vocabulary::Algorithm::byte_level_bpe:
      add_byte_level(vocabulary, where, entries);
      break;
    case Vocabulary::Algorithm::sentencepiece:
      add_sentencepiece(vocabulary, vocab, entries, notes);
      break;
    case Vocabulary::Algorithm::unigram:
      add_unigram(vocabulary, vocab, where, entries, notes);
      break;
    case Vocabulary::Algorithm::word_piece:
      add_word_piece(vocabulary, where, entries, notes);
      break;
    case Vocabulary::Algorithm::longest_match:
      fail_unsupported(where, "RWKV's vocabularies are read, not written");
  }
  entries.array("tokenizer.ggml.tokens", padded_pieces(vocabulary, vocab));
  entries.array("tokenizer.ggml.token_type", token_types(vocabulary, vocab));
  entries.token("tokenizer.ggml.bos_token_id", vocabulary.bos);
  entries.token("tokenizer.ggml.unknown_token_id", vocabulary.unknown);
  add_ends(vocabulary, entries, notes);
  entries.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  entries.flag("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  add_chat_templates(vocabulary, entries, notes);
  return std::move(entries.list);
}

}  // namespace tyto
