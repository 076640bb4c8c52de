#include "device/cpu/huge_pages.h"

#include <sys/mman.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/round_up.h"

namespace tyto::cpu {
namespace {

// The number of kilobytes in a line like "FilePmdMapped:    2048 kB" of the text.
uint64_t kilobytes_of(std::string_view text, std::string_view field) {
  const size_t at = text.find(field);
  if (at == std::string_view::npos) return 0;
  const size_t digit = text.find_first_of("0123456789", at + field.size());
  uint64_t value = 0;
  if (digit != std::string_view::npos)
    std::from_chars(text.data() + digit, text.data() + text.size(), value);
  return value;
}

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

void ask_for_huge_pages(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  // Refused where the system has none for files.
  (void)::madvise(const_cast<std::byte*>(mapped.data()), mapped.size(), MADV_HUGEPAGE);
}

bool is_in_huge_pages(std::span<const std::byte> mapped) {
  constexpr size_t kMostText = 64 << 20;
  const std::string text = read_system_text("/proc/self/smaps", kMostText).text;
  uint64_t huge = 0;
  // The mapping may have become several, each of which begins with a line of its addresses.
  for (size_t at = 0; at < text.size();) {
    uintptr_t first = 0;
    std::from_chars(text.data() + at, text.data() + text.size(), first, 16);
    const size_t flags = text.find("\nVmFlags:", at);
    const size_t end = flags == std::string::npos ? text.size() : text.find('\n', flags + 1);
    const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
    if (first >= begin && first < begin + mapped.size())
      huge += kilobytes_of(std::string_view(text).substr(at, end - at), "\nFilePmdMapped:") << 10;
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return huge >= mapped.size() / 10 * 9;
}

}  // namespace tyto::cpu
