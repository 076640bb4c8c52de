#include "model/model.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/file_use.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "model/gguf.h"
#include "model/hf_model.h"
#include "model/stores/repo_files.h"
#include "model/stores/stores.h"
#include "model/weight_table.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> ignored;
  return files_below(folder, 1, ignored);
}

void open_gguf(const fs::path& path, Need need, Model& model) {
  fill_model_from_gguf(open_gguf_files(path, model.files), need, model);
}

void open_folder(const fs::path& folder, Need need, const Progress& progress, Model& model) {
  add_inputs_of(folder);
  const std::vector<RepoModel> models = models_of_repository(files_in(folder));
  // Repositories of GGUFs may have a config.json, too, which says nothing that the GGUFs do not.
  const bool has_ggufs_alone = !models.empty() && !models.front().asked.empty();
  if (!has_ggufs_alone && (is_there(folder / "config.json") || is_there(folder / "tokenizer.json")))
    return fill_model_from_folder(folder, need, progress, model);
  if (models.empty() && is_there(folder / "adapter_config.json")) fail_adapter(folder.string());
  if (models.empty())
    fail_input(folder.string(), "holds neither config.json nor a GGUF: not a model");
  if (models.size() > 1)
    fail_input(folder.string(), "holds several GGUFs, name one: {}",
               joined(models, " ", [](const RepoModel& each) { return each.files.front(); }));
  open_gguf(folder / models.front().files.front(), need, model);
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

uint64_t Model::active_parameters() const {
  if (!config.has_experts() || !has_weights()) return parameters();
  uint64_t idle = 0;
  for (const LayerWeights& layer : weights.layers)
    for (const TensorView* view : {&layer.gate, &layer.up, &layer.down})
      idle += view->values() / config.experts * (config.experts - config.experts_used);
  return parameters() - idle;
}

std::string Model::place_of(const TensorView& weight) const {
  const std::byte* const data = weight.bytes.data();
  const auto has_data = [&](std::span<const std::byte> bytes) {
    return data >= bytes.data() && data < bytes.data() + bytes.size();
  };
  // A weight may be some rows of a tensor.
  const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& each) {
    return has_data(each.view.bytes);
  });
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const MappedFile& each) { return has_data(each.bytes()); });
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

}  // namespace tyto
