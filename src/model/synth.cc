#include "model/synth.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "base/atomic_file.h"
#include "base/error.h"
#include "model/convert.h"
#include "model/expert_tensors.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/hf_write.h"
#include "model/safetensors.h"
#include "model/type_mix.h"
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
    plans.push_back({spec.name, type.base, spec.rows, spec.cols});
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

}  // namespace tyto
