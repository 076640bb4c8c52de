// The integer GEMM as an image of the virtual NPU.
#include <random>

#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "support/expect_error.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

TEST_F(VxrtTest, GemmI8ImageMultipliesIntegers) {
  constexpr uint32_t kK = 96, kN = 40, kM = 16;
  std::mt19937 random(5);
  std::uniform_int_distribution<int> codes(-127, 127);
  std::vector<int8_t> a(kM * kK), b(kN * kK);
  for (int8_t& value : a) value = static_cast<int8_t>(codes(random));
  for (int8_t& value : b) value = static_cast<int8_t>(codes(random));

  xrt::device device(0);
  const xrt::xclbin xclbin = load_xclbin(gemm_i8_image(kK, kN, kM, 4));
  device.register_xclbin(xclbin);
  const xrt::hw_context context(device, xclbin.get_uuid());
  const xrt::kernel kernel(context, "MLIR_AIE");
  const auto words = gemm_i8_words(kK, kN, kM);
  xrt::bo instructions(device, words.size() * 4, xrt::bo::flags::cacheable,
                       static_cast<xrt::memory_group>(kernel.group_id(1)));
  xrt::bo buffers[] = {xrt::ext::bo(device, a.size()), xrt::ext::bo(device, b.size()),
                       xrt::ext::bo(device, kM * kN * 4)};
  put(buffers[0], a);
  put(buffers[1], b);
  for (xrt::bo& buffer : buffers) buffer.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  put(instructions, words);
  instructions.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  xrt::run run(kernel);
  run.set_arg(0, 3);
  run.set_arg(1, instructions);
  run.set_arg(2, static_cast<uint32_t>(words.size()));
  for (int i = 0; i < 3; ++i) run.set_arg(3 + i, buffers[i]);
  run.start();
  ASSERT_EQ(run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_COMPLETED)
      << counters().last_error;
  buffers[2].sync(XCL_BO_SYNC_BO_FROM_DEVICE);
  const int32_t* c = buffers[2].map<const int32_t*>();
  for (size_t t = 0; t < kM; ++t)
    for (size_t n = 0; n < kN; ++n) {
      int32_t sum = 0;
      for (size_t k = 0; k < kK; ++k) sum += int32_t{a[t * kK + k]} * b[n * kK + k];
      ASSERT_EQ(c[t * kN + n], sum) << t << " " << n;
    }
  EXPECT_NE(gemm_i8_words(kK, kN, kM), gemm_i8_words(kK, kN, kM * 2));
  EXPECT_ERROR(gemm_i8_image(kK, kN, kM, 9), "9 columns of 8");
  EXPECT_ERROR(gemm_i8_image(0, kN, kM), "slot a has bad size 16 x 0");
}

}  // namespace
}  // namespace tyto::vxrt
