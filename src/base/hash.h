// Content hashes for programs, images, weights and caches: XXH3, 128 bits. Detects change, not
// attack.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"

struct XXH3_state_s;

namespace tyto {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash_bytes(std::span<const std::byte> bytes);
std::string to_hex(const Hash128& hash);  // 32 lower-case digits

// The same hash, of bytes that come one after another.
class Hasher {
 public:
  Hasher();
  void add(std::span<const std::byte> bytes);
  Hash128 hash() const;  // what was added so far

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

// The hash of a whole file, made once and kept.

struct FileHash {
  std::string hash;      // XXH3-128 of every byte, 32 hexadecimal digits
  bool is_kept = false;  // read from the file of kept hashes, and not from the file itself
};

// Hashes the mapped file, read through its own descriptor. `kept` holds one JSON line per file:
// device, inode, size, times of the last change to content and inode, in nanoseconds, and the hash.
// A line counts while all of them are as they were. It is no line's worth when the times are so
// recent that another change could bear the same ones. Lines that are damaged are passed over, and
// where nothing can be kept nothing is; an empty path keeps nothing. An Error when the content has
// changed since the file was mapped: then it is not known what ran.
FileHash hash_of_file(const MappedFile& file, const std::filesystem::path& kept,
                      const std::function<void(uint64_t bytes)>& on_bytes = {});

}  // namespace tyto
