#include "model/convert.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "model/damaged_files.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/type_mix.h"
#include "model/weight_table.h"
#include "tensor/compare.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

std::string entry_place(const ImportanceMatrix& matrix, const std::string& name) {
  return matrix.file + ": entry " + printable_name(name);
}

// Encoders compare errors and never add them over matrices, so that only ratios matter; with all of
// them below 1 no sum overflows.
void add_entry(ImportanceMatrix& matrix, const std::string& name, std::vector<float> columns) {
  float largest = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!(columns[i] >= 0) || !std::isfinite(columns[i]))
      fail_input(entry_place(matrix, name), "column {} is {}, and not a sum of squares", i,
                 columns[i]);
    largest = std::max(largest, columns[i]);
  }
  for (float& column : columns) column = largest > 0 ? column / largest : 1;
  if (!matrix.columns.emplace(name, std::move(columns)).second)
    fail_input(entry_place(matrix, name), "is there twice");
}

// ---- the GGUF form: NAME.in_sum2 and NAME.counts for every matrix

std::vector<float> floats_of(const ImportanceMatrix& matrix, const NamedTensor& tensor) {
  if (tensor.view.dtype != DType::f32)
    fail_input(matrix.file + ": tensor " + printable_name(tensor.name), "is {}, and not f32",
               info(tensor.view.dtype).name);
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.view.bytes.data(), values.size() * sizeof(float));
  return values;
}

// One count for all columns, or one for each expert, whose columns follow each other. What was
// never used is as important as anything.
std::vector<float> means(std::vector<float> sums, const std::vector<float>& counts,
                         const std::string& place) {
  if (counts.empty() || sums.size() % counts.size() != 0)
    fail_input(place, "has {} sums for {} counts", sums.size(), counts.size());
  const size_t columns = sums.size() / counts.size();
  for (size_t i = 0; i < sums.size(); ++i) {
    const float count = counts[i / columns];
    sums[i] = count > 0 ? sums[i] / count : 1;
  }
  return sums;
}

void parse_gguf_form(std::span<const std::byte> bytes, ImportanceMatrix& matrix) {
  const Gguf gguf = parse_gguf(bytes, matrix.file);
  const GgufKeys keys(gguf);
  const std::string* type = keys.text("general.type");
  if (type == nullptr || *type != "imatrix")
    throw Error(ErrorCode::input, matrix.file, "is a GGUF, but no importance matrix",
                "llama-imatrix makes one from a model and a text");
  if (const auto* datasets = keys.strings("imatrix.datasets"); datasets && !datasets->empty())
    matrix.dataset = datasets->front();
  matrix.chunks = keys.integer("imatrix.chunk_count").value_or(0);
  std::map<std::string, const NamedTensor*, std::less<>> counts;
  for (const NamedTensor& tensor : gguf.tensors)
    if (tensor.name.ends_with(kCounts))
      counts[tensor.name.substr(0, tensor.name.size() - kCounts.size())] = &tensor;
  for (const NamedTensor& tensor : gguf.tensors) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kSums.size());
    const auto count = counts.find(name);
    if (count == counts.end()) fail_input(entry_place(matrix, name), "has sums but no counts");
    add_entry(matrix, name,
              means(floats_of(matrix, tensor), floats_of(matrix, *count->second),
                    entry_place(matrix, name)));
  }
}

