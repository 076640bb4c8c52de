#include "model/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <span>

#include "base/atomic_folder.h"
#include "base/error.h"
#include "model/convert.h"
#include "model/expert_tensors.h"
#include "model/families.h"
#include "model/gguf_metadata.h"
#include "model/hf_write.h"
#include "model/safetensors.h"
#include "model/type_mix.h"
#include "tensor/quant.h"

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

// Of the norms that a file of this style holds.
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

}  // namespace tyto
