#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace tyto {
namespace {

Hash128 value_of(const XXH128_hash_t& hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

Hash128 hash_bytes(std::span<const std::byte> bytes) {
  return value_of(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Hasher::Hasher()
    : state_(XXH3_createState(), [](XXH3_state_t* state) { (void)XXH3_freeState(state); }) {
  if (!state_) throw std::bad_alloc();
  (void)XXH3_128bits_reset(state_.get());
}

void Hasher::add(std::span<const std::byte> bytes) {
  (void)XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Hash128 Hasher::hash() const {
  return value_of(XXH3_128bits_digest(state_.get()));
}

}  // namespace tyto
