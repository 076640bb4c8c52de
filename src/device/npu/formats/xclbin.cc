#include "device/npu/formats/xclbin.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace tyto {
namespace {

// So that no file keeps the reader busy for long.
constexpr uint64_t kMostSections = 256, kMostKernels = 64, kMostConnections = 4096, kMostBanks = 64,
                   kMostPdis = 64;
constexpr uint32_t kMemoryTopology = 6, kConnectivity = 7, kKernels = 8, kPartition = 32;

class XclbinReader {
 public:
  XclbinReader(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  XclbinImage read() {
    constexpr size_t kLengthAt = 304, kCountAt = 448;
    const uint64_t length = number(bytes_, kLengthAt, 8, "the header");
    if (length != bytes_.size())
      fail_input(where_, "truncated: {} bytes, and its header says {}", bytes_.size(), length);
    sections_ = number(bytes_, kCountAt, 4, "the header");
    if (sections_ > kMostSections) fail_input(where_, "more than {} sections", kMostSections);
    read_kernels(need(kKernels, "kernels (IP_LAYOUT)"));
    read_partition(need(kPartition, "a partition of an NPU (AIE_PARTITION)"));
    if (const auto banks = section(kMemoryTopology)) read_banks(*banks);
    if (const auto connections = section(kConnectivity)) read_connections(*connections);
    return std::move(image_);
  }

 private:
  uint64_t number(std::span<const std::byte> from, uint64_t offset, size_t size,
                  const char* what) const {
    if (offset > from.size() || size > from.size() - offset)
      fail_input(where_, "truncated: {} lies beyond the end", what);
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;)
      value = value << 8 | std::to_integer<uint64_t>(from[offset + i]);
    return value;
  }

  // Up to the first zero.
  std::string text(std::span<const std::byte> from, uint64_t offset, size_t size,
                   const char* what) const {
    number(from, offset + size - 1, 1, what);
    std::string result(reinterpret_cast<const char*>(from.data()) + offset, size);
    return result.substr(0, result.find('\0'));
  }

  uint64_t count(std::span<const std::byte> from, uint64_t most, const char* what) const {
    const uint64_t result = number(from, 0, 4, what);
    if (result > most) fail_input(where_, "{} of {}, at most {}", what, result, most);
    return result;
  }

  std::optional<std::span<const std::byte>> section(uint32_t kind) const {
    constexpr uint64_t kTableAt = 456, kEntryBytes = 40, kOffsetAt = 24, kSizeAt = 32;
    for (uint64_t i = 0; i < sections_; ++i) {
      const uint64_t at = kTableAt + i * kEntryBytes;
      const uint64_t size = number(bytes_, at + kSizeAt, 8, "the section table");
      if (number(bytes_, at, 4, "the section table") != kind) continue;
      const uint64_t offset = number(bytes_, at + kOffsetAt, 8, "the section table");
      if (offset > bytes_.size() || size > bytes_.size() - offset)
        fail_input(where_, "truncated: section {} lies beyond the end", i);
      return bytes_.subspan(offset, size);
    }
    return std::nullopt;
  }

  std::span<const std::byte> need(uint32_t kind, const char* what) const {
    const auto found = section(kind);
    if (!found) fail_input(where_, "an xclbin without {}", what);
    return *found;
  }

  // "MLIR_AIE:MLIRAIE": the kernel, and its instance.
  void read_kernels(std::span<const std::byte> layout) {
    constexpr uint64_t kFirst = 8, kEntryBytes = 80, kNameAt = 16;
    const uint64_t kernels = count(layout, kMostKernels, "a list of kernels");
    for (uint64_t i = 0; i < kernels; ++i) {
      const std::string name =
          text(layout, kFirst + i * kEntryBytes + kNameAt, kEntryBytes - kNameAt, "a kernel");
      image_.kernels.push_back({name.substr(0, name.find(':')), {}});
    }
    if (image_.kernels.empty()) fail_input(where_, "an xclbin without kernels");
  }

  void read_partition(std::span<const std::byte> partition) {
    constexpr uint64_t kColumnsAt = 32, kPdisAt = 120, kPdiBytes = 96, kImageAt = 16;
    image_.columns = static_cast<uint32_t>(number(partition, kColumnsAt, 2, "a partition"));
    const uint64_t pdis = number(partition, kPdisAt, 4, "a partition");
    const uint64_t first = number(partition, kPdisAt + 4, 4, "a partition");
    if (pdis > kMostPdis)
      fail_input(where_, "a partition with {} PDIs, at most {}", pdis, kMostPdis);
    for (uint64_t i = 0; i < pdis; ++i) {
      const uint64_t at = first + i * kPdiBytes + kImageAt;
      const uint64_t size = number(partition, at, 4, "a PDI");
      const uint64_t offset = number(partition, at + 4, 4, "a PDI");
      if (offset > partition.size() || size > partition.size() - offset)
        fail_input(where_, "truncated: PDI {} lies beyond its section", i);
      image_.design_bytes += size;
    }
  }

  void read_banks(std::span<const std::byte> topology) {
    constexpr uint64_t kFirst = 8, kEntryBytes = 40, kTagAt = 24;
    const uint64_t banks = count(topology, kMostBanks, "a list of memory banks");
    for (uint64_t i = 0; i < banks; ++i)
      image_.banks.push_back(
          text(topology, kFirst + i * kEntryBytes + kTagAt, kEntryBytes - kTagAt, "a bank"));
  }

  void read_connections(std::span<const std::byte> list) {
    constexpr uint64_t kFirst = 4, kEntryBytes = 12;
    const uint64_t connections = count(list, kMostConnections, "a list of connections");
    for (uint64_t i = 0; i < connections; ++i) {
      const auto field = [&](uint64_t word) {
        return static_cast<uint32_t>(
            number(list, kFirst + i * kEntryBytes + word * 4, 4, "a connection"));
      };
      const uint32_t argument = field(0), kernel = field(1), bank = field(2);
      if (kernel >= image_.kernels.size())
        fail_input(where_, "connects kernel {} of {}", kernel, image_.kernels.size());
      image_.kernels[kernel].memory[argument] = bank;
    }
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t sections_ = 0;
  XclbinImage image_;
};

}  // namespace

const XclbinKernel* XclbinImage::find(std::string_view name) const {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const XclbinKernel& kernel) { return kernel.name == name; });
  return found == kernels.end() ? nullptr : &*found;
}

XclbinImage read_xclbin(std::span<const std::byte> bytes, const std::string& where) {
  return XclbinReader(bytes, where).read();
}

}  // namespace tyto
