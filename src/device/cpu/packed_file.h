// Packed matrices of one weight file, kept in a file that is mapped and multiplied by in place: no
// copy, and several processes share the memory.
//
// The file is the panels of every matrix, each at a multiple of a small page, padded to whole huge
// pages; then tables: the weight file's stamp and path, where each matrix lies and which bytes of
// the weight file it was made of, a hash of every huge page; then a trailer with a hash of the
// tables. Whatever was cut off or changed is noticed when it is opened, before anything is
// multiplied by.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "tensor/view.h"

namespace tyto::cpu {

// One matrix of the file.
struct KeptMatrix {
  uint64_t source_offset = 0;  // in the weight file
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t offset = 0;  // of its panels
  uint64_t type = 0;    // DType
  Hash128 layout;       // how the program that wrote it laid out this type
  Hash128 sample;       // of some of the weight file's bytes
};

struct PackedTables {
  FileStamp source;
  std::string source_path;  // when it was packed; for people
  uint64_t body_bytes = 0;
  std::vector<KeptMatrix> matrices;
  std::vector<Hash128> pages;  // of each huge page of the body
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

}  // namespace tyto::cpu
