#include "model/convert.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/text_part.h"
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

// Which row of a weight is written at each place.
struct RowOrder {
  enum class Kind : uint8_t { same, pairs, tiled } kind = Kind::same;
  uint64_t first = 0;  // tiled: rows before it stay
  uint64_t width = 1;  // tiled: rows of a head
  bool is_of_columns = false;

  uint64_t row_at(uint64_t row, const Config& config) const {
    if (kind == Kind::pairs) return unpermuted_row(row, config.head_dim);
    if (kind == Kind::same || row < first) return row;
    return first + untiled_row(row - first, width, config.recurrent);
  }
};

// GGUFs of Qwen3.5 have the value heads of recurrent layers in turns of the key heads.
RowOrder tiled_order(const WeightSpec& spec, const Config& config) {
  const RecurrentHeads& shape = config.recurrent;
  const auto tiled = [](uint64_t first, uint64_t width, bool is_of_columns = false) {
    return RowOrder{RowOrder::Kind::tiled, first, width, is_of_columns};
  };
  const TensorPart part = spec.part;
  if (config.kind_of(spec.layer) != LayerKind::delta_rule) return {};
  if (part == TensorPart::recur_in) return tiled(uint64_t{2} * shape.keys(), shape.head_dim);
  if (part == TensorPart::conv)  // one row, all taps of a value beside each other
    return tiled(uint64_t{2} * shape.keys() * config.conv_taps,
                 uint64_t{shape.head_dim} * config.conv_taps, true);
  if (part == TensorPart::recur_gate) return tiled(0, shape.head_dim);
  if (part == TensorPart::recur_time || part == TensorPart::recur_strength ||
      part == TensorPart::recur_time_bias || part == TensorPart::recur_rates)
    return tiled(0, 1);
  if (part == TensorPart::o) return tiled(0, shape.head_dim, true);
  return {};
}

// How one weight is written.
struct Recipe {
  DType wanted;
  RowOrder order;
  std::span<const float> importance;  // its columns', or each slice's; empty: all the same
  uint64_t slices = 1;

  std::span<const float> importance_of(const TensorView& source, uint64_t row) const {
    if (importance.empty()) return {};
    return importance.subspan(row / (source.rows / slices) * source.cols, source.cols);
  }
};

// Biases are permuted by element, matrices by row.
void convert_vector(const Model& in, const TensorView& source, const RowOrder& order,
                    Output& output) {
  std::vector<float> values(source.cols);
  dequantize(source.dtype, source.bytes, values);
  if (!all_finite(values)) fail_value(in, source, DType::f32);
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i) ordered[i] = values[order.row_at(i, in.config)];
  output.append(std::as_bytes(std::span(ordered)));
}

std::vector<float> in_order(const std::vector<float>& values, const RowOrder& order,
                            const Config& config) {
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i) ordered[i] = values[order.row_at(i, config)];
  return ordered;
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
        const bool turns_columns = recipe.order.is_of_columns;
        const auto from = source.row(turns_columns ? row : recipe.order.row_at(row, in.config));
        const auto to = std::span(out).subspan(i * out_stride, out_stride);
        if (source.dtype == wanted && !turns_columns) {
          std::copy(from.begin(), from.end(), to.begin());
        } else {
          dequantize(source.dtype, from, values);
          if (turns_columns) values = in_order(values, recipe.order, in.config);
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

  const bool tile = family != nullptr && family->tiled_heads && !config.recurrent.is_tiled;

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
    const RowOrder order = tile           ? tiled_order(specs[i], config)
                           : permute_this ? RowOrder{RowOrder::Kind::pairs}
                                          : RowOrder{};
    if (specs[i].is_vector())
      convert_vector(in, source, order, output);
    else
      convert_matrix(in, source,
                     {plans[i].dtype, order, columns_of(importance, specs[i].name),
                      std::max<uint64_t>(1, specs[i].slices)},
                     pool, output);
  }
  for (const RopeTensor& rope : ropes) writer.append(std::as_bytes(std::span(rope.divisors)));
  writer.commit();
  return notes;
}

