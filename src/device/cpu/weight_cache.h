// The folder of packed weights that `tyto cache` fills and every CPU device reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "device/cpu/packed_weights.h"
#include "tensor/dtype.h"
#include "trace/trace.h"

namespace tyto::cpu {

// Memory for what is streamed once per token: with small pages the walks through the page tables
// cost a tenth of the bandwidth and more.

constexpr size_t kHugePage = size_t{2} << 20;

// Zeroed, in huge pages where the system gives them. Throws when it cannot be reserved.
std::shared_ptr<void> zeroed_huge_pages(size_t bytes);

// For a file's mapping, before it is touched: what has to be read comes in huge pages, where the
// file system can (ext4 since Linux 6.16, xfs and btrfs earlier).
void ask_for_huge_pages(std::span<const std::byte> mapped);
// Whether nearly all of a mapping that was touched is mapped in huge pages.
bool is_in_huge_pages(std::span<const std::byte> mapped);

// Packed matrices of one weight file, kept in a file that is mapped and multiplied by in place: no
// copy, and several processes share the memory.
//
// The file is the panels of every matrix, each at a multiple of a small page, padded to whole huge
// pages; then tables: the weight file's stamp and path, where each matrix lies and which bytes of
// the weight file it was made of, a hash of every huge page; then a trailer with a hash of the
// tables. Whatever was cut off or changed is noticed when it is opened, before anything is
// multiplied by.

// One matrix of the file.
struct KeptMatrix {
  uint64_t source_offset = 0;  // in the weight file
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t offset = 0;  // its panels'
  uint64_t type = 0;    // DType
  Hash128 layout;       // how the program that wrote it laid out this type
  Hash128 sample;       // hash of some of the weight file's bytes
};

struct PackedTables {
  FileStamp source;
  std::string source_path;  // when it was packed; for people
  uint64_t body_bytes = 0;
  std::vector<KeptMatrix> matrices;
  std::vector<Hash128> pages;  // each huge page's of the body
};

// An Error that says what is wrong when the file is not whole. The panels are not looked at.
PackedTables read_packed_tables(const MappedFile& file);

class PackedFile {
 public:
  // Reads every byte and holds it against the hashes. An Error when the file is damaged, or was not
  // made of `source` as that is now.
  PackedFile(const std::filesystem::path& path, const MappedFile& source, ThreadPool& pool);

  // The panels of a matrix that lies in the source; null when they are not here, are laid out as
  // the kernels of another version liked it, or were made of other bytes.
  const uint8_t* find(const TensorView& view) const;
  std::span<const std::byte> body() const { return file_.bytes().first(tables_.body_bytes); }

 private:
  MappedFile file_;
  PackedTables tables_;
  std::span<const std::byte> source_;
};

// Packs the matrices, which lie in `source`, and writes them beside the target first. An Error when
// the source has changed since it was mapped, or so lately that another change could bear the same
// times. Returns the file's size.
uint64_t write_packed_file(const std::filesystem::path& path, const MappedFile& source,
                           std::span<const TensorView> matrices, ThreadPool& pool,
                           const Progress& progress = {});

// That the file will have, to within the tables.
uint64_t packed_file_bytes(std::span<const TensorView> matrices);

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

// Removes those not in use, the stale and then the least recently used first, until what is
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

// Each packed matrix once for all programs that use it, from the cache or packed now.

// Entries live as long as they are held.
class PackedStore {
 public:
  // Matrices that lie in `sources` are looked for in the cache of packed weights first.
  PackedStore(std::span<const MappedFile> sources, Trace& trace) : kept_(sources, trace) {}

  std::shared_ptr<const PackedWeights> pack(const TensorView& view, ThreadPool& pool);

 private:
  KeptWeights kept_;
  std::map<const std::byte*, std::weak_ptr<const PackedWeights>> by_address_;
};

}  // namespace tyto::cpu
