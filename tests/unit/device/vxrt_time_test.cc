// The modelled clock: what a run takes by its image, and what comes on top.
#include "device/vnpu/machine/machine.h"

#include <optional>

#include "base/error.h"
#include "device/vnpu/images/air_images.h"
#include "program/kernels.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using VxrtTime = VxrtTest;

constexpr uint64_t kRunNs = 1000;

Hardware with_fixed_time() {
  Hardware hardware;
  hardware.threads = 1;
  hardware.time_model = [](const Program&, const Call&) { return kRunNs; };
  return hardware;
}

uint64_t busy() {
  return counters().total.busy_ns;
}

TEST_F(VxrtTime, ANewContextOnTheArrayCostsASwitch) {
  reset(with_fixed_time());
  Rig first, second(block_image("other"));
  xrt::run a = first.make_run(), b = second.make_run();
  run_to_completion(a);
  run_to_completion(a);
  EXPECT_EQ(busy(), 2 * kRunNs);  // the first one finds an empty array
  run_to_completion(b);
  EXPECT_EQ(busy(), 3 * kRunNs + 25'000);  // an ELF configures the array itself
  run_to_completion(a);
  EXPECT_EQ(counters().context_switches, 2u);
  EXPECT_EQ(counters().switch_ns, 50'000u);
}

TEST_F(VxrtTime, AnXclbinIsLoadedAsAWhole) {
  Image image = block_image();
  EXPECT_NEAR(switch_ms(image), 0.025, 1e-9);
  image.form = ImageForm::xclbin;
  EXPECT_NEAR(switch_ms(image), 2.5, 0.16);  // measured: 2.35 to 2.67 ms for 8 columns
  image.columns = 1;
  EXPECT_LT(switch_ms(image), 0.4);
}

TEST_F(VxrtTime, WakingUpAfterFiveIdleSeconds) {
  uint64_t now = 1'000'000'000'000;
  Hardware hardware = with_fixed_time();
  hardware.idle_clock = [&] { return now; };
  reset(hardware);
  {
    Rig rig;
    xrt::run run = rig.make_run();
    now += 6'000'000'000;  // a long set-up, which is the simulation's and no machine's
    run_to_completion(run);
    EXPECT_EQ(counters().wakes, 0u);
    now += 5'000'000'000;
    run_to_completion(run);
    EXPECT_EQ(counters().wakes, 0u);
    now += 5'000'000'001;
    run_to_completion(run);
    EXPECT_EQ(counters().wakes, 1u);
    EXPECT_EQ(busy(), 3 * kRunNs + 150'000'000);
    run_to_completion(run);
    now += 6'000'000'000;
    Rig awake(block_image("other"));  // making a context wakes the device too
    run_to_completion(run);
    EXPECT_EQ(counters().wakes, 1u);
  }
  reset({.threads = 2});  // before the clock goes
}

TEST_F(VxrtTime, ElfAndXclbinSlowEachOtherDownWhenTheyTakeTurns) {
  reset(with_fixed_time());
  Rig rig;
  xrt::run run = rig.make_run();
  Image image = block_image();
  image.form = ImageForm::xclbin;
  const xrt::xclbin xclbin = load_xclbin(image);
  rig.device.register_xclbin(xclbin);
  const xrt::hw_context context(rig.device, xclbin.get_uuid());
  const auto computing = [] { return busy() - counters().switch_ns; };
  run_to_completion(run);
  run_to_completion(run);
  EXPECT_EQ(computing(), 2 * kRunNs);  // that the other one lives is nothing
  xrt::run other(xrt::kernel(context, "MLIR_AIE"));
  other.start();  // without arguments: it ends as ERROR, but it had its turn
  other.wait(std::chrono::milliseconds(60000));
  const uint64_t before = computing();
  run_to_completion(run);
  EXPECT_EQ(computing() - before, 1400u);
  run_to_completion(run);
  EXPECT_EQ(computing() - before, 1400 + kRunNs);
}

// Published for Llama-3.2-1B: 7.3, 21.6 and 41 ms a prefill layer, 0.9 and 3.6 ms a decode layer,
// 13.5 ms for the head. The laws were fitted to them among others; docs/cost-model.md.
TEST_F(VxrtTime, ImagesOf1bTakeAboutWhatWasMeasured) {
  const struct {
    const char* program;
    double ms;
  } table[] = {{"rms_gemms_rope", 7.3}, {"flash_attn", 21.6}, {"o_ffn", 41},
               {"rms_gemv_rope", 0.9},  {"o_gemv_ffn", 3.65}, {"lm_head_gemv", 13.5}};
  for (const auto& row : table) {
    const Instance instance = air_image(kLlama32_1b, row.program).instances[0];
    const double ms = instance_ms(instance, instance.fixed_call, {});
    EXPECT_GT(ms, row.ms * 0.65) << row.program;
    EXPECT_LT(ms, row.ms * 1.35) << row.program;
  }
}

// Three launches are charged, not the eight operations they are written as.
TEST_F(VxrtTime, FusedLaunchesAreChargedOnce) {
  Instance instance = air_image(kLlama32_1b, "o_gemv_ffn").instances[0];
  const double three = instance_ms(instance, instance.fixed_call, {});
  instance.launches = 0;
  EXPECT_NEAR(instance_ms(instance, instance.fixed_call, {}) - three,
              5 * cost_parameters().elf.launch_us / 1e3, 1e-9);
}

TEST_F(VxrtTime, TheFusedDecodeHasALawOfItsOwn) {
  const Instance long_one = fused_decode_image(kLlama32_1b, 2048).instances[0];
  const Instance short_one = fused_decode_image(kLlama32_1b, 64).instances[0];
  const double ms = instance_ms(long_one, {1, 5, 0}, {});
  EXPECT_EQ(ms, fused_decode_ms(773'324'800, 16, 64, 2048));
  EXPECT_EQ(ms, instance_ms(long_one, {1, 2000, 0}, {}));  // the window counts, not L
  EXPECT_LT(instance_ms(short_one, {1, 5, 0}, {}), ms);
}

TEST_F(VxrtTime, TheIntegerGemmGoesByItsBytes) {
  const Instance gemm = gemm_i8_image(2048, 2048, 1, 8).instances[0];
  EXPECT_EQ(instance_ms(gemm, gemm.fixed_call, {}),
            byte_law_ms(cost_parameters().gemv, 2048.0 * 2048 + 2048 + 4 * 2048));
}

}  // namespace
}  // namespace tyto::vxrt