namespace {

constexpr TypeMix kMixes[] = {
    {"f32", DType::f32, 0},      {"f16", DType::f16, 1},      {"bf16", DType::bf16, 32},
    {"q8_0", DType::q8_0, 7},    {"q4_0", DType::q4_0, 2},    {"q4_1", DType::q4_1, 3},
    {"q5_0", DType::q5_0, 8},    {"q5_1", DType::q5_1, 9},    {"q4_k_s", DType::q4_k, 14},
    {"q4_k_m", DType::q4_k, 15}, {"q5_k_s", DType::q5_k, 16}, {"q5_k_m", DType::q5_k, 17},
    {"q6_k", DType::q6_k, 18},
};

// Short names, for the mix that llama-quantize means by them.
struct Alias {
  std::string_view name;
  std::string_view mix;
};
constexpr Alias kAliases[] = {{"q4_k", "q4_k_m"}, {"q5_k", "q5_k_m"}};

// llama-quantize's mixes of types that Tyto reads and does not write.
constexpr std::string_view kMixesOfOthers[] = {"q2_k_s", "q3_k_s", "q3_k_m", "q3_k_l",
                                               "iq2_m",  "iq3_xs", "iq3_m"};

bool is_of_first_four(uint32_t layer, uint32_t) {
  return layer < 4;
}

bool is_of_all(uint32_t, uint32_t) {
  return true;
}

bool is_of_first_eighth(uint32_t layer, uint32_t layers) {
  return layer < layers / 8;
}

// The first and the last eighth of the layers and every third between. Each division rounds down,
// which makes the last eighth the larger one.
bool is_of_sensitive(uint32_t layer, uint32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// Matrices in which errors hurt most get a better type than the rest of their mix, in the layers
// that llama.cpp's mixes of the same names choose.
struct Raise {
  std::string_view mix;
  TensorPart part;
  bool (*in_layer)(uint32_t layer, uint32_t layers);
  DType type;
  bool with_importance_only = false;
};
constexpr Raise kRaises[] = {
    {"q4_0", TensorPart::down, is_of_first_eighth, DType::q4_1, true},
    {"q5_0", TensorPart::down, is_of_first_eighth, DType::q5_1, true},
    {"q4_k_s", TensorPart::v, is_of_first_four, DType::q5_k},
    {"q4_k_s", TensorPart::down, is_of_first_eighth, DType::q5_k},
    {"q4_k_m", TensorPart::v, is_of_sensitive, DType::q6_k},
    {"q4_k_m", TensorPart::down, is_of_sensitive, DType::q6_k},
    {"q4_k_m", TensorPart::qkv, is_of_all, DType::q5_k},
    {"q5_k_m", TensorPart::qkv, is_of_all, DType::q6_k},
    {"q5_k_m", TensorPart::v, is_of_sensitive, DType::q6_k},
    {"q5_k_m", TensorPart::down, is_of_sensitive, DType::q6_k},
};

// llama.cpp's rule for Mixtral, which it knows by its experts: what all of them share costs little.
constexpr uint32_t kMixtralExperts = 8;
struct ExpertRaise {
  TensorPart part;
  bool in_all;  // mixes, else in those of `base`
  DType base;
  DType type;
};
constexpr ExpertRaise kExpertRaises[] = {
    {TensorPart::v, true, DType::q4_k, DType::q8_0},
    {TensorPart::k, true, DType::q4_k, DType::q8_0},
    {TensorPart::o, false, DType::q4_k, DType::q5_k},
};

// The matrix that makes logits; an embedding that is also the head counts as one.
bool is_head(const Config& config, const WeightSpec& spec) {
  return spec.part == TensorPart::head || (spec.part == TensorPart::embedding && config.tied_head);
}

// llama.cpp's "70B", known by its layers: eight heads share a value, so more bits cost little.
bool is_70b(const Config& config) {
  if (config.layers != 80) return false;
  const std::string architecture = gguf_architecture(config);
  return architecture == "qwen2" || (architecture == "llama" && config.kv_heads != config.heads);
}

// From 8 bits on codes are simply the nearest ones, and the head needs no better type.
bool has_few_bits(DType type) {
  return info(type).block_values > 1 && type != DType::q8_0;
}

DType wanted_type(const TypeMix& mix, const Config& config, const WeightSpec& spec,
                  Importance importance) {
  if (spec.is_vector() || spec.stays_f32) return DType::f32;
  if (!has_few_bits(mix.base)) return mix.base;
  if (is_head(config, spec)) return DType::q6_k;
  if (config.experts == kMixtralExperts) {
    for (const ExpertRaise& raise : kExpertRaises)
      if (raise.part == spec.part && (raise.base == mix.base || raise.in_all)) return raise.type;
  }
  for (const Raise& raise : kRaises)
    if (raise.mix == mix.name && raise.part == spec.part &&
        raise.in_layer(spec.layer, config.layers) &&
        (importance == Importance::known || !raise.with_importance_only))
      return raise.type;
  const bool is_shared_value = spec.part == TensorPart::v && is_70b(config);
  return is_shared_value && mix.base == DType::q4_k ? DType::q5_k : mix.base;
}

bool divides(DType dtype, uint64_t cols) {
  return cols % info(dtype).block_values == 0;
}

// Where rows are no whole blocks of 256: a type with blocks of 32 and at least as many bits.
DType fallback_of(DType wanted, uint64_t cols) {
  const DType smaller = wanted == DType::q4_k   ? DType::q5_0
                        : wanted == DType::q5_k ? DType::q5_1
                        : wanted == DType::q6_k ? DType::q8_0
                                                : DType::f16;
  return divides(smaller, cols) ? smaller : DType::f16;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// "blk.3.ffn_down.weight" is one of many "ffn_down.weight".
std::string kind_of(const std::string& name) {
  if (!name.starts_with("blk.")) return name;
  return name.substr(name.find('.', 4) + 1);
}

}  // namespace

std::string why_not_written(std::string_view name) {
  const std::string lower = lower_case(name);
  const std::optional<DType> type = dtype_from_name(lower);
  const bool is_type = type && info(*type).block_values > 1 && !is_encodable(*type);
  if (!is_type && std::ranges::find(kMixesOfOthers, lower) == std::end(kMixesOfOthers)) return "";
  return "is read and not written by Tyto; llama-quantize writes it";
}

const TypeMix& find_type_mix(std::string_view name) {
  std::string lower = lower_case(name);
  for (const Alias& alias : kAliases)
    if (alias.name == lower) lower = alias.mix;
  for (const TypeMix& mix : kMixes)
    if (mix.name == lower) return mix;
  const std::string reason = why_not_written(lower);
  throw Error(ErrorCode::usage, "type " + std::string(name),
              reason.empty() ? "does not exist" : reason,
              "the types are " + joined(kMixes, ", ", &TypeMix::name));
}

std::vector<std::string> type_mix_names() {
  std::vector<std::string> names;
  for (const TypeMix& mix : kMixes) names.emplace_back(mix.name);
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  return names;
}

bool takes_importance(const TypeMix& mix) {
  return has_few_bits(mix.base);
}

std::vector<TensorPlan> plan_types(const TypeMix& mix, const Config& config,
                                   const std::vector<WeightSpec>& specs,
                                   std::vector<std::string>& notes, Importance importance) {
  std::vector<TensorPlan> plans;
  std::map<std::string, uint32_t> fallbacks;  // note without its count
  for (const WeightSpec& spec : specs) {
    const DType wanted = wanted_type(mix, config, spec, importance);
    DType given = wanted;
    if (!divides(wanted, spec.cols)) {
      given = fallback_of(wanted, spec.cols);
      ++fallbacks[fmt::format("{}: rows of {} are not whole {} blocks of {}, written as {}",
                              kind_of(spec.name), spec.cols, info(wanted).name,
                              info(wanted).block_values, info(given).name)];
    }
    plans.push_back({spec.name, given, spec.rows, spec.cols, spec.slices});
  }
  for (const auto& [note, count] : fallbacks) notes.push_back(fmt::format("{} x {}", count, note));
  return plans;
}

}  // namespace tyto
