#include "device/vnpu/images/image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "device/vnpu/machine/machine.h"
#include "support/expect_error.h"
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

// An xclbin with something in every field of the file.
Image full_image() {
  Image image = block_image("decode");
  image.columns = 4;
  image.form = ImageForm::xclbin;
  Instance& instance = image.instances[0];
  instance.needs = {{1024, 2048}, {65536, 100}, {1, 2}};
  Launch& first = instance.program.launches[0];
  first.shape = {.heads = 1,
                 .kv_heads = 2,
                 .head_dim = 3,
                 .context = 4,
                 .rope_pairs = true,
                 .eps = 0.5f,
                 .bf16_sums = true};
  first.role = Role::q | Facet::bias;
  first.layer = 7;
  first.name = layer_name(name(first.role), first.layer);
  instance.launches = 2;
  instance.takes_call = false;
  instance.fixed_call = call_of(3, 2, 1);
  instance.stream = InstructionStream{100, 64, 7, {{5, 10, 1}, {50, 1000, 512}}};
  instance.arguments[3].bytes = 1 << 20;
  instance.places[3] = {3, {2560, {}}, Encoding::q4nx, {512, 256, 32, 16, 64}};
  instance.arguments[0].bytes = 1 << 16;
  instance.places[0].pattern = rows_apart(64, kRows, kWidth, 2 * kWidth);
  return image;
}

TEST(VxrtImage, RoundTripKeepsEveryField) {
  const Image image = full_image();
  const std::vector<std::byte> bytes = serialise(image);
  const Image back = parse_image(bytes, "here");
  EXPECT_EQ(back.columns, 4u);
  EXPECT_EQ(back.form, ImageForm::xclbin);
  EXPECT_EQ(back.platform, kPlatformAie2p);
  EXPECT_EQ(back.file_bytes, bytes.size());
  ASSERT_EQ(back.instances.size(), 1u);
  const Instance &before = image.instances[0], &after = back.instances[0];
  EXPECT_EQ(after.name, "decode");
  EXPECT_EQ(after.arguments, before.arguments);
  EXPECT_EQ(after.places, before.places);
  EXPECT_EQ(after.needs, before.needs);
  EXPECT_EQ(after.launches, 2u);
  EXPECT_FALSE(after.takes_call);
  EXPECT_EQ(after.fixed_call.rows, 3u);
  EXPECT_EQ(after.fixed_call.only.rows, 3u);
  EXPECT_EQ(after.fixed_call.only.position, 2u);
  EXPECT_EQ(after.fixed_call.only.first_row, 1u);
  EXPECT_EQ(after.stream, before.stream);
  EXPECT_EQ(program_hash(after.program), program_hash(before.program));
  EXPECT_EQ(after.program.slots[4].name, "delta");
  EXPECT_EQ(after.program.launches[1].name, "mm");
  EXPECT_EQ(after.program.launches[0].role, Role::q | Facet::bias);
  EXPECT_EQ(after.program.launches[0].layer, 7u);
  EXPECT_EQ(after.program.launches[1].role, Role::none);
  EXPECT_EQ(after.program.launches[1].layer, kNoLayer);
  EXPECT_EQ(serialise(back), bytes);
}

// Their launches are named after their roles.
TEST(VxrtImage, OlderFilesWithNumbersInPlaceOfRolesAreRead) {
  std::vector<std::byte> bytes = serialise(full_image());
  for (const Role role : {Role::q | Facet::bias, Role(Role::none)}) {
    std::vector<std::byte> written = {std::byte{255}};
    for (const char byte : std::string{static_cast<char>(name(role).size()), 0} + name(role))
      written.push_back(static_cast<std::byte>(byte));
    const auto at = std::search(bytes.begin(), bytes.end(), written.begin(), written.end());
    ASSERT_NE(at, bytes.end());
    *at = std::byte{11};
    bytes.erase(at + 1, at + static_cast<std::ptrdiff_t>(written.size()));
  }
  const uint64_t size = bytes.size();
  std::memcpy(bytes.data() + 12, &size, 8);
  const Hash128 hash = hash_bytes(std::span(bytes).subspan(kVirtualHashedFrom));
  std::memcpy(bytes.data() + 20, &hash.high, 8);
  std::memcpy(bytes.data() + 28, &hash.low, 8);
  const Image back = parse_image(bytes, "here");
  EXPECT_EQ(back.instances[0].program.launches[0].role, Role::q | Facet::bias);
  EXPECT_EQ(back.instances[0].program.launches[1].role, Role::none);
}

