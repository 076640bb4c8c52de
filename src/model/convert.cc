#include "model/convert.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "model/gguf_metadata.h"
#include "model/non_finite.h"
#include "model/type_mix.h"
#include "model/weight_table.h"
#include "tensor/finite.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr uint64_t kValuesPerBatch = 1 << 20;  // 4 MB of f32 in flight

// Vectors whose elements belong to Q or K rows are permuted as those rows are.
bool is_q_or_k(TensorPart part) {
  return part == TensorPart::q || part == TensorPart::k || part == TensorPart::q_bias ||
         part == TensorPart::k_bias;
}

// Names the first value that is not finite or would not be once it is of the wanted type.
[[noreturn]] void fail_value(const Model& in, const TensorView& source, DType wanted) {
  if (const auto error = non_finite_value(in, source)) throw *error;
  const auto found = find_beyond(source, largest_encodable(wanted));
  TYTO_ASSERT(found);
  fail_input(in.place_of(source), "{} at row {}, column {} does not fit into {}, which ends at {}",
             found->value, found->row, found->column, info(wanted).name, largest_encodable(wanted));
}

bool all_within(std::span<const float> values, float limit) {
  bool all = true;
  for (const float value : values) all &= std::fabs(value) <= limit;  // false for NaN
  return all;
}

// Biases are permuted by element, matrices by row.
void convert_vector(const Model& in, const TensorView& source, bool permute, GgufWriter& writer) {
  std::vector<float> values(source.cols);
  dequantize(source.dtype, source.bytes, values);
  if (!all_finite(values)) fail_value(in, source, DType::f32);
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    ordered[i] = values[permute ? unpermuted_row(i, in.config.head_dim) : i];
  writer.append(std::as_bytes(std::span(ordered)));
}

void convert_matrix(const Model& in, const TensorView& source, DType wanted, bool permute,
                    ThreadPool& pool, GgufWriter& writer) {
  if (source.dtype == wanted && !all_finite(wanted, source.bytes)) fail_value(in, source, wanted);
  const float limit = largest_encodable(wanted);
  std::atomic<bool> fits = true;
  const uint64_t out_stride = row_bytes(wanted, source.cols);
  const uint64_t batch = std::max<uint64_t>(1, kValuesPerBatch / source.cols);
  std::vector<std::byte> out(std::min(batch, source.rows) * out_stride);
  for (uint64_t first = 0; first < source.rows; first += batch) {
    const uint64_t count = std::min(batch, source.rows - first);
    pool.parallel_for(count, 4, [&](size_t begin, size_t end) {
      std::vector<float> values(source.cols);
      for (size_t i = begin; i < end; ++i) {
        const uint64_t row = first + i;
        const auto from = source.row(permute ? unpermuted_row(row, in.config.head_dim) : row);
        const auto to = std::span(out).subspan(i * out_stride, out_stride);
        if (source.dtype == wanted) {
          std::copy(from.begin(), from.end(), to.begin());
        } else {
          dequantize(source.dtype, from, values);
          if (!all_within(values, limit)) fits = false;
          quantize(wanted, values, to);
        }
      }
    });
    if (!fits) fail_value(in, source, wanted);
    writer.append(std::span(out).first(count * out_stride));
  }
}

GgufMetadata metadata_of(const Model& in, const TypeMix& mix, std::vector<std::string>& notes) {
  GgufMetadata metadata = config_to_gguf(in.config, mix.file_type);
  if (!in.vocabulary) {
    notes.push_back("the model has no tokenizer, so neither has the GGUF");
    return metadata;
  }
  GgufMetadata tokenizer =
      vocabulary_to_gguf(*in.vocabulary, in.config.vocab, in.path.string(), notes);
  std::move(tokenizer.begin(), tokenizer.end(), std::back_inserter(metadata));
  return metadata;
}

}  // namespace

std::vector<float> rope_divisors(const Config& config) {
  if (!config.rope.frequency_divisors.empty()) return config.rope.frequency_divisors;
  if (config.rope.scaling != RopeScaling::llama3) return {};
  Config plain = config;
  plain.rope.scaling = RopeScaling::none;
  const std::vector<float> scaled = rope_frequencies(config);
  std::vector<float> divisors = rope_frequencies(plain);
  for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return divisors;
}

std::vector<std::string> quantize_model(const Model& in, const std::string& type,
                                        const std::filesystem::path& out, ThreadPool& pool,
                                        const Progress& progress, Replace replace) {
  const TypeMix& mix = find_type_mix(type);
  if (!in.has_weights()) fail_input(in.path.string(), "has no weights to convert");
  const Config& config = in.config;
  const bool permute =
      gguf_architecture(config) == "llama" && config.rope.layout == RopeLayout::halves;

  std::vector<std::string> notes;
  const std::vector<WeightSpec> specs = weight_specs(config, NameStyle::gguf);
  std::vector<TensorPlan> plans = plan_types(mix, config, specs, notes);
  const std::vector<float> divisors = rope_divisors(config);
  uint64_t total = 0;
  for (const TensorPlan& plan : plans) total += plan.bytes();
  std::vector<TensorPlan> written = plans;
  if (!divisors.empty()) written.push_back({"rope_freqs.weight", DType::f32, 0, divisors.size()});

  GgufWriter writer(out, metadata_of(in, mix, notes), std::move(written), replace);
  uint64_t done = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& source = view_of(in.weights, specs[i]);
    const bool permute_this = permute && is_q_or_k(specs[i].part);
    if (specs[i].is_vector())
      convert_vector(in, source, permute_this, writer);
    else
      convert_matrix(in, source, plans[i].dtype, permute_this, pool, writer);
    done += plans[i].bytes();
    if (progress) progress("converting", done, total);
  }
  if (!divisors.empty()) writer.append(std::as_bytes(std::span(divisors)));
  writer.commit();
  return notes;
}

}  // namespace tyto
