#include "model/importance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "model/gguf.h"
#include "model/gguf_metadata.h"

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

}  // namespace tyto
