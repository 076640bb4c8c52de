// The kernel images a user has built with MLIR-AIR and handed to Tyto. Plain files: nothing here
// needs XRT or an NPU. Tyto ships no images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_models.h"
#include "device/npu/npu_device.h"
#include "device/npu/store/build_folder.h"
#include "device/npu/store/image_facts.h"

namespace tyto {

// The record of which kernel images are in the store, and the file that keeps it.
//
//   FOLDER/manifest.json         this record
//   FOLDER/images/<hash>.elf     the images, named by their content
//   FOLDER/.lock                 held while the store changes

struct StoredImage {
  ImageKind kind = ImageKind::elf;
  uint32_t length = 0;  // a decode template's: the context length it was built at
  uint64_t bytes = 0;
  std::string hash;      // XXH3-128 of the content, hexadecimal
  int64_t mtime_ns = 0;  // with `bytes`: unchanged means the content need not be read again

  std::string file() const { return hash + std::string(extension(kind)); }
};

struct KernelEntry {
  std::string name;     // unique: "llama-3.2-1b/o_ffn", "llama-3.2-1b/decode_L2048"
  std::string program;  // which argument list: a name of air_models.h, kFusedDecode or kInt8Gemm
  std::string entry;    // what XRT is asked for: "main:o_ffn"
  std::string shape;    // "llama-3.2-1b"
  AirDims dims;
  uint32_t window = 0;  // a fused decode's padded context; an int8 GEMM's K; 0 otherwise
  uint32_t m_tile = 0, n_tile = 0;  // an int8 GEMM's tokens and outputs of one dispatch
  uint32_t arguments = 0;
  uint32_t launches = 0;
  std::optional<uint32_t> columns;  // not told by an xclbin
  uint64_t run_bytes = 0;           // what one run takes of the device heap; 0: not known
  std::string platform;             // "aie2p", "vnpu", or "not checked: reason"
  std::string flags;                // what a fused decode's .decode_flags says
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

// A FileLock on it is held while the store is changed.
std::filesystem::path lock_path(const std::filesystem::path& store);

struct ImportOptions {
  // What the kernels may have been compiled for. Of several, the one that the images fit; their
  // name is the first part of the entries'.
  std::vector<NamedDims> shapes = {{"llama-3.2-1b", kLlama32_1b}};
  std::optional<uint32_t> seq = {};  // the padded prompt; without it as the build tells, or `dims`
};

struct ImportReport {
  std::vector<KernelEntry> entries;    // as recorded
  std::vector<RefusedKernel> refused;  // what an earlier import recorded for them stays
  std::vector<std::string> notes;      // what was in the folder and left out, and why
  size_t images_written = 0;           // the others were there already
};

// Records what read_build_folder finds, as far as the images can be read against the shape's
// argument lists. An Error where nothing can be taken; after an Error the store is as it was.
ImportReport import_kernels(const std::filesystem::path& store, const std::filesystem::path& folder,
                            const ImportOptions& options);

enum class ImageFault : uint8_t {
  missing,    // no such file
  truncated,  // shorter than what was imported
  stale,      // not what was imported, or recorded for another model or argument list
  foreign,    // not an XDNA2 image, or not recorded at all
};
std::string_view to_string(ImageFault fault);

struct ImageProblem {
  std::string entry;  // empty: no entry names the file
  std::string file;
  ImageFault fault = ImageFault::missing;
  std::string reason;
};

struct CheckReport {
  size_t images = 0;        // recorded ones
  size_t trusted = 0;       // size and modification time as recorded: not read
  size_t hashed = 0;        // read and hashed
  uint64_t bytes_read = 0;  // by hashing
  std::vector<ImageProblem> problems;
};

// Images of some entries. An image whose size and time are as recorded is trusted unless `full`.
// Entries whose image was found good under a new time get that time.
CheckReport check_entries(const std::filesystem::path& store, std::span<KernelEntry> entries,
                          bool full);

// The whole store: every entry, and files that no entry names. New times are recorded, so that the
// next check is quick again.
CheckReport check_store(const std::filesystem::path& store, bool full);

// Forgets an entry and deletes the images only it used. An unknown name is a usage Error.
void remove_kernel(const std::filesystem::path& store, std::string_view name);

// Deletes the manifest and every image, recorded or not, but no file that is not named like one;
// works on a damaged manifest too. Returns the number of images.
size_t remove_all_kernels(const std::filesystem::path& store);

// Deletes the images of `before` that no entry of `after` uses.
void delete_unused_images(const std::filesystem::path& store, std::span<const KernelEntry> before,
                          const KernelManifest& after);

// The images in the kernel store that fit a model: what the real NPU runs, and what `tyto compile`
// has written for the virtual one.

std::filesystem::path default_kernel_store();  // $XDG_CACHE_HOME/tyto/kernels

AirDims air_dims(const ModelDims& model, uint32_t seq);

enum class StoredFor : uint8_t { real_npu, virtual_npu };

// The images in `store` that were built for a model, whatever `dims.seq`; what is missing or
// damaged is a reason given for each program, not an Error.
NpuKernels stored_kernels(const std::filesystem::path& store, StoredFor whom, AirDims dims);

// Chooses among the rows that there are prefill images for, and fills in what a device that runs
// these kernels says of itself.
void describe_shapes(const DeviceEnv& env, NpuKernels& kernels);

// Which of the images that there are a device opens: each number of prompt rows has a set of them.

// An XDNA2 has 16 contexts for all processes; each image takes one. Three are left to others.
constexpr size_t kMostContexts = 13;

// How many images a layer of the model, or its head, takes for such calls.
size_t count_programs(const AirDims& dims, AirPhase phase);

// Those that were asked for, or all that are `there` if none were. A usage Error says what there is
// where one is missing.
std::vector<uint32_t> asked_rows(std::span<const uint32_t> there, std::span<const uint32_t> asked);

// Drops images from `kernels` until the device's contexts suffice, and reports each as a fallback.
// Short windows of the decode go first, if otherwise no prefill image would fit. Then images for
// some numbers of prompt rows go: the largest stays for long prompts, the smallest for short ones.
// An image that the user asked for is not dropped: that is an Error.
void fit_contexts(const DeviceEnv& env, const NpuSettings& settings, NpuKernels& kernels);

}  // namespace tyto
