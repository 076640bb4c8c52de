// The NPU's code on the virtual NPU: what it computes, and what happens when it fails.
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/vxrt/control.h"
#include "llama/pipeline.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;

class Vnpu : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  std::unique_ptr<Pipeline> pipeline(Fusion fusion, const std::string& device) {
    const DeviceEnv env{pool_, trace_, fusion};
    std::vector<Device*> order;
    for (const std::string& name : {device, std::string("cpu")}) {
      devices_.push_back(open_device(name, env));
      order.push_back(devices_.back().get());
    }
    PipelineOptions options;
    options.fusion = fusion;
    return std::make_unique<Pipeline>(random_.model, order, options, trace_);
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<Token> prompt_ = {1, 2, 3, 4, 5, 6, 7};
};

TEST_F(Vnpu, ComputesWhatTheCpuDoesUpToBf16) {
  const auto expected = pipeline(Fusion::block, "cpu");
  for (Fusion fusion : {Fusion::block, Fusion::token}) {
    const auto actual = pipeline(fusion, "vnpu");
    expected->rewind(0);
    const auto want = expected->run(prompt_);
    EXPECT_GE(compare(actual->run(prompt_), want).cosine, 0.999);
    const Token next = 9;
    const auto want_next = expected->run({&next, 1});
    EXPECT_GE(compare(actual->run({&next, 1}), want_next).cosine, 0.999);
  }
}

TEST_F(Vnpu, DispatchesPerTokenAreCountedAtTheDevice) {
  const auto blocks = pipeline(Fusion::block, "vnpu");
  const Token token = 3;
  blocks->run({&token, 1});
  EXPECT_EQ(trace_.device("vnpu").completions, 2 * 2 + 1u);  // two images a layer, and the head
  EXPECT_TRUE(trace_.device("vnpu").is_virtual);
  EXPECT_EQ(vxrt::counters().total.completions, 5u);
  const auto whole = pipeline(Fusion::token, "vnpu");
  whole->run({&token, 1});
  EXPECT_EQ(trace_.device("vnpu").completions, 6u);
  EXPECT_GT(trace_.device("vnpu").busy_ns, 0u);
}

TEST_F(Vnpu, LayersShareImagesAndContexts) {
  const auto blocks = pipeline(Fusion::block, "vnpu");
  EXPECT_EQ(vxrt::counters().live_contexts, 6u);  // three for prefill, three for decode
}

TEST_F(Vnpu, EveryFaultIsAnErrorThatNamesTheProgramAndNeverASilentResult) {
  for (const char* fault : {"timeout@2", "error@2", "hang@2", "context-lost@2"}) {
    devices_.clear();
    vxrt::reset();
    const auto blocks = pipeline(Fusion::block, "vnpu");
    const uint64_t before = trace_.device("vnpu").completions;
    vxrt::inject(vxrt::parse_fault(fault));
    try {
      blocks->run(prompt_);
      FAIL() << fault << " went unnoticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::device) << fault;
      EXPECT_NE(std::string(error.what()).find("vnpu: "), std::string::npos) << error.what();
    }
    EXPECT_EQ(trace_.device("vnpu").completions, before + 1) << fault;
  }
}

TEST_F(Vnpu, OutOfMemoryIsRefusedUpFront) {
  vxrt::Hardware hardware;
  hardware.limits.memlock_bytes = 64 << 10;
  vxrt::reset(hardware);
  EXPECT_THROW(pipeline(Fusion::block, "vnpu"), Error);
}

TEST_F(Vnpu, NothingIsLeftBehind) {
  const uint64_t pinned = vxrt::counters().pinned_bytes;
  {
    const auto blocks = pipeline(Fusion::block, "vnpu");
    EXPECT_GT(vxrt::counters().pinned_bytes, pinned);
  }
  devices_.clear();
  EXPECT_EQ(vxrt::counters().pinned_bytes, pinned);
  EXPECT_EQ(vxrt::counters().live_contexts, 0u);
}

}  // namespace
}  // namespace tyto
