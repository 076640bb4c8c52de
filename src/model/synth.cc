#include "model/synth.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/spelling.h"
#include "model/convert.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/hf_model.h"
#include "model/safetensors.h"
#include "model/weight_table.h"
#include "tensor/quant.h"
#include "text/chat_template.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

constexpr uint64_t kMadeAtOnce = 1 << 18;
constexpr uint64_t kPoolValues = 1 << 18;

// Every random number is a function of a key and a counter, so that order does not matter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The sum of four uniform numbers: bell-shaped, bounded at 3.46 deviations, and cheap.
void fill_random(uint64_t key, uint64_t first, float mean, float deviation, std::span<float> out) {
  constexpr double kSumDeviation = 37837.23;  // 65536 * sqrt(4 / 12)
  // A float times a sum of 18 bits is exact in double: machines that fuse multiplication and
  // addition get the same bits as those that do not.
  const double scale = static_cast<float>(deviation / kSumDeviation);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mix(key + first + i);
    const auto sum = static_cast<int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                          ((bits >> 32) & 0xffff) + (bits >> 48));
    out[i] = static_cast<float>(mean + scale * (sum - 2 * 65535));
  }
}

// Quantising is far slower than writing, so large matrices of block types are made of blocks drawn
// at random from a pool of quantised ones. Blocks repeat; rows, being several blocks, do not.
struct BlockPool {
  std::vector<std::byte> bytes;
  uint64_t blocks = 0;
};

BlockPool make_pool(DType dtype, float deviation, uint64_t key) {
  std::vector<float> values(kPoolValues);
  fill_random(key, 0, 0.0f, deviation, values);
  BlockPool pool;
  pool.blocks = kPoolValues / info(dtype).block_values;
  pool.bytes.resize(row_bytes(dtype, kPoolValues));
  quantize(dtype, values, pool.bytes);
  return pool;
}

// Deviation 1/sqrt(K) keeps activations at the size of what went in; norms stay near one.
struct Distribution {
  float mean;
  float deviation;
};

constexpr TensorPart kBiases[] = {TensorPart::q_bias,         TensorPart::k_bias,
                                  TensorPart::v_bias,         TensorPart::o_bias,
                                  TensorPart::router_bias,    TensorPart::expert_gate_bias,
                                  TensorPart::expert_up_bias, TensorPart::expert_down_bias};

Distribution distribution_of(const WeightSpec& spec, float norm_mean) {
  if (std::ranges::find(kBiases, spec.part) != std::end(kBiases)) return {0.0f, 0.02f};
  if (spec.part == TensorPart::sinks) return {0.0f, 1.0f};
  // States that fade within some ten tokens.
  if (spec.part == TensorPart::recur_rates) return {-1.0f, 0.2f};
  if (spec.part == TensorPart::recur_time_bias) return {-2.0f, 0.5f};
  if (spec.part == TensorPart::recur_norm || spec.part == TensorPart::recur_skip)
    return {1.0f, 0.1f};
  if (spec.part == TensorPart::conv_bias) return {0.0f, 0.1f};
  if (spec.is_vector()) return {norm_mean, 0.1f};
  return {0.0f, 1.0f / std::sqrt(static_cast<float>(spec.cols))};
}

class TensorMaker {
 public:
  TensorMaker(uint64_t seed, float norm_mean) : seed_(seed), norm_mean_(norm_mean) {}

  // Makes one tensor and hands its bytes to `append`, some rows at a time.
  template <typename Append>
  void make(const WeightSpec& spec, DType dtype, uint64_t index, const Append& append) {
    const uint64_t key = mix(mix(seed_) ^ index);
    const uint64_t rows = spec.is_vector() ? 1 : spec.rows;
    const uint64_t batch = std::max<uint64_t>(1, kMadeAtOnce / spec.cols);
    for (uint64_t first = 0; first < rows; first += batch) {
      const uint64_t values = std::min(batch, rows - first) * spec.cols;
      bytes_.resize(row_bytes(dtype, values));
      if (info(dtype).block_values == 1 || rows * spec.cols <= kPoolValues)
        fill_directly(spec, dtype, key, first * spec.cols, values);
      else
        fill_blocks(spec, dtype, key, first * spec.cols);
      append(std::span<const std::byte>(bytes_));
    }
  }

