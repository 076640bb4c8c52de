#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/json.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/model.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"
#include "model/weight_table.h"

namespace tyto {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own library
constexpr uint64_t kLongestIndex = 64 << 20;
constexpr uint64_t kMostDimensions = 8;

struct ElementType {
  std::string_view name;
  DType dtype;
};
constexpr ElementType kTypes[] = {
    {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}, {"I32", DType::i32}};

std::string_view type_name(DType dtype) {
  for (const ElementType& type : kTypes)
    if (type.dtype == dtype) return type.name;
  TYTO_ASSERT(!"a type safetensors can hold");
  return {};
}

std::optional<DType> element_type(std::string_view name) {
  for (const ElementType& type : kTypes)
    if (type.name == name) return type.dtype;
  return std::nullopt;
}

std::vector<uint64_t> read_shape(const Json& shape) {
  std::vector<uint64_t> extents;
  shape.for_each_element([&](size_t index, const Json& extent) {
    if (index >= kMostDimensions)
      shape.fail(fmt::format("more than {} dimensions", kMostDimensions));
    extents.push_back(extent.as_uint(INT64_MAX));
  });
  return extents;
}

// The last dimension is the columns, all before it the rows. Returns bytes, or nullopt on overflow.
std::optional<uint64_t> fold(std::span<const uint64_t> shape, TensorView& view) {
  view.rows = 1;
  view.cols = shape.empty() ? 1 : shape.back();
  bool overflow = false;
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    overflow |= __builtin_mul_overflow(view.rows, shape[i], &view.rows);
  uint64_t bytes = 0;
  overflow |= __builtin_mul_overflow(view.rows, view.cols, &bytes);
  overflow |= __builtin_mul_overflow(bytes, info(view.dtype).block_bytes, &bytes);
  return overflow ? std::nullopt : std::optional(bytes);
}

// `last` becomes the end of its data where that is behind all others; outside of the file it has
// no bytes.
StoredTensor read_tensor(std::string_view name, const Json& entry, std::span<const std::byte> data,
                         const std::string& file, uint64_t& last) {
  const std::string where = file + ": tensor " + printable_name(name);
  StoredTensor tensor{std::string(name),
                      std::string(entry.at("dtype").as_string()),
                      read_shape(entry.at("shape")),
                      {}};
  const Json offsets = entry.at("data_offsets");
  std::vector<uint64_t> range;
  offsets.for_each_element([&](size_t index, const Json& offset) {
    if (index < 2) range.push_back(offset.as_uint(INT64_MAX));
  });
  if (range.size() != 2 || range[0] > range[1]) fail_input(where, "data_offsets are not a range");
  last = std::max(last, range[1]);
  if (range[1] <= data.size()) tensor.bytes = data.subspan(range[0], range[1] - range[0]);
  return tensor;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

void map_shard(const std::filesystem::path& path, Model& model,
               std::unordered_set<std::string>& seen, std::vector<TensorAlias>& aliases) {
  model.files.emplace_back(path);
  std::vector<NamedTensor> tensors =
      parse_safetensors(model.files.back().bytes(), path.string(), &aliases);
  align_views(tensors, model);
  for (NamedTensor& tensor : tensors) {
    if (!seen.insert(tensor.name).second)
      fail_input(path.string(), "tensor {} is in another shard too", printable_name(tensor.name));
    model.tensors.push_back(std::move(tensor));
  }
}

void map_shards(const std::filesystem::path& folder, const std::filesystem::path& index,
                const Progress& progress, Model& model, std::vector<TensorAlias>& aliases) {
  const std::string text = read_text_file(index, kLongestIndex);
  refuse_lfs_pointer(std::as_bytes(std::span(text)), index.string());
  const std::vector<Shard> shards = parse_safetensors_index(text, index.string());
  std::unordered_set<std::string> seen, other_names;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (progress) progress("opening shards", i, shards.size());
    const size_t before = aliases.size();
    map_shard(folder / shards[i].file, model, seen, aliases);
    for (size_t k = before; k < aliases.size(); ++k) other_names.insert(aliases[k].name);
    for (const std::string& name : shards[i].tensors)
      if (!seen.contains(name) && !other_names.contains(name))
        fail_input(index.string(), "tensor {} is not in {}", printable_name(name), shards[i].file);
  }
  if (progress) progress("opening shards", shards.size(), shards.size());
}

// Weights under other names than the usual: a file of its own, or all parts without their index.
std::vector<std::string> other_weight_files(const std::filesystem::path& folder) {
  std::vector<std::string> remarks, weights;
  const std::vector<RepoModel> models = models_of_repository(files_below(folder, 1, remarks));
  if (models.empty() || !models.front().asked.empty()) return {};
  if (!models.front().missing.empty())
    throw Error(ErrorCode::input, folder.string(), models.front().missing,
                "fetch the rest of the checkpoint");
  for (const std::string& name : models.front().files)
    if (name.ends_with(".safetensors") && !name.starts_with("adapter_")) weights.push_back(name);
  for (const std::string& name : weights)
    if (name.starts_with("consolidated"))
      throw Error(ErrorCode::input, (folder / name).string(),
                  "its tensors have Mistral's own names and order, which Tyto does not read",
                  "fetch the checkpoint's model.safetensors, or its model-0000N-of-0000N files");
  return weights;
}

[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  std::vector<std::string> remarks;
  std::string other;
  for (const std::string& name : files_below(folder, 1, remarks))
    for (const char* ending : {".bin", ".pth", ".pt", ".h5", ".msgpack", ".npz"})
      if (other.empty() && name.ends_with(ending)) other = name;
  throw Error(ErrorCode::input, folder.string(),
              "has neither model.safetensors nor model.safetensors.index.json",
              other.empty()
                  ? "fetch the rest of the checkpoint: its weights are not here"
                  : printable_name(other) + " is not read: save the checkpoint as safetensors");
}

// Names that stand for a tensor, and are none themselves.
void read_aliases(const Json& metadata, const std::set<std::string, std::less<>>& names,
                  std::vector<TensorAlias>& aliases) {
  if (!metadata.is(Json::Type::object)) return;
  metadata.for_each_member([&](std::string_view key, const Json& value) {
    if (value.is(Json::Type::string) && !names.contains(key) && names.contains(value.as_string()))
      aliases.push_back({std::string(key), std::string(value.as_string())});
  });
}

}  // namespace

