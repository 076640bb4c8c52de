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
#include <vector>

namespace tyto {

// A descriptor of a shim tile's DMA: up to three dimensions of 32-bit words and an iteration.
constexpr size_t kDescriptorWords = 8;
using DmaDescriptor = std::array<uint32_t, kDescriptorWords>;

// Bytes from the descriptor's address to the end of the furthest word it moves.
uint64_t descriptor_reach(const DmaDescriptor& descriptor);

// An address that is patched in before a run.
struct AddressPatch {
  uint32_t argument = 0;  // of the data buffers, counted from 0
  uint64_t offset = 0;    // bytes from the buffer's beginning
  // Nothing when the descriptor is not written as a whole before the patch.
  std::optional<DmaDescriptor> descriptor;
};

struct Transaction {
  std::vector<AddressPatch> patches;  // in the order of the stream
  std::string not_read;               // why its operations could not be followed; empty: they were
};

// Throws an Error that names `where` unless the words have a header that gives their own size and
// operations that end where they do.
Transaction read_transaction(std::span<const uint32_t> words, const std::string& where);

}  // namespace tyto
