// Prompts on a device whose prefill kernels are compiled for several numbers of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "device/vnpu/machine/control.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::RandomModel;

Config config_with_context(uint32_t context) {
  Config config = testing_support::small_config();
  config.context = context;
  return config;
}

class PromptRows : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  // A pipeline with everything it refers to.
  struct World {
    ThreadPool pool{2};
    Trace trace;
    std::vector<std::unique_ptr<Device>> devices;
    std::unique_ptr<OneSequence> sequence;

    std::set<std::string> programs() const {
      std::set<std::string> names;
      for (const LoadedCode& code : trace.loaded_code()) names.insert(code.program);
      return names;
    }
  };

  std::unique_ptr<World> open(const std::vector<uint32_t>& rows,
                              NpuWeights weights = NpuWeights::bf16,
                              Fusion fusion = Fusion::block) const {
    auto world = std::make_unique<World>();
    NpuSettings npu;
    npu.prompt_rows = rows;
    npu.weights = weights;
    const DeviceEnv env{world->pool, world->trace, fusion, model_dims(random_.model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<Device*> order;
    for (const char* name : {"vnpu", "cpu"}) {
      world->devices.push_back(open_device(name, env));
      order.push_back(world->devices.back().get());
    }
    const PipelineOptions options{.forward = {.fusion = fusion}};
    world->sequence = std::make_unique<OneSequence>(random_.model, order, options, world->trace);
    return world;
  }

  std::vector<Token> prompt(size_t count) const {
    std::vector<Token> tokens;
    for (size_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<Token>(i * 7919 % random_.model.config.vocab));
    return tokens;
  }

  std::vector<float> logits_after(World& world, size_t count) const {
    world.sequence->rewind(0);
    const std::span<const float> logits = world.sequence->run(prompt(count));
    return {logits.begin(), logits.end()};
  }

  const RandomModel random_ = testing_support::random_model(config_with_context(1024), DType::bf16);
};

TEST_F(PromptRows, ChangeNothingOfAPromptThatOnePassHolds) {
  constexpr size_t kCounts[] = {2, 13, 64, 65, 128, 200, 256};
  const auto all_logits = [&](const std::vector<uint32_t>& rows) {
    const auto world = open(rows);  // one at a time: a device has 16 contexts
    std::vector<std::vector<float>> logits;
    for (const size_t count : kCounts) logits.push_back(logits_after(*world, count));
    return logits;
  };
  EXPECT_EQ(all_logits({64, 128, 256}), all_logits({256}));
}

TEST_F(PromptRows, ThatAreFewAreWorkedOnByTheSmallestKernels) {
  const auto large = open({256}), both = open({64, 256});
  const auto busy_ns = [&](World& world, size_t count) {
    const uint64_t before = vxrt::busy_ns();
    logits_after(world, count);
    return vxrt::busy_ns() - before;
  };
  EXPECT_LT(busy_ns(*both, 13), busy_ns(*large, 13));
  EXPECT_EQ(busy_ns(*both, 200), busy_ns(*large, 200));
  EXPECT_TRUE(both->programs().contains("flash_attn@64"));
  EXPECT_TRUE(both->programs().contains("flash_attn@256"));
  EXPECT_FALSE(large->programs().contains("flash_attn@64"));
}

// A later pass attends to the cache on the host, whose arithmetic rounds otherwise than the NPU's.
TEST_F(PromptRows, OfSeveralPassesAreNearlyThoseOfOne) {
  const auto one = open({512}), cut = open({64, 128});
  const std::vector<float> expected = logits_after(*one, 300);
  EXPECT_GE(compare(logits_after(*cut, 300), expected).cosine, 0.9995);
  // A second prompt behind the first.
  const std::span<const float> more = one->sequence->run(prompt(100));
  const std::vector<float> behind(more.begin(), more.end());
  EXPECT_GE(compare(cut->sequence->run(prompt(100)), behind).cosine, 0.9995);
}

TEST_F(PromptRows, ShareWeightsScratchAndTables) {
  const auto pinned = [&](const std::vector<uint32_t>& rows, NpuWeights weights, Fusion fusion) {
    return open(rows, weights, fusion)->trace.device("vnpu").pinned_bytes;
  };
  EXPECT_EQ(pinned({64, 128, 512}, NpuWeights::bf16, Fusion::block),
            pinned({512}, NpuWeights::bf16, Fusion::block));
  EXPECT_EQ(pinned({64, 512}, NpuWeights::q4nx, Fusion::token),
            pinned({512}, NpuWeights::q4nx, Fusion::token));
}

TEST_F(PromptRows, AreTheUsualOnesUpToTheContext) {
  EXPECT_EQ(open({})->devices.front()->info().fixed->prompt_rows,
            (std::vector<uint32_t>{256, 512, 1024}));
}

TEST_F(PromptRows, ThatContextsDoNotGoRoundForAreDroppedOrRefused) {
  // Windows of 64 to 1024 and the LM head leave 7 of 13 contexts, which two sets of three fit in.
  const auto world = open({}, NpuWeights::q4nx, Fusion::token);
  EXPECT_EQ(world->devices.front()->info().fixed->prompt_rows, (std::vector<uint32_t>{256, 1024}));
  const std::vector<std::string>& lines = world->trace.fallbacks();
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line ==
           "prefill images of 512 rows not on vnpu: it has 13 hardware contexts, too few for all "
           "images";
  }));
  try {
    open({64, 128, 256}, NpuWeights::q4nx, Fusion::token);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_EQ(error.hint, "give at most 2 of them");
  }
}

}  // namespace
}  // namespace tyto
