// Content hashes for programs, images, weights and caches: XXH3, 128 bits. Detects change, not
// attack.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

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
  Hash128 hash() const;  // of what was added so far

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

}  // namespace tyto