 private:
  void fill_directly(const WeightSpec& spec, DType dtype, uint64_t key, uint64_t first,
                     uint64_t count) {
    const Distribution shape = distribution_of(spec, norm_mean_);
    values_.resize(count);
    fill_random(key, first, shape.mean, shape.deviation, values_);
    quantize(dtype, values_, bytes_);
  }

  void fill_blocks(const WeightSpec& spec, DType dtype, uint64_t key, uint64_t first) {
    BlockPool& pool = pools_[{dtype, spec.cols}];
    if (pool.blocks == 0)
      pool = make_pool(dtype, distribution_of(spec, norm_mean_).deviation,
                       mix(seed_ + static_cast<uint64_t>(dtype)) ^ spec.cols);
    const uint64_t block_bytes = info(dtype).block_bytes;
    const uint64_t first_block = first / info(dtype).block_values;
    for (uint64_t i = 0; i < bytes_.size() / block_bytes; ++i) {
      const uint64_t pick = mix(key + first_block + i) % pool.blocks;
      std::memcpy(bytes_.data() + i * block_bytes, pool.bytes.data() + pick * block_bytes,
                  block_bytes);
    }
  }

  uint64_t seed_;
  float norm_mean_;
  std::map<std::pair<DType, uint64_t>, BlockPool> pools_;  // by type and columns
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

// The mean of the norms that a file of this style holds.
float norm_mean(const Config& config, NameStyle style) {
  const Family* family = family_of_model_type(config.architecture);
  const bool from_zero = family != nullptr && family->norms_from_zero;
  return from_zero && style == NameStyle::hugging_face ? 0.0f : 1.0f;
}

template <typename Writer>
void write_tensors(const std::vector<WeightSpec>& specs, const std::vector<TensorPlan>& plans,
                   TensorMaker maker, const Progress& progress, Writer& writer) {
  uint64_t total = 0;
  for (const TensorPlan& plan : plans) total += plan.bytes();
  uint64_t done = 0;
  for (size_t i = 0; i < specs.size(); ++i)
    maker.make(specs[i], plans[i].dtype, i, [&](std::span<const std::byte> bytes) {
      writer.append(bytes);
      done += bytes.size();
      if (progress) progress("writing weights", done, total);
    });
}

std::vector<std::string> write_gguf(const Config& config, const TypeMix& type, uint64_t seed,
                                    const std::filesystem::path& out, const Progress& progress,
                                    Replace replace) {
  std::vector<std::string> notes;
  const std::vector<WeightSpec> specs = weight_specs(config, NameStyle::gguf);
  const std::vector<TensorPlan> plans = plan_types(type, config, specs, notes);
  const std::vector<RopeTensor> ropes = rope_tensors(config);
  std::vector<TensorPlan> written = plans;
  for (const auto& [name, divisors] : ropes)
    written.push_back({name, DType::f32, 0, divisors.size()});
  GgufMetadata metadata = config_to_gguf(config, type.file_type);
  GgufMetadata tokenizer =
      vocabulary_to_gguf(synthetic_vocabulary(config), config.vocab, out.string(), notes);
  std::move(tokenizer.begin(), tokenizer.end(), std::back_inserter(metadata));
  GgufWriter writer(out, metadata, std::move(written), replace);
  write_tensors(specs, plans, {seed, norm_mean(config, NameStyle::gguf)}, progress, writer);
  for (const RopeTensor& rope : ropes) writer.append(std::as_bytes(std::span(rope.divisors)));
  writer.commit();
  return notes;
}

// What is written below, and so what a folder may hold that is replaced.
constexpr FolderKind kCheckpoint = {"a synthetic checkpoint", [](std::string_view file) {
                                      return file == "config.json" ||
                                             file == "generation_config.json" ||
                                             file == "tokenizer.json" ||
                                             file == "tokenizer_config.json" ||
                                             file == "model.safetensors";
                                    }};

void write_text(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::vector<std::string> write_folder(const Config& config, const TypeMix& type, uint64_t seed,
                                      const std::filesystem::path& out, const Progress& progress,
                                      Replace replace) {
  if (info(type.base).block_values != 1)
    throw Error(ErrorCode::usage, out.string(),
                fmt::format("a safetensors folder cannot hold {}", type.name),
                "use f32, f16 or bf16, or a name that ends in .gguf");
  AtomicFolder folder(out, replace, kCheckpoint);
  const Vocabulary vocabulary = synthetic_vocabulary(config);
  write_text(folder.file("config.json"), hf_config_json(config, type.base, vocabulary));
  write_text(folder.file("generation_config.json"), hf_generation_config_json(vocabulary));
  write_text(folder.file("tokenizer.json"), hf_tokenizer_json(vocabulary));
  write_text(folder.file("tokenizer_config.json"), hf_tokenizer_config_json(vocabulary, config));
  const std::vector<WeightSpec> specs =
      specs_of_each_expert(config, weight_specs(config, NameStyle::hugging_face));
  std::vector<TensorPlan> plans;
  for (const WeightSpec& spec : specs)
    plans.push_back({spec.name, type.base, spec.rows, spec.cols,
                     spec.part == TensorPart::conv ? spec.rows : 0});
  SafetensorsWriter writer(folder.file("model.safetensors"), plans);
  write_tensors(specs, plans, {seed, norm_mean(config, NameStyle::hugging_face)}, progress, writer);
  writer.commit();
  folder.commit();
  return {};
}

}  // namespace

std::vector<std::string> synthesize(const Config& config, const std::string& type, uint64_t seed,
                                    const std::filesystem::path& out, const Progress& progress,
                                    Replace replace) {
  check(config, "shape");
  const TypeMix& type_mix = find_type_mix(type);
  return out.extension() == ".gguf" ? write_gguf(config, type_mix, seed, out, progress, replace)
                                    : write_folder(config, type_mix, seed, out, progress, replace);
}

namespace {

struct Special {
  Token id;
  std::string_view text;
};

// The special tokens of one family of models. Ids not listed from first_reserved on are reserved
// tokens; reserved_end is 0 where there are none.
struct NamedPieces {
  std::string_view architecture;
  uint32_t vocab;  // 0: any
  std::string_view pre;
  std::string_view chat_template;
  std::array<Special, 8> specials;  // the first empty text ends the list
  Token first_reserved;
  Token reserved_end;
  Token bos;
  std::array<Token, 3> eos;  // -1: none
  bool add_bos;
};

constexpr NamedPieces kNamedPieces[] = {
    {"llama",
     128256,
     "llama-bpe",
     "llama3",
     {{{128000, "<|begin_of_text|>"},
       {128001, "<|end_of_text|>"},
       {128004, "<|finetune_right_pad_id|>"},
       {128006, "<|start_header_id|>"},
       {128007, "<|end_header_id|>"},
       {128008, "<|eom_id|>"},
       {128009, "<|eot_id|>"},
       {128010, "<|python_tag|>"}}},
     128000,
     128256,
     128000,
     {128009, 128001, 128008},
     true},
    {"llama",
     49152,
     "smollm",
     "chatml",
     {{{0, "<|endoftext|>"}, {1, "<|im_start|>"}, {2, "<|im_end|>"}}},
     0,
     17,
     1,
     {2, 0, -1},
     false},
    // TinyLlama's own vocabulary is SentencePiece's; the ids of its special tokens are kept.
    {"llama",
     32000,
     "gpt-2",
     "",
     {{{0, "<unk>"}, {1, "<s>"}, {2, "</s>"}}},
     0,
     0,
     1,
     {2, -1, -1},
     true},
    {"qwen2",
     0,
     "qwen2",
     "chatml",
     {{{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
     151643,
     151665,
     -1,
     {151645, 151643, -1},
     false},
    {"qwen3",
     0,
     "qwen2",
     "chatml",
     {{{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
     151643,
     151669,
     -1,
     {151645, 151643, -1},
     false},
    {"", 0, "gpt-2", "", {{{0, "<|bos|>"}, {1, "<|eos|>"}}}, 0, 0, 0, {1, -1, -1}, true},
};

const NamedPieces& family_of(const Config& config) {
  for (const NamedPieces& family : kNamedPieces) {
    if (!family.architecture.empty() && family.architecture != config.architecture) continue;
    if (family.vocab != 0 && family.vocab != config.vocab) continue;
    if (family.reserved_end > static_cast<Token>(config.vocab)) continue;
    return family;
  }
  TYTO_ASSERT(!"the last family fits everything");
  return kNamedPieces[0];
}

std::map<Token, std::string> special_texts(const NamedPieces& family) {
  std::map<Token, std::string> texts;
  for (const Special& special : family.specials)
    if (!special.text.empty()) texts[special.id] = special.text;
  int reserved = 0;
  for (Token id = family.first_reserved; id < family.reserved_end; ++id)
    if (!texts.contains(id)) texts[id] = fmt::format("<|reserved_special_token_{}|>", reserved++);
  return texts;
}

// Pieces of two letters and then of three, from letters by their frequency in English, so that a
// prompt becomes about as many tokens as a real vocabulary would make of it. Each string of three
// is made by one merge only, which keeps every piece distinct.
constexpr std::string_view kLetters = " etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ.";

class PieceMaker {
 public:
  explicit PieceMaker(Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // The next piece in the order of ids; false when there are no more letters to combine.
  bool add(Token id) {
    const size_t letters = kLetters.size();
    const size_t index = made_++;
    if (index < 256) return place(id, to_byte_level(byte_text(index)));
    const size_t pair = index - 256;
    if (pair < letters * letters) {
      const Token left = byte_ids_[letter(pair / letters)];
      const Token right = byte_ids_[letter(pair % letters)];
      return join(id, left, right);
    }
    const size_t triple = pair - letters * letters;
    if (triple >= letters * letters * letters) return false;
    return join(id, pair_ids_[triple / letters], byte_ids_[letter(triple % letters)]);
  }

 private:
  static std::string byte_text(size_t byte) { return std::string(1, static_cast<char>(byte)); }
  static size_t letter(size_t index) { return static_cast<unsigned char>(kLetters[index]); }

  bool place(Token id, std::string piece) {
    if (made_ <= 256) byte_ids_.push_back(id);
    vocabulary_.pieces[static_cast<size_t>(id)] = std::move(piece);
    return true;
  }

  bool join(Token id, Token left, Token right) {
    const auto& pieces = vocabulary_.pieces;
    vocabulary_.merges.emplace_back(left, right);
    vocabulary_.merge_results.push_back(id);
    if (pair_ids_.size() < kLetters.size() * kLetters.size()) pair_ids_.push_back(id);
    return place(id, pieces[static_cast<size_t>(left)] + pieces[static_cast<size_t>(right)]);
  }

  Vocabulary& vocabulary_;
  size_t made_ = 0;
  std::vector<Token> byte_ids_;
  std::vector<Token> pair_ids_;
};

std::string template_by_name(std::string_view name) {
  for (const NamedTemplate& entry : named_chat_templates())
    if (entry.name == name) return std::string(entry.source);
  return "";
}

}  // namespace

Vocabulary synthetic_vocabulary(const Config& config) {
  constexpr uint32_t kSmallest = 256 + 2;
  if (config.vocab < kSmallest)
    fail_unsupported("vocabulary size " + std::to_string(config.vocab),
                     "a byte-level vocabulary needs {} tokens", kSmallest);
  const NamedPieces& family = family_of(config);
  const std::map<Token, std::string> specials = special_texts(family);
  Vocabulary vocabulary;
  // Qwen pads its embedding beyond the last token.
  const Token size = family.vocab == 0 && family.reserved_end > 0
                         ? family.reserved_end
                         : static_cast<Token>(config.vocab);
  vocabulary.pieces.resize(static_cast<size_t>(size));
  PieceMaker maker(vocabulary);
  for (Token id = 0; id < size; ++id) {
    const auto special = specials.find(id);
    if (special == specials.end()) {
      if (!maker.add(id)) vocabulary.pieces[static_cast<size_t>(id)] = fmt::format("[PAD{}]", id);
      continue;
    }
    vocabulary.pieces[static_cast<size_t>(id)] = special->second;
    AddedToken token;
    token.id = id;
    token.text = special->second;
    token.special = true;
    vocabulary.added.push_back(std::move(token));
  }
  const PreTokenizer rules = pre_tokenizer_by_name(std::string(family.pre), "synthetic vocabulary");
  vocabulary.split_patterns = rules.split_patterns;
  vocabulary.normalizers = rules.normalizers;
  vocabulary.ignore_merges = rules.ignore_merges;
  vocabulary.bos = family.bos;
  for (const Token id : family.eos)
    if (id >= 0) vocabulary.eos.push_back(id);
  vocabulary.add_bos = family.add_bos;
  vocabulary.chat_template = template_by_name(family.chat_template);
  return vocabulary;
}

namespace {

struct Shape {
  std::string_view name;
  std::string_view architecture;
  uint32_t layers, emb, hidden, heads, kv_heads, head_dim, vocab, context;
  uint32_t theta;
  uint32_t llama3_factor;  // 0: no rope scaling
  bool tied;
  void (*change)(Config&) = nullptr;  // what the columns do not say
};

void granite_2b(Config& config) {
  config.embedding_scale = 12;
  config.residual_scale = 0.22f;
  config.attention_scale = 0.015625f;
  config.logit_divisor = 8;
}

// As published, a few of their factors apart: what they are costs no time.
void phi_long(Config& config, uint32_t original) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::longrope;
  rope.original_context = original;
  for (uint32_t i = 0; i < config.rope_width() / 2; ++i) {
    const float at = static_cast<float>(i) / static_cast<float>(config.rope_width() / 2);
    rope.short_divisors.push_back(1 + at);
    rope.long_divisors.push_back(1 + 60 * at * at);
  }
  const double scale = static_cast<double>(config.context) / original;
  rope.attention_factor =
      static_cast<float>(std::sqrt(1 + std::log(scale) / std::log(static_cast<double>(original))));
}

void phi_35_mini(Config& config) {
  phi_long(config, 4096);
}

void phi_4_mini(Config& config) {
  config.rope.rotated = config.head_dim / 4 * 3;
  phi_long(config, 4096);
}

void tiny_phi(Config& config) {
  config.rope.rotated = config.head_dim / 4 * 3;
  phi_long(config, 256);
}

void gemma(Config& config, uint32_t window) {
  const Family& family = *family_of_model_type(config.architecture);
  config.window = window;
  set_windowed(config, windowed_layers(config.layers, family.global_step));
  config.window_theta = family.window_theta;
  config.score_cap = family.score_cap;
  config.logit_cap = family.logit_cap;
}

void gemma_2_2b(Config& config) {
  gemma(config, 4096);
}

void gemma_3_1b(Config& config) {
  gemma(config, 512);
}

// Windows that texts of a test are longer than.
void tiny_gemma2(Config& config) {
  gemma(config, 24);
}

// The factor of Gemma 3's larger models.
void tiny_gemma3(Config& config) {
  gemma(config, 24);
  config.rope.scaling = RopeScaling::linear;
  config.rope.factor = 8;
}

void tiny_window(Config& config) {
  config.window = 24;
}

void tiny_yarn(Config& config) {
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  rope.factor = 4;
  rope.original_context = config.context / 4;
  rope.attention_factor = static_cast<float>(1 + 0.1 * std::log(4.0));
}

void aya_23(Config& config) {
  config.norm_eps = 1e-5f;
  config.logit_divisor = 16;
}

void experts(Config& config, uint32_t count, uint32_t used, uint32_t width) {
  config.experts = count;
  config.experts_used = used;
  config.expert_hidden = width;
}

void qwen3_30b(Config& config) {
  experts(config, 128, 8, 768);
}

void tiny_moe(Config& config) {
  experts(config, 16, 4, 256);
}

void tiny_mixtral(Config& config) {
  experts(config, 4, 2, config.hidden);
}

// YaRN as GGUF has it: the published model's band is not rounded to whole frequencies.
void gpt_oss(Config& config, uint32_t window, float factor) {
  const Family& family = *family_of_model_type(config.architecture);
  config.window = window;
  set_windowed(config, windowed_layers(config.layers, family.global_step));
  config.norm_eps = family.norm_eps;
  Rope& rope = config.rope;
  rope.scaling = RopeScaling::yarn;
  rope.factor = factor;
  rope.original_context = static_cast<uint32_t>(static_cast<float>(config.context) / factor);
  rope.attention_factor = static_cast<float>(1 + 0.1 * std::log(factor));
}

void gpt_oss_20b(Config& config) {
  experts(config, 32, 4, config.hidden);
  gpt_oss(config, 128, 32);
}

void tiny_gpt_oss(Config& config) {
  experts(config, 8, 2, config.hidden);
  gpt_oss(config, 24, 4);
}

// The published models attend in these layers.
void lfm2(Config& config, std::initializer_list<uint32_t> attending) {
  const Family& family = *family_of_model_type(config.architecture);
  std::vector<LayerKind> kinds(config.layers, family.recurrent);
  for (const uint32_t layer : attending) kinds[layer] = LayerKind::attention;
  set_layer_kinds(config, std::move(kinds));
  config.conv_taps = 3;
  config.norm_eps = family.norm_eps;
}

void lfm2_1_2b(Config& config) {
  lfm2(config, {2, 5, 8, 10, 12, 14});
}

void tiny_lfm2(Config& config) {
  lfm2(config, {2, 4});
}

void qwen35(Config& config, const RecurrentHeads& heads) {
  const Family& family = *family_of_model_type(config.architecture);
  set_layer_kinds(config, recurrent_layers(family, config.layers, family.attention_step));
  config.conv_taps = 4;
  config.recurrent = heads;
  config.recurrent.is_joint = family.joint_times;
  config.rope.rotated =
      static_cast<uint32_t>(family.rotated_part * static_cast<float>(config.head_dim));
}

void qwen35_4b(Config& config) {
  qwen35(config, {.key_heads = 16, .heads = 32, .key_dim = 128, .head_dim = 128});
}

void qwen36_35b(Config& config) {
  experts(config, 256, 8, 512);
  config.shared_hidden = 512;
  qwen35_4b(config);
}

void qwen3_next(Config& config) {
  experts(config, 512, 10, 512);
  config.shared_hidden = 512;
  qwen35_4b(config);
}

void granite4(Config& config, uint32_t attention_step, const RecurrentHeads& heads) {
  const Family& family = *family_of_model_type(config.architecture);
  granite_2b(config);
  set_layer_kinds(config, recurrent_layers(family, config.layers, attention_step));
  config.unrotated.assign(config.layers, true);
  config.conv_taps = 4;
  config.recurrent = heads;
  config.norm_eps = 1e-5f;
}

void granite4_tiny(Config& config) {
  experts(config, 64, 6, 512);
  config.shared_hidden = 1024;
  granite4(config, 10, {.key_heads = 1, .heads = 48, .key_dim = 128, .head_dim = 64});
}

void tiny_granite4(Config& config) {
  experts(config, 16, 4, 256);
  config.shared_hidden = 256;
  granite4(config, 3, {.key_heads = 1, .heads = 8, .key_dim = 64, .head_dim = 64});
}

void tiny_qwen35(Config& config) {
  qwen35(config, {.key_heads = 2, .heads = 4, .key_dim = 64, .head_dim = 64});
}

void tiny_qwen35_moe(Config& config) {
  experts(config, 16, 4, 256);
  config.shared_hidden = 256;
  tiny_qwen35(config);
}

void tiny_lfm2_moe(Config& config) {
  experts(config, 16, 4, 256);
  config.dense_layers = 2;
  config.choice_bias = true;
  tiny_lfm2(config);
}

// clang-format off
constexpr Shape kShapes[] = {
    // name             family     lay.  emb hidden hd. kv dim   vocab context     theta l3 tied
    {"llama-3.2-1b",   "llama",   16, 2048,  8192, 32,  8,  64, 128256, 131072,   500000, 32, true},
    {"llama-3.2-3b",   "llama",   28, 3072,  8192, 24,  8, 128, 128256, 131072,   500000, 32, true},
    {"llama-3.1-8b",   "llama",   32, 4096, 14336, 32,  8, 128, 128256, 131072,   500000,  8, false},
    {"tinyllama-1.1b", "llama",   22, 2048,  5632, 32,  4,  64,  32000,   2048,    10000,  0, false},
    {"smollm2-1.7b",   "llama",   24, 2048,  8192, 32, 32,  64,  49152,   8192,   130000,  0, true},
    {"qwen2.5-0.5b",   "qwen2",   24,  896,  4864, 14,  2,  64, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-1.5b",   "qwen2",   28, 1536,  8960, 12,  2, 128, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-3b",     "qwen2",   36, 2048, 11008, 16,  2, 128, 151936,  32768,  1000000,  0, true},
    {"qwen2.5-7b",     "qwen2",   28, 3584, 18944, 28,  4, 128, 152064,  32768,  1000000,  0, false},
    {"qwen3-0.6b",     "qwen3",   28, 1024,  3072, 16,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-1.7b",     "qwen3",   28, 2048,  6144, 16,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-4b",       "qwen3",   36, 2560,  9728, 32,  8, 128, 151936,  40960,  1000000,  0, true},
    {"qwen3-8b",       "qwen3",   36, 4096, 12288, 32,  8, 128, 151936,  40960,  1000000,  0, false},
    {"granite-3.3-2b", "granite", 40, 2048,  8192, 32,  8,  64,  49159, 131072, 10000000,  0, true, granite_2b},
    {"olmo-2-1b",      "olmo2",   16, 2048,  8192, 16, 16, 128, 100352,   4096,   500000,  0, false},
    {"smollm3-3b",     "smollm3", 36, 2048, 11008, 16,  4, 128, 128256,  65536,  5000000,  0, true},
    {"phi-3.5-mini",   "phi3",    32, 3072,  8192, 32, 32,  96,  32064, 131072,    10000,  0, false, phi_35_mini},
    {"phi-4-mini",     "phi3",    32, 3072,  8192, 24,  8, 128, 200064, 131072,    10000,  0, true, phi_4_mini},
    {"aya-23-8b",      "cohere",  32, 4096, 14336, 32,  8, 128, 256000,   8192,    10000,  0, true, aya_23},
    // No public models: small enough for a test, wide enough for every block type.
    {"tiny",           "llama",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true},
    {"tiny-granite",   "granite",  2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, granite_2b},
    {"tiny-olmo2",     "olmo2",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false},
    {"tiny-smollm3",   "smollm3",  4,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true},
    {"tiny-phi",       "phi3",     2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_phi},
    {"gemma-2-2b",     "gemma2",  26, 2304,  9216,  8,  4, 256, 256000,   8192,    10000,  0, true, gemma_2_2b},
    {"gemma-3-1b", "gemma3_text", 26, 1152,  6912,  4,  1, 256, 262144,  32768,  1000000,  0, true, gemma_3_1b},
    {"tiny-gemma2",    "gemma2",   4,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, tiny_gemma2},
    {"tiny-gemma3", "gemma3_text", 7,  256,   512,  4,  2,  64,    512,    512,  1000000,  0, true, tiny_gemma3},
    {"tiny-mistral-window", "mistral", 2, 256, 512, 4,  2,  64,    512,    512,    10000,  0, false, tiny_window},
    {"tiny-yarn",      "llama",    2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, tiny_yarn},
    {"tiny-cohere",    "cohere",   2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, true, aya_23},
    {"tiny-moe",       "qwen3_moe", 2, 256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_moe},
    {"tiny-mixtral",   "mixtral",  2,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_mixtral},
    {"tiny-gpt-oss",   "gpt_oss",  4,  256,   512,  4,  2,  64,    512,    512,   150000,  0, false, tiny_gpt_oss},
    {"gpt-oss-20b",    "gpt_oss", 24, 2880,  2880, 64,  8,  64, 201088, 131072,   150000,  0, false, gpt_oss_20b},
    {"lfm2-1.2b",      "lfm2",    16, 2048,  8192, 32,  8,  64,  65536, 128000,  1000000,  0, true, lfm2_1_2b},
    {"qwen3.5-4b", "qwen3_5_text", 32, 2560, 9216, 16,  4, 256, 248320, 262144, 10000000,  0, true, qwen35_4b},
    // Eight layers of the public model's 40, to fit the memory of a small machine; and of 48.
    {"qwen3.6-35b-a3b-small", "qwen3_5_moe_text", 8, 2048, 512, 16, 2, 256, 248320, 262144, 10000000, 0, false, qwen36_35b},
    {"qwen3-next-80b-small", "qwen3_next", 4, 2048, 5120, 16, 2, 256, 151936, 262144, 10000000, 0, false, qwen3_next},
    {"granite-4-h-tiny", "granitemoehybrid", 40, 1536, 512, 12, 4, 128, 100352, 131072, 10000, 0, true, granite4_tiny},
    {"tiny-granite-4", "granitemoehybrid", 3, 256, 256, 4, 2, 64,    512,    512,    10000,  0, true, tiny_granite4},
    {"tiny-qwen3.5", "qwen3_5_text", 4,  256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_qwen35},
    {"tiny-qwen3.5-moe", "qwen3_5_moe_text", 4, 256, 512, 4, 2, 64,  512,    512,    10000,  0, false, tiny_qwen35_moe},
    {"tiny-qwen3-next", "qwen3_next", 4, 256,   512,  4,  2,  64,    512,    512,    10000,  0, false, tiny_qwen35_moe},
    {"tiny-lfm2-moe",  "lfm2_moe", 5,  256,   512,  4,  2,  64,    512,    512,  1000000,  0, true, tiny_lfm2_moe},
    {"tiny-lfm2",      "lfm2",     5,  256,   512,  4,  2,  64,    512,    512,  1000000,  0, true, tiny_lfm2},
    // Six layers of the public model's 48, to fit the memory of a small machine.
    {"qwen3-30b-a3b-small", "qwen3_moe", 6, 2048, 6144, 32, 4, 128, 151936, 40960, 1000000, 0, false, qwen3_30b},
};
// clang-format on

}  // namespace

Config shape_by_name(std::string_view name) {
  for (const Shape& shape : kShapes) {
    const bool is_it = shape.name.size() == name.size() &&
                       ::strncasecmp(shape.name.data(), name.data(), name.size()) == 0;
    if (!is_it) continue;
    Config config;
    config.architecture = shape.architecture;
    config.name = shape.name;
    config.layers = shape.layers;
    config.emb = shape.emb;
    config.hidden = shape.hidden;
    config.heads = shape.heads;
    config.kv_heads = shape.kv_heads;
    config.head_dim = shape.head_dim;
    config.vocab = shape.vocab;
    config.context = shape.context;
    const Family* family = family_of_model_type(shape.architecture);
    TYTO_ASSERT(family != nullptr);
    apply(*family, config);
    config.unrotated = unrotated_layers(config.layers, family->unrotated_step);
    const bool is_older = shape.architecture == "llama" || shape.architecture == "granite";
    config.norm_eps = is_older ? 1e-5f : 1e-6f;
    config.tied_head = shape.tied;
    config.rope.theta = static_cast<float>(shape.theta);
    if (shape.llama3_factor != 0) {
      config.rope.scaling = RopeScaling::llama3;
      config.rope.factor = static_cast<float>(shape.llama3_factor);
    }
    if (shape.change != nullptr) shape.change(config);
    choose_divisors(config, 0);
    return config;
  }
  throw Error(ErrorCode::usage, "shape " + std::string(name), "does not exist",
              "the shapes are " + joined(kShapes, ", ", &Shape::name));
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace tyto
