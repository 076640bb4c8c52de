// What can be told about a kernel image without XRT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_abi.h"
#include "device/npu/store/elf_reader.h"

namespace tyto {

enum class ImageKind : uint8_t { elf, xclbin, insts };
std::string_view to_string(ImageKind kind);
std::string_view extension(ImageKind kind);  // ".elf", ".xclbin", ".insts.bin"

// XRT takes the platform from the OS/ABI byte of the identification, not from the machine field.
constexpr uint8_t kOsAbiAie2p = 69;
constexpr std::string_view kVirtualPlatform = "vnpu";

struct ImageFacts {
  std::string platform;                     // "aie2p", "vnpu", or "not checked: reason"
  std::optional<AirDims> dims;              // of an image for the virtual NPU: what it was made for
  std::optional<ElfImage> elf;              // of an ELF
  std::vector<uint32_t> words;              // of an instruction file
  std::optional<Transaction> instructions;  // the same, read; not those of the virtual NPU
};

// Throws an Error that names `where` when the bytes are not an image of this kind for XDNA2 or its
// virtual counterpart.
ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where);

}  // namespace tyto
