// Keys and values from the form that one device keeps them in to another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "llama/kv_store.h"

namespace tyto {

// Converts `positions` of a page from the form of KvStore::read on one side to that of
// KvStore::write on the other.
// What has the same form already is copied as it is.
void convert_kv(const KvShape& from, const KvShape& to, const Config& config, uint32_t positions,
                std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace tyto