// ---- the form before it: numbers of 32 bits, names with their lengths, values

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string file)
      : rest_(bytes), file_(std::move(file)) {}

  bool at_end() const { return rest_.empty(); }

  // A count or a length: of something that must fit into what is left, `bytes_each` at least.
  uint32_t count(const char* what, uint64_t bytes_each) {
    const uint32_t value = number(what);
    if (value * bytes_each > rest_.size())
      fail_input(file_, "{} {} do not fit into the {} bytes that are left", value, what,
                 rest_.size());
    return value;
  }

  uint32_t number(const char* what) {
    uint32_t value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::string text(const char* what) {
    const auto bytes = take(count(what, 1), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::vector<float> floats(const char* what) {
    const uint32_t values = count(what, sizeof(float));
    const auto bytes = take(values * sizeof(float), what);
    std::vector<float> result(values);
    if (values > 0) std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

 private:
  std::span<const std::byte> take(uint64_t count, const char* what) {
    if (count > rest_.size()) fail_input(file_, "ends before its {}", what);
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

  std::span<const std::byte> rest_;
  std::string file_;
};

void parse_binary_form(std::span<const std::byte> bytes, ImportanceMatrix& matrix) {
  constexpr uint64_t kSmallestEntry = 3 * sizeof(uint32_t);
  Reader reader(bytes, matrix.file);
  const uint32_t entries = reader.count("entries", kSmallestEntry);
  for (uint32_t i = 0; i < entries; ++i) {
    const std::string name = reader.text("characters of a name");
    const uint32_t calls = reader.number("number of calls");
    std::vector<float> columns = reader.floats("values of an entry");
    if (calls > 0)
      for (float& column : columns) column /= static_cast<float>(calls);
    add_entry(matrix, name, std::move(columns));
  }
  if (reader.at_end()) return;
  matrix.chunks = reader.number("number of chunks");
  if (!reader.at_end()) matrix.dataset = reader.text("characters of the data set's name");
  if (!reader.at_end()) fail_input(matrix.file, "goes on after its end");
}

}  // namespace

ImportanceMatrix parse_importance(std::span<const std::byte> bytes, const std::string& name) {
  ImportanceMatrix matrix;
  matrix.file = name;
  const bool is_gguf = bytes.size() >= 4 && std::memcmp(bytes.data(), "GGUF", 4) == 0;
  is_gguf ? parse_gguf_form(bytes, matrix) : parse_binary_form(bytes, matrix);
  if (matrix.columns.empty())
    throw Error(ErrorCode::input, name, "is an importance matrix without entries",
                "llama-imatrix makes one from a model and a text");
  return matrix;
}

ImportanceMatrix read_importance(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_importance(file.bytes(), path.string());
}

namespace {

constexpr uint64_t kConvertedAtOnce = 1 << 20;  // 4 MB of f32 in flight

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

// The file that is being written, and how far it is.
struct Output {
  GgufWriter& writer;
  const Progress& progress;
  uint64_t total = 0;
  uint64_t done = 0;

  void append(std::span<const std::byte> bytes) {
    writer.append(bytes);
    done += bytes.size();
    show();
  }
  void show() const {
    if (progress) progress("converting", done, total);
  }
};

// How one weight is written.
struct Recipe {
  DType wanted;
  bool permute;
  std::span<const float> importance;  // its columns', or each slice's; empty: all the same
  uint64_t slices = 1;

  std::span<const float> importance_of(const TensorView& source, uint64_t row) const {
    if (importance.empty()) return {};
    return importance.subspan(row / (source.rows / slices) * source.cols, source.cols);
  }
};

// Biases are permuted by element, matrices by row.
void convert_vector(const Model& in, const TensorView& source, bool permute, Output& output) {
  std::vector<float> values(source.cols);
  dequantize(source.dtype, source.bytes, values);
  if (!all_finite(values)) fail_value(in, source, DType::f32);
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    ordered[i] = values[permute ? unpermuted_row(i, in.config.head_dim) : i];
  output.append(std::as_bytes(std::span(ordered)));
}

void convert_matrix(const Model& in, const TensorView& source, const Recipe& recipe,
                    ThreadPool& pool, Output& output) {
  const DType wanted = recipe.wanted;
  if (source.dtype == wanted && !all_finite(wanted, source.bytes)) fail_value(in, source, wanted);
  const float limit = largest_encodable(wanted);
  std::atomic<bool> fits = true;
  const uint64_t out_stride = row_bytes(wanted, source.cols);
  const uint64_t batch = std::max<uint64_t>(1, kConvertedAtOnce / source.cols);
  std::vector<std::byte> out(std::min(batch, source.rows) * out_stride);
  for (uint64_t first = 0; first < source.rows; first += batch) {
    const uint64_t count = std::min(batch, source.rows - first);
    pool.parallel_for(count, 4, [&](size_t begin, size_t end) {
      std::vector<float> values(source.cols);
      for (size_t i = begin; i < end; ++i) {
        const uint64_t row = first + i;
        const auto from =
            source.row(recipe.permute ? unpermuted_row(row, in.config.head_dim) : row);
        const auto to = std::span(out).subspan(i * out_stride, out_stride);
        if (source.dtype == wanted) {
          std::copy(from.begin(), from.end(), to.begin());
        } else {
          dequantize(source.dtype, from, values);
          if (!all_within(values, limit)) fits = false;
          quantize(wanted, values, to, recipe.importance_of(source, row));
        }
      }
    });
    if (!fits) fail_value(in, source, wanted);
    output.append(std::span(out).first(count * out_stride));
  }
}

// The keys that llama-quantize writes.
void describe(const ImportanceMatrix& importance, GgufMetadata& metadata) {
  metadata.push_back({"quantize.imatrix.file", {importance.file}});
  if (!importance.dataset.empty())
    metadata.push_back({"quantize.imatrix.dataset", {importance.dataset}});
  metadata.push_back({"quantize.imatrix.entries_count", {uint64_t{importance.columns.size()}}});
  if (importance.chunks > 0)
    metadata.push_back({"quantize.imatrix.chunks_count", {importance.chunks}});
}

GgufMetadata metadata_of(const Model& in, const TypeMix& mix, const ImportanceMatrix* importance,
                         std::vector<std::string>& notes) {
  GgufMetadata metadata = config_to_gguf(in.config, mix.file_type);
  if (importance != nullptr) describe(*importance, metadata);
  if (!in.vocabulary) {
    notes.push_back("the model has no tokenizer, so neither has the GGUF");
    return metadata;
  }
  GgufMetadata tokenizer =
      vocabulary_to_gguf(*in.vocabulary, in.config.vocab, in.path.string(), notes);
  std::move(tokenizer.begin(), tokenizer.end(), std::back_inserter(metadata));
  return metadata;
}

// Says which matrices are rounded a second time.
void note_rounded_before(const Model& in, const std::vector<WeightSpec>& specs,
                         const std::vector<TensorPlan>& plans, std::vector<std::string>& notes) {
  std::set<std::string_view> types;
  size_t count = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const DType before = view_of(in.weights, specs[i]).dtype;
    if (info(before).block_values == 1 || before == plans[i].dtype) continue;
    types.insert(info(before).name);
    ++count;
  }
  if (count == 0) return;
  notes.push_back(fmt::format(
      "{} matrices were already quantised ({}) and are now rounded a second time; start "
      "from the f32, f16 or bf16 model for a better file",
      count, fmt::join(types, ", ")));
}

// The first few of many names.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(kShown, names.size()));
  for (std::string& name : shown) name = printable_name(name);
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kShown ? ", ..." : "");
}

// Every entry for a matrix of the model must have its columns. Those for none, and matrices without
// one, are told.
void check_importance(const ImportanceMatrix& importance, const TypeMix& mix,
                      const std::vector<TensorPlan>& plans, std::vector<std::string>& notes) {
  if (!takes_importance(mix))
    throw Error(ErrorCode::usage, importance.file,
                fmt::format("an importance matrix changes nothing in {}", mix.name),
                "leave it out, or choose a type of fewer bits");
  std::vector<std::string> without, unknown;
  std::set<std::string_view> matrices;
  for (const TensorPlan& plan : plans) {
    if (plan.rows == 0) continue;
    matrices.insert(plan.name);
    const auto entry = importance.columns.find(plan.name);
    if (entry == importance.columns.end())
      without.push_back(plan.name);
    else if (entry->second.size() != plan.cols * std::max<uint64_t>(1, plan.slices))
      throw Error(
          ErrorCode::input, importance.file + ": entry " + plan.name,
          fmt::format("has {} columns, the model's matrix {}", entry->second.size(), plan.cols),
          "it was made for another model");
  }
  for (const auto& [name, columns] : importance.columns)
    if (!matrices.contains(name)) unknown.push_back(name);
  if (without.size() == matrices.size())
    throw Error(ErrorCode::input, importance.file, "has no entry for any matrix of this model",
                "it was made for another model");
  if (!without.empty())
    notes.push_back(fmt::format("{} has no entry for {} of {} matrices ({}): rounded as without it",
                                importance.file, without.size(), matrices.size(),
                                some_of(without)));
  if (!unknown.empty())
    notes.push_back(fmt::format("{} of the {} entries of {} fit no matrix of this model ({})",
                                unknown.size(), importance.columns.size(), importance.file,
                                some_of(unknown)));
}

std::span<const float> columns_of(const ImportanceMatrix* importance, const std::string& name) {
  if (importance == nullptr) return {};
  const auto entry = importance->columns.find(name);
  return entry == importance->columns.end() ? std::span<const float>() : entry->second;
}

}  // namespace

