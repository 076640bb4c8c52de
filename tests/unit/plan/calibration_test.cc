#include "plan/calibration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "model/synth.h"
#include "plan/rates.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

const CalibratedMachine kHere = {"Some CPU", 8, "1.0"};

CalibratedDevice cpu() {
  return {.name = "cpu",
          .description = "Some CPU, 8 threads",
          .driver = "",
          .prefill = {{16, 100.5}, {512, 200}},
          .decode = {{0, 10}, {512, 9}}};
}

CalibratedDevice virtual_npu() {
  return {.name = "vnpu",
          .description = "virtual",
          .driver = "",
          .is_modelled = true,
          .prefill = {{16, 300}},
          .decode = {{16, 40}},
          .kv_gb_s = 5};
}

CalibratedModel measured_with(const std::string& type, uint64_t bytes) {
  return {.name = "llama 1.24B " + type,
          .type = type,
          .weight_bytes = bytes,
          .time = "2026-01-31T12:00:00Z",
          .devices = {cpu(), virtual_npu()}};
}

ModelDescription model_of(const std::string& type, uint64_t bytes) {
  ModelDescription model;
  model.config = shape_by_name("llama-3.2-1b");
  model.main_type = type;
  model.weight_bytes = bytes;
  return model;
}

DeviceInfo info_of(const CalibratedDevice& device) {
  DeviceInfo info;
  info.name = device.name;
  info.description = device.description;
  info.driver = device.driver;
  return info;
}

class CalibrationFile : public testing::Test {
 protected:
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("calibration_") + testing::UnitTest::GetInstance()->current_test_info()->name() +
       ".json");

  void TearDown() override { std::filesystem::remove(path_); }
  Calibration read(const std::string& text) {
    std::ofstream(path_) << text;
    return calibration_from(path_);
  }
  std::string problem(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::input);
      return error.what();
    }
    return "none";
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(CalibrationFile, IsReadAsItWasWritten) {
  const Calibration written{kHere, {measured_with("bf16", 1000)}};
  const std::string text = calibration_json(written);
  EXPECT_TRUE(text.starts_with(kCalibrationFile.beginning));
  const Calibration found = read(text);
  EXPECT_EQ(found.machine, kHere);
  ASSERT_EQ(found.models.size(), 1);
  EXPECT_EQ(found.models[0].time, "2026-01-31T12:00:00Z");
  ASSERT_EQ(found.models[0].devices.size(), 2);
  EXPECT_EQ(found.models[0].devices[0].prefill, cpu().prefill);
  EXPECT_EQ(found.models[0].devices[0].decode, cpu().decode);
  EXPECT_EQ(found.models[0].devices[0].kv_gb_s, 0);
  EXPECT_TRUE(found.models[0].devices[1].is_modelled);
  EXPECT_EQ(found.models[0].devices[1].kv_gb_s, 5);
  EXPECT_EQ(calibration_json(found), text);
}

TEST_F(CalibrationFile, ModelledFiguresHaveANameOfTheirOwn) {
  const std::string text = calibration_json({kHere, {measured_with("bf16", 1000)}});
  EXPECT_NE(text.find("\"modelled_tok_s\": 40"), std::string::npos);
  // And cannot be passed off as measured ones.
  EXPECT_NE(problem(replaced(text, "\"modelled\": true", "\"modelled\": false")).find("tok_s"),
            std::string::npos);
}

TEST_F(CalibrationFile, DamageIsNamed) {
  const std::string text = calibration_json({kHere, {measured_with("bf16", 1000)}});
  const std::pair<const char*, const char*> damages[] = {
      {"calibration-1", "calibration-0"},
      {"\"tokens\": 512", "\"tokens\": 16"},
      {"\"tokens\": 512", "\"tokens\": -1"},
      {"\"tok_s\": 100.5", "\"tok_s\": 0"},
      {"\"tok_s\": 100.5", "\"tok_s\": -1e3"},
      {"\"tok_s\": 100.5", "\"tok_s\": \"fast\""},
      {"\"weight_bytes\": 1000", "\"weight_bytes\": 0"},
      {"\"devices\": [", "\"divices\": ["},
      {"\"kv_gb_s\": 5", "\"kv_gb_s\": 0"},
      {"\"cpu\": \"Some CPU\"", "\"cpu\": 1"},
  };
  for (const auto& [from, to] : damages) EXPECT_NE(problem(replaced(text, from, to)), "none") << to;
  for (const char* junk : {"", "{}", "[]", "null", "{\"schema\": \"tyto-receipt-1\"}"})
    EXPECT_NE(problem(junk), "none") << junk;
  EXPECT_ERROR(calibration_from("/nowhere/calibration.json"), "cannot open");
}

TEST(Calibration, OfAnotherMachineOrVersionSaysSo) {
  const Calibration kept{kHere};
  EXPECT_EQ(why_not_here(kept, kHere), std::nullopt);
  EXPECT_EQ(why_not_here(kept, {"Other CPU", 8, "1.0"}),
            "is of another machine (Some CPU, 8 threads)");
  EXPECT_EQ(why_not_here(kept, {"Some CPU", 4, "1.0"}),
            "is of another machine (Some CPU, 8 threads)");
  EXPECT_EQ(why_not_here(kept, {"Some CPU", 8, "1.1"}), "was made with Tyto 1.0");
}

