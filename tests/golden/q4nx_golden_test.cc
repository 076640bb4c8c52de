// The single-dispatch decode of every architecture on the virtual NPU, beside the cpu on the same
// 4-bit weights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "device/npu/formats/q4nx.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/machine/control.h"
#include "golden/golden_data.h"
#include "model/weight_table.h"
#include "support/npu_settings.h"
#include "support/one_sequence.h"
#include "support/q4nx_bundle_writer.h"
#include "support/q4nx_rounded.h"
#include "tensor/compare.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

using golden::Fixture;
using testing_support::OneSequence;

struct Q4nxRunner {
  Q4nxRunner(const Model& model, const std::string& device, DecodeForm form = DecodeForm::windows) {
    const PipelineOptions options{.forward = {.fusion = Fusion::token}};
    NpuSettings npu;
    npu.weights = NpuWeights::q4nx;
    npu.decode = form;
    npu.prompt_rows = {128};
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
  Q4nxRunner cpu(rounded_.model, "cpu"), vnpu(rounded_.model, "vnpu");
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

// One image, and no window to change on the way.
TEST_P(Q4nxGolden, DecodesTheSameAsOneElf) {
  Q4nxRunner windows(rounded_.model, "vnpu"), elf(rounded_.model, "vnpu", DecodeForm::elf);
  for (const Token token : ids_) ASSERT_EQ(elf.run({&token, 1}), windows.run({&token, 1}));
}

// From the window of 64 positions to that of 128.
TEST_P(Q4nxGolden, GoesOnInTheNextWindow) {
  Q4nxRunner cpu(rounded_.model, "cpu"), vnpu(rounded_.model, "vnpu");
  std::vector<Token> prompt;
  while (prompt.size() < 61) prompt.push_back(ids_[prompt.size() % ids_.size()]);
  EXPECT_GE(compare(vnpu.run(prompt), cpu.run(prompt)).cosine, 0.998);
  for (Token token : {5, 7, 11, 13, 17, 19})
    EXPECT_GE(compare(vnpu.run({&token, 1}), cpu.run({&token, 1})).cosine, 0.998);
}

TEST_P(Q4nxGolden, SplitWeightsGiveTheSameLogits) {
  std::vector<float> whole;
  {
    Q4nxRunner vnpu(rounded_.model, "vnpu");
    for (const Token token : ids_) whole = vnpu.run({&token, 1});
  }
  const AirDims dims = air_dims(model_dims(model_.config, 0), 128);
  const Q4nxLayout layout = q4nx_layout(dims, 64);
  const uint64_t head = layout.head_chunks * layout.head_chunk_elements;
  vxrt::Hardware hardware;
  hardware.limits.slot_span_bytes = std::max(layout.layer_elements, head) * 2;
  ASSERT_GT(q4nx_layout(dims, 64, hardware.limits.slot_span_bytes).weight_buffers.size(), 1u);
  vxrt::reset(hardware);
  Q4nxRunner vnpu(rounded_.model, "vnpu");
  std::vector<float> split;
  for (const Token token : ids_) split = vnpu.run({&token, 1});
  EXPECT_EQ(split, whole);
}

// Models that the single-dispatch decode computes, with columns in groups of 32.
std::vector<Fixture> whole_groups() {
  std::vector<Fixture> all = golden::fixtures();
  std::erase_if(all, [](const Fixture& fixture) {
    const Config config = open_model(fixture.model).config;
    return config.emb % 32 != 0 || config.hidden % 32 != 0 || config.q_width() % 32 != 0 ||
           !differences_from_llama(config).empty();
  });
  return all;
}

// ---- The same models as bundles

bool fits_blocks(const Config& config) {
  return config.emb % 256 == 0 && config.hidden % 256 == 0 && config.q_width() % 256 == 0 &&
         config.kv_width() % 32 == 0 && config.vocab % 32 == 0;
}

void write_bundle(const Model& model, testing_support::BundleForm form,
                  const std::filesystem::path& folder) {
  testing_support::BundleWriter writer(form);
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::hugging_face)) {
    const TensorView& view = view_of(model.weights, spec);
    std::vector<float> values(view.values());
    dequantize(view.dtype, view.bytes, values);
    if (spec.is_vector())
      writer.add_bf16(spec.name, fmt::format("[{}]", spec.cols), values);
    else if (spec.part == TensorPart::embedding)
      writer.add_bf16(spec.name, fmt::format("[{},{}]", spec.rows, spec.cols), values);
    else
      writer.add_blocks(spec.name, spec.rows, spec.cols, values);
  }
  std::filesystem::copy_file(model.path / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::ofstream(folder / "model.q4nx", std::ios::binary) << writer.file();
}

// Hugging Face's logits within what 4 bits take from them, on the cpu and, from the same codes, on
// the NPU.
TEST(Q4nxBundles, ComputeWhatTheirModelsDo) {
  size_t compared = 0;
  const auto folder = std::filesystem::temp_directory_path() /
                      fmt::format("tyto-bundle-{}", static_cast<int>(::getpid()));
  std::filesystem::create_directories(folder);
  for (const Fixture& fixture : golden::fixtures()) {
    const Model model = open_model(fixture.model);
    if (!fits_blocks(model.config)) continue;
    ++compared;
    for (const auto form : {testing_support::BundleForm::i8, testing_support::BundleForm::q4nx}) {
      write_bundle(model, form, folder);
      const Model bundle = open_model(folder);
      EXPECT_EQ(bundle.format, "q4nx");
      EXPECT_EQ(main_weight_type(bundle), DType::q4_1);
      vxrt::reset();
      Q4nxRunner cpu(bundle, "cpu"), vnpu(bundle, "vnpu");
      const golden::Prompt& prompt = fixture.prompts.front();
      // A head that is the embedding is rounded to 4 bits on the NPU alone.
      const double close = bundle.config.tied_head ? 0.995 : 0.999;
      for (size_t i = 0; i < prompt.ids.size(); ++i) {
        const std::vector<float> logits = cpu.run({&prompt.ids[i], 1});
        EXPECT_GE(compare(logits, prompt.row(i, fixture.vocab)).cosine, 0.98) << fixture.name;
        EXPECT_GE(compare(vnpu.run({&prompt.ids[i], 1}), logits).cosine, close) << fixture.name;
      }
    }
  }
  EXPECT_GE(compared, 2u);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Q4nxGolden, testing::ValuesIn(whole_groups()),
                         [](const auto& fixture) {
                           std::string name = fixture.param.name;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tyto