TEST(VxrtImage, SeveralInstancesInOneElf) {
  const Image images[] = {block_image("a"), make_image("b", block_program(DType::bf16))};
  const Image both = combined(images);
  const Image back = parse_image(serialise(both), "here");
  ASSERT_EQ(back.instances.size(), 2u);
  EXPECT_EQ(back.instances[1].name, "b");
  EXPECT_EQ(back.instances[1].arguments.size(), 4u);
  Image other = block_image("c");
  other.columns = 4;
  const Image mixed[] = {block_image("a"), other};
  EXPECT_ERROR(combined(mixed), "are not ELFs for one partition");
}

TEST(VxrtImage, EveryTruncationIsRefused) {
  const std::vector<std::byte> bytes = serialise(full_image());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_NE(refusal(std::span(bytes).first(length)), "") << length;
}

TEST(VxrtImage, EveryFlippedByteIsRefused) {
  std::vector<std::byte> bytes = serialise(full_image());
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x41};
    EXPECT_NE(refusal(bytes), "");
    byte ^= std::byte{0x41};
  }
  EXPECT_EQ(refusal(bytes), "");
}

// With the hash made right again, so that the checks behind it are met: no crash, whatever comes
// out, and what is accepted can be loaded.
TEST(VxrtImage, RehashedDamageIsRefusedOrHarmless) {
  const Image several[] = {block_image("a"), block_image("b")};
  size_t refused = 0, tried = 0;
  for (const Image& image : {full_image(), combined(several)}) {
    const std::vector<std::byte> original = serialise(image);
    for (size_t i = kVirtualHeaderBytes; i < original.size(); ++i)
      for (int value : {0x00, 0x01, 0x04, 0x7f, 0x80, 0xff}) {
        std::vector<std::byte> bytes = original;
        bytes[i] = static_cast<std::byte>(value);
        const Hash128 hash = hash_bytes(std::span(bytes).subspan(kVirtualHashedFrom));
        std::memcpy(bytes.data() + 20, &hash.high, 8);
        std::memcpy(bytes.data() + 28, &hash.low, 8);
        ++tried;
        if (!refusal(bytes).empty())
          ++refused;
        else if (bytes[kVirtualHeaderBytes] == std::byte{0})  // still an ELF
          xrt::elf(bytes.data(), bytes.size());
      }
  }
  EXPECT_GT(refused, tried / 4);
  EXPECT_LT(refused, tried);
}

// Damage that is accepted is run: with buffers as large as the arguments say, whatever the file
// makes of them, nothing outside is touched (the sanitizers look on).
TEST(VxrtImage, DamagedImagesThatAreAcceptedRunOrFail) {
  reset({.threads = 1});
  const AirDims tiny = {1, 16, 2, 1, 8, 16, 100, 8};
  const xrt::device device(0);
  size_t completed = 0, failed = 0;
  for (const char* program : {"o_gemv_ffn", "rms_gemms_rope", "flash_attn"}) {
    const std::vector<std::byte> original = serialise(air_image(tiny, program));
    for (size_t i = kVirtualHeaderBytes; i < original.size(); i += 2)
      for (int value : {0x00, 0x01, 0x09, 0xff}) {
        std::vector<std::byte> bytes = original;
        bytes[i] = static_cast<std::byte>(value);
        const Hash128 hash = hash_bytes(std::span(bytes).subspan(kVirtualHashedFrom));
        std::memcpy(bytes.data() + 20, &hash.high, 8);
        std::memcpy(bytes.data() + 28, &hash.low, 8);
        if (!refusal(bytes).empty()) continue;
        const Image image = parse_image(bytes, "here");
        const Instance& instance = image.instances[0];
        const auto is_small = [](const Slot& slot) { return slot.bytes() < 1 << 20; };
        const auto& slots = instance.program.slots;
        if (image.form != ImageForm::elf || image.columns > kColumns ||
            !std::all_of(slots.begin(), slots.end(), is_small))
          continue;
        const xrt::hw_context context(device, xrt::elf(bytes.data(), bytes.size()));
        xrt::run run(xrt::ext::kernel(context, "main"));
        for (size_t a = 0; a < instance.arguments.size(); ++a) {
          const uint64_t size = std::clamp<uint64_t>(instance.arguments[a].bytes, 4, 1 << 20);
          run.set_arg(static_cast<int>(a), xrt::bo(xrt::ext::bo(device, size)));
        }
        run.start();
        const bool is_done = run.wait(std::chrono::milliseconds(60000)) == ERT_CMD_STATE_COMPLETED;
        ++(is_done ? completed : failed);
      }
  }
  EXPECT_GT(completed, 100u);
  EXPECT_GT(failed, 10u);
}

