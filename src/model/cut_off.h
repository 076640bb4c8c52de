// Files that end before what they announce, as after a download that was not finished.
#pragma once

#include <cstdint>
#include <string>

namespace tyto {

// An input Error with the next step. `least` is what the file would have to have as far as it can
// be read, in bytes; more than any disk holds is damage of another kind, and is called so.
[[noreturn]] void fail_cut_off(const std::string& file, uint64_t has, uint64_t least);

}  // namespace tyto
