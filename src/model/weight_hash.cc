#include "model/weight_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/hash.h"

namespace tyto {
namespace {

constexpr size_t kHeaderBytes = 1 << 20;
constexpr size_t kPageBytes = 4096;
constexpr size_t kPages = 64;

void append(std::vector<std::byte>& digest, std::span<const std::byte> bytes) {
  const Hash128 hash = hash_bytes(bytes);
  const auto raw = std::as_bytes(std::span(&hash, 1));
  digest.insert(digest.end(), raw.begin(), raw.end());
}

void append_file(std::vector<std::byte>& digest, std::span<const std::byte> file) {
  const uint64_t size = file.size();
  append(digest, std::as_bytes(std::span(&size, 1)));
  append(digest, file.first(std::min(file.size(), kHeaderBytes)));
  if (file.size() <= kPageBytes) return;
  const size_t last = file.size() - kPageBytes;  // the last page is always among them
  for (size_t i = 0; i < kPages; ++i)
    append(digest, file.subspan(last * i / (kPages - 1), kPageBytes));
}

}  // namespace

WeightHash weight_hash(const Model& model) {
  std::vector<std::byte> digest;
  for (const MappedFile& file : model.files) append_file(digest, file.bytes());
  return {
      to_hex(hash_bytes(digest)),
      fmt::format("XXH3-128 over, for each of {} files, its size, first {} bytes and {} pages of "
                  "{} bytes at even distances to the end; not of every byte",
                  model.files.size(), kHeaderBytes, kPages, kPageBytes)};
}

}  // namespace tyto
