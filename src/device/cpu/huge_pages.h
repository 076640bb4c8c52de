// Memory for what is streamed once per token: with small pages the walks through the page tables
// cost a tenth of the bandwidth and more.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tyto::cpu {

constexpr size_t kHugePage = size_t{2} << 20;

// Zeroed, in huge pages where the system gives them. Throws when it cannot be reserved.
std::shared_ptr<void> zeroed_huge_pages(size_t bytes);

// Of a file's mapping, before it is touched: what has to be read comes in huge pages, where the
// file system can (ext4 since Linux 6.16, xfs and btrfs earlier).
void ask_for_huge_pages(std::span<const std::byte> mapped);
// Whether nearly all of a mapping that was touched is mapped in huge pages.
bool is_in_huge_pages(std::span<const std::byte> mapped);

}  // namespace tyto::cpu