TEST(VxrtImage, ForeignAndStaleFilesAreNamed) {
  std::vector<std::byte> bytes = serialise(block_image());
  EXPECT_NE(refusal(std::as_bytes(std::span("\177ELF and more of it", 18))).find("not an image"),
            std::string::npos);
  bytes[8] = std::byte{2};
  EXPECT_NE(refusal(bytes).find("version 2"), std::string::npos);
  bytes[8] = std::byte{kVirtualVersion};
  bytes.push_back(std::byte{0});
  EXPECT_NE(refusal(bytes).find("instead of"), std::string::npos);
}

struct BadImage {
  const char* says;
  std::function<void(Image&, Instance&)> change;
};

void expect_refused(const Image& good, std::span<const BadImage> table) {
  EXPECT_NO_THROW(serialise(good));
  for (const BadImage& entry : table) {
    Image image = good;
    entry.change(image, image.instances[0]);
    try {
      serialise(image);
      ADD_FAILURE() << "accepted: " << entry.says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(entry.says), std::string::npos) << error.what();
    }
  }
}

TEST(VxrtImage, BadContentsAreRefusedWhenWritten) {
  using I = Instance;
  const BadImage table[] = {
      {"instance", [](Image&, I& i) { i.name.clear(); }},
      {"instance", [](Image&, I& i) { i.name = "a:b"; }},
      {"two instances", [](Image& m, I& i) { m.instances.push_back(I(i)); }},
      {"no instance", [](Image& m, I&) { m.instances.clear(); }},
      {"columns", [](Image& m, I&) { m.columns = 0; }},
      {"platform", [](Image& m, I&) { m.platform = 1; }},
      {"bad argument", [](Image&, I& i) { i.places[0].argument = 99; }},
      {"bad argument", [](Image&, I& i) { i.places[0].argument = 2; }},  // dead
      {"reaches byte", [](Image&, I& i) { i.arguments[0].bytes -= 2; }},
      {"neither scratch", [](Image&, I& i) { i.places[4] = {}; }},
      {"places", [](Image&, I& i) { i.places.pop_back(); }},
      {"bad size", [](Image&, I& i) { i.program.slots[2].rows = 0; }},
      {"bad size", [](Image&, I& i) { i.program.slots[2].rows = UINT64_MAX; }},
      {"whole blocks", [](Image&, I& i) { i.program.slots[3].dtype = DType::q4_k; }},
      {"cannot be i32", [](Image&, I& i) { i.program.slots[3].dtype = DType::i32; }},
      {"cannot be q8_0", [](Image&, I& i) { i.program.slots[0].dtype = DType::q8_0; }},
      {"writes flag", [](Image&, I& i) { i.program.launches[2].args[0].writes = false; }},
      {"writes the weight", [](Image&, I& i) { i.program.launches[2].args[0].slot = 3; }},
      {"arguments do not fit", [](Image&, I& i) { i.program.launches[1].args.pop_back(); }},
      {"arguments do not fit", [](Image&, I& i) { i.program.launches[1].args[0].slot = 400; }},
      {"needs of 1", [](Image&, I& i) { i.needs = {{1, 1}}; }},
      {"bytes of L1", [](Image&, I& i) { i.needs = {{65537, 0}, {0, 0}, {0, 0}}; }},
      {"bytes of L2", [](Image&, I& i) { i.needs = {{0, 4097 * 1024}, {0, 0}, {0, 0}}; }},
      {"stream", [](Image& m, I&) { m.instances[0].stream.emplace(); }},
  };
  expect_refused(block_image(), table);
}

