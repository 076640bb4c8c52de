// The single-dispatch decode as one ELF and as windows, its cache behind the last position, and its
// first dispatch, on the virtual NPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "device/vnpu/machine/control.h"
#include "device/vnpu/vnpu_device.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;

using Logits = std::vector<float>;

class DecodeForms : public testing::TestWithParam<DecodeForm> {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  static NpuSettings settings(DecodeForm form = GetParam()) {
    NpuSettings npu;
    npu.weights = NpuWeights::q4nx;
    npu.decode = form;
    npu.block_float = true;
    npu.prompt_rows = {64};
    return npu;
  }

  struct Runner {
    Runner(const Model& model, const NpuSettings& npu) {
      const DeviceEnv env{pool, trace, Fusion::token, model_dims(model.config, 0),
                          testing_support::settings_of(npu)};
      for (const char* name : {"vnpu", "cpu"}) devices.push_back(open_device(name, env));
      PipelineOptions options;
      options.forward.fusion = Fusion::token;
      sequence = std::make_unique<OneSequence>(
          model, std::vector<Device*>{devices[0].get(), devices[1].get()}, options, trace);
    }
    Logits run(std::vector<Token> tokens) {
      const auto logits = sequence->run(tokens);
      return {logits.begin(), logits.end()};
    }
    // Each by a dispatch of its own.
    Logits decode(std::vector<Token> tokens) {
      Logits logits;
      for (const Token token : tokens) logits = run({token});
      return logits;
    }
    std::set<std::string> images() const {
      std::set<std::string> names;
      for (const LoadedCode& code : trace.loaded_code())
        if (code.device == "vnpu") names.insert(code.program);
      return names;
    }

    ThreadPool pool{2};
    Trace trace;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<OneSequence> sequence;
  };

  const testing_support::RandomModel random_ =
      random_model(testing_support::small_config(), DType::bf16);
  const Model& model_ = random_.model;
};

std::vector<Token> tokens_of(size_t count, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 7 + seed) % 40 + 1));
  return tokens;
}

TEST_P(DecodeForms, GoOnAfterARewindAsIfNothingHadBeenThere) {
  Runner fresh(model_, settings()), used(model_, settings());
  fresh.decode(tokens_of(5, 1));
  used.decode(tokens_of(5, 1));
  used.decode(tokens_of(9, 30));
  used.sequence->rewind(5);
  for (const Token token : tokens_of(6, 11)) EXPECT_EQ(used.run({token}), fresh.run({token}));
}

TEST_P(DecodeForms, BeginAgainAsIfNothingHadBeenThere) {
  Runner fresh(model_, settings()), used(model_, settings());
  used.run(tokens_of(20, 3));
  used.decode(tokens_of(7, 9));
  used.sequence->rewind(0);
  for (const Token token : tokens_of(9, 2)) EXPECT_EQ(used.run({token}), fresh.run({token}));
}

// The host's rows come over those of the device, and end before them.
TEST_P(DecodeForms, TakeAShorterPromptOverWhatWasDecoded) {
  Runner fresh(model_, settings()), used(model_, settings());
  const auto shared = tokens_of(4, 5), prompt = tokens_of(5, 21);
  fresh.run(shared);
  used.run(shared);
  used.decode(tokens_of(13, 1));
  used.sequence->rewind(4);
  EXPECT_EQ(used.run(prompt), fresh.run(prompt));
  for (const Token token : tokens_of(5, 8)) EXPECT_EQ(used.run({token}), fresh.run({token}));
}

// From 64 positions to 128: what the smaller window left does not count in the larger one.
TEST_P(DecodeForms, AreTheSameAcrossWindows) {
  Runner ours(model_, settings()), other(model_, settings(DecodeForm::elf));
  ours.run(tokens_of(60, 4));
  other.run(tokens_of(60, 4));
  for (const Token token : tokens_of(10, 6)) ASSERT_EQ(ours.run({token}), other.run({token}));
}

TEST_P(DecodeForms, OpenTheirImages) {
  Runner runner(model_, settings());
  runner.decode({1});
  std::set<std::string> decodes;
  for (const std::string& name : runner.images())
    if (name.starts_with("fused_decode")) decodes.insert(name);
  const std::string largest = std::to_string(decode_windows(model_.config.context).back());
  if (GetParam() == DecodeForm::elf)
    EXPECT_EQ(decodes, std::set<std::string>{"fused_decode_elf@" + largest});
  else
    EXPECT_TRUE(decodes.contains("fused_decode@64"));
}

// ---- The first dispatch of a context

TEST_P(DecodeForms, AFirstDispatchThatIsWrongIsFoundByRepeatingIt) {
  Logits right;
  {
    Runner sound(model_, settings());
    right = sound.decode({3});
  }
  NpuSettings wrong = settings();
  wrong.fault = "first-wrong";
  {
    Runner trusting(model_, wrong);
    EXPECT_NE(trusting.decode({3}), right);
    EXPECT_EQ(trusting.trace.device("vnpu").completions, 1u);
  }
  vxrt::reset();
  wrong.check_first = true;
  Runner checking(model_, wrong);
  EXPECT_EQ(checking.decode({3}), right);
  EXPECT_EQ(checking.trace.device("vnpu").completions, 3u);
  const auto lines = checking.trace.fallbacks();
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& line) {
                            return line.find("first dispatch") != std::string::npos &&
                                   line.find("wrong") != std::string::npos;
                          }),
            1);
  checking.decode({4});
  EXPECT_EQ(checking.trace.device("vnpu").completions, 4u);
}

TEST_P(DecodeForms, ASoundFirstDispatchIsRepeatedOnce) {
  NpuSettings npu = settings();
  npu.check_first = true;
  Runner checking(model_, npu), trusting(model_, settings());
  for (const Token token : tokens_of(4, 7)) EXPECT_EQ(checking.run({token}), trusting.run({token}));
  EXPECT_EQ(checking.trace.device("vnpu").completions, 5u);
  EXPECT_EQ(trusting.trace.device("vnpu").completions, 4u);
  for (const std::string& line : checking.trace.fallbacks())
    EXPECT_EQ(line.find("first dispatch"), std::string::npos) << line;
}

INSTANTIATE_TEST_SUITE_P(Both, DecodeForms, testing::Values(DecodeForm::elf, DecodeForm::windows),
                         [](const auto& form) {
                           return form.param == DecodeForm::elf ? "elf" : "windows";
                         });

}  // namespace
}  // namespace tyto
