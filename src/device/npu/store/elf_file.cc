#include "device/npu/store/elf_file.h"

#include <cstring>

#include "base/error.h"

namespace tyto {
namespace {

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
constexpr char kXclbinMagic[] = {'x', 'c', 'l', 'b', 'i', 'n', '2', '\0'};

bool starts_with(std::span<const std::byte> bytes, std::span<const char> magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// An unsigned number of `size` bytes, least significant first. The caller has checked the bounds.
uint64_t number(std::span<const std::byte> bytes, size_t offset, size_t size) {
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[offset + i]);
  return value;
}

// Where a class of ELF keeps the fields that are looked at.
struct FieldPlaces {
  size_t header_bytes, section_offset, offset_bytes, section_entry_bytes, section_count;
};
constexpr FieldPlaces kElf32 = {52, 32, 4, 46, 48};
constexpr FieldPlaces kElf64 = {64, 40, 8, 58, 60};

constexpr size_t kClass = 4, kData = 5, kOsAbi = 7, kMachine = 18;

std::string_view platform_name(uint8_t os_abi) {
  switch (os_abi) {
    case 64:
    case 70:
      return "AIE2PS";
    case 75:
    case 86:
    case 105:
      return "AIE4";
    default:
      return "none that XRT knows";
  }
}

}  // namespace

std::string_view to_string(ImageKind kind) {
  constexpr std::string_view kNames[] = {"elf", "xclbin", "insts"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view extension(ImageKind kind) {
  constexpr std::string_view kExtensions[] = {".elf", ".xclbin", ".insts.bin"};
  return kExtensions[static_cast<size_t>(kind)];
}

ElfHeader read_elf_header(std::span<const std::byte> bytes, const std::string& where) {
  if (!starts_with(bytes, kElfMagic)) fail_input(where, "not an ELF file");
  if (bytes.size() < kElf32.header_bytes)
    fail_input(where, "truncated: {} bytes cannot hold an ELF header", bytes.size());
  const auto file_class = std::to_integer<unsigned>(bytes[kClass]);
  if (file_class != 1 && file_class != 2) fail_input(where, "ELF class {}", file_class);
  if (std::to_integer<unsigned>(bytes[kData]) != 1) fail_input(where, "not a little-endian ELF");
  const FieldPlaces& places = file_class == 1 ? kElf32 : kElf64;
  if (bytes.size() < places.header_bytes)
    fail_input(where, "truncated: {} bytes cannot hold an ELF header", bytes.size());

  ElfHeader header;
  header.bits = file_class == 1 ? 32 : 64;
  header.os_abi = std::to_integer<uint8_t>(bytes[kOsAbi]);
  header.machine = static_cast<uint16_t>(number(bytes, kMachine, 2));
  header.sections_offset = number(bytes, places.section_offset, places.offset_bytes);
  header.section_count = static_cast<uint32_t>(number(bytes, places.section_count, 2));
  // The section table is what linkers write last, so a cut file usually lacks it.
  const uint64_t table = number(bytes, places.section_entry_bytes, 2) * header.section_count;
  if (header.sections_offset > bytes.size() || table > bytes.size() - header.sections_offset)
    fail_input(where, "truncated: {} sections at byte {} do not fit in {} bytes",
               header.section_count, header.sections_offset, bytes.size());
  return header;
}

ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where) {
  if (bytes.empty()) fail_input(where, "the file is empty");
  if (kind != ImageKind::insts && starts_with(bytes, kVirtualMagic))
    return {std::string(kVirtualPlatform), 0};
  switch (kind) {
    case ImageKind::elf: {
      if (starts_with(bytes, kXclbinMagic)) fail_input(where, "an xclbin where an ELF is expected");
      const ElfHeader header = read_elf_header(bytes, where);
      if (header.section_count == 0) fail_input(where, "an ELF without sections");
      if (header.os_abi != kOsAbiAie2p)
        fail_input(where, "built for another platform: OS/ABI {} ({}), XDNA2 is {} (AIE2P)",
                   header.os_abi, platform_name(header.os_abi), kOsAbiAie2p);
      return {"aie2p", 0};
    }
    case ImageKind::xclbin:
      if (!starts_with(bytes, kXclbinMagic)) fail_input(where, "not an xclbin");
      return {"not checked: an xclbin's platform is only known to XRT", 0};
    case ImageKind::insts:
      if (bytes.size() % 4 != 0)
        fail_input(where, "{} bytes are not whole 32-bit instruction words", bytes.size());
      return {"not checked: instruction words carry no platform", bytes.size() / 4};
  }
  return {};
}

}  // namespace tyto
