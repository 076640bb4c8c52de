#include "cli/flags.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"
#include "shell/command_line.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

std::string problem(const EngineFlags& flags) {
  try {
    engine_options(flags);
  } catch (const Error& error) {
    return std::string(error.what()) + " (" + error.hint + ")";
  }
  return "none";
}

// With a model, so that none is looked for beside the test.
EngineFlags on(const std::string& device) {
  EngineFlags flags;
  flags.model.model = "m.gguf";
  flags.device = device;
  return flags;
}

TEST(DeviceFlags, SayWhichDevicesHeedThem) {
  EngineFlags flags;
  std::map<std::string, std::vector<std::string>> devices;
  for (const Flag& flag : device_flags(flags)) devices[flag.name()] = flag.rules.devices;
  const std::vector<std::string> any_npu = {"npu", "vnpu"};
  const std::vector<std::string> virtual_npu = {"vnpu"};
  const decltype(devices) expected = {
      {"--guard", {"npu", "vnpu"}},
      {"--isa", {"cpu"}},
      {"--weight-cache", {"cpu"}},
      {"--weights", any_npu},
      {"--on-device-error", {"npu", "vnpu", "vulkan"}},
      {"--prompt-rows", any_npu},
      {"--vnpu-machine", virtual_npu},
      {"--vnpu-numerics", virtual_npu},
      {"--vnpu-fault", virtual_npu},
      {"--vnpu-hostile", virtual_npu},
      {"--images-like", virtual_npu},
      {"--gpu", {"vulkan"}},
  };
  EXPECT_EQ(devices, expected);
}

TEST(DeviceFlags, OfAnotherDeviceAreRefused) {
  EngineFlags flags = on("cpu");
  flags.settings["prompt-rows"] = "64";
  EXPECT_EQ(problem(flags),
            "--prompt-rows: has no effect with --device cpu (it is for --device npu and --device "
            "vnpu)");
  flags = on("npu");
  flags.settings["vnpu-fault"] = "";
  EXPECT_EQ(problem(flags),
            "--vnpu-fault: has no effect with --device npu (it is for --device vnpu)");
  flags.device = "vnpu";
  EXPECT_EQ(problem(flags), "none");
}

TEST(DeviceFlags, TheCpuTakesPartWhateverTheDevice) {
  EngineFlags flags = on("vnpu");
  flags.settings["isa"] = "generic";
  EXPECT_EQ(problem(flags), "none");
}

TEST(DeviceFlags, PointIntoTheFlags) {
  EngineFlags flags = on("vnpu");
  flags.settings["weights"] = "int8";
  flags.settings["isa"] = "avx2";
  for (const Flag& flag : device_flags(flags))
    if (!is_heeded(flag, "cpu")) unset(flag.target);
  EXPECT_FALSE(flags.settings["weights"].has_value());
  EXPECT_EQ(flags.setting("isa", ""), "avx2");
}

TEST(DeviceFlags, OfSeveralDevicesAreForThoseThatHeedThem) {
  EngineFlags flags = on("auto");
  flags.settings["weights"] = "int8";
  flags.settings["isa"] = "avx2";
  const EngineFlags of_cpu = flags_for("cpu", {"cpu", "vnpu"}, flags);
  EXPECT_EQ(of_cpu.device, "cpu");
  EXPECT_EQ(of_cpu.setting("weights", "none"), "none");
  EXPECT_EQ(of_cpu.setting("isa", ""), "avx2");
  EXPECT_EQ(flags_for("vnpu", {"cpu", "vnpu"}, flags).setting("weights", ""), "int8");
  // With no device that has the setting, it stays, to be refused.
  EXPECT_EQ(flags_for("cpu", {"cpu"}, flags).setting("weights", ""), "int8");
}

TEST(TokenIds, AreSeparatedByCommasOrWhiteSpace) {
  const std::vector<Token> expected = {1, 20, 3};
  for (const std::string text : {"1,20,3", "1, 20 ,3", "1 20 3\n", "\t1\n20\r\n3 "})
    EXPECT_EQ(parse_tokens(text, "--ids"), expected) << text;
  EXPECT_TRUE(parse_tokens(" \n", "--ids").empty());
  for (const std::string text :
       {"1,,2", ",1", "1,", "1, ,2", "1,x", "1x", "-1", "+1", "0x1", "1;2", "2147483648", "1.5"})
    EXPECT_ERROR(parse_tokens(text, "--ids"), "expected token ids separated by commas") << text;
}

}  // namespace
}  // namespace tyto
