// The record of which kernel images are in the store, and the file that keeps it.
//
//   FOLDER/manifest.json         this record
//   FOLDER/images/<hash>.elf     the images, named by their content
//   FOLDER/.lock                 held while the store changes
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_abi.h"
#include "device/npu/store/image_facts.h"

namespace tyto {

struct StoredImage {
  ImageKind kind = ImageKind::elf;
  uint32_t length = 0;  // of a decode template: the context length it was built at
  uint64_t bytes = 0;
  std::string hash;      // XXH3-128 of the content, hexadecimal
  int64_t mtime_ns = 0;  // with `bytes`: unchanged means the content need not be read again

  std::string file() const { return hash + std::string(extension(kind)); }
};

struct KernelEntry {
  std::string name;     // unique: "llama-3.2-1b/o_ffn", "llama-3.2-1b/decode_L2048"
  std::string program;  // which argument list: a name of air_abi.h, kFusedDecode or kInt8Gemm
  std::string entry;    // what XRT is asked for: "main:o_ffn"
  std::string shape;    // "llama-3.2-1b"
  AirDims dims;
  uint32_t window = 0;  // of a fused decode: the padded context; of an int8 GEMM: K; 0 otherwise
  uint32_t m_tile = 0, n_tile = 0;  // of an int8 GEMM: tokens and outputs of one dispatch
  uint32_t arguments = 0;
  uint32_t launches = 0;
  std::optional<uint32_t> columns;  // not told by an xclbin
  uint64_t run_bytes = 0;           // of the device heap, for one run; 0: not known
  std::string platform;             // "aie2p", "vnpu", or "not checked: reason"
  std::string flags;                // of a fused decode: what its .decode_flags says
  std::string toolchain;            // what the build folder says about its compilers
  std::string source;               // the build folder
  std::string imported_at;          // UTC
  std::vector<StoredImage> images;
};

struct KernelManifest {
  std::vector<KernelEntry> entries;  // sorted by name

  const KernelEntry* find(std::string_view name) const;
};

// The argument list an entry was recorded with, from its program, dimensions and window.
AirProgram program_of(const KernelEntry& entry);

std::filesystem::path manifest_path(const std::filesystem::path& store);
std::filesystem::path image_path(const std::filesystem::path& store, const StoredImage& image);

// An absent file is an empty manifest. A damaged one is an Error that says how to rebuild it; the
// images stay where they are.
KernelManifest read_manifest(const std::filesystem::path& store);

// Sorts the entries and replaces the file. Refuses to write what it could not read back.
void write_manifest(const std::filesystem::path& store, KernelManifest manifest);

// Whoever changes the store holds a FileLock on it.
std::filesystem::path lock_path(const std::filesystem::path& store);

}  // namespace tyto
