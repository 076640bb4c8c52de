// What a clone without git-lfs has in place of a large file: a short text that names its hash.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tyto {

// An input Error with the next step, where a file that begins with `bytes` is such a text.
void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file);

}  // namespace tyto
