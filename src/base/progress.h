// How long work reports itself. The library only calls it; cli/ draws the bar.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace tyto {

// Called with (what, done, total), done rising to total: first with 0, before the work begins, so
// that no line stays empty. A total of 0 is not known. May be empty.
using Progress = std::function<void(std::string_view what, uint64_t done, uint64_t total)>;

}  // namespace tyto
