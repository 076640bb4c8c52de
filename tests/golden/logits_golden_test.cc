// Logits and greedy text against Hugging Face transformers, for every architecture.
// DEVICE=name in the environment runs the device tests on another device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "golden/golden_data.h"
#include "llama/reference.h"
#include "model/convert.h"
#include "model/model.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/software_gpu.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using golden::device_name;
using golden::Fixture;
using golden::Prompt;

DeviceSettings settings() {
  if (device_name() == "vulkan") return testing_support::software_gpu();
  NpuSettings npu;
  npu.prompt_rows = {64, 128};
  return testing_support::settings_of(npu);
}

// A pipeline with everything it refers to.
struct Runner {
  explicit Runner(const Model& model, PipelineOptions options = {}) : pool(2) {
    const DeviceEnv env{pool, trace, options.forward.fusion.value_or(Fusion::block),
                        model_dims(model.config, options.forward.context), settings()};
    devices.push_back(open_device(device_name(), env));
    if (device_name() == "vulkan") testing_support::expect_validated();
    if (device_name() != "cpu") devices.push_back(open_device("cpu", env));
    std::vector<Device*> order;
    for (const auto& device : devices) order.push_back(device.get());
    pipeline = std::make_unique<testing_support::OneSequence>(model, order, options, trace);
  }

  std::vector<float> all_logits(const std::vector<Token>& ids) {
    std::vector<float> result;
    pipeline->rewind(0);
    pipeline->run_all_logits(ids, [&](uint32_t, std::span<const float> logits) {
      result.insert(result.end(), logits.begin(), logits.end());
    });
    return result;
  }

  // Where activations meet weights in bf16, or in less.
  bool rounds() const { return device_name() != "cpu" || devices.front()->info().rounds_to_bf16; }

  ThreadPool pool;
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<testing_support::OneSequence> pipeline;
};

Token argmax(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

constexpr double kClearMargin = 0.01;

class Golden : public testing::TestWithParam<Fixture> {};

TEST_P(Golden, ReferenceEqualsHuggingFace) {
  const Model model = open_model(GetParam().model);
  for (const Prompt& prompt : GetParam().prompts) {
    Reference reference(model);
    std::vector<float> actual;
    for (Token token : prompt.ids) {
      const auto logits = reference.forward(token);
      actual.insert(actual.end(), logits.begin(), logits.end());
    }
    const Comparison difference = compare(actual, prompt.logits);
    EXPECT_TRUE(difference.finite);
    EXPECT_LE(difference.max_abs_error, 2e-4 * difference.max_abs_reference);
  }
}

TEST_P(Golden, DeviceEqualsHuggingFaceAtEveryPosition) {
  const Model model = open_model(GetParam().model);
  Runner runner(model);
  // A device that rounds activations may choose another expert where two are nearly as good. That
  // happens at few positions; the same loops without rounding are as close as the others.
  constexpr double kFew = 0.05, kWithOtherExpert = 0.95;
  const bool may_choose_others = model.config.has_experts() && runner.rounds();
  const double least = may_choose_others && device_name() != "cpu" ? 0.998 : 0.9995;
  size_t positions = 0, others = 0;
  for (const Prompt& prompt : GetParam().prompts) {
    const std::vector<float> actual = runner.all_logits(prompt.ids);
    ASSERT_EQ(actual.size(), prompt.logits.size());
    for (size_t position = 0; position < prompt.ids.size(); ++position) {
      const auto row = std::span(actual).subspan(position * GetParam().vocab, GetParam().vocab);
      const double cosine = compare(row, prompt.row(position, GetParam().vocab)).cosine;
      const bool is_other = may_choose_others && cosine < least;
      EXPECT_GE(cosine, is_other ? kWithOtherExpert : least) << position;
      others += is_other;
      ++positions;
      if (prompt.margin[position] > kClearMargin) {
        EXPECT_EQ(argmax(row), prompt.argmax[position]) << position;
      }
    }
  }
  EXPECT_LE(static_cast<double>(others), kFew * static_cast<double>(positions));
}

TEST_P(Golden, GreedyContinuationEqualsHuggingFaceWhileItsMarginIsClear) {
  const Model model = open_model(GetParam().model);
  // As above. The next token is always the one that is wanted, so that one miss is not many.
  constexpr double kFew = 0.1;
  for (Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    // One image per operator needs more contexts than an NPU has.
    if (fusion == Fusion::op && device_name() == "vnpu") continue;
    PipelineOptions options;
    options.forward.fusion = fusion;
    Runner runner(model, options);
    const bool may_choose_others = model.config.has_experts() && runner.rounds();
    size_t steps = 0, others = 0;
    for (const Prompt& prompt : GetParam().prompts) {
      runner.pipeline->rewind(0);
      Token next = argmax(runner.pipeline->run(prompt.ids));
      for (size_t step = 0; step < prompt.greedy_clear; ++step) {
        const Token wanted = prompt.greedy[step];
        others += next != wanted;
        ++steps;
        if (!may_choose_others) {
          ASSERT_EQ(next, wanted) << "step " << step;
        }
        next = argmax(runner.pipeline->run({&wanted, 1}));
      }
      EXPECT_LE(static_cast<double>(others), kFew * static_cast<double>(steps));
    }
  }
}

// How close logits of a quantised file must be. With four bits no closer than Transformers comes
// itself. Where two experts are nearly as good, rounding of weights, or of activations, decides
// between them, and a position's logits are others.
double closeness(double wanted, const Config& config, const Prompt& prompt, bool rounds) {
  constexpr double kFourBits = 0.98, kUnrounded = 0.999, kOtherExperts = 0.06, kFewOthers = 0.002;
  if (wanted > kUnrounded) return config.has_experts() && rounds ? wanted - kFewOthers : wanted;
  if (wanted <= kFourBits) wanted = std::min(wanted, prompt.q4_cosine - 0.01);
  return config.has_experts() ? wanted - kOtherExperts : wanted;
}

// Written as GGUF (which permutes Q and K rows for some architectures) and read back.
TEST_P(Golden, QuantisedFilesStayClose) {
  struct Bound {
    const char* type;
    double cosine;
    bool whole_blocks_of_256;
  };
  constexpr Bound kBounds[] = {
      {"f32", 0.9995, false}, {"bf16", 0.9995, false}, {"q8_0", 0.99, false}, {"q5_1", 0.99, false},
      {"q5_0", 0.99, false},  {"q4_1", 0.98, false},   {"q4_0", 0.98, false}, {"q6_k", 0.99, true},
      {"q5_k", 0.99, true},   {"q4_k", 0.98, true}};
  const Model model = open_model(GetParam().model);
  const bool blocks_of_256 = model.config.emb % 256 == 0 && model.config.hidden % 256 == 0;
  ThreadPool pool(2);
  for (const Bound& bound : kBounds) {
    if (bound.whole_blocks_of_256 && !blocks_of_256) continue;
    const auto path =
        std::filesystem::path(testing::TempDir()) /
        (GetParam().name + "-" + bound.type + "-" + std::to_string(getpid()) + ".gguf");
    quantize_model(model, bound.type, path, pool);
    {
      const Model quantised = open_model(path);
      Runner runner(quantised);
      for (const Prompt& prompt : GetParam().prompts)
        EXPECT_GE(compare(runner.all_logits(prompt.ids), prompt.logits).cosine,
                  closeness(bound.cosine, model.config, prompt, runner.rounds()))
            << bound.type;
    }
    std::filesystem::remove(path);
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Golden, testing::ValuesIn(golden::fixtures()),
                         [](const auto& fixture) {
                           std::string name = fixture.param.name;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tyto
