// The container of a design that is driven by instruction words: what it says of its kernels, of
// the memory their arguments lie in, and of the columns it takes. After XRT's xclbin.h, and
// compared with 176 public images of mlir-aie and FastFlowLM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

constexpr std::string_view kXclbinMagic{"xclbin2\0", 8};

struct XclbinKernel {
  std::string name;                     // what XRT is asked for
  std::map<uint32_t, uint32_t> memory;  // by argument: the bank that it is connected to
};

struct XclbinImage {
  std::vector<XclbinKernel> kernels;
  std::vector<std::string> banks;  // "HOST", "SRAM"
  uint32_t columns = 0;            // the partition's
  uint64_t design_bytes = 0;       // PDIs: what a context loads into the device's heap

  const XclbinKernel* find(std::string_view name) const;
};

// Throws an Error that names `where` unless the bytes are such a container from end to end.
XclbinImage read_xclbin(std::span<const std::byte> bytes, const std::string& where);

}  // namespace tyto