std::vector<RopeTensor> rope_tensors(const Config& config) {
  const Rope& rope = config.rope;
  if (rope.scaling == RopeScaling::longrope)
    return {{kLongFactors, rope.long_divisors}, {kShortFactors, rope.short_divisors}};
  constexpr const char* kDivisors = "rope_freqs.weight";
  if (!rope.frequency_divisors.empty()) return {{kDivisors, rope.frequency_divisors}};
  if (rope.scaling != RopeScaling::llama3) return {};
  Config plain = config;
  plain.rope.scaling = RopeScaling::none;
  const std::vector<float> scaled = rope_frequencies(config);
  std::vector<float> divisors = rope_frequencies(plain);
  for (size_t i = 0; i < divisors.size(); ++i) divisors[i] /= scaled[i];
  return {{kDivisors, divisors}};
}

std::vector<std::string> quantize_model(const Model& in, const std::string& type,
                                        const std::filesystem::path& out, ThreadPool& pool,
                                        const Progress& progress, Replace replace,
                                        const ImportanceMatrix* importance) {
  const TypeMix& mix = find_type_mix(type);
  if (!in.has_weights()) fail_input(in.path.string(), "has no weights to convert");
  const Config& config = in.config;
  const Family* family = family_of_gguf(gguf_architecture(config));
  const bool permute = family != nullptr && family->gguf_layout == RopeLayout::pairs &&
                       config.rope.layout == RopeLayout::halves;

  std::vector<std::string> notes;
  const std::vector<WeightSpec> specs = weight_specs(config, NameStyle::gguf);
  const std::vector<TensorPlan> plans = plan_types(
      mix, config, specs, notes, importance != nullptr ? Importance::known : Importance::unknown);
  note_rounded_before(in, specs, plans, notes);
  if (importance != nullptr) check_importance(*importance, mix, plans, notes);
  const std::vector<RopeTensor> ropes = rope_tensors(config);
  std::vector<TensorPlan> written = plans;
  for (const auto& [name, divisors] : ropes)
    written.push_back({name, DType::f32, 0, divisors.size()});

  GgufWriter writer(out, metadata_of(in, mix, importance, notes), std::move(written), replace);
  Output output = {writer, progress};
  for (const TensorPlan& plan : plans) output.total += plan.bytes();
  output.show();
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorView& source = view_of(in.weights, specs[i]);
    const bool permute_this = permute && is_q_or_k(specs[i].part);
    if (specs[i].is_vector())
      convert_vector(in, source, permute_this, output);
    else
      convert_matrix(in, source,
                     {plans[i].dtype, permute_this, columns_of(importance, specs[i].name),
                      std::max<uint64_t>(1, specs[i].slices)},
                     pool, output);
  }
  for (const RopeTensor& rope : ropes) writer.append(std::as_bytes(std::span(rope.divisors)));
  writer.commit();
  return notes;
}

}  // namespace tyto
