#include <gtest/gtest.h>

#include "base/error.h"
#include "device/npu/formats/air_models.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

std::vector<uint64_t> sizes(const AirProgram& program) {
  std::vector<uint64_t> bytes;
  for (const AirArgument& argument : program.arguments) bytes.push_back(argument.bytes());
  return bytes;
}

using Positions = std::vector<size_t>;
using Sizes = std::vector<uint64_t>;

TEST(AirAbi, CountsEntriesAndLaunchesOfLlama1b) {
  struct Expected {
    const char* name;
    const char* entry;
    size_t arguments;
    uint32_t launches;
  };
  const Expected table[] = {
      {"rms_gemms_rope", "main:rms_gemms_rope", 14, 7},
      {"flash_attn", "main:attention_bf16", 4, 1},
      {"o_ffn", "main:o_ffn", 19, 12},
      {"lm_head_gemv", "main:lm_head_gemv", 17, 8},
      {"rms_gemv_rope", "main:rms_gemv_rope", 13, 6},
      {"o_gemv_ffn", "main:o_gemv_ffn", 15, 3},
  };
  for (const Expected& expected : table) {
    const AirProgram program = air_program(expected.name, kLlama32_1b);
    EXPECT_EQ(program.name, expected.name);
    EXPECT_EQ(program.entry, expected.entry);
    EXPECT_EQ(program.arguments.size(), expected.arguments) << expected.name;
    EXPECT_EQ(program.launches, expected.launches) << expected.name;
    EXPECT_TRUE(is_air_program(expected.name));
  }
  EXPECT_FALSE(is_air_program("decode"));
  EXPECT_ERROR(air_program("decode", kLlama32_1b), "decode: no argument list");
}

TEST(AirAbi, RmsGemmsRope) {
  const AirProgram program = air_program("rms_gemms_rope", kLlama32_1b);
  EXPECT_EQ(sizes(program),
            (Sizes{8 * kMiB, 4 * kKiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, 2 * kMiB, 2 * kMiB, 2 * kMiB,
                   2 * kMiB, 8 * kMiB, 2 * kMiB, 8 * kMiB, 2 * kMiB, 16 * kMiB}));
  EXPECT_EQ(positions(program, AirRole::output), (Positions{8, 11, 12}));
  EXPECT_EQ(positions(program, AirRole::weight), (Positions{1, 3, 5, 7, 9, 10}));
  EXPECT_EQ(positions(program, AirRole::input), (Positions{0}));
  EXPECT_EQ(program.arguments[3].layout, AirLayout::transposed);
  EXPECT_EQ(program.arguments[3].source, "self_attn.q_proj.weight");
  EXPECT_EQ(program.arguments[5].rows, 2048u);
  EXPECT_EQ(program.arguments[5].cols, 512u);
  EXPECT_EQ(program.arguments[9].elements(), 4'194'304u);
  EXPECT_EQ(program.arguments[10].elements(), 1'048'576u);
  EXPECT_EQ(program.arguments[13].dtype, DType::f32);
}

TEST(AirAbi, AsManyKvHeadsAsHeadsAddTwoScratchArguments) {
  AirDims dims = kLlama32_1b;
  dims.kv_heads = dims.heads;
  const AirProgram program = air_program("rms_gemms_rope", dims);
  ASSERT_EQ(program.arguments.size(), 16u);
  for (const size_t i : {13u, 14u, 15u}) {
    EXPECT_EQ(program.arguments[i].dtype, DType::f32);
    EXPECT_EQ(program.arguments[i].bytes(), 16 * kMiB);
  }
  EXPECT_EQ(positions(program, AirRole::output), (Positions{8, 11, 12}));
}

TEST(AirAbi, FlashAttention) {
  const AirProgram program = air_program("flash_attn", kLlama32_1b);
  EXPECT_EQ(sizes(program), (Sizes{8 * kMiB, 2 * kMiB, 2 * kMiB, 8 * kMiB}));
  EXPECT_EQ(positions(program, AirRole::output), (Positions{3}));
}

TEST(AirAbi, OutputOfOFfnIsNotItsLastArgument) {
  const AirProgram program = air_program("o_ffn", kLlama32_1b);
  EXPECT_EQ(positions(program, AirRole::output), (Positions{14}));
  EXPECT_EQ(positions(program, AirRole::input), (Positions{0, 3}));
  EXPECT_EQ(positions(program, AirRole::weight), (Positions{1, 5, 7, 9, 12}));
  EXPECT_EQ(sizes(program),
            (Sizes{8 * kMiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, 8 * kMiB, 4 * kKiB, 8 * kMiB, 32 * kMiB,
                   32 * kMiB, 32 * kMiB, 32 * kMiB, 32 * kMiB, 32 * kMiB, 8 * kMiB, 8 * kMiB,
                   16 * kMiB, 64 * kMiB, 64 * kMiB, 16 * kMiB}));
  EXPECT_EQ(program.arguments[14].per_call, (ByteRange{0, 8 * kMiB}));
  EXPECT_EQ(program.arguments[12].rows, 8192u);
}