std::vector<StoredTensor> stored_tensors(std::span<const std::byte> bytes, const std::string& name,
                                         std::vector<TensorAlias>* aliases) {
  refuse_lfs_pointer(bytes, name);
  uint64_t header_bytes = 0;
  const uint64_t file_bytes = bytes.size();
  if (file_bytes < sizeof header_bytes) fail_cut_off(name, file_bytes, sizeof header_bytes);
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  bytes = bytes.subspan(sizeof header_bytes);
  if (header_bytes > kLongestHeader)
    fail_input(name, "header of {} bytes, at most {} are allowed", header_bytes, kLongestHeader);
  if (header_bytes > bytes.size())
    fail_cut_off(name, file_bytes, sizeof header_bytes + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header_bytes);
  const std::span<const std::byte> data = bytes.subspan(header_bytes);

  std::vector<StoredTensor> tensors;
  std::set<std::string, std::less<>> names;
  uint64_t last = 0;
  const Json header = Json::parse(text, name);
  header.for_each_member([&](std::string_view key, const Json& entry) {
    if (key == "__metadata__") return;
    if (!names.emplace(key).second)
      fail_input(name, "tensor {} is in the header twice", printable_name(key));
    tensors.push_back(read_tensor(key, entry, data, name, last));
  });
  if (last > data.size()) fail_cut_off(name, file_bytes, file_bytes - data.size() + last);
  if (!text.starts_with('{')) fail_input(name, "the header does not begin with {{");
  if (const auto metadata = header.find("__metadata__"); metadata && aliases != nullptr)
    read_aliases(*metadata, names, *aliases);
  std::vector<NamedTensor> stretches;
  for (const StoredTensor& tensor : tensors)
    stretches.push_back({tensor.name, {DType::i8, 1, tensor.bytes.size(), tensor.bytes}});
  check_layout(stretches, data, 1, name);
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.bytes.data() < b.bytes.data(); });
  return tensors;
}

bool is_weight_type(std::string_view type) {
  return element_type(type).has_value();
}

NamedTensor named_tensor(const StoredTensor& tensor, const std::string& file) {
  const std::string where = file + ": tensor " + printable_name(tensor.name);
  const std::optional<DType> type = element_type(tensor.type);
  if (!type)
    throw Error(
        ErrorCode::unsupported, fmt::format("{}: {}.dtype", file, printable_name(tensor.name)),
        fmt::format("type {}; F32, F16 and BF16 are supported", printable_name(tensor.type)),
        "get the model's bf16 checkpoint, or its GGUF as Q4_K_M or Q8_0");
  NamedTensor result{tensor.name, {*type, 0, 0, tensor.bytes}};
  const std::optional<uint64_t> bytes = fold(tensor.shape, result.view);
  if (!bytes) fail_input(where, "the product of its dimensions overflows");
  if (tensor.bytes.size() != *bytes)
    fail_input(where, "{} bytes for a shape of {}", tensor.bytes.size(), *bytes);
  return result;
}

