// A model on the vulkan device: what a token becomes, that it does not matter how launches are
// grouped, and what follows when the GPU fails.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/vulkan/gpu.h"
#include "device/vulkan/kernel_calls.h"
#include "llama/forward_program.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "support/software_gpu.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;
using testing_support::software_gpu;
using Values = std::vector<float>;

class VulkanTest : public testing::Test {
 protected:
  std::unique_ptr<OneSequence> open(const PipelineOptions& options = {}) {
    const DeviceEnv env{.pool = pool_, .trace = trace_, .settings = software_gpu()};
    devices_.clear();
    devices_.push_back(open_device("vulkan", env));
    testing_support::expect_validated();
    devices_.push_back(open_device("cpu", env));
    Device* order[] = {devices_[0].get(), devices_[1].get()};
    return std::make_unique<OneSequence>(random_.model, order, options, trace_);
  }

  // Vulkan's functions as the open device calls them.
  vulkan::Api& api() {
    return vulkan::slot_memory(devices_[0]->alloc({"any", SlotKind::scratch, DType::f32, 1, 8}, 0))
        .gpu->context->api;
  }

  // A prompt of many rows, one of few, some tokens.
  Values logits(OneSequence& sequence) {
    Values all;
    std::vector<Token> tokens;
    for (Token i = 0; i < 26; ++i) tokens.push_back((i * 37 + 5) % 61);
    const auto run = [&](size_t first, size_t count) {
      const auto row = sequence.run(std::span(tokens).subspan(first, count));
      all.insert(all.end(), row.begin(), row.end());
    };
    run(0, 20);
    run(20, 3);
    for (size_t i = 23; i < 26; ++i) run(i, 1);
    return all;
  }

