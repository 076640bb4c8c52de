// Hidden states: those of the plain reference on every device, each once, and no logits for them.
#include <gtest/gtest.h>

#include <array>

#include "device/vnpu/machine/control.h"
#include "llama/reference.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

struct HiddenSetting {
  const char* device;
  Fusion fusion;
  NpuWeights weights;
  double cosine;  // with the reference
};
constexpr std::array<HiddenSetting, 8> kHiddenSettings = {
    {{"cpu", Fusion::op, NpuWeights::bf16, 0.9999},
     {"cpu", Fusion::block, NpuWeights::bf16, 0.9999},
     {"cpu", Fusion::token, NpuWeights::bf16, 0.9999},
     {"vnpu", Fusion::op, NpuWeights::bf16, 0.999},
     {"vnpu", Fusion::block, NpuWeights::bf16, 0.999},
     {"vnpu", Fusion::token, NpuWeights::bf16, 0.999},
     {"vnpu", Fusion::token, NpuWeights::q4nx, 0.999},  // a prompt's weights are bf16
     {"vnpu", Fusion::op, NpuWeights::int8, 0.99}}};

class Hidden : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override {
    pipeline_.reset();
    devices_.clear();
    vxrt::reset();
  }

  OneSequence& open(const HiddenSetting& setting) {
    TearDown();
    NpuSettings npu;
    npu.weights = setting.weights;
    const DeviceEnv env{pool_, trace_, setting.fusion, model_dims(random_.model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<Device*> order;
    for (const std::string& name : {std::string(setting.device), std::string("cpu")}) {
      if (!order.empty() && name == setting.device) continue;
      devices_.push_back(open_device(name, env));
      order.push_back(devices_.back().get());
    }
    PipelineOptions options;
    options.forward.fusion = setting.fusion;
    options.forward.prefill_chunk = 4;
    options.forward.observer = [this](const DispatchView& dispatch) {
      heads_ += dispatch.part == Part::head || dispatch.part == Part::whole ? 1 : 0;
    };
    pipeline_ = std::make_unique<OneSequence>(random_.model, order, options, trace_);
    return *pipeline_;
  }

  // By position.
  std::vector<std::vector<float>> hidden_states(OneSequence& pipeline) {
    std::vector<std::vector<float>> states(tokens_.size());
    pipeline.run_hidden(tokens_, [&](uint32_t position, std::span<const float> hidden) {
      EXPECT_TRUE(states.at(position).empty()) << position;
      states[position].assign(hidden.begin(), hidden.end());
    });
    return states;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  const std::vector<Token> tokens_ = {5, 9, 33, 2, 60, 17, 8, 41, 3};  // three chunks of the cpu's
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<OneSequence> pipeline_;
  size_t heads_ = 0;  // dispatches that had to do with logits
};

TEST_F(Hidden, AreTheReferencesOnEveryDeviceAndNoLogitsAreComputed) {
  std::vector<std::vector<float>> expected;
  Reference reference(random_.model, [&](Role role, uint16_t, std::span<const float> values) {
    if (role == Role::final_norm) expected.emplace_back(values.begin(), values.end());
  });
  for (const Token token : tokens_) reference.forward(token);
  for (const HiddenSetting& setting : kHiddenSettings) {
    const auto states = hidden_states(open(setting));
    ASSERT_EQ(states.size(), expected.size());
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_GE(compare(states[i], expected[i]).cosine, setting.cosine)
          << setting.device << static_cast<int>(setting.fusion) << " at " << i;
    }
    EXPECT_EQ(heads_, 0u) << setting.device << static_cast<int>(setting.fusion);
  }
}

// Logits of what follows are those of a sequence that was run without asking.
TEST_F(Hidden, LeaveTheSequenceAsAPromptDoes) {
  for (const HiddenSetting& setting : kHiddenSettings) {
    const Token next = 7;
    OneSequence& plain = open(setting);
    plain.run(tokens_);
    const auto logits = plain.run({&next, 1});
    const std::vector<float> expected(logits.begin(), logits.end());
    OneSequence& asked = open(setting);
    hidden_states(asked);
    const auto after = asked.run({&next, 1});
    EXPECT_EQ(std::vector<float>(after.begin(), after.end()), expected) << setting.device;
  }
}

TEST_F(Hidden, OfAPassThatIsRunAgainAreShownOnce) {
  const auto expected = hidden_states(open(kHiddenSettings[4]));
  OneSequence& failing = open(kHiddenSettings[4]);
  vxrt::inject(vxrt::parse_fault("error@2"));
  EXPECT_EQ(hidden_states(failing), expected);
  EXPECT_EQ(failing.recoveries().size(), 1u);
}

}  // namespace
}  // namespace tyto
