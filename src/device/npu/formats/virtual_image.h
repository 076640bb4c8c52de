// The first bytes of the virtual NPU's images, little-endian: what the kernel store must know of
// them. The rest is the virtual NPU's own (device/vnpu/images).
//   "TYTOVNPU" | u32 version | u64 bytes of the whole file | u128 hash of all that follows
//   | the dimensions, a u32 for each of kDimFields
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "device/npu/formats/dim_fields.h"

namespace tyto {

constexpr std::string_view kVirtualMagic = "TYTOVNPU";
constexpr uint32_t kVirtualVersion = 6;
constexpr uint32_t kVirtualInstructions = 0x4e505654;  // "TVPN", the first word of its streams
constexpr size_t kVirtualHashedFrom = 8 + 4 + 8 + 16;
constexpr size_t kVirtualHeaderBytes = kVirtualHashedFrom + std::size(kDimFields) * 4;

struct VirtualHeader {
  uint64_t bytes = 0;  // of the whole file
  Hash128 hash = {};
  AirDims dims;  // all 0: an image of no model in particular
};

bool is_virtual_image(std::span<const std::byte> bytes);

// The file of an image whose other bytes are these.
std::vector<std::byte> virtual_file(const AirDims& dims, std::span<const std::byte> rest);

// Throws an input Error that starts with `where` when `bytes`, which may be the beginning of a
// file, has no header of this version. Neither size nor hash is compared with the file's.
VirtualHeader read_virtual_header(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tyto
