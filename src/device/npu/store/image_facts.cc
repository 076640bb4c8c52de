#include "device/npu/store/image_facts.h"

#include <cstring>

#include "base/error.h"
#include "device/npu/formats/virtual_image.h"

namespace tyto {
namespace {

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
constexpr char kXclbinMagic[] = {'x', 'c', 'l', 'b', 'i', 'n', '2', '\0'};
constexpr size_t kElfHeaderBytes = 52;

bool starts_with(std::span<const std::byte> bytes, std::span<const char> magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

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

ImageFacts inspect_elf(std::span<const std::byte> bytes, const std::string& where) {
  constexpr size_t kData = 5, kOsAbi = 7;
  if (starts_with(bytes, kXclbinMagic))
    throw Error(ErrorCode::input, where, "an xclbin where an ELF is expected",
                "MLIR-AIR builds ELFs for XDNA2 alone: set AIR_TARGET_DEVICE=npu2 and build again");
  if (!starts_with(bytes, kElfMagic)) fail_input(where, "not an ELF file");
  if (bytes.size() < kElfHeaderBytes)
    fail_input(where, "truncated: {} bytes cannot hold an ELF header", bytes.size());
  if (std::to_integer<unsigned>(bytes[kData]) != 1) fail_input(where, "not a little-endian ELF");
  const auto os_abi = std::to_integer<uint8_t>(bytes[kOsAbi]);
  if (os_abi != kOsAbiAie2p)
    fail_input(where, "built for another platform: OS/ABI {} ({}), XDNA2 is {} (AIE2P)", os_abi,
               platform_name(os_abi), kOsAbiAie2p);
  ImageFacts facts;
  facts.platform = "aie2p";
  facts.elf = read_elf(bytes, where);
  return facts;
}

// Older releases of mlir-aie wrote the words as text.
bool is_hexadecimal_text(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find_first_not_of("0123456789abcdefABCDEFx\r\n ") == std::string_view::npos;
}

ImageFacts inspect_words(std::span<const std::byte> bytes, const std::string& where) {
  if (is_hexadecimal_text(bytes))
    throw Error(ErrorCode::input, where, "instruction words as text",
                "build again with a newer mlir-aie, which writes them as they are");
  if (bytes.size() % 4 != 0)
    fail_input(where, "{} bytes are not whole 32-bit instruction words", bytes.size());
  ImageFacts facts;
  facts.words.resize(bytes.size() / 4);
  std::memcpy(facts.words.data(), bytes.data(), bytes.size());
  if (facts.words.front() == kVirtualInstructions) {
    facts.platform = kVirtualPlatform;
    return facts;
  }
  facts.instructions = read_transaction(facts.words, where);
  facts.platform = "not checked: instruction words carry no platform";
  return facts;
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

ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where) {
  if (bytes.empty()) fail_input(where, "the file is empty");
  ImageFacts facts;
  if (kind == ImageKind::insts) return inspect_words(bytes, where);
  if (is_virtual_image(bytes)) {
    facts.platform = kVirtualPlatform;
    facts.dims = read_virtual_header(bytes, where).dims;
    return facts;
  }
  if (kind == ImageKind::elf) return inspect_elf(bytes, where);
  if (!starts_with(bytes, kXclbinMagic)) fail_input(where, "not an xclbin");
  facts.platform = "not checked: an xclbin's platform is only known to XRT";
  return facts;
}

}  // namespace tyto
