// Content hashes for programs, images, weights and caches: XXH3, 128 bits. Detects change, not
// attack.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tyto {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash_bytes(std::span<const std::byte> bytes);
std::string to_hex(const Hash128& hash);  // 32 lower-case digits

}  // namespace tyto
