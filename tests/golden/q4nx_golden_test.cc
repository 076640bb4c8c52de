// The single-dispatch decode of every architecture on the virtual NPU, beside the cpu on the same
// 4-bit weights.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/npu/formats/q4nx_layout.h"
#include "device/npu/store/stored_kernels.h"
#include "device/vnpu/machine/control.h"
#include "golden/golden_data.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/q4nx_rounded.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using golden::Fixture;
using testing_support::OneSequence;

struct Runner {
  Runner(const Model& model, const std::string& device) {
    const PipelineOptions options{.forward = {.fusion = Fusion::token}};
    NpuSettings npu;
    npu.weights = NpuWeights::q4nx;
    npu.prompt_rows = 128;
    const DeviceEnv env{pool, trace, Fusion::token, model_dims(model.config, 0),
                        testing_support::settings_of(npu)};
    std::vector<Device*> order;
    for (const std::string& name : {device, std::string("cpu")}) {
      if (!order.empty() && name == device) continue;
      devices.push_back(open_device(name, env));
      order.push_back(devices.back().get());
    }
    pipeline = std::make_unique<OneSequence>(model, order, options, trace);
  }

  std::vector<float> run(std::span<const Token> tokens) {
    const std::span<const float> logits = pipeline->run(tokens);
    return {logits.begin(), logits.end()};
  }

  ThreadPool pool{2};
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<OneSequence> pipeline;
};

class Q4nxGolden : public testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }
  const Model model_ = open_model(GetParam().model);
  const testing_support::Q4nxRounded rounded_{model_};
  const std::vector<Token>& ids_ = GetParam().prompts.front().ids;
};

// A token is one dispatch, and the host looks its embedding and its rotation up.
TEST_P(Q4nxGolden, DecodesWhatTheCpuDoesInOneDispatchAToken) {
  Runner cpu(rounded_.model, "cpu"), vnpu(rounded_.model, "vnpu");
  for (const Token token : ids_) {
    const uint64_t before = vnpu.trace.device("vnpu").completions;
    const uint64_t host_before = vnpu.trace.device("cpu").launches;
    const Comparison difference = compare(vnpu.run({&token, 1}), cpu.run({&token, 1}));
    EXPECT_TRUE(difference.finite);
    EXPECT_GE(difference.cosine, 0.999);
    EXPECT_EQ(vnpu.trace.device("vnpu").completions - before, 1u);
    EXPECT_EQ(vnpu.trace.device("cpu").launches - host_before, 2u);
  }
}

// From the window of 64 positions to that of 128.
TEST_P(Q4nxGolden, GoesOnInTheNextWindow) {
  Runner cpu(rounded_.model, "cpu"), vnpu(rounded_.model, "vnpu");
  std::vector<Token> prompt;
  while (prompt.size() < 61) prompt.push_back(ids_[prompt.size() % ids_.size()]);
  EXPECT_GE(compare(vnpu.run(prompt), cpu.run(prompt)).cosine, 0.998);
  for (Token token : {5, 7, 11, 13, 17, 19})
    EXPECT_GE(compare(vnpu.run({&token, 1}), cpu.run({&token, 1})).cosine, 0.998);
}

TEST_P(Q4nxGolden, SplitWeightsGiveTheSameLogits) {
  std::vector<float> whole;
  {
    Runner vnpu(rounded_.model, "vnpu");
    for (const Token token : ids_) whole = vnpu.run({&token, 1});
  }
  const AirDims dims = air_dims(model_dims(model_.config, 0), 128);
  const Q4nxLayout layout = q4nx_layout(dims, 64);
  const uint64_t head = layout.head_chunks * layout.head_chunk_elements;
  vxrt::Hardware hardware;
  hardware.limits.slot_span_bytes = std::max(layout.layer_elements, head) * 2;
  ASSERT_GT(q4nx_layout(dims, 64, hardware.limits.slot_span_bytes).weight_buffers.size(), 1u);
  vxrt::reset(hardware);
  Runner vnpu(rounded_.model, "vnpu");
  std::vector<float> split;
  for (const Token token : ids_) split = vnpu.run({&token, 1});
  EXPECT_EQ(split, whole);
}

std::vector<Fixture> whole_groups() {  // columns come in groups of 32
  std::vector<Fixture> all = golden::fixtures();
  std::erase_if(all, [](const Fixture& fixture) {
    const Config config = open_model(fixture.model).config;
    return config.emb % 32 != 0 || config.hidden % 32 != 0 || config.q_width() % 32 != 0;
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Q4nxGolden, testing::ValuesIn(whole_groups()),
                         [](const auto& fixture) {
                           std::string name = fixture.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tyto
