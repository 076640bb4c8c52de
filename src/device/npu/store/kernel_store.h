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

#include "device/npu/store/image_fit.h"
#include "device/npu/store/kernel_store_manifest.h"

namespace tyto {

struct ImportOptions {
  // What the kernels may have been compiled for. Of several, the one that the images fit; their
  // name is the first part of the entries'.
  std::vector<NamedDims> shapes = {{"llama-3.2-1b", kLlama32_1b}};
  std::optional<uint32_t> seq = {};  // the padded prompt; without it as the build tells, or `dims`
};

struct ImportReport {
  std::vector<KernelEntry> entries;  // as recorded
  std::vector<std::string> notes;    // what was in the folder and left out, and why
  size_t images_written = 0;         // the others were there already
};

// Records what read_build_folder finds. Everything is checked before anything is written, as far as
// the images can be read against the shape's argument lists: after an Error the store is as it was.
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

}  // namespace tyto
