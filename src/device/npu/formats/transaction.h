// The instruction streams that drive an xclbin: a header and operations that write registers of the
// array, wait, and patch the addresses of buffers into DMA descriptors. Read for what they touch of
// their arguments; XRT looks at none of it. The format is that of mlir-aie's TxnEncoding.h, version
// 0.1; no compiled stream was at hand when this was written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "device/npu/formats/air_models.h"

namespace tyto {

// A descriptor of a shim tile's DMA: up to three dimensions of 32-bit words and an iteration.
constexpr size_t kDescriptorWords = 8;
using DmaDescriptor = std::array<uint32_t, kDescriptorWords>;

// Bytes from the descriptor's address to the end of the furthest word it moves.
uint64_t descriptor_reach(const DmaDescriptor& descriptor);

// An address that is patched in before a run.
struct AddressPatch {
  uint32_t argument = 0;  // which data buffer, counted from 0
  uint64_t offset = 0;    // bytes from the buffer's beginning
  // Nothing when the descriptor is not written as a whole before the patch.
  std::optional<DmaDescriptor> descriptor;
};

// Firmware translates the addresses of the first five buffers of such a run. mlir-aie adds the
// array's view of memory to the offsets into the others itself, since its PR #3252 of July 2026.
constexpr uint32_t kTranslatedArguments = 5;
constexpr uint64_t kArrayOffset = 0x8000'0000;

// What the code does with the words of its scratchpad, which the firmware reads from a buffer of
// the host's: adds them to registers.
struct ScratchpadUse {
  struct Update {
    uint32_t place = 0;          // which word
    bool is_address = false;     // that of a shim tile's descriptor; otherwise a core's memory
    uint32_t element_bytes = 0;  // what an address is multiplied by
    bool is_cleared = false;     // the register was written with 0 just before
  };
  uint32_t bytes = 0;  // 0: the code has none
  std::vector<Update> updates;
};
// The array's generation and columns, as the header of a stream has them.
constexpr uint32_t kGenerationXdna1 = 3, kGenerationXdna2 = 4;
constexpr uint32_t kArrayColumns = 8;

struct Transaction {
  uint32_t generation = 0, columns = 0;
  // In the order of the stream, without kArrayOffset.
  std::vector<AddressPatch> patches;
  // Data buffers that firmware does not translate, whose offsets are without kArrayOffset: the
  // device would read elsewhere.
  std::vector<uint32_t> untranslated;
  ScratchpadUse scratchpad;
  std::string not_read;  // why its operations could not be followed; empty: they were
};

// Throws an Error that names `where` unless the words have a header that gives their own size and
// operations that end where they do.
Transaction read_transaction(std::span<const uint32_t> words, const std::string& where);

// The dimensions of images by name: one list for what writes, reads or compares them.

struct DimField {
  const char* name;
  uint32_t AirDims::* member;
  bool is_optional = false;  // manifests of before it are without it
};
constexpr DimField kDimFields[] = {
    {"layers", &AirDims::layers},
    {"emb", &AirDims::emb},
    {"heads", &AirDims::heads},
    {"kv_heads", &AirDims::kv_heads},
    {"head_dim", &AirDims::head_dim},
    {"hidden", &AirDims::hidden},
    {"vocab", &AirDims::vocab},
    {"seq", &AirDims::seq},
    {"qkv_bias", &AirDims::qkv_bias, true},
    {"qk_norm", &AirDims::qk_norm, true},
    {"like", &AirDims::like, true},
};

// "layers 2 and not 16, emb 256 and not 2048": what differs, with both numbers; empty: nothing.
std::string dims_difference(const AirDims& has, const AirDims& wanted);

// The first bytes of the virtual NPU's images, little-endian: what the kernel store must know of
// them. The rest is the virtual NPU's own (device/vnpu/images).
//   "TYTOVNPU" | u32 version | u64 bytes of the whole file | u128 hash of all that follows
//   | the dimensions, a u32 for each of kDimFields

constexpr std::string_view kVirtualMagic = "TYTOVNPU";
constexpr uint32_t kVirtualVersion = 8;
constexpr uint32_t kVirtualInstructions = 0x4e505654;  // "TVPN", the first word of its streams
constexpr size_t kVirtualHashedFrom = 8 + 4 + 8 + 16;
constexpr size_t kVirtualHeaderBytes = kVirtualHashedFrom + std::size(kDimFields) * 4;

struct VirtualHeader {
  uint64_t bytes = 0;  // in the whole file
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
