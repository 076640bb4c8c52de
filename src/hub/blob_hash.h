// Whether a file is what the hub says it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tyto {

// The hash of a whole file as the hub gives it, in hexadecimal: SHA-256 where `digits` is 64, and
// where it is 40 git's: SHA-1 of "blob SIZE", a zero byte and the content.
std::string blob_hash(const std::filesystem::path& path, size_t digits,
                      const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace tyto
