#include "cli/flags.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

// A command with the flags of the engine, given some of them.
struct Asked {
  explicit Asked(const std::vector<std::string>& words) : command("run", "") {
    add_engine_flags(command, choice);
    std::vector<std::string> all = {"-m", "m.gguf"};  // else one is looked for beside the test
    all.insert(all.end(), words.begin(), words.end());
    parse(command, all);
  }

  std::string problem() {
    try {
      settle_engine(command, choice);
    } catch (const Error& error) {
      return std::string(error.what()) + " (" + error.hint + ")";
    }
    return "none";
  }

  CommandLine command;
  EngineChoice choice;
};

std::string problem(const std::vector<std::string>& words) {
  return Asked(words).problem();
}

TEST(EngineFlags, AreReadIntoTheOptions) {
  Asked asked({"--device",
               "vnpu",
               "--decode-device",
               "cpu",
               "--min-n",
               "9",
               "--kv-type",
               "q8_0",
               "--fusion",
               "op",
               "--kv-memory",
               "3M",
               "--on-device-error",
               "fail",
               "--weights",
               "int8",
               "--lora",
               "a.gguf=0.5",
               "-t",
               "3",
               "-c",
               "64"});
  EXPECT_EQ(asked.problem(), "none");
  const EngineOptions& options = asked.choice.options;
  EXPECT_EQ(options.model, "m.gguf");
  EXPECT_EQ(options.prefill(), "vnpu");
  EXPECT_EQ(options.device, "cpu");
  EXPECT_EQ(device_names(options), "vnpu/cpu");
  EXPECT_EQ(options.threads, 3u);
  EXPECT_EQ(options.settings, (DeviceSettings{{"weights", "int8"}}));
  ASSERT_EQ(options.adapters.size(), 1u);
  EXPECT_EQ(adapter_text(options.adapters[0]), "a.gguf=0.5");
  const PipelineOptions& pipeline = options.pipeline;
  EXPECT_EQ(pipeline.min_prompt, 9u);
  EXPECT_EQ(pipeline.on_error, OnDeviceError::fail);
  EXPECT_EQ(pipeline.forward.context, 64u);
  EXPECT_EQ(pipeline.forward.kv_type, DType::q8_0);
  EXPECT_EQ(pipeline.forward.fusion, Fusion::op);
  EXPECT_EQ(pipeline.forward.kv_memory, 3u << 20);
}

TEST(EngineFlags, ErrorsNameFlagAndValue) {
  EXPECT_ERROR(Asked({"--kv-memory", "1X"}), "--kv-memory 1X: expected a size like 512M or 4G");
  EXPECT_ERROR(Asked({"--fusion", "all"}), "--fusion");
  EXPECT_ERROR(Asked({"--lora", "a=b"}), "--lora a=b: expected FILE or FILE=SCALE");
  EXPECT_EQ(problem({"--min-n", "5"}),
            "--min-n: has no effect while prompts and tokens both go to cpu (choose two with "
            "--prefill-device and --decode-device)");
  EXPECT_EQ(problem({"--prefill-device", "vnpu", "--min-n", "5", "--max-n", "4"}),
            "--min-n 5 --max-n 4: leave no prompt to the prefill device (give a --max-n that is "
            "not less)");
}

TEST(DeviceFlags, SayWhichDevicesHaveThem) {
  Asked asked({});
  std::map<std::string, std::vector<std::string>> devices;
  for (const Flag& flag : asked.command.flags)
    if (!flag.rules.devices.empty()) devices[flag.name()] = flag.rules.devices;
  const std::vector<std::string> any_npu = {"npu", "vnpu"};
  const std::vector<std::string> virtual_npu = {"vnpu"};
  const decltype(devices) expected = {
      {"--decode-images", any_npu},
      {"--first-dispatch", any_npu},
      {"--guard", any_npu},
      {"--npu-device", {"npu"}},
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

TEST(DeviceFlags, FlagsOfAnotherDeviceAreRefused) {
  EXPECT_EQ(problem({"--prompt-rows", "64"}),
            "--prompt-rows: has no effect with --device cpu (it is for --device npu and --device "
            "vnpu)");
  EXPECT_EQ(problem({"--device", "npu", "--vnpu-fault", "x"}),
            "--vnpu-fault: has no effect with --device npu (it is for --device vnpu)");
  EXPECT_EQ(problem({"--device", "vnpu", "--vnpu-fault", "x"}), "none");
  EXPECT_EQ(problem({"--on-device-error", "retry"}),
            "--on-device-error: has no effect with --device cpu (it is for --device npu and "
            "--device vnpu and --device vulkan)");
}

TEST(DeviceFlags, TheCpuTakesPartWhateverTheDevice) {
  EXPECT_EQ(problem({"--device", "vnpu", "--isa", "generic"}), "none");
}

TEST(DeviceFlags, OneOfSeveralDevicesGetsItsOwnSettings) {
  const std::vector<std::string> both = {"cpu", "vnpu"};
  const Asked asked({"--weights", "int8", "--isa", "avx2"});
  const EngineOptions cpu = options_on("cpu", both, asked.choice);
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(cpu.settings, (DeviceSettings{{"isa", "avx2"}}));
  const EngineOptions vnpu = options_on("vnpu", both, asked.choice);
  EXPECT_EQ(vnpu.settings, asked.choice.options.settings);
  EXPECT_NO_THROW(check_engine_flags(asked.command, std::vector{cpu, vnpu}));
  // With no device that has the setting, it stays, to be refused.
  const EngineOptions alone = options_on("cpu", {"cpu"}, asked.choice);
  EXPECT_EQ(alone.settings.at("weights"), "int8");
  EXPECT_ERROR(check_engine_flags(asked.command, std::vector{alone}), "--weights: has no effect");
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
