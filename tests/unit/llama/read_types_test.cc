// Models whose weights have types that Tyto reads and does not write, on every device.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/packed_weights.h"
#include "llama/reference.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/print_dtype.h"
#include "support/random_blocks.h"
#include "support/random_model.h"
#include "support/software_gpu.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::RandomModel;

constexpr Token kTokens[] = {5, 42, 18, 55, 31, 7, 44};

Config config_of_whole_blocks() {
  Config config = testing_support::small_config();
  config.layers = 1;
  config.emb = config.hidden = 256;
  config.head_dim = 64;
  return config;
}

class ReadType : public testing::TestWithParam<DType> {
 protected:
  std::vector<float> logits_on(const std::string& device, const DeviceSettings& settings = {}) {
    const DeviceEnv env{pool_, trace_, Fusion::block, model_dims(random_.model.config, 0),
                        settings};
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Device*> order;
    devices.push_back(open_device(device, env));
    if (device != "cpu") devices.push_back(open_device("cpu", env));
    for (const auto& each : devices) order.push_back(each.get());
    OneSequence sequence(random_.model, order, {}, trace_);
    const auto logits = sequence.run(kTokens);
    return {logits.begin(), logits.end()};
  }

  std::vector<float> reference() const {
    Reference plain(random_.model);
    std::vector<float> logits;
    for (const Token token : kTokens) logits = plain.forward(token);
    return logits;
  }

  bool was_told(const std::string& text) const {
    return std::ranges::any_of(trace_.fallbacks(), [&](const std::string& fallback) {
      return fallback.find(text) != std::string::npos;
    });
  }

  RandomModel random_ = testing_support::random_model(config_of_whole_blocks(), GetParam());
  ThreadPool pool_{2};
  Trace trace_;
};

TEST_P(ReadType, TheCpuComputesItAndSaysHow) {
  // Packed weights meet activations of eight bits.
  EXPECT_GE(compare(logits_on("cpu"), reference()).cosine, 0.99);
  EXPECT_EQ(was_told("weights row by row in f32 on cpu"), !cpu::can_pack(GetParam()));
  EXPECT_GE(compare(logits_on("cpu", {{"isa", "generic"}}), reference()).cosine, 0.99999);
}

INSTANTIATE_TEST_SUITE_P(, ReadType, testing::ValuesIn(testing_support::kReadTypes),
                         [](const auto& each) { return std::string(tyto::info(each.param).name); });

// The same way for each of them, so that two do.
class ConvertedType : public ReadType {};

TEST_P(ConvertedType, TheGpuTakesItAsF16WhichIsSaid) {
  const auto logits = logits_on("vulkan", testing_support::software_gpu());
  testing_support::expect_validated();
  EXPECT_GE(compare(logits, reference()).cosine, 0.999);
  EXPECT_TRUE(was_told(std::string(info(GetParam()).name) + " weights as f16 on vulkan"));
}

TEST_P(ConvertedType, TheNpuTakesItInItsOwnForm) {
  EXPECT_GE(
      compare(logits_on("vnpu", testing_support::settings_of(NpuSettings())), reference()).cosine,
      0.995);
}

INSTANTIATE_TEST_SUITE_P(, ConvertedType, testing::Values(DType::iq2_xs, DType::iq3_s),
                         [](const auto& each) { return std::string(tyto::info(each.param).name); });

}  // namespace
}  // namespace tyto
