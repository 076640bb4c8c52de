#include "device/cpu/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/error.h"
#include "base/round_up.h"

namespace tyto::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

std::shared_ptr<void> zeroed_huge_pages(size_t bytes) {
  const size_t size = round_up(bytes, kHugePage);
  // A page more than asked for, so that a huge page's boundary lies inside.
  void* memory = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "cpu", fmt::format("cannot reserve {} bytes", size),
                "`--isa generic` runs the weights as the file has them");
  const std::shared_ptr<void> owner(memory, [size](void* p) { ::munmap(p, size + kHugePage); });
  void* aligned = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(memory), kHugePage));
  // Refused where the system has no huge pages: then small ones do.
  if (bytes >= kHugePage) (void)::madvise(aligned, size, MADV_HUGEPAGE);
  return {owner, aligned};
}

}  // namespace tyto::cpu
