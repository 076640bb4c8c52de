#include "cost/cost_model.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto {
namespace {

TEST(CostModel, ByteLawIsFloorPlusBytesOverRate) {
  const ByteLaw law{.floor_us = 100, .gb_s = 50};
  EXPECT_DOUBLE_EQ(byte_law_ms(law, 0), 0.1);
  EXPECT_DOUBLE_EQ(byte_law_ms(law, 50e6), 1.1);
  EXPECT_DOUBLE_EQ(byte_law_ms(law, 50e6, {.clock = 1, .bandwidth = 2}), 0.6);
}

TEST(CostModel, GemmLawAddsItsFourTerms) {
  const GemmLaw law{.floor_us = 1000, .tflops = 2, .c_bytes = 4, .c_gb_s = 4, .step_us = 10};
  const GemmTile tile{64, 256, 128};
  // 512 x 512 tiles of the array: 1 * 2 * (512 / 256) steps.
  const double flop_ms = 2.0 * 512 * 512 * 1024 / 2e9;
  const double c_ms = 512 * 1024 * 4 / 4e6;
  EXPECT_NEAR(gemm_ms(law, tile, 512, 512, 1024), 1 + flop_ms + c_ms + 4 * 0.01, 1e-9);
  EXPECT_NEAR(gemm_ms(law, tile, 512, 512, 1024, {.clock = 2, .bandwidth = 4}),
              1 + flop_ms / 2 + c_ms / 4 + 4 * 0.005, 1e-9);
}

TEST(CostModel, TilesFollowTheRegistry) {
  EXPECT_EQ(gemm_tile(2048, 8192, 64).n, 128u);
  EXPECT_EQ(gemm_tile(1536, 8960, 64).n, 64u);
  EXPECT_EQ(gemm_tile(896, 896, 64).n, 32u);
  EXPECT_EQ(gemm_tile(896, 896, 64).k_l2, 128u);
  EXPECT_EQ(gemm_tile(2560, 9728, 64).k_l2, 64u);
  EXPECT_GE(gemm_tile(7, 13, 64).n, 1u);  // anything divides by one
}

struct PublishedGemm {
  GemmLaw law;
  GemmTile tile;
  uint64_t m, k, n;
  double tflops;
};

// MLIR-AIR kernel registry, bf16 out, Strix Point.
TEST(CostModel, PublishedGemmRates) {
  const CostParameters& p = cost_parameters();
  const PublishedGemm published[] = {
      {p.fused_cast, {64, 512, 128}, 2048, 2048, 2048, 6.215},
      {p.fused_cast, {64, 256, 128}, 2048, 2048, 8192, 6.893},
      {p.fused_cast, {64, 256, 128}, 2048, 8192, 2048, 8.898},
      {p.fused_cast, {64, 64, 128}, 2048, 4096, 12288, 6.059},
      {p.drain, {32, 256, 128}, 2048, 2048, 512, 5.626},
      {p.direct, {64, 128, 64}, 2048, 2048, 11008, 4.276},
  };
  for (const PublishedGemm& g : published) {
    const double flop = 2.0 * static_cast<double>(g.m * g.k * g.n);
    EXPECT_NEAR(flop / gemm_ms(g.law, g.tile, g.m, g.k, g.n) / 1e9, g.tflops, 0.15 * g.tflops)
        << g.k << "x" << g.n;
  }
}

// The same registry, the kind that is given: C of 64 columns per core.
TEST(CostModel, PublishedDirectGemms) {
  struct Published {
    uint64_t k, n;
    double tflops;
  };
  for (const Published& g : {Published{2048, 11008, 4.276}, Published{2560, 9728, 4.397},
                             Published{4096, 12288, 4.469}}) {
    const double flop = 2.0 * 2048 * static_cast<double>(g.k * g.n);
    EXPECT_NEAR(flop / direct_gemm_ms(2048, g.k, g.n) / 1e9, g.tflops, 0.1 * g.tflops) << g.n;
    EXPECT_GE(direct_gemm_ms(2048, g.k, g.n), best_gemm_ms(2048, g.k, g.n)) << g.n;
  }
}

TEST(CostModel, PublishedGemvAndAttention) {
  const CostParameters& p = cost_parameters();
  EXPECT_NEAR(byte_law_ms(p.gemv, 2.0 * 2048 * 2048), 0.33, 0.033);
  EXPECT_NEAR(byte_law_ms(p.gemv, 2.0 * 49152 * 2048), 6.187, 0.31);
  EXPECT_NEAR(attention_ms(32, 64, 2048), 15.75, 1.6);
  EXPECT_NEAR(attention_ms(2, 64, 16384), 39.6, 4.0);
  EXPECT_NEAR(attention_ms(12, 128, 2048), 14.5, 1.5);
}

// MLIR-AIR nightly sweep, Krackan, performance profile: context and ms per token.
TEST(CostModel, PublishedFusedDecode) {
  const uint64_t weights_1b = 773324800, weights_3b = 2009300000;
  EXPECT_NEAR(fused_decode_ms(weights_1b, 16, 64, 1024), 14.649, 0.08 * 14.649);
  EXPECT_NEAR(fused_decode_ms(weights_1b, 16, 64, 131072), 173.3, 0.08 * 173.3);
  EXPECT_NEAR(fused_decode_ms(weights_3b, 28, 128, 2048), 39.14, 0.08 * 39.14);
  EXPECT_NEAR(fused_decode_ms(weights_3b, 28, 128, 32768), 139.3, 0.08 * 139.3);
}

TEST(CostModel, MoreWorkIsNeverFaster) {
  double last_attention = 0, last_gemm = 0, last_decode = 0;
  for (uint64_t n = 256; n <= 32768; n *= 2) {
    EXPECT_GT(attention_ms(8, 96, n), last_attention);
    EXPECT_GT(best_gemm_ms(n, 1024, 1024), last_gemm);
    EXPECT_GT(fused_decode_ms(1 << 30, 16, 80, n), last_decode);
    last_attention = attention_ms(8, 96, n);
    last_gemm = best_gemm_ms(n, 1024, 1024);
    last_decode = fused_decode_ms(1 << 30, 16, 80, n);
  }
  EXPECT_GT(attention_ms(8, 128, 2048), attention_ms(8, 64, 2048));
  EXPECT_LT(attention_ms(8, 32, 2048), attention_ms(8, 64, 2048));
}

TEST(CostModel, WindowsAreAStaircase) {
  EXPECT_EQ(kv_window(1), 64u);
  EXPECT_EQ(kv_window(64), 64u);
  EXPECT_EQ(kv_window(65), 128u);
  EXPECT_EQ(kv_window(2048), 2048u);
  EXPECT_EQ(kv_window(2049), 4096u);
  EXPECT_EQ(kv_window(5000), 6144u);
}

TEST(CostModel, AnEightColumnSwitchTakesMilliseconds) {
  EXPECT_NEAR(context_switch_ms(9), 0.09, 0.01);  // a one-column passthrough
  EXPECT_NEAR(context_switch_ms(340), 2.5, 0.2);
}

TEST(CostModel, MachinesAreKnownByName) {
  EXPECT_EQ(npu_machine("krackan").name, "krackan");
  try {
    npu_machine("phoenix");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_NE(error.hint.find("strix-halo"), std::string::npos);
  }
}

TEST(CostModel, SpeedIsRelativeAndTheProfileLowersIt) {
  const NpuMachine& strix = npu_machine("strix");
  const NpuMachine& krackan = npu_machine("krackan");
  EXPECT_DOUBLE_EQ(relative_speed(strix, strix).clock, 1);
  EXPECT_DOUBLE_EQ(
      relative_speed(krackan, strix).bandwidth * relative_speed(strix, krackan).bandwidth, 1);
  const Speed balanced = relative_speed(krackan, krackan, PlatformProfile::balanced);
  EXPECT_NEAR(balanced.clock, 0.80, 0.03);
  EXPECT_NEAR(balanced.bandwidth, 0.70, 0.03);
}

Program one_matmul(uint64_t k, uint64_t n) {
  Program program;
  program.slots = {{"x", SlotKind::input, DType::bf16, 2048, k},
                   {"w", SlotKind::weight, DType::bf16, n, k},
                   {"y", SlotKind::output, DType::bf16, 2048, n}};
  Launch launch;
  launch.kernel = Kernel::matmul;
  launch.args = {{0, true, false}, {1, true, false}, {2, false, true}};
  program.launches = {launch};
  return program;
}

TEST(CostModel, LaunchesAreTimedByTheSameLaws) {
  const CostParameters& p = cost_parameters();
  const Program program = one_matmul(2048, 8192);
  const Launch& launch = program.launches[0];
  EXPECT_NEAR(launch_ms(program, launch, call_of(2048)),
              p.elf.slowdown * best_gemm_ms(2048, 2048, 8192), 1e-9);
  const double bytes = 2.0 * (2048 * 8192 + 2048 + 8192);
  EXPECT_NEAR(launch_ms(program, launch, call_of(1)), bytes / p.gemv.gb_s / 1e6, 1e-9);
  EXPECT_GT(launch_ms(program, launch, call_of(1)),
            launch_ms(program, launch, call_of(1), {.clock = 1, .bandwidth = 1.5}));
}

}  // namespace
}  // namespace tyto
