// The folder of packed weights that `tyto cache` fills and every CPU device reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "device/cpu/packed_file.h"
#include "device/cpu/packed_weights.h"
#include "trace/trace.h"

namespace tyto::cpu {

// One file of the folder.
struct KeptFile {
  std::filesystem::path path;
  uint64_t bytes = 0;
  int64_t used_ns = 0;     // when it was last opened, or written
  std::string source;      // the weight file it was made of; empty: it cannot be read
  std::string stale;       // why nothing will use it any more, in words; empty: it is good
  bool is_in_use = false;  // some process has it mapped
};

std::filesystem::path weight_cache_folder();  // an Error when there is no home for caches
// Where packed weights of a file go: a changed file has another place.
std::filesystem::path kept_path(const std::filesystem::path& folder, const FileStamp& source);
// The least recently used first. No folder, no files.
std::vector<KeptFile> kept_files(const std::filesystem::path& folder);

// Removes those that nobody uses, the stale and then the least recently used first, until what is
// left and `wanted` fit into `limit`, and returns what it removed. An Error when they cannot.
std::vector<KeptFile> make_room(const std::filesystem::path& folder, uint64_t wanted,
                                uint64_t limit);

// Removes everything, or what is stale, with what killed processes left, and returns it.
std::vector<KeptFile> clear_kept(const std::filesystem::path& folder, bool only_stale);

// What the folder holds of some weight files, looked up as matrices are asked for.
class KeptWeights {
 public:
  // Finds nothing without sources. They and the trace outlive it.
  KeptWeights(std::span<const MappedFile> sources, Trace& trace);

  // The matrix as it lies in the folder. A file that is damaged, or that the system maps in small
  // pages, is left alone from then on, and a fallback says so.
  std::optional<PackedWeights> find(const TensorView& view, ThreadPool& pool);

 private:
  struct Source {
    const MappedFile* file = nullptr;
    bool is_looked_for = false;
    std::shared_ptr<const PackedFile> packed;  // shared with every matrix that lies in it
  };
  void open(Source& source, ThreadPool& pool);

  std::vector<Source> sources_;
  Trace& trace_;
};

}  // namespace tyto::cpu
