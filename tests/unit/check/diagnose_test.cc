// Watching a pipeline, and finding the layer in which its device goes wrong.
#include "check/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "device/vnpu/machine/control.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;

constexpr uint32_t kLayers = 4;

Config config_of(RopeLayout layout = RopeLayout::halves) {
  Config config = testing_support::small_config();
  config.layers = kLayers;
  config.rope.layout = layout;
  return config;
}

struct Setting {
  std::string device;
  Fusion fusion = Fusion::block;
  NpuWeights weights = NpuWeights::bf16;
};

class Diagnose : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  // The device has `on_device`, the reference `model`.
  static Diagnosis diagnose(const Model& model, const Model& on_device, const Setting& setting,
                            double tolerance = 0.999) {
    DeviceRecord record;
    run(on_device, setting, record, ReferenceRecord(model, kPrompt, 3));
    Diagnosis diagnosis;
    diagnosis.layers = kLayers;
    diagnosis.tolerance = tolerance;
    compare_records(record.dispatches(), ReferenceRecord(model, kPrompt, 3), diagnosis);
    return diagnosis;
  }

  static void run(const Model& model, const Setting& setting, DeviceRecord& record,
                  const ReferenceRecord& reference) {
    ThreadPool pool{2};
    Trace trace;
    NpuSettings npu;
    npu.weights = setting.weights;
    npu.prompt_rows = {64};
    const DeviceEnv env{pool, trace, setting.fusion, model_dims(model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(open_device(setting.device, env));
    if (setting.device != "cpu") devices.push_back(open_device("cpu", env));
    std::vector<Device*> order;
    for (const auto& device : devices) order.push_back(device.get());
    PipelineOptions options;
    options.forward.fusion = setting.fusion;
    options.forward.prefill_chunk = 5;  // the prompt takes two
    options.forward.observer = record.observer();
    testing_support::OneSequence pipeline(model, order, options, trace);
    const std::span<const Token> tokens = reference.tokens();
    pipeline.run(tokens.first(kPrompt.size()));
    for (size_t i = kPrompt.size(); i < tokens.size(); ++i) pipeline.run(tokens.subspan(i, 1));
  }

  static std::set<std::string> seen(const Diagnosis& diagnosis, Phase phase, int32_t layer) {
    std::set<std::string> result;
    for (const StepError& step : diagnosis.steps)
      if (step.phase == phase && step.layer == layer) result.insert(step.step);
    return result;
  }

  static inline const std::vector<Token> kPrompt = {1, 2, 3, 4, 5, 6, 7};
};

using Steps = std::set<std::string>;

TEST_F(Diagnose, EveryLaunchOfTheCpuCanBeSeenByItself) {
  const RandomModel random = random_model(config_of(), DType::f32);
  const Diagnosis diagnosis = diagnose(random.model, random.model, {"cpu", Fusion::op}, 0.99999);
  const Steps want = {"attn_norm",     "q",        "k",       "v",           "q_rope",
                      "k_rope",        "k_cache",  "v_cache", "attention",   "o",
                      "attn_residual", "ffn_norm", "down",    "ffn_residual"};
  for (int32_t layer = 0; layer < static_cast<int32_t>(kLayers); ++layer) {
    EXPECT_EQ(seen(diagnosis, Phase::prefill, layer), want);
    EXPECT_EQ(seen(diagnosis, Phase::decode, layer), want);
  }
  EXPECT_EQ(first_past(diagnosis), nullptr) << diagnosis_verdict(diagnosis);
  for (const StepError& step : diagnosis.steps)
    if (step.layer >= 0) {
      EXPECT_EQ(step.rows, step.phase == Phase::prefill ? 7u : 3u) << name(step);
    }
  // One dispatch per layer has the rest: IRON's feed-forward operator.
  ASSERT_EQ(diagnosis.hidden.size(), 2u);
  EXPECT_EQ(diagnosis.hidden[0].steps, (std::vector<std::string>{"gate", "up", "swiglu"}));
  EXPECT_EQ(diagnosis.uncompared, (std::vector<std::string>{"rope_table"}));
}

TEST_F(Diagnose, OfBlocksWhatLeavesThemIsSeen) {
  const RandomModel random = random_model(config_of(), DType::bf16);
  const Steps block = {"q_rope", "k_rope", "v", "k_cache", "v_cache", "attention", "ffn_residual"};
  for (const char* device : {"cpu", "vnpu"}) {
    const Diagnosis diagnosis = diagnose(random.model, random.model, {device, Fusion::block});
    EXPECT_EQ(first_past(diagnosis), nullptr) << diagnosis_verdict(diagnosis);
    for (const Phase phase : {Phase::prefill, Phase::decode})
      for (const std::optional<double>& cosine : residual_cosines(diagnosis, phase)) {
        ASSERT_TRUE(cosine);
        EXPECT_GE(*cosine, 0.999);
      }
    EXPECT_EQ(seen(diagnosis, Phase::decode, 2), block) << device;
  }
}

TEST_F(Diagnose, AFusedTokenShowsItsCacheAndItsLogits) {
  const RandomModel random = random_model(config_of(), DType::bf16);
  const Diagnosis diagnosis = diagnose(random.model, random.model, {"vnpu", Fusion::token});
  for (int32_t layer = 0; layer < static_cast<int32_t>(kLayers); ++layer)
    EXPECT_EQ(seen(diagnosis, Phase::decode, layer), (Steps{"k_cache", "v_cache"}));
  EXPECT_EQ(seen(diagnosis, Phase::decode, -1), (Steps{"embed", "lm_head"}));
  EXPECT_FALSE(residual_cosines(diagnosis, Phase::decode)[0]);
  EXPECT_EQ(first_past(diagnosis), nullptr) << diagnosis_verdict(diagnosis);
}

TEST_F(Diagnose, AllSettingsAreWithinTheirTolerance) {
  const RandomModel random = random_model(config_of(), DType::bf16);
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token})
    for (const char* device : {"cpu", "vnpu"}) {
      const Diagnosis diagnosis = diagnose(random.model, random.model, {device, fusion});
      EXPECT_EQ(first_past(diagnosis), nullptr) << device << diagnosis_verdict(diagnosis);
    }
  const Diagnosis int8 =
      diagnose(random.model, random.model, {"vnpu", Fusion::op, NpuWeights::int8}, 0.99);
  EXPECT_EQ(first_past(int8), nullptr) << diagnosis_verdict(int8);
}

