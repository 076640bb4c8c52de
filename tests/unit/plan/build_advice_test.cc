#include "plan/build_advice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)
#define EXPECT_LACKS(text, part) EXPECT_EQ((text).find(part), std::string::npos) << (text)

TEST(BuildAdvice, Llama32OneB) {
  const std::string text = build_advice(kLlama32_1b, "");
  EXPECT_CONTAINS(text, "export AIR_TARGET_DEVICE=npu2");
  EXPECT_CONTAINS(text, "export PEANO_INSTALL_DIR=");
  EXPECT_CONTAINS(text, "one below 23 on PATH");
  // Without XRT's tools a build fails in its last step; a Peano of another day miscompiles.
  EXPECT_CONTAINS(text, "source /opt/xilinx/xrt/setup.sh");
  EXPECT_CONTAINS(text, "aiebu-asm and xclbinutil");
  EXPECT_CONTAINS(text, "built with base-dev");
  EXPECT_CONTAINS(text, "the Peano that MLIR-AIR pins");
  EXPECT_CONTAINS(text, "preflight-llvm-link");
  EXPECT_CONTAINS(text, "about 90 minutes");
  EXPECT_CONTAINS(text, "no access to gated weights");
  // Each in a shell of its own: the second folder is not sought in the first.
  EXPECT_CONTAINS(text, "(cd programming_examples/llms/llama32_1b && make compile &&\n");
  EXPECT_CONTAINS(text, "tyto kernels import build_peano --shape llama-3.2-1b)");
  EXPECT_CONTAINS(text, "(cd programming_examples/fused_decode && make compile-decode-elf &&\n");
  EXPECT_CONTAINS(text, "compile-decode-windows is 12 builds");
  EXPECT_CONTAINS(text, "tyto kernels import . --shape llama-3.2-1b)");
  EXPECT_LACKS(build_advice(kLlama32_1b, "bf16"), "llvm-link");
}

TEST(BuildAdvice, ModelsHaveFoldersOfTheirOwn) {
  const AirDims llama_8b = {32, 4096, 32, 8, 128, 14336, 128256, 2048};
  EXPECT_CONTAINS(build_advice(llama_8b, "q4nx"),
                  "cd programming_examples/llms/llama31_8b_q4nx && make compile && "
                  "make compile-decode-elf");
  EXPECT_LACKS(build_advice(llama_8b, ""), "build_peano --shape");
  const AirDims qwen3 = {28, 1024, 16, 8, 128, 3072, 151936, 2048, 0, 1};
  EXPECT_CONTAINS(build_advice(qwen3, ""),
                  "cd programming_examples/llms/qwen3_0_6b && make compile");
  EXPECT_ERROR(build_advice(qwen3, "q4nx"), "builds no q4nx kernels for this model");
  AirDims shorter = kLlama32_1b;
  shorter.seq = 512;
  EXPECT_ERROR(build_advice(shorter, ""), "builds no kernels for this model");
}

TEST(BuildAdvice, Int8IsForAnyModel) {
  const AirDims odd = {2, 200, 4, 2, 64, 512, 512, 64};
  const std::string text = build_advice(odd, "int8");
  for (const char* k : {"K=256 ", "K=512 "}) EXPECT_CONTAINS(text, k);
  EXPECT_LACKS(text, "K=200");
  // An even number of row blocks, as whole_array.py asks: 128 / 16 / 4 and 256 / 32 / 4.
  EXPECT_CONTAINS(text, "M=128 K=256 N=2048 m=16 k=64 n=64 ");
  EXPECT_CONTAINS(text, "build/final_128x256x2048_16x64x64_8c.xclbin");
  EXPECT_CONTAINS(text, "build/final_256x512x2048_32x64x64_8c.xclbin");
  EXPECT_CONTAINS(text, "git checkout 3ca0193ce");
  EXPECT_CONTAINS(text, "M=64 m=16");
  EXPECT_LACKS(text, "Stride 3");
  AirDims wide = odd;
  wide.hidden = 14336;
  EXPECT_CONTAINS(build_advice(wide, "int8"), "before 1983ac993 (July 2026) needs n=32");
  EXPECT_CONTAINS(text, "b_col_maj=1");
}

}  // namespace
}  // namespace tyto
