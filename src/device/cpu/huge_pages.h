// Memory for what is streamed once per token: with small pages the walks through the page tables
// cost a tenth of the bandwidth and more.
#pragma once

#include <cstddef>
#include <memory>

namespace tyto::cpu {

// Zeroed, in huge pages where the system gives them. Throws when it cannot be reserved.
std::shared_ptr<void> zeroed_huge_pages(size_t bytes);

}  // namespace tyto::cpu