TEST_F(Diagnose, HeadsRotatedByPairsAreComparedInTheCheckpointsOrder) {
  const RandomModel random = random_model(config_of(RopeLayout::pairs), DType::bf16);
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token})
    for (const char* device : {"cpu", "vnpu"}) {
      const Diagnosis diagnosis = diagnose(random.model, random.model, {device, fusion});
      EXPECT_EQ(first_past(diagnosis), nullptr) << device << diagnosis_verdict(diagnosis);
    }
}

// The planted error: one matrix of one layer is another one, for the device alone.
struct Planted {
  const char* name;
  TensorView LayerWeights::* matrix;
  Steps may_name;  // what of the layer shows it first
};

TEST_F(Diagnose, APlantedErrorIsFoundInItsLayer) {
  const std::vector<Planted> plants = {{"q", &LayerWeights::q, {"q", "q_rope"}},
                                       {"v", &LayerWeights::v, {"v", "v_cache"}},
                                       {"o", &LayerWeights::o, {"o", "ffn_residual"}},
                                       {"down", &LayerWeights::down, {"down", "ffn_residual"}}};
  const RandomModel good = random_model(config_of(), DType::bf16);
  for (uint32_t layer = 0; layer < kLayers; ++layer)
    for (const Planted& plant : plants) {
      RandomModel bad = random_model(config_of(), DType::bf16);
      TensorView& matrix = bad.model.weights.layers[layer].*plant.matrix;
      matrix = bad.tensor(matrix.dtype, matrix.rows, matrix.cols, 0.3f);
      for (const Fusion fusion : {Fusion::op, Fusion::block})
        for (const char* device : {"cpu", "vnpu"}) {
          const Diagnosis diagnosis = diagnose(good.model, bad.model, {device, fusion});
          const StepError* first = first_past(diagnosis);
          ASSERT_NE(first, nullptr) << device << " " << plant.name << layer;
          EXPECT_EQ(first->layer, static_cast<int32_t>(layer)) << device << " " << plant.name;
          EXPECT_EQ(plant.may_name.count(first->step), 1u) << name(*first) << " " << plant.name;
          EXPECT_EQ(first->phase, Phase::prefill);
        }
    }
}

