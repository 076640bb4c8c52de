// Reads arbitrary bytes as what a kernel store holds: an image for the virtual NPU, or the store's
// own record of its images. Anything but an Error that leaves it is a finding.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/machine.h"

namespace tyto {
namespace {

constexpr size_t kSizeAt = 12, kHashAt = 20;  // device/npu/formats/transaction.h

// With the size and the hash that a forger would write: no input found by chance has them.
std::vector<std::byte> sealed(std::span<const std::byte> bytes) {
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  if (file.size() < kVirtualHashedFrom) return file;
  const uint64_t size = file.size();
  const Hash128 hash = hash_bytes(std::span(file).subspan(kVirtualHashedFrom));
  std::memcpy(&file[kSizeAt], &size, sizeof(size));
  std::memcpy(&file[kHashAt], &hash.high, sizeof(hash.high));
  std::memcpy(&file[kHashAt + sizeof(hash.high)], &hash.low, sizeof(hash.low));
  return file;
}

void read_image(std::span<const std::byte> bytes) {
  const vxrt::Image image = vxrt::parse_image(bytes, "input.elf");
  vxrt::serialise(image);
  const vxrt::LoadedImage loaded(image);
}

// A folder, as a store is one.
struct Store {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tyto-fuzz-" + std::to_string(::getpid()));
  Store() { std::filesystem::create_directories(folder); }
  ~Store() { std::filesystem::remove_all(folder); }
};

void read_record(std::span<const std::byte> bytes) {
  static const Store store;
  std::ofstream(manifest_path(store.folder), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  for (const KernelEntry& entry : read_manifest(store.folder).entries) program_of(entry);
}

void run(std::span<const std::byte> bytes) {
  try {
    if (!bytes.empty() && bytes.front() == std::byte{'{'})
      read_record(bytes);
    else
      read_image(sealed(bytes));
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