TEST(Calibration, AModelMeasuredAgainReplacesItself) {
  Calibration kept{kHere};
  add(kept, measured_with("bf16", 1000));
  add(kept, measured_with("q8_0", 500));
  CalibratedModel newer = measured_with("bf16", 1000);
  newer.time = "2026-02-01T00:00:00Z";
  add(kept, newer);
  ASSERT_EQ(kept.models.size(), 2);
  EXPECT_EQ(nearest_model(kept, model_of("bf16", 1000))->time, newer.time);
}

TEST(Calibration, FiguresCarryOverToModelsOfTheSameTypeAndASimilarSize) {
  const Calibration kept{kHere, {measured_with("bf16", 1000), measured_with("bf16", 3000)}};
  EXPECT_EQ(nearest_model(kept, model_of("bf16", 1200)), &kept.models[0]);
  EXPECT_EQ(nearest_model(kept, model_of("bf16", 9000)), &kept.models[1]);
  EXPECT_EQ(nearest_model(kept, model_of("bf16", 20'000)), nullptr);
  EXPECT_EQ(nearest_model(kept, model_of("q8_0", 1000)), nullptr);
  const auto same =
      calibrated_rates(kept.models[0], info_of(cpu()), "", model_of("bf16", 1000)).rates;
  EXPECT_EQ(same->kind, PlanKind::measured);
  EXPECT_EQ(same->decode, cpu().decode);
  const auto twice =
      calibrated_rates(kept.models[0], info_of(cpu()), "", model_of("bf16", 2000)).rates;
  EXPECT_EQ(twice->kind, PlanKind::estimated);
  EXPECT_EQ(twice->decode.front().tokens_per_second, 5);
  const auto modelled =
      calibrated_rates(kept.models[0], info_of(virtual_npu()), "", model_of("bf16", 1000)).rates;
  EXPECT_EQ(modelled->kind, PlanKind::modelled);
}

TEST(Calibration, OfAnotherDriverDoesNotCount) {
  const CalibratedModel with = measured_with("bf16", 1000);
  DeviceInfo newer = info_of(cpu());
  newer.driver = "vendor 2.0";
  EXPECT_EQ(calibrated_rates(with, newer, "", model_of("bf16", 1000)).why_none,
            "cpu was measured as another: Some CPU, 8 threads");
  DeviceInfo absent;
  absent.name = "gpu";
  EXPECT_EQ(calibrated_rates(with, absent, "", model_of("bf16", 1000)).why_none,
            "gpu was not measured");
}

TEST(Calibration, OfOtherSettingsDoesNotCount) {
  CalibratedModel with = measured_with("bf16", 1000);
  EXPECT_EQ(calibrated_rates(with, info_of(cpu()), "--fusion op", model_of("bf16", 1000)).why_none,
            "cpu was measured with other settings");
  with.devices[0].settings = "--weights int8";
  EXPECT_EQ(calibrated_rates(with, info_of(cpu()), "", model_of("bf16", 1000)).why_none,
            "cpu was measured with --weights int8");
  EXPECT_TRUE(calibrated_rates(with, info_of(cpu()), "--weights int8", model_of("bf16", 1000))
                  .rates.has_value());
}

TEST(ModelledRates, FollowTheCostModelWhereItKnowsTheDevice) {
  DeviceInfo npu;
  npu.name = "some-npu";
  npu.machine = "strix";
  npu.fixed = FixedShapes{.prompt_rows = {256, 2048}};
  const ModelDescription model = model_of("bf16", 2'500'000'000);
  const DeviceRates rates = modelled_rates(npu, model, {.prompt_tokens = 2048}, Fusion::block);
  PlanRequest request{.config = model.config, .shape = "", .machine = "strix"};
  request.prompt_rows = {256, 2048};
  request.context_tokens = 2048 + 64;
  request.host = PlanHost::native;
  const PlanRow row = what_if(request, {KernelSet::air_bf16, Fusion::block});
  EXPECT_EQ(rates.kind, PlanKind::modelled);
  EXPECT_DOUBLE_EQ(rates.prefill.front().tokens_per_second, row.prefill_tok_s);
  EXPECT_DOUBLE_EQ(rates.decode.front().tokens_per_second, row.decode_tok_s);
  EXPECT_GT(rates.kv_gb_s, 0);
}

TEST(ModelledRates, ElsewhereMemoryAndArithmeticBoundThem) {
  DeviceInfo gpu;
  gpu.name = "gpu";
  const ModelDescription model = model_of("bf16", 2'500'000'000);
  EXPECT_FALSE(modelled_rates(gpu, model, {}, Fusion::block).is_known());
  gpu.limits = {.gb_s = 100, .gflops = 10'000, .source = ""};
  const DeviceRates rates = modelled_rates(gpu, model, {}, Fusion::block);
  ASSERT_TRUE(rates.is_known());
  EXPECT_LT(rates.decode.front().tokens_per_second, 40);  // 100 GB/s by 2.5 GB
  EXPECT_GT(rates.decode.front().tokens_per_second, 35);
  // A prompt of one token reads the weights, too.
  const DeviceRates one = modelled_rates(gpu, model, {.prompt_tokens = 1}, Fusion::block);
  EXPECT_NEAR(one.prefill.front().tokens_per_second, 40, 1e-9);
  EXPECT_EQ(estimated_rates("cpu", gpu.limits, model, {}).kind, PlanKind::estimated);
}

}  // namespace
}  // namespace tyto
