// safetensors: one file, or shards named by an index, read in place; and streaming writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/progress.h"
#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

// Another name of a tensor, as `save_model` of the format's own library writes it into the metadata
// where tensors shared their memory: the name that is missing, and the tensor that is there.
struct TensorAlias {
  std::string name;
  std::string of;
};

// Parses the header; `bytes` must outlive the result. In file order. Throws unless the tensors fill
// the data. `aliases` gets all names of the metadata that are no tensor's and stand for one.
std::vector<StoredTensor> stored_tensors(std::span<const std::byte> bytes, const std::string& name,
                                         std::vector<TensorAlias>* aliases = nullptr);

bool is_weight_type(std::string_view type);  // by its name in a header

// A tensor of a type that weights have in safetensors, with the bytes its shape needs. Dimensions
// beyond the second are folded into the rows.
NamedTensor named_tensor(const StoredTensor& tensor, const std::string& file);

std::string shape_text(std::span<const uint64_t> shape);  // "[2048, 512]"

// Views of weights are read as arrays of their element, which wants them aligned: makes copies of
// those that are not.
void align_views(std::vector<NamedTensor>& tensors, Model& model);

// All of a file; views point into `bytes`, which must outlive the result. In file order. Views may
// be misaligned.
std::vector<NamedTensor> parse_safetensors(std::span<const std::byte> bytes,
                                           const std::string& name,
                                           std::vector<TensorAlias>* aliases = nullptr);

// One shard of an index and the tensors the index expects in it.
struct Shard {
  std::string file;  // a plain file name
  std::vector<std::string> tensors;
};

// model.safetensors.index.json. Names that would leave the folder are refused.
std::vector<Shard> parse_safetensors_index(std::string_view text, const std::string& name);

// Maps the weights of a checkpoint folder into model.files and lists them in model.tensors.
// Without any: an Error, or nothing when `required` is false. Returns the aliases of all files.
std::vector<TensorAlias> map_safetensors(const std::filesystem::path& folder, bool required,
                                         const Progress& progress, Model& model);

// Lists tensors a second time under the names of weights that are missing and that they stand for:
// by `aliases`, and the head for the embedding that is tied to it.
void add_aliases(const std::vector<TensorAlias>& aliases, const Config& config,
                 std::vector<NamedTensor>& tensors);

// Writes the header at once, then tensor data in plan order as it is handed over.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorPlan> tensors);
  void append(std::span<const std::byte> bytes);  // next bytes of the current tensor
  void commit();                                  // all tensors complete, file renamed into place

 private:
  AtomicFile file_;
  uint64_t data_bytes_ = 0;  // promised by the header
  uint64_t written_ = 0;
};

}  // namespace tyto