TEST(VxrtImage, BadPlacesAreRefused) {
  using I = Instance;
  Image good = block_image();
  for (ImageArgument& argument : good.instances[0].arguments) argument.bytes = 1 << 20;
  const BadImage table[] = {
      {"bad pattern", [](Image&, I& i) { i.places[0].pattern.offset = UINT64_MAX; }},
      {"bad pattern", [](Image&, I& i) { i.places[0].pattern.dims = {{0, 1}}; }},
      {"bad pattern", [](Image&, I& i) { i.places[0].pattern.dims = {{2, UINT64_MAX}}; }},
      {"bad pattern", [](Image&, I& i) { i.places[0].pattern.dims.assign(9, Pattern::Dim{1, 1}); }},
      {"its pattern", [](Image&, I& i) { i.places[0].pattern = rows_apart(0, 3, kWidth, 99); }},
      {"reaches byte",
       [](Image&, I& i) { i.places[0].pattern = rows_apart(0, kRows, kWidth, 300000); }},
      // An activation cannot be transposed on its way; a matmul's weight can.
      {"takes every 4th", [](Image&, I& i) { i.places[0].pattern = transposed(kRows, kWidth); }},
      {"on top of each other",
       [](Image&, I& i) { i.places[0].pattern = rows_apart(0, kRows, kWidth, 2); }},
      {"inside a word", [](Image&, I& i) { i.places[0].pattern.offset = 1; }},
      {"x and delta are written and overlap",
       [](Image&, I& i) {
         i.places[4].argument = 0;
         i.places[4].pattern.offset = kRows * kWidth - 2;
       }},
      {"x and delta are written and overlap",
       [](Image&, I& i) {
         i.places[4].argument = 0;
         i.places[4].pattern = rows_apart(kWidth, kRows, kWidth, 2 * kWidth);
         i.places[0].pattern = rows_apart(0, kRows, kWidth, 2 * kWidth);
       }},
      {"private scratch", [](Image&, I& i) { i.places[2].pattern.offset = 2; }},
      {"not the weight of a matmul", [](Image&, I& i) { i.places[1].encoding = Encoding::q4nx; }},
      {"not whole blocks",
       [](Image&, I& i) { i.places[3] = {3, {}, Encoding::q4nx, {256, 256, 0, 64, 64}}; }},
      {"inside its phase",
       [](Image&, I& i) { i.places[3] = {3, {}, Encoding::q4nx, {512, 256, 480, 64, 64}}; }},
      {"inside its phase",
       [](Image&, I& i) { i.places[3] = {3, {}, Encoding::q4nx, {512, 256, 0, 0, 64}}; }},
      {"inside its phase",
       [](Image&, I& i) { i.places[3] = {3, {}, Encoding::q4nx, {512, 256, 0, 32, 500}}; }},
  };
  expect_refused(good, table);
  Instance& instance = good.instances[0];
  instance.places[3].pattern = transposed(kWidth, kWidth);
  EXPECT_NO_THROW(serialise(good));
  instance.places[4] = instance.places[0];  // the same values: fine
  EXPECT_NO_THROW(serialise(good));
}

TEST(VxrtImage, BadStreamsAreRefused) {
  using I = Instance;
  const BadImage table[] = {
      {"instruction words", [](Image&, I& i) { i.stream->words = 1; }},
      {"instruction words", [](Image&, I& i) { i.stream->words = UINT32_MAX; }},
      {"bad instruction word", [](Image&, I& i) { i.stream->patches[0].index = 0; }},
      {"bad instruction word", [](Image&, I& i) { i.stream->patches[1].index = 100; }},
      {"bad instruction word", [](Image&, I& i) { i.stream->patches[1].index = 5; }},
      {"a window of 0", [](Image&, I& i) { i.stream->window = 0; }},
      {"a window of 64", [](Image&, I& i) { i.stream->patches.clear(); }},
      {"takes no call", [](Image&, I& i) { i.stream.reset(); }},
      {"of 2 instances",
       [](Image& m, I& i) {
         m.instances.push_back(I(i));
         m.instances[1].name = "other";
       }},
  };
  expect_refused(full_image(), table);
}

TEST(VxrtDma, WhatDescriptorsCanWalk) {
  const auto fits = [](const Pattern& pattern, DType type) { return !dma_problem(pattern, type); };
  // No limit on one piece; the compiler cuts long dimensions and unrolls outer ones.
  EXPECT_TRUE(fits({}, DType::bf16));
  EXPECT_TRUE(fits({4096, {{1 << 20, 64}, {64, 1}}}, DType::bf16));
  EXPECT_TRUE(fits(rows_apart(0, 8192, 2048, 4096), DType::bf16));  // gate rows among up rows
  EXPECT_TRUE(fits({0, {{2, 2048 * 256}, {4, 64}, {2048, 256}, {64, 1}}}, DType::bf16));
  EXPECT_TRUE(fits(rows_apart(0, 200, 64, 1 << 21), DType::bf16));
  EXPECT_TRUE(fits(transposed(64, 64), DType::f32));
  // Words of four bytes.
  EXPECT_FALSE(fits(transposed(64, 64), DType::bf16));
  EXPECT_FALSE(fits({0, {{64, 2}}}, DType::bf16));
  EXPECT_FALSE(fits({1, {}}, DType::bf16));
  EXPECT_TRUE(fits({1, {}}, DType::f32));
  EXPECT_FALSE(fits(rows_apart(0, 4, 3, 64), DType::bf16));
  EXPECT_FALSE(fits(rows_apart(0, 4, 4, 65), DType::bf16));
  EXPECT_FALSE(fits(rows_apart(0, 4, 6, 64), DType::i8));
  // A descriptor for every step.
  EXPECT_FALSE(fits(rows_apart(0, 300, 64, 1 << 21), DType::bf16));
  EXPECT_FALSE(fits(rows_apart(0, 1031, 64, 128), DType::bf16));  // a prime
}

}  // namespace
}  // namespace tyto::vxrt
