// What the images' argument lists and tiles are at the size MLIR-AIR builds.
#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "support/expect_error.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

TEST(AirImagesOf1b, ArgumentsAndLaunches) {
  const struct {
    const char* program;
    const char* instance;
    size_t arguments;
    uint32_t launches;
  } table[] = {{"rms_gemms_rope", "rms_gemms_rope", 14, 7},
               {"flash_attn", "attention_bf16", 4, 1},
               {"o_ffn", "o_ffn", 19, 12},
               {"lm_head_gemv", "lm_head_gemv", 17, 8},
               {"rms_gemv_rope", "rms_gemv_rope", 13, 6},
               {"o_gemv_ffn", "o_gemv_ffn", 15, 3}};
  for (const auto& row : table) {
    const Image image = air_image(kLlama32_1b, row.program);
    ASSERT_EQ(image.instances.size(), 1u);
    const Instance& instance = image.instances[0];
    EXPECT_EQ(instance.name, row.instance);
    EXPECT_EQ(instance.arguments.size(), row.arguments);
    EXPECT_EQ(instance.counted_launches(), row.launches);
    EXPECT_FALSE(instance.takes_call);
    EXPECT_EQ(image.columns, 8u);
    EXPECT_EQ(instance.needs.size(), instance.program.launches.size());
    for (const LaunchNeeds& needs : instance.needs) EXPECT_GT(needs.l1_bytes, 0u);
  }
}

TEST(AirImagesOf1b, ArgumentBytes) {
  const auto bytes = [](const char* program) {
    std::vector<uint64_t> result;
    const Image image = air_image(kLlama32_1b, program);
    for (const ImageArgument& argument : image.instances[0].arguments)
      result.push_back(argument.bytes);
    return result;
  };
  constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
  using Bytes = std::vector<uint64_t>;
  EXPECT_EQ(bytes("rms_gemms_rope"),
            (Bytes{8 * kMiB, 4 * kKiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB,
                   2 * kMiB, 8 * kMiB, 2 * kMiB, 8 * kMiB, 2 * kMiB, 16 * kMiB}));
  EXPECT_EQ(bytes("flash_attn"), (Bytes{8 * kMiB, 2 * kMiB, 2 * kMiB, 8 * kMiB}));
  const Bytes o_ffn = bytes("o_ffn");
  EXPECT_EQ(o_ffn[7], 32 * kMiB);
  EXPECT_EQ(o_ffn[14], 8 * kMiB);
  EXPECT_EQ(o_ffn[16], 64 * kMiB);
  const Bytes o_gemv = bytes("o_gemv_ffn");
  EXPECT_EQ(o_gemv[6], 8 * kKiB);
  EXPECT_EQ(o_gemv[7], 64 * kMiB);
  EXPECT_EQ(o_gemv[9], 32 * kMiB);  // dead
  const Bytes head = bytes("lm_head_gemv");
  for (size_t p = 0; p < 8; ++p) {
    EXPECT_EQ(head[1 + 2 * p], 64 * kMiB);
    EXPECT_EQ(head[2 + 2 * p], 32 * kKiB);
  }
}

TEST(AirImagesOf1b, CallsAreCompiledIn) {
  for (const char* prefill : {"rms_gemms_rope", "flash_attn", "o_ffn"})
    EXPECT_EQ(air_image(kLlama32_1b, prefill).instances[0].fixed_call.rows, 2048u);
  for (const char* decode : {"rms_gemv_rope", "o_gemv_ffn", "lm_head_gemv"})
    EXPECT_EQ(air_image(kLlama32_1b, decode).instances[0].fixed_call.rows, 1u);
  EXPECT_EQ(air_image(kLlama32_1b, "o_ffn").instances[0].program.launches[3].shape.eps, 1e-5f);
}

TEST(AirImagesOf1b, TilesFitAndLargerOnesDoNot) {
  // 64 x 32 and 32 x 128 twice each, 64 x 128 sums in f32, and the stack.
  EXPECT_EQ(gemm_needs({64, 512, 32, 128}).l1_bytes, 8192u + 16384 + 32768 + 1024);
  // A 512 x 512 and B 512 x 512 twice each, C 512 x 512 in f32: 3 MiB of the 4.
  EXPECT_EQ(gemm_needs({64, 512, 32, 128}).l2_bytes, 3u << 20);
  Image image = air_image(kLlama32_1b, "o_ffn");
  for (const GemmTiles& tiles :
       {GemmTiles{64, 512, 64, 128}, GemmTiles{64, 1024, 32, 128}, GemmTiles{128, 256, 32, 128}}) {
    image.instances[0].needs[0] = gemm_needs(tiles);
    EXPECT_ERROR(check_image(image, "o_ffn"), "launch o needs ") << tiles.m << "/" << tiles.k_l2;
  }
  image.instances[0].needs[0] = gemm_needs({32, 256, 32, 128});
  EXPECT_NO_THROW(check_image(image, "o_ffn"));
  // Rows too long for four at a time come two at a time; heads too wide take shorter blocks.
  EXPECT_LE(gemv_needs({8, 4, 4096}).l1_bytes, kL1Bytes);
  EXPECT_GT(attention_needs({256, 64}, 128).l1_bytes, kL1Bytes);
  AirDims wide = kLlama32_1b;
  wide.head_dim = 128;
  EXPECT_NO_THROW(air_image(wide, "flash_attn"));
}

TEST(AirImagesOf1b, UnknownProgramsAndDimensions) {
  EXPECT_ERROR(air_image(kLlama32_1b, "softmax"), "softmax: no argument list");
  AirDims dims = kLlama32_1b;
  dims.kv_heads = 5;
  EXPECT_ERROR(air_image(dims, "flash_attn"), "32 heads cannot share 5 KV heads");
  dims = kLlama32_1b;
  dims.emb = 1 << 14;  // a row of the norm is no longer in L1
  try {
    air_image(dims, "rms_gemv_rope");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("bytes of L1"), std::string::npos) << error.what();
  }
}

// At full size: tiles in L1 and L2, patterns that a DMA walks, launches as the tables count them.
TEST(AirImagesOfKnownModels, FitTheArray) {
  for (const KnownAirModel& model : known_air_models())
    for (const AirProgram& program : air_model(model.dims).programs) {
      SCOPED_TRACE(fmt::format("{} {}", model.name, program.name));
      const Image image = air_image(model.dims, program.name);
      EXPECT_EQ("main:" + image.instances[0].name, program.entry);
      EXPECT_EQ(image.instances[0].launches, program.launches);
      EXPECT_EQ(image.instances[0].arguments.size(), program.arguments.size());
    }
}

}  // namespace
}  // namespace tyto::vxrt