TEST(AirAbi, RmsGemvRope) {
  const AirProgram program = air_program("rms_gemv_rope", kLlama32_1b);
  EXPECT_EQ(positions(program, AirRole::output), (Positions{8, 11, 12}));
  EXPECT_EQ(positions(program, AirRole::input), (Positions{0, 9, 10}));
  EXPECT_EQ(positions(program, AirRole::weight), (Positions{1, 3, 5, 7}));
  EXPECT_EQ(sizes(program), (Sizes{4096, 4096, 4096, 8 * kMiB, 4096, 2 * kMiB, 1024, 2 * kMiB, 1024,
                                   4096, 1024, 4096, 1024}));
  EXPECT_EQ(program.arguments[5].rows, 512u);
  EXPECT_EQ(program.arguments[5].layout, AirLayout::as_stored);
}

TEST(AirAbi, OGemvFfnHasSevenDeadArguments) {
  const AirProgram program = air_program("o_gemv_ffn", kLlama32_1b);
  EXPECT_EQ(positions(program, AirRole::dead), (Positions{2, 4, 5, 8, 9, 10, 13}));
  EXPECT_EQ(positions(program, AirRole::output), (Positions{14}));
  EXPECT_EQ(positions(program, AirRole::weight), (Positions{0, 6, 7, 12}));
  EXPECT_EQ(positions(program, AirRole::input), (Positions{1, 3}));
  EXPECT_EQ(program.arguments[9].bytes(), 32 * kMiB);
  EXPECT_EQ(program.arguments[7].bytes(), 64 * kMiB);
  EXPECT_EQ(program.arguments[7].rows, 16384u);
  EXPECT_EQ(program.arguments[7].layout, AirLayout::gate_up_rows);
  EXPECT_EQ(program.arguments[6].layout, AirLayout::norm_in_row_1);
  EXPECT_EQ(program.arguments[6].bytes(), 8192u);
  EXPECT_EQ(program.arguments[12].bytes(), 32 * kMiB);
}

TEST(AirAbi, LmHeadPartitions) {
  const AirProgram program = air_program("lm_head_gemv", kLlama32_1b);
  EXPECT_EQ(positions(program, AirRole::weight), (Positions{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(positions(program, AirRole::output), (Positions{2, 4, 6, 8, 10, 12, 14, 16}));
  EXPECT_EQ(air_head(kLlama32_1b).partitions, 8u);
  uint64_t real = 0, read = 0;
  for (uint32_t p = 0; p < 8; ++p) {
    const AirArgument& weight = program.arguments[1 + 2 * p];
    const AirArgument& logits = program.arguments[2 + 2 * p];
    EXPECT_EQ(weight.rows, 16384u);
    EXPECT_EQ(weight.bytes(), 64 * kMiB);
    EXPECT_EQ(weight.partition, p);
    EXPECT_EQ(weight.real_rows, p == 7 ? 13568u : 16384u);
    EXPECT_EQ(logits.bytes(), 32768u);
    real += weight.real_rows;
    read += logits.per_call.bytes;
  }
  EXPECT_EQ(real, 128256u);
  EXPECT_EQ(read, 128256u * 2);
}

TEST(AirAbi, ImpossibleDimensionsAreRefused) {
  const auto with = [](uint32_t AirDims::* member, uint32_t value) {
    AirDims dims = kLlama32_1b;
    dims.*member = value;
    return dims;
  };
  EXPECT_ERROR(air_program("o_ffn", with(&AirDims::emb, 0)), "emb = 0 is not between");
  EXPECT_ERROR(air_program("o_ffn", with(&AirDims::seq, 0xffffffff)),
               "seq = 4294967295 is not between");
  EXPECT_ERROR(air_program("flash_attn", with(&AirDims::heads, 1u << 24)),
               "16777216 heads of 64 are too many");
  EXPECT_ERROR(air_program("flash_attn", with(&AirDims::kv_heads, 5)),
               "32 heads cannot share 5 KV heads");
}

// The rules for a model of another shape: what a reader of the tables would write down.
TEST(AirAbi, OtherDimensionsFollow) {
  const AirDims dims = {28, 1536, 24, 8, 64, 8192, 100000, 1024};
  const AirProgram attention = air_program("rms_gemms_rope", dims);
  EXPECT_EQ(attention.arguments.size(), 14u);
  EXPECT_EQ(attention.arguments[7].elements(), 1536u * 512);
  EXPECT_EQ(attention.arguments[13].bytes(), 1024u * 1536 * 4);
  EXPECT_EQ(air_program("o_gemv_ffn", dims).arguments[7].elements(), 16384u * 1536);
}

TEST(AirAbi, EveryWeightSaysWhereItComesFrom) {
  for (const char* name :
       {"rms_gemms_rope", "flash_attn", "o_ffn", "lm_head_gemv", "rms_gemv_rope", "o_gemv_ffn"})
    for (const AirArgument& argument : air_program(name, kLlama32_1b).arguments) {
      const bool table = argument.layout == AirLayout::rope_per_head;
      EXPECT_EQ(argument.role == AirRole::weight && !table, !argument.source.empty())
          << name << " " << argument.name;
    }
}

}  // namespace
}  // namespace tyto
