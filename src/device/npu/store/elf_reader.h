// An ELF of control code as XRT reads it: kernels with their signatures and instances, what a run
// of each takes of the device heap, and which bytes of its arguments its DMAs touch.
//
// After XRT's own reader (xrt_elf.cpp, for AIE2P ELFs with groups) and not after a compiled file:
// none was at hand when this was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/transaction.h"

namespace tyto {

// The driver gives out the heap in pieces of this size (dev_mem_buf_shift of npu4 to npu6).
constexpr uint64_t kHeapPiece = 32 * 1024;

// One piece of control code: "main:<name>".
struct ElfInstance {
  std::string name;
  uint64_t run_bytes = 0;  // control code, its packets and its PDIs, in pieces of the heap
  std::vector<AddressPatch> patches;  // those of the control code; addresses of arguments alone
};

struct ElfKernel {
  std::string name;
  uint32_t arguments = 0;
  std::vector<ElfInstance> instances;
};

struct ElfImage {
  uint8_t os_abi = 0;
  uint32_t columns = 0;  // of the partition that it is compiled for
  std::vector<ElfKernel> kernels;

  // `entry` is what XRT is asked for: "main:o_ffn". Null: it has none.
  const ElfKernel* kernel_of(std::string_view entry) const;
  const ElfInstance* instance_of(std::string_view entry) const;
  std::vector<std::string> entries() const;
};

// Throws an Error that names `where` unless the bytes are such an ELF from end to end. The platform
// is left to the caller.
ElfImage read_elf(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tyto
