// The hash of a whole file, made once and kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file.h"

namespace tyto {

struct FileHash {
  std::string hash;      // XXH3-128 of every byte, 32 hexadecimal digits
  bool is_kept = false;  // read from the file of kept hashes, and not from the file itself
};

// Of the file that is mapped, read through its own descriptor. `kept` holds one JSON line per file:
// device, inode, size, times of the last change to content and inode, in nanoseconds, and the hash.
// A line counts while all of them are as they were. It is no line's worth when the times are so
// recent that another change could bear the same ones. Lines that are damaged are passed over, and
// where nothing can be kept nothing is; an empty path keeps nothing. An Error when the content has
// changed since the file was mapped: then nobody knows what ran.
FileHash hash_of_file(const MappedFile& file, const std::filesystem::path& kept,
                      const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace tyto
