// Reads arbitrary bytes as an ELF of control code, as an xclbin or as instruction words, and holds
// them against an argument list. Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/store/image_facts.h"

namespace tyto {
namespace {

const NamedDims kShape = {"llama-3.2-1b", kLlama32_1b};

// With the size that the header of a stream must give: no input found by chance has it.
std::vector<std::byte> sized(std::span<const std::byte> bytes) {
  std::vector<std::byte> stream(bytes.begin(), bytes.end());
  const auto size = static_cast<uint32_t>(stream.size());
  if (stream.size() >= 16) std::memcpy(&stream[12], &size, sizeof(size));
  return stream;
}

// With the length that the header of an xclbin must give.
std::vector<std::byte> with_length(std::span<const std::byte> bytes) {
  constexpr size_t kLengthAt = 304;
  std::vector<std::byte> image(bytes.begin(), bytes.end());
  const uint64_t size = image.size();
  if (image.size() >= kLengthAt + sizeof(size)) std::memcpy(&image[kLengthAt], &size, sizeof(size));
  return image;
}

void run(std::span<const std::byte> bytes) {
  const bool is_elf = !bytes.empty() && bytes.front() == std::byte{0x7f};
  const bool is_xclbin = !bytes.empty() && bytes.front() == std::byte{'x'};
  try {
    if (is_elf)
      check_fit(inspect_image(bytes, ImageKind::elf, "input.elf"),
                air_program("o_ffn", kShape.dims), kShape, "input.elf");
    else if (is_xclbin)
      check_fit(inspect_image(with_length(bytes), ImageKind::xclbin, "input.xclbin"),
                fused_decode_program(kShape.dims, 64), kShape, "input.xclbin");
    else
      check_fit(inspect_image(sized(bytes), ImageKind::insts, "input.insts.bin"),
                fused_decode_program(kShape.dims, 64), kShape, "input.insts.bin");
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run(std::as_bytes(std::span(data, size)));
  return 0;
}