TEST_F(Diagnose, AnErrorThatOnlyDecodingHasIsFoundThere) {
  // Fused decoding at --fusion token shows the rows of the cache: of layer k the values.
  const RandomModel good = random_model(config_of(), DType::bf16);
  const ReferenceRecord reference(good.model, kPrompt, 3);
  for (int32_t layer = 0; layer < static_cast<int32_t>(kLayers); ++layer) {
    DeviceRecord record;
    run(good.model, {"vnpu", Fusion::token}, record, reference);
    std::vector<ObservedDispatch> dispatches = record.dispatches();
    const StepKey planted{Role::v_cache, static_cast<uint16_t>(layer)};
    for (ObservedDispatch& dispatch : dispatches)
      for (Observed& seen : dispatch.results)
        if (seen.step == planted && seen.position >= kPrompt.size())
          for (float& value : seen.values) value = -value;
    Diagnosis diagnosis;
    diagnosis.layers = kLayers;
    compare_records(dispatches, reference, diagnosis);
    const StepError* first = first_past(diagnosis);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(name(*first), "L0" + std::to_string(layer) + ".v_cache in decode");
  }
}

TEST_F(Diagnose, RecordsAreCopiesOfTheirOwn) {
  const RandomModel random = random_model(config_of(), DType::f32);
  DeviceRecord record;
  run(random.model, {"cpu", Fusion::op}, record, ReferenceRecord(random.model, kPrompt, 3));
  // The residual stream is one buffer for all layers; what was seen of it differs from layer to
  // layer, and no two records share memory.
  std::set<const float*> places;
  std::set<std::vector<float>> streams;
  size_t residuals = 0, records = 0;
  for (const ObservedDispatch& dispatch : record.dispatches())
    for (const Observed& seen : dispatch.results) {
      places.insert(seen.values.data());
      ++records;
      if (seen.step.role != Role::ffn_residual) continue;
      streams.insert(seen.values);
      ++residuals;
    }
  EXPECT_EQ(places.size(), records);
  EXPECT_EQ(streams.size(), residuals);
  EXPECT_EQ(residuals, kLayers * (2 + 3));  // two chunks of prompt, three tokens
}

TEST_F(Diagnose, WhatIsNotFiniteIsPastAnyTolerance) {
  const RandomModel random = random_model(config_of(), DType::f32);
  const ReferenceRecord reference(random.model, kPrompt, 3);
  DeviceRecord record;
  run(random.model, {"cpu", Fusion::block}, record, reference);
  std::vector<ObservedDispatch> dispatches = record.dispatches();
  for (ObservedDispatch& dispatch : dispatches)
    for (Observed& seen : dispatch.results)
      if (seen.step == StepKey{Role::attention, 2}) seen.values[3] = NAN;
  Diagnosis diagnosis;
  diagnosis.layers = kLayers;
  diagnosis.tolerance = -1;
  compare_records(dispatches, reference, diagnosis);
  ASSERT_NE(first_past(diagnosis), nullptr);
  EXPECT_EQ(name(*first_past(diagnosis)), "L02.attention in prefill");
  EXPECT_NE(diagnosis_verdict(diagnosis).find("not finite"), std::string::npos);
}

}  // namespace
}  // namespace tyto
