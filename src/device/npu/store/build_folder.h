// What a build has left in a folder: kernels and their images, read and checked one by one, before
// anything is known of the model they are for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "device/npu/store/image_facts.h"

namespace tyto {

constexpr uint64_t kImageLimit = uint64_t{256} << 20;
constexpr uint64_t kBuildTextLimit = uint64_t{1} << 20;  // for a manifest or a stamp

constexpr std::string_view kFlagsNotRecorded = "not recorded";

struct FoundImage {
  std::filesystem::path path;
  ImageKind kind = ImageKind::elf;
  uint32_t length = 0;  // a decode template's: the context length it was built at
  uint64_t bytes = 0;
  std::string hash;  // XXH3-128 of the content, hexadecimal
  ImageFacts facts;
};

struct FoundKernel {
  std::string program;  // a name of air_models.h, kFusedDecode or kInt8Gemm
  std::string entry;    // what the build says XRT is to be asked for; empty: nothing
  std::filesystem::path folder;
  std::optional<uint32_t> seq;      // the prompt's length, where the folder's name has it
  uint32_t window = 0;              // a fused decode's; an int8 GEMM's K
  uint32_t m_tile = 0, n_tile = 0;  // for an int8 GEMM
  std::optional<uint32_t> columns;
  std::string toolchain = "unknown";
  std::string flags;  // what a fused decode's .decode_flags says
  std::vector<FoundImage> images;
};

// A kernel that was there and cannot be used, and why.
struct RefusedKernel {
  std::string name;
  std::string reason, next_step;
};

struct BuildFolder {
  std::vector<FoundKernel> kernels;
  std::vector<RefusedKernel> refused;  // the others are not lost with them
  std::vector<std::string> notes;      // what was there and is left out, and why
};

// Kernel caches of MLIR-AIR, in the folder, one below it, or in its build_peano or build_chess;
// the fused decode as one ELF, or as template pairs; int8 GEMMs, of mlir-aie's whole-array example
// or with a gemm_slots.json. A folder without kernels is an Error.
BuildFolder read_build_folder(const std::filesystem::path& folder);

// ---- Parts of it, in files of their own

FoundImage read_image_file(const std::filesystem::path& path, ImageKind kind, uint32_t length);
void find_fused_decode(BuildFolder& found, const std::filesystem::path& folder);
void find_fused_decode_elf(BuildFolder& found, const std::filesystem::path& folder);
void find_int8_gemms(BuildFolder& found, const std::filesystem::path& folder);

}  // namespace tyto
