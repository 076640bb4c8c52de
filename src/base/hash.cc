#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace tyto {

Hash128 hash_bytes(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace tyto
