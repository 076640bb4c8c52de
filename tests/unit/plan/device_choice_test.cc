#include "plan/device_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto {
namespace {

// Made-up machines: a GPU that is fast with prompts, an NPU that is fast with tokens, a processor.
DeviceRates gpu_rates() {
  return {.name = "vulkan",
          .kind = PlanKind::measured,
          .prefill = {{16, 400}, {512, 4000}},
          .decode = {{0, 20}},
          .kv_gb_s = 10};
}
DeviceRates npu_rates() {
  return {.name = "npu",
          .kind = PlanKind::measured,
          .prefill = {{16, 400}, {512, 500}},
          .decode = {{0, 50}},
          .kv_gb_s = 10};
}
DeviceRates cpu_rates() {
  return {.name = "cpu",
          .kind = PlanKind::measured,
          .prefill = {{16, 100}, {512, 200}},
          .decode = {{0, 10}}};
}

DeviceChoice choice(std::vector<DeviceRates> devices, const Workload& work,
                    const std::string& require = "") {
  return choose_devices(devices, work, parse_requirement(require));
}

TEST(DeviceChoice, OneDeviceIsTheOnlyChoice) {
  const DeviceChoice made = choice({cpu_rates()}, {});
  EXPECT_EQ(made.prefill, "cpu");
  EXPECT_EQ(made.decode, "cpu");
  EXPECT_EQ(made.min_n, 1);
  EXPECT_EQ(made.reason, "cpu, the only choice");
  DeviceRates unknown{.name = "cpu"};
  EXPECT_EQ(choice({unknown}, {}).decode, "cpu");
}

TEST(DeviceChoice, LongPromptsGoWherePrefillIsFastAndTokensWhereDecodeIs) {
  const DeviceChoice made = choice({cpu_rates(), npu_rates(), gpu_rates()},
                                   {.prompt_tokens = 4000, .generated_tokens = 200});
  EXPECT_EQ(made.prefill, "vulkan");
  EXPECT_EQ(made.decode, "npu");
  EXPECT_EQ(made.kind, PlanKind::measured);
  EXPECT_EQ(
      made.reason,
      "prefill on vulkan, decode on npu: 5.0 s measured for 4000 + 200 tokens; vulkan alone 11 "
      "s measured, npu alone 12 s measured, cpu alone 40 s measured");
}

TEST(DeviceChoice, ShortPromptsStayWhereTokensAreDecoded) {
  const DeviceChoice made = choice({cpu_rates(), npu_rates(), gpu_rates()},
                                   {.prompt_tokens = 16, .generated_tokens = 200});
  EXPECT_EQ(made.prefill, "npu");
  EXPECT_EQ(made.decode, "npu");
}

TEST(DeviceChoice, MinNIsWherePrefillElsewhereBeginsToPay) {
  const Workload work{
      .prompt_tokens = 4000, .generated_tokens = 200, .kv_bytes_per_token = 100'000};
  const DeviceChoice made = choice({npu_rates(), gpu_rates()}, work);
  ASSERT_EQ(made.prefill, "vulkan");
  const auto gains = [&](uint32_t tokens) {
    Workload shorter = work;
    shorter.prompt_tokens = tokens;
    return seconds_of(npu_rates(), npu_rates(), shorter) -
           seconds_of(gpu_rates(), npu_rates(), shorter);
  };
  EXPECT_GT(made.min_n, 16);
  EXPECT_GT(gains(made.min_n), 0);
  EXPECT_LE(gains(made.min_n - 1), 0);
}

TEST(DeviceChoice, ASlowHandoverIsNotWorthIt) {
  DeviceRates far = gpu_rates();
  far.kv_gb_s = 0.01;
  const Workload work{
      .prompt_tokens = 2000, .generated_tokens = 1000, .kv_bytes_per_token = 100'000};
  EXPECT_EQ(choice({npu_rates(), gpu_rates()}, work).prefill, "vulkan");
  EXPECT_EQ(choice({npu_rates(), far}, work).prefill, "npu");
}

TEST(DeviceChoice, TwoDevicesMustBeClearlyFasterThanOne) {
  DeviceRates alike = npu_rates();
  alike.name = "other";
  alike.prefill = {{16, 404}, {512, 505}};
  EXPECT_EQ(choice({npu_rates(), alike}, {.prompt_tokens = 4000, .generated_tokens = 2000}).prefill,
            choice({npu_rates(), alike}, {.prompt_tokens = 4000, .generated_tokens = 2000}).decode);
}

TEST(DeviceChoice, WhatNobodyKnowsIsNotPreferred) {
  const DeviceRates unknown{.name = "new"};
  const DeviceChoice made = choice({unknown, cpu_rates()}, {});
  EXPECT_EQ(made.prefill, "cpu");
  EXPECT_NE(made.reason.find("new unknown"), std::string::npos) << made.reason;
  // Where nothing is known the order decides.
  EXPECT_EQ(choice({DeviceRates{.name = "a"}, DeviceRates{.name = "b"}}, {}).decode, "a");
}

TEST(DeviceChoice, TheLeastCertainFigureNamesTheKind) {
  DeviceRates modelled = npu_rates();
  modelled.kind = PlanKind::modelled;
  const DeviceChoice made = choice({cpu_rates(), modelled}, {});
  EXPECT_EQ(made.decode, "npu");
  EXPECT_EQ(made.kind, PlanKind::modelled);
  EXPECT_NE(made.reason.find("s modelled for"), std::string::npos) << made.reason;
  EXPECT_NE(made.reason.find("cpu 15 s measured"), std::string::npos) << made.reason;
}

TEST(DeviceChoice, WhatIsRequiredIsChosenWhateverItsSpeed) {
  const Workload work{.prompt_tokens = 4000, .generated_tokens = 200};
  EXPECT_EQ(choice({cpu_rates(), npu_rates(), gpu_rates()}, work, "cpu").prefill, "cpu");
  const DeviceChoice decode = choice({cpu_rates(), npu_rates(), gpu_rates()}, work, "cpu:decode");
  EXPECT_EQ(decode.prefill, "vulkan");
  EXPECT_EQ(decode.decode, "cpu");
  try {
    choice({cpu_rates()}, work, "npu");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::require);
  }
}

TEST(DeviceChoice, FiguresBetweenAndBeyondPoints) {
  const DeviceRates rates{
      .name = "x", .prefill = {{10, 100}, {100, 200}}, .decode = {{0, 100}, {1000, 50}}};
  EXPECT_DOUBLE_EQ(prefill_seconds(rates, 1), 0.1);  // no faster than the shortest
  EXPECT_DOUBLE_EQ(prefill_seconds(rates, 55), 0.3);
  EXPECT_DOUBLE_EQ(prefill_seconds(rates, 300), 1.5);
  EXPECT_DOUBLE_EQ(decode_seconds(rates, 500), 0.015);
  EXPECT_DOUBLE_EQ(decode_seconds(rates, 3000), 0.04);
  const DeviceRates noisy{.name = "x", .prefill = {{1, 1}}, .decode = {{0, 50}, {100, 51}}};
  EXPECT_DOUBLE_EQ(decode_seconds(noisy, 100'000), 1.0 / 51);  // never faster for more
}

}  // namespace
}  // namespace tyto
