#include "device/vxrt/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

std::string refusal(std::span<const std::byte> bytes) {
  try {
    parse_image(bytes, "here");
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(VxrtImage, RoundTripKeepsEveryField) {
  Image image = block_image("o_ffn");
  image.columns = 4;
  image.form = ImageForm::xclbin;
  image.needs = {{1024, 2048}, {65536, 100}, {1, 2}};
  image.program.launches[0].shape = {1, 2, 3, 4, true, 0.5f};
  const std::vector<std::byte> bytes = serialise(image);
  const Image back = parse_image(bytes, "here");
  EXPECT_EQ(back.instance, "o_ffn");
  EXPECT_EQ(back.columns, 4u);
  EXPECT_EQ(back.form, ImageForm::xclbin);
  EXPECT_EQ(back.platform, kPlatformAie2p);
  EXPECT_EQ(back.arguments, image.arguments);
  EXPECT_EQ(back.needs, image.needs);
  EXPECT_EQ(program_hash(back.program), program_hash(image.program));
  EXPECT_EQ(back.program.slots[4].name, "delta");
  EXPECT_EQ(back.program.launches[1].step, "mm");
  EXPECT_EQ(back.file_bytes, bytes.size());
  EXPECT_EQ(serialise(back), bytes);
}

TEST(VxrtImage, ThroughAFileAndTheElfInterface) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("tyto_vxrt_image_" + std::to_string(::getpid()) + ".elf");
  write_image(path, block_image("o_ffn"));
  const xrt::elf elf(path.string());
  EXPECT_TRUE(elf.is_full_elf());
  EXPECT_EQ(elf.get_platform(), xrt::elf::platform::aie2p);
  EXPECT_EQ(elf.get_partition_size(), 8u);
  const auto kernels = elf.get_kernels();
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].get_name(), "main");
  EXPECT_EQ(kernels[0].get_num_args(), 5u + 3);
  EXPECT_EQ(kernels[0].get_arg_data_type(4), xrt::elf::kernel::data_type::global);
  EXPECT_EQ(kernels[0].get_arg_data_type(5), xrt::elf::kernel::data_type::scalar);
  EXPECT_EQ(kernels[0].get_instances()[0].get_name(), "o_ffn");

  std::ifstream stream(path, std::ios::binary);
  EXPECT_EQ(xrt::elf(stream).get_cfg_uuid(), elf.get_cfg_uuid());
  EXPECT_NE(load_elf(block_image("other")).get_cfg_uuid(), elf.get_cfg_uuid());
  EXPECT_EQ(elf.get_cfg_uuid().to_string().size(), 36u);
  std::filesystem::remove(path);
  EXPECT_THROW(xrt::elf(path.string()), Error);
}

TEST(VxrtImage, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = serialise(block_image());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(refusal(std::span(bytes).first(length)), "") << length;
}

TEST(VxrtImage, EveryFlippedByteIsRefused) {
  std::vector<std::byte> bytes = serialise(block_image());
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x41};
    EXPECT_NE(refusal(bytes), "");
    byte ^= std::byte{0x41};
  }
  EXPECT_EQ(refusal(bytes), "");
}

// With the hash made right again, so that the checks behind it are met: no crash, whatever comes
// out.
TEST(VxrtImage, RehashedDamageIsRefusedOrHarmless) {
  const std::vector<std::byte> original = serialise(block_image());
  size_t refused = 0, tried = 0;
  for (size_t i = 36; i < original.size(); ++i)
    for (int value : {0x00, 0x01, 0x7f, 0xff}) {
      std::vector<std::byte> bytes = original;
      bytes[i] = static_cast<std::byte>(value);
      const Hash128 hash = hash_bytes(std::span(bytes).subspan(36));
      std::memcpy(bytes.data() + 20, &hash.high, 8);
      std::memcpy(bytes.data() + 28, &hash.low, 8);
      refused += refusal(bytes).empty() ? 0 : 1;
      ++tried;
    }
  EXPECT_GT(refused, tried / 4);
}

TEST(VxrtImage, ForeignAndStaleFilesAreNamed) {
  std::vector<std::byte> bytes = serialise(block_image());
  EXPECT_NE(refusal(std::as_bytes(std::span("\177ELF and more of it", 18))).find("not an image"),
            std::string::npos);
  bytes[8] = std::byte{2};
  EXPECT_NE(refusal(bytes).find("version 2"), std::string::npos);
  bytes[8] = std::byte{1};
  bytes.push_back(std::byte{0});
  EXPECT_NE(refusal(bytes).find("instead of"), std::string::npos);
}

struct BadImage {
  const char* says;
  std::function<void(Image&)> change;
};

TEST(VxrtImage, BadContentsAreRefusedWhenWritten) {
  const BadImage table[] = {
      {"instance", [](Image& i) { i.instance.clear(); }},
      {"instance", [](Image& i) { i.instance = "a:b"; }},
      {"columns", [](Image& i) { i.columns = 0; }},
      {"platform", [](Image& i) { i.platform = 1; }},
      {"bad slot", [](Image& i) { i.arguments[0].slot = 99; }},
      {"bad slot", [](Image& i) { i.arguments[0].slot = 1; }},
      {"neither scratch", [](Image& i) { i.arguments.pop_back(); }},
      {"bad size", [](Image& i) { i.program.slots[2].rows = 0; }},
      {"bad size", [](Image& i) { i.program.slots[2].rows = UINT64_MAX; }},
      {"whole blocks", [](Image& i) { i.program.slots[3].dtype = DType::q4_k; }},
      {"cannot be i32", [](Image& i) { i.program.slots[3].dtype = DType::i32; }},
      {"cannot be q8_0", [](Image& i) { i.program.slots[0].dtype = DType::q8_0; }},
      {"writes flag", [](Image& i) { i.program.launches[2].args[0].writes = false; }},
      {"writes the weight", [](Image& i) { i.program.launches[2].args[0].slot = 3; }},
      {"arguments do not fit", [](Image& i) { i.program.launches[1].args.pop_back(); }},
      {"arguments do not fit", [](Image& i) { i.program.launches[1].args[0].slot = 400; }},
      {"needs of 1", [](Image& i) { i.needs = {{1, 1}}; }},
      {"bytes of L1", [](Image& i) { i.needs = {{65537, 0}, {0, 0}, {0, 0}}; }},
      {"bytes of L2", [](Image& i) { i.needs = {{0, 4097 * 1024}, {0, 0}, {0, 0}}; }},
  };
  for (const BadImage& entry : table) {
    Image image = block_image();
    entry.change(image);
    try {
      serialise(image);
      ADD_FAILURE() << "accepted: " << entry.says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(entry.says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tyto::vxrt
