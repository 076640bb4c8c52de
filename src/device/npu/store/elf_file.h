// What can be told about a kernel image from its first bytes, without XRT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tyto {

enum class ImageKind : uint8_t { elf, xclbin, insts };
std::string_view to_string(ImageKind kind);
std::string_view extension(ImageKind kind);  // ".elf", ".xclbin", ".insts.bin"

struct ElfHeader {
  unsigned bits = 0;  // 32 or 64
  uint8_t os_abi = 0;
  uint16_t machine = 0;
  uint64_t sections_offset = 0;
  uint32_t section_count = 0;
};

// XRT takes the platform from the OS/ABI byte of the identification, not from the machine field.
constexpr uint8_t kOsAbiAie2p = 69;

// What the virtual NPU's images begin with (device/vnpu/images/image.h), and the platform they are
// for.
constexpr std::string_view kVirtualMagic = "TYTOVNPU";
constexpr std::string_view kVirtualPlatform = "vnpu";

// Little-endian ELF whose header and section table lie inside the file; otherwise an Error.
ElfHeader read_elf_header(std::span<const std::byte> bytes, const std::string& where);

struct ImageFacts {
  std::string platform;  // "aie2p", or "not checked: reason"
  uint64_t words = 0;    // of an instruction file
};

// Throws an Error that names `where` when the bytes are not an image of this kind for XDNA2.
ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where);

}  // namespace tyto
