// What a machine's devices add to a combination.
#include "check/combination.h"

#include <gtest/gtest.h>

#include "device/device.h"
#include "engine/engine.h"
#include "evidence/verified.h"

namespace tyto {
namespace {

Combination combination() {
  return {.tyto = "1.0",
          .weights = "w",
          .driver = "d",
          .hardware = "h",
          .device = "vnpu",
          .fusion = "block",
          .weight_form = "bf16",
          .kv_type = "f16",
          .numerics = "bf16",
          .images = {"a", "b", "c"}};
}

std::string line(bool passed, const std::string& time, const Combination& of = combination()) {
  return record_line({of, passed, time, "the f32 reference", 2}) + "\n";
}

DeviceInfo gpu(const std::string& name) {
  return {.name = "vulkan", .description = name, .driver = "radv Mesa 25", .numerics = "f32"};
}

// One driver serves several GPUs, and its version is the same on all of them.
TEST(Combination, OneGpusVerificationDoesNotCountForAnother) {
  const DeviceInfo cpu{
      .name = "cpu", .description = "cores, 8 threads", .shares_host_memory = true};
  Combination small = combination(), large = combination();
  add_devices(small, std::vector{gpu("Radeon 890M"), cpu}, {});
  add_devices(large, std::vector{gpu("Radeon RX 7900"), cpu}, {});
  EXPECT_EQ(small.driver, large.driver);
  EXPECT_EQ(small.hardware, "Radeon 890M");
  EXPECT_EQ(small.numerics, "f32");
  EXPECT_EQ(small.weight_form, "as in the file");
  EXPECT_EQ(small.kv_type, "f16");
  EXPECT_EQ(look_up(line(true, "t", small), small).state, Verified::yes);
  EXPECT_EQ(look_up(line(true, "t", small), large).state, Verified::no);
  // A line from before lines named the hardware is about no GPU, and no damage either.
  std::string older = line(true, "t", small);
  const size_t at = older.find(",\"hardware\"");
  older.erase(at, older.find(",\"weights\"") - at);
  EXPECT_EQ(look_up(older, small).state, Verified::no);
  EXPECT_EQ(look_up(older, small).warning, "");
}

TEST(Combination, EveryDeviceTakesPartAndTheProcessorIsNamedByItsInstructions) {
  const DeviceInfo cpu{
      .name = "cpu", .description = "cores, 8 threads", .shares_host_memory = true};
  DeviceInfo npu{.name = "vnpu", .description = "virtual NPU"};
  npu.numerics = npu.weight_form = "bf16";
  npu.fixed = FixedShapes{.kv = KvForm{}};
  Combination both = combination(), host = combination();
  add_devices(both, std::vector{gpu("Radeon 890M"), npu, cpu}, {});
  EXPECT_EQ(both.hardware, "Radeon 890M; virtual NPU");
  EXPECT_EQ(both.numerics, "f32; bf16");
  EXPECT_EQ(both.weight_form, "as in the file; bf16");
  EXPECT_EQ(both.kv_type, "the device's");
  add_devices(host, std::vector{cpu}, {});
  EXPECT_EQ(host.hardware, "");
  EXPECT_EQ(host.numerics, "f32");
  EXPECT_EQ(host.driver.find("tyto's "), 0u) << host.driver;
}

}  // namespace
}  // namespace tyto