  RandomModel random_ = random_model(small_config(), DType::f16);
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(VulkanTest, ATokenIsFiveDispatchesALayerAndAFew) {
  const std::vector<float> frequencies(8, 0.5f);
  const ForwardShape shape{
      .rows = 1, .context = 96, .kv_page = 256, .kv_pages = 1, .candidates = 8};
  const vulkan::GpuFacts gpu{.name = "any",
                             .driver = "",
                             .subgroup_size = 32,
                             .compute_units = 16,
                             .shared_bytes = 48 << 10,
                             .most_invocations = 1024,
                             .largest_allocation = 1 << 30};
  const auto dispatches = [&](const Config& config) {
    const RandomModel random = random_model(config, DType::f16);
    const ForwardProgram whole = forward_program(random.model, frequencies, Part::whole, shape);
    for (const Launch& launch : whole.program.launches)
      EXPECT_EQ(vulkan::why_not(whole.program, launch), std::nullopt) << launch.name;
    return vulkan::lower(whole.program, {.rows = 1, .has_single_rows = true}, gpu)
        .dispatches.size();
  };
  Config config = small_config();
  const size_t two_layers = dispatches(config);
  config.layers = 5;
  EXPECT_EQ(dispatches(config) - two_layers, 15u);
  EXPECT_LE(two_layers, 10u + 6u);
  config.qk_norm = true;
  EXPECT_EQ(dispatches(config), two_layers + 15);
}

// The first token and the first chunk wait for no compiler: that was shown while the model was
// loaded, and is part of the time of that.
TEST_F(VulkanTest, ATokenAndAChunkAreCompiledWhenTheModelIsLoaded) {
  const DeviceEnv env{.pool = pool_, .trace = trace_, .settings = software_gpu()};
  const auto gpu = open_device("vulkan", env), cpu = open_device("cpu", env);
  Device* order[] = {gpu.get(), cpu.get()};
  PipelineOptions options;
  options.forward.prefill_chunk = 80;
  std::vector<std::string> shown;
  Pipeline pipeline(random_.model, order, options, trace_,
                    [&](std::string_view what, uint64_t done, uint64_t total) {
                      if (what == "compiling kernels")
                        shown.push_back(fmt::format("{} of {}", done, total));
                    });
  ASSERT_GE(shown.size(), 2u);
  EXPECT_TRUE(shown.front().starts_with("0 of ")) << shown.front();
  EXPECT_EQ(shown.back(), fmt::format("{0} of {0}", shown.size() - 1));
  EXPECT_TRUE(std::ranges::any_of(trace_.setup_spans(), [](const SetupSpan& span) {
    return span.phase == "kernels on vulkan" && span.end_ns > span.start_ns;
  }));
  const auto preparing_ns = [&] { return trace_.device("vulkan").preparing_ns; };
  Sequence sequence(pipeline), other(pipeline);
  const std::vector<Token> chunk(80, 3), token(1, 4), few(20, 5);
  pipeline.run(sequence, chunk);
  pipeline.run(sequence, token);
  EXPECT_EQ(preparing_ns(), 0u);
  pipeline.run(other, few);  // a form that was not prepared is, at its first call
  EXPECT_GT(preparing_ns(), 0u);
}

TEST_F(VulkanTest, StitchedIsLaunchByLaunch) {
  Values one_by_one;
  for (const Fusion fusion : {Fusion::op, Fusion::token}) {
    PipelineOptions options;
    options.forward.fusion = fusion;
    const auto sequence = open(options);
    const Values now = logits(*sequence);
    if (one_by_one.empty()) one_by_one = now;
    const Comparison difference = compare(now, one_by_one);
    EXPECT_TRUE(difference.finite);
    EXPECT_GT(difference.max_abs_reference, 1);
    EXPECT_LE(difference.max_abs_error, 1e-5 * difference.max_abs_reference);
    EXPECT_EQ(logits(*open(options)), now) << "two runs differ";
  }
}

// How a GPU can fail in the middle of a run.
struct Fault {
  const char* name;
  void (*strike)(vulkan::Api& api);
  const char* message;  // what the Error says, and its next step
  const char* next_step;
};

constexpr Fault kFaults[] = {
    {"lost_at_submit",
     [](vulkan::Api& api) {
       api.vkQueueSubmit = [](VkQueue, uint32_t, const VkSubmitInfo*, VkFence) {
         return VK_ERROR_DEVICE_LOST;
       };
     },
     "submitting failed: the GPU was lost", "dmesg"},
    {"lost_at_wait",
     [](vulkan::Api& api) {
       api.vkWaitForFences = [](VkDevice, uint32_t, const VkFence*, VkBool32, uint64_t) {
         return VK_ERROR_DEVICE_LOST;
       };
     },
     "waiting for the GPU failed: the GPU was lost", "dmesg"},
    {"never_ends",
     [](vulkan::Api& api) {
       api.vkGetFenceStatus = [](VkDevice, VkFence) { return VK_NOT_READY; };
       api.vkWaitForFences = [](VkDevice, uint32_t, const VkFence*, VkBool32, uint64_t) {
         return VK_TIMEOUT;
       };
     },
     "did not end within", "the GPU is busy"},
};

class VulkanFault : public VulkanTest, public testing::WithParamInterface<Fault> {
 protected:
  // A prompt, the fault, a token.
  Values around_the_fault(OneSequence& sequence) {
    const Token prompt[] = {5, 42, 18}, next[] = {7};
    sequence.run(prompt);
    GetParam().strike(api());
    const auto row = sequence.run(next);
    return {row.begin(), row.end()};
  }
  Values expected() {
    const auto sequence = open();
    const Token all[] = {5, 42, 18, 7};
    const auto row = sequence->run(all);
    return {row.begin(), row.end()};
  }
};
INSTANTIATE_TEST_SUITE_P(Gpu, VulkanFault, testing::ValuesIn(kFaults),
                         [](const auto& fault) { return std::string(fault.param.name); });

TEST_P(VulkanFault, IsOneLineWithANextStep) {
  const auto sequence = open({.forward = {}, .on_error = OnDeviceError::fail});
  try {
    around_the_fault(*sequence);
    FAIL() << "it went well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::device);
    const std::string text = error.what();
    EXPECT_NE(text.find(GetParam().message), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(error.hint.find(GetParam().next_step), std::string::npos) << error.hint;
  }
}

TEST_P(VulkanFault, IsMadeGoodOnAGpuOpenedAnew) {
  const Values wanted = expected();
  const auto sequence = open();
  const Values row = around_the_fault(*sequence);
  EXPECT_LE(compare(row, wanted).max_abs_error, 1e-4 * compare(row, wanted).max_abs_reference);
  EXPECT_EQ(sequence->pipeline().recoveries(), 1u);
  EXPECT_FALSE(sequence->pipeline().host_took_over());
}

TEST_P(VulkanFault, IsMadeGoodByTheHost) {
  const Values wanted = expected();
  const auto sequence = open({.forward = {}, .on_error = OnDeviceError::cpu});
  const Values row = around_the_fault(*sequence);
  EXPECT_GE(compare(row, wanted).cosine, 0.9999);
  EXPECT_TRUE(sequence->pipeline().host_took_over());
  ASSERT_FALSE(sequence->recoveries().empty());
}

}  // namespace
}  // namespace tyto
