// One weight that is not a finite number, in every tensor and type, on every device: no logits come
// out of it, and the error names the file and the tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/cpu/inner_loops.h"
#include "device/vnpu/machine/control.h"
#include "llama/reference.h"
#include "model/weight_table.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;

constexpr Token kToken = 5;

Config config_of_whole_blocks() {
  Config config = testing_support::small_config();
  config.layers = 1;
  config.emb = config.hidden = 256;  // one k-quant block
  config.head_dim = 64;
  config.qkv_bias = config.qk_norm = true;
  return config;
}

// A model whose tensors have names, of which one at a time can be spoiled.
struct NamedModel {
  NamedModel(const Config& config, DType type)
      : random(random_model(config, type)), specs(weight_specs(config, NameStyle::gguf)) {
    random.model.path = "m.gguf";
    for (const WeightSpec& spec : specs)
      random.model.tensors.push_back({spec.name, view_of(random.model.weights, spec)});
  }

  // Puts 16 bits where the tensor keeps an exponent, in a row that every forward pass of kToken
  // reads, and gives back those that were there.
  uint16_t put(const WeightSpec& spec, uint16_t other) {
    const TensorView& view = view_of(random.model.weights, spec);
    const uint64_t row = spec.part == TensorPart::embedding ? kToken : view.rows / 2;
    const size_t place = view.dtype == DType::f32 ? 2 : view.dtype == DType::q6_k ? 208 : 0;
    auto* bytes = const_cast<std::byte*>(view.row(row).data()) + place;
    uint16_t before;
    std::memcpy(&before, bytes, sizeof before);
    std::memcpy(bytes, &other, sizeof other);
    return before;
  }
  uint16_t spoil(const WeightSpec& spec, bool with_infinity) {
    const DType type = view_of(random.model.weights, spec).dtype;
    const uint16_t infinity = type == DType::f32 || type == DType::bf16 ? 0x7f80 : 0x7c00;
    return put(spec, with_infinity ? infinity : static_cast<uint16_t>(infinity | infinity >> 1));
  }

  // Does `run` once for each tensor, while that one is spoiled.
  void for_each_spoiled(const std::string& what, bool with_infinity,
                        const std::function<void()>& run) {
    for (const WeightSpec& spec : specs) {
      const uint16_t before = spoil(spec, with_infinity);
      const std::string message = error_of(run);
      EXPECT_EQ(message.find("m.gguf: tensor " + spec.name + ": "), 0u)
          << what << ", " << spec.name << ": " << message;
      put(spec, before);
    }
    EXPECT_EQ(error_of(run), "no error") << what;
  }

  static std::string error_of(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::input) << error.what();
      return error.what();
    }
    return "no error";
  }

  RandomModel random;
  const std::vector<WeightSpec> specs;
};

class NonFinite : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override { vxrt::reset(); }

  // A prompt of some rows, then a token by itself.
  void run(const Model& model, const std::vector<std::string>& names, Fusion fusion,
           const DeviceSettings& settings) {
    const DeviceEnv env{pool_, trace_, fusion, model_dims(model.config, 0), settings};
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Device*> order;
    for (const std::string& name : names) {
      devices.push_back(open_device(name, env));
      order.push_back(devices.back().get());
    }
    PipelineOptions options;
    options.forward.fusion = fusion;
    OneSequence pipeline(model, order, options, trace_);
    pipeline.run(prompt_);
    pipeline.run({&kToken, 1});
    EXPECT_TRUE(pipeline.recoveries().empty());
  }

  ThreadPool pool_{1};
  Trace trace_;
  std::vector<Token> prompt_ = {1, kToken, 3, 4, 2, 6, 7};
};

TEST_F(NonFinite, WeightsOfEveryTypeAreNamedWithEveryInstructionSet) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0,
                           DType::q4_1, DType::q4_k, DType::q6_k}) {
    NamedModel named(config_of_whole_blocks(), type);
    for (const cpu::InnerLoops* loops : cpu::usable_inner_loops())
      for (const bool alone : {false, true}) {
        prompt_ = alone ? std::vector{kToken} : std::vector<Token>{1, kToken, 3, 4, 2, 6, 7};
        named.for_each_spoiled(std::string(info(type).name) + " with " + loops->name, alone, [&] {
          run(named.random.model, {"cpu"}, Fusion::block, {{"isa", loops->name}});
        });
      }
  }
}

TEST_F(NonFinite, WeightsAreNamedByTheReference) {
  NamedModel named(config_of_whole_blocks(), DType::q4_k);
  named.for_each_spoiled("reference", false,
                         [&] { Reference(named.random.model).forward(kToken); });
}

// Also where weights or activations become integers on the way, which know no NaN. A second try
// would not help, so there is none.
TEST_F(NonFinite, WeightsOnTheVirtualNpuAreNamedInEveryForm) {
  const struct {
    Fusion fusion;
    NpuWeights weights;
    bool block_float = false;
  } forms[] = {{Fusion::op, NpuWeights::bf16},    {Fusion::block, NpuWeights::bf16},
               {Fusion::token, NpuWeights::bf16}, {Fusion::block, NpuWeights::bf16, true},
               {Fusion::token, NpuWeights::q4nx}, {Fusion::op, NpuWeights::int8}};
  NamedModel named(testing_support::small_config(), DType::bf16);
  for (const auto& form : forms) {
    NpuSettings npu;
    npu.weights = form.weights;
    npu.block_float = form.block_float;
    const auto what = "weights " + testing_support::settings_of(npu).at("weights");
    named.for_each_spoiled(what, false, [&] {
      vxrt::reset();
      run(named.random.model, {"vnpu", "cpu"}, form.fusion, testing_support::settings_of(npu));
    });
  }
}

TEST_F(NonFinite, FiniteWeightsThatOverflowAreNotBlamed) {
  NamedModel named(config_of_whole_blocks(), DType::f32);
  const WeightSpec& head = named.specs[2];
  ASSERT_EQ(head.part, TensorPart::head);
  const TensorView& view = view_of(named.random.model.weights, head);
  std::vector<float> row(view.cols, 3e38f);
  std::memcpy(const_cast<std::byte*>(view.row(1).data()), row.data(), view.row_stride());
  EXPECT_EQ(NamedModel::error_of([&] {
              run(named.random.model, {"cpu"}, Fusion::block, {});
            }).find("cpu: the logits are not finite, though all weights are"),
            0u);
}

}  // namespace
}  // namespace tyto
