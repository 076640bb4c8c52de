#include "device/npu/formats/virtual_image.h"

#include <cstring>

#include "base/error.h"

namespace tyto {
namespace {

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename T>
T take(std::span<const std::byte>& from) {
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return value;
}

}  // namespace

bool is_virtual_image(std::span<const std::byte> bytes) {
  return bytes.size() >= kVirtualMagic.size() &&
         std::memcmp(bytes.data(), kVirtualMagic.data(), kVirtualMagic.size()) == 0;
}

std::vector<std::byte> virtual_file(const AirDims& dims, std::span<const std::byte> rest) {
  std::vector<std::byte> body;
  for (const DimField& field : kDimFields) put(body, dims.*field.member);
  body.insert(body.end(), rest.begin(), rest.end());
  const Hash128 hash = hash_bytes(body);
  std::vector<std::byte> file;
  for (const char letter : kVirtualMagic) put(file, letter);
  put(file, kVirtualVersion);
  put(file, uint64_t{kVirtualHashedFrom + body.size()});
  put(file, hash.high);
  put(file, hash.low);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

VirtualHeader read_virtual_header(std::span<const std::byte> bytes, const std::string& where) {
  if (!is_virtual_image(bytes)) fail_input(where, "is not an image for the virtual NPU");
  std::span<const std::byte> rest = bytes.subspan(kVirtualMagic.size());
  if (rest.size() < sizeof(uint32_t)) fail_input(where, "ends inside version");
  const auto version = take<uint32_t>(rest);
  if (version != kVirtualVersion)
    throw Error(ErrorCode::input, where,
                fmt::format("image version {}, this program reads {}", version, kVirtualVersion),
                "make it again with `tyto compile`");
  if (bytes.size() < kVirtualHeaderBytes) fail_input(where, "ends inside the header");
  VirtualHeader header;
  header.bytes = take<uint64_t>(rest);
  header.hash.high = take<uint64_t>(rest);
  header.hash.low = take<uint64_t>(rest);
  for (const DimField& field : kDimFields) header.dims.*field.member = take<uint32_t>(rest);
  return header;
}

}  // namespace tyto
