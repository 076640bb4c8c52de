// Control code that goes with an xclbin. The virtual device has none: its ELFs are full ones, which
// XRT refuses as modules when a kernel is made.
#pragma once

#include <xrt/experimental/xrt_elf.h>

namespace xrt {
inline namespace vnpu {

class module {
 public:
  module() = default;
  explicit module(const elf& elf) : elf_(elf) {}
  const elf& get_elf() const { return elf_; }

 private:
  elf elf_;
};

}  // namespace vnpu
}  // namespace xrt
