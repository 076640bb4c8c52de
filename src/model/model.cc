#include "model/model.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <system_error>

#include "base/environment.h"
#include "base/error.h"
#include "base/file_use.h"
#include "base/joined.h"
#include "base/printable.h"
#include "model/gguf.h"
#include "model/gguf_shards.h"
#include "model/hf_model.h"
#include "model/weight_table.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestRef = 4096;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::vector<fs::path> entries(const fs::path& folder, const auto& wanted) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (wanted(it->path())) found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

void open_gguf(const fs::path& path, Need need, Model& model) {
  fill_model_from_gguf(open_gguf_files(path, model.files), need, model);
}

void open_folder(const fs::path& folder, Need need, const Progress& progress, Model& model) {
  add_inputs_of(folder);
  if (is_there(folder / "config.json") || is_there(folder / "tokenizer.json"))
    return fill_model_from_folder(folder, need, progress, model);
  const auto files =
      entries(folder, [](const fs::path& path) { return path.extension() == ".gguf"; });
  if (files.empty())
    fail_input(folder.string(), "holds neither config.json nor a GGUF: not a model");
  if (files.size() > 1) {
    std::string names;
    for (const fs::path& file : files) names.append(" ").append(file.filename().string());
    fail_input(folder.string(), "holds several GGUFs, name one:{}", names);
  }
  open_gguf(files.front(), need, model);
}

bool is_repo_id(std::string_view name) {
  const size_t slash = name.find('/');
  const auto good = [](std::string_view part) {
    return !part.empty() && !part.starts_with('.') &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
           });
  };
  return slash != std::string_view::npos && good(name.substr(0, slash)) &&
         good(name.substr(slash + 1)) && !name.ends_with(".gguf");
}

// The snapshot refs/main names, or the only one there is. Empty when there is none.
fs::path find_snapshot(const fs::path& repository) {
  const fs::path ref = repository / "refs" / "main";
  if (is_there(ref)) {
    std::string revision = read_text_file(ref, kLongestRef);
    while (!revision.empty() && std::isspace(static_cast<unsigned char>(revision.back())) != 0)
      revision.pop_back();
    if (revision.empty() || revision.starts_with('.') || revision.find('/') != std::string::npos)
      fail_input(ref.string(), "\"{}\" is not a revision", printable_name(revision));
    const fs::path snapshot = repository / "snapshots" / revision;
    return is_there(snapshot) ? snapshot : fs::path();
  }
  const auto snapshots = entries(repository / "snapshots", [](const fs::path&) { return true; });
  if (snapshots.size() > 1)
    fail_input((repository / "snapshots").string(),
               "several revisions and no refs/main; give the folder of one");
  return snapshots.empty() ? fs::path() : snapshots.front();
}

}  // namespace

uint64_t Model::weight_bytes() const {
  if (!has_weights()) return 0;
  uint64_t total = 0;
  for (const WeightSpec& spec : weight_specs(config, NameStyle::gguf))
    total += view_of(weights, spec).bytes.size();
  return total;
}

DType main_weight_type(const Model& model) {
  std::map<DType, size_t> bytes;
  for (const LayerWeights& layer : model.weights.layers)
    for (const TensorView* view :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      bytes[view->dtype] += view->bytes.size();
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::f32 : most->first;
}

uint64_t Model::parameters() const {
  uint64_t count = 0;
  for (const NamedTensor& tensor : tensors) count += tensor.view.values();
  return count;
}

std::string Model::place_of(const TensorView& weight) const {
  const std::byte* const data = weight.bytes.data();
  const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& each) {
    return each.view.bytes.data() == data;
  });
  const auto file = std::find_if(files.begin(), files.end(), [&](const MappedFile& each) {
    const std::span<const std::byte> bytes = each.bytes();
    return data >= bytes.data() && data < bytes.data() + bytes.size();
  });
  return fmt::format("{}: tensor {}", (file == files.end() ? path : file->path()).string(),
                     tensor == tensors.end() ? "of no name" : printable_name(tensor->name));
}

Model open_model(const fs::path& path, Need need, const Progress& progress) {
  Model model;
  model.path = path;
  std::error_code error;
  if (!is_there(path)) fail_input(path.string(), "no such file or folder");
  if (fs::is_directory(path, error))
    open_folder(path, need, progress, model);
  else if (path.extension() == ".safetensors" || path.extension() == ".q4nx")
    fail_input(path.string(), "give the folder it is in, which also holds config.json");
  else
    open_gguf(path, need, model);
  return model;
}

fs::path find_model(const std::string& name) {
  if (name.empty()) fail_input("model", "the name is empty");
  if (is_there(name)) return name;
  if (!is_repo_id(name)) fail_input(name, "no such file or folder");
  std::string cached = "models--" + name;
  cached.replace(cached.find('/'), 1, "--");
  const std::vector<fs::path> folders = hugging_face_cache_folders();
  for (const fs::path& folder : folders) {
    const fs::path snapshot = find_snapshot(folder / cached);
    if (!snapshot.empty()) return snapshot;
  }
  throw Error(
      ErrorCode::input, name, "no such file or folder, and not in a Hugging Face cache",
      fmt::format("fetch it with `hf download {}` (formerly huggingface-cli); searched {}", name,
                  folders.empty() ? "nothing: HOME is not set"
                                  : joined(folders, ", ", [](const fs::path& folder) {
                                      return folder.string();
                                    })));
}

}  // namespace tyto