std::string shape_text(std::span<const uint64_t> shape) {
  return "[" + joined(shape, ", ", [](uint64_t extent) { return fmt::format("{}", extent); }) + "]";
}

// Writers pad their header to eight bytes, so copies are made only for files by odd ones.
void align_views(std::vector<NamedTensor>& tensors, Model& model) {
  for (NamedTensor& tensor : tensors) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.view.bytes.data());
    if (info(tensor.view.dtype).block_values != 1) continue;  // blocks lie at any address
    if (address % info(tensor.view.dtype).block_bytes == 0) continue;
    model.copies.emplace_back(tensor.view.bytes.begin(), tensor.view.bytes.end());
    tensor.view.bytes = model.copies.back();
  }
}

std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name,
                                           std::vector<TensorAlias>* aliases) {
  std::vector<NamedTensor> tensors;
  for (const StoredTensor& tensor : stored_tensors(bytes, name, aliases))
    tensors.push_back(named_tensor(tensor, name));
  return tensors;
}

std::vector<Shard> parse_safetensors_index(std::string_view text, const std::string& name) {
  std::map<std::string, std::vector<std::string>, std::less<>> shards;
  const Json index = Json::parse(text, name);
  index.at("weight_map").for_each_member([&](std::string_view tensor, const Json& file) {
    const std::string_view file_name = file.as_string();
    if (!is_plain_file_name(file_name))
      fail_input(name + ": weight_map", "\"{}\" is not a file name of this folder",
                 printable_name(file_name));
    shards[std::string(file_name)].emplace_back(tensor);
  });
  if (shards.empty()) fail_input(name + ": weight_map", "is empty");
  std::vector<Shard> result;
  for (auto& [file, tensors] : shards) result.push_back({file, std::move(tensors)});
  return result;
}

std::vector<TensorAlias> map_safetensors(const std::filesystem::path& folder, bool required,
                                         const Progress& progress, Model& model) {
  const auto single = folder / "model.safetensors";
  const auto index = folder / "model.safetensors.index.json";
  std::vector<TensorAlias> aliases;
  std::unordered_set<std::string> seen;
  if (std::filesystem::exists(single)) {
    map_shard(single, model, seen, aliases);
  } else if (std::filesystem::exists(index)) {
    map_shards(folder, index, progress, model, aliases);
  } else if (required) {
    const std::vector<std::string> files = other_weight_files(folder);
    if (files.empty()) fail_without_weights(folder);
    for (const std::string& file : files) map_shard(folder / file, model, seen, aliases);
  }
  return aliases;
}

void add_aliases(const std::vector<TensorAlias>& aliases, const Config& config,
                 std::vector<NamedTensor>& tensors) {
  std::unordered_map<std::string, TensorView> views;
  for (const NamedTensor& tensor : tensors) views.emplace(tensor.name, tensor.view);
  std::unordered_map<std::string, std::string> stands;
  for (const TensorAlias& alias : aliases) stands.emplace(alias.name, alias.of);
  if (config.tied_head) stands.emplace("model.embed_tokens.weight", "lm_head.weight");
  for (const WeightSpec& spec : weight_specs(config, NameStyle::hugging_face)) {
    const auto other = stands.find(spec.name);
    if (views.contains(spec.name) || other == stands.end()) continue;
    const auto view = views.find(other->second);
    if (view != views.end()) tensors.push_back({spec.name, view->second});
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorPlan> tensors)
    : file_(path) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  for (const TensorPlan& tensor : tensors) {
    const std::string rows =
        tensor.rows == 0     ? ""
        : tensor.slices == 0 ? fmt::format("{},", tensor.rows)
                             : fmt::format("{},{},", tensor.slices, tensor.rows / tensor.slices);
    const uint64_t end = data_bytes_ + tensor.bytes();
    header +=
        fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}{}],"data_offsets":[{},{}]}})", tensor.name,
                    type_name(tensor.dtype), rows, tensor.cols, data_bytes_, end);
    data_bytes_ = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  TYTO_ASSERT(bytes.size() <= data_bytes_ - written_);
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::commit() {
  TYTO_ASSERT(written_ == data_bytes_);
  file_.commit();
}

}  // namespace tyto
