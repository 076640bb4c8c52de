#include "model/q4nx_bundle.h"

#include <random>

#include "model/weight_table.h"
#include "support/q4nx_bundle_writer.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

using testing_support::BundleForm;
using testing_support::BundleWriter;

Config bundle_config() {
  Config config = blocky_config();
  config.hidden = 512;
  config.vocab = 320;
  return config;
}

std::vector<float> random_weights(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.01f, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

BundleWriter bundle_of(const Config& config, BundleForm form) {
  BundleWriter writer(form);
  unsigned seed = 0;
  for (const WeightSpec& spec : weight_specs(config, NameStyle::hugging_face)) {
    const auto values = random_weights(std::max<uint64_t>(spec.rows, 1) * spec.cols, ++seed);
    if (spec.is_vector())
      writer.add_bf16(spec.name, fmt::format("[{}]", spec.cols), values);
    else if (spec.part == TensorPart::embedding)
      writer.add_bf16(spec.name, fmt::format("[{},{}]", spec.rows, spec.cols), values);
    else
      writer.add_blocks(spec.name, spec.rows, spec.cols, values);
  }
  return writer;
}

Model read(const std::string& file, const Config& config) {
  Model model;
  model.config = config;
  read_q4nx_bundle(bytes_of(file), "model.q4nx", {}, model);
  bind_weights(model.tensors, config, NameStyle::hugging_face, "model.q4nx", model.weights);
  return model;
}

TEST(Q4nxBundle, EveryWeightIsWhatItsBlockSaysToTheBit) {
  const Config config = bundle_config();
  const BundleWriter writer = bundle_of(config, BundleForm::i8);
  const std::string file = writer.file();
  const Model model = read(file, config);
  for (const WeightSpec& spec : weight_specs(config, NameStyle::hugging_face)) {
    const TensorView& view = view_of(model.weights, spec);
    EXPECT_EQ(values_of(view), writer.written(spec.name)) << spec.name;
    const bool is_blocks = !spec.is_vector() && spec.part != TensorPart::embedding;
    EXPECT_EQ(view.dtype, is_blocks ? DType::q4_1 : DType::bf16) << spec.name;
  }
}

// scale * zero point, of two bf16, has up to 16 bits, of which f16 keeps 11.
TEST(Q4nxBundle, ZeroPointsBecomeMinimaOf11Bits) {
  const Config config = bundle_config();
  const BundleWriter writer = bundle_of(config, BundleForm::q4nx);
  const std::string file = writer.file();
  const Model model = read(file, config);
  for (const WeightSpec& spec : weight_specs(config, NameStyle::hugging_face)) {
    const std::vector<float> values = values_of(view_of(model.weights, spec));
    const std::vector<float>& written = writer.written(spec.name);
    ASSERT_EQ(values.size(), written.size());
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], written[i], 0.3f * 0x1p-11f) << spec.name << " " << i;
  }
}

// Bundles of models whose head is the embedding have a rounded head beside it, which is not read.
TEST(Q4nxBundle, AHeadThatIsTheEmbeddingIsNotTakenFromBlocks) {
  Config config = bundle_config();
  BundleWriter writer = bundle_of(config, BundleForm::i8);
  config.tied_head = true;
  const std::string file = writer.file();
  const Model model = read(file, config);
  EXPECT_EQ(model.weights.head.bytes.data(), model.weights.embedding.bytes.data());
  EXPECT_EQ(values_of(model.weights.head), writer.written("model.embed_tokens.weight"));
}

TEST(Q4nxBundle, WhatDoesNotFitTheConfigIsRefused) {
  const Config config = bundle_config();
  for (const BundleForm form : {BundleForm::i8, BundleForm::q4nx}) {
    const std::string file = bundle_of(config, form).file();
    Config other = config;
    other.hidden = 768;
    EXPECT_MESSAGE([&] { read(file, other); }, "the config asks for [");
    other = config;
    other.hidden = 500;
    EXPECT_MESSAGE([&] { read(file, other); }, "are not whole blocks of 32 x 256");
    other = config;
    other.layers = 2;
    EXPECT_MESSAGE([&] { read(file, other); }, "is missing");
    EXPECT_MESSAGE([&] { read(file.substr(0, file.size() - 1), config); }, "the file is cut off");
  }
  BundleWriter extra = bundle_of(config, BundleForm::i8);
  extra.add_blocks("model.vision.weight", 32, 256, random_weights(32 * 256, 9));
  EXPECT_MESSAGE([&] { read(extra.file(), config); },
                 "model.vision.weight: no matrix of a llama model is called so");
}

TEST(Q4nxBundle, ScalesThatAreNoHalvesAreRefusedByRow) {
  const Config config = bundle_config();
  BundleWriter writer = bundle_of(config, BundleForm::i8);
  std::string file = writer.file();
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const std::string name = "\"model.layers.0.mlp.down_proj.weight\"";
  const size_t at = file.find("\"data_offsets\":[", file.find(name)) + 16;
  const uint64_t begin = std::stoull(file.substr(at));
  // Group 2 of row 33, in the second block of the second row of blocks (512 columns: two across).
  const size_t scale = 8 + header + begin + 3 * 5120 + (2 * 32 + 1) * 2;
  for (const uint16_t bits : {0x7f80, 0x7fc0, 0x4800}) {  // infinity, NaN, 131072
    std::memcpy(file.data() + scale, &bits, 2);
    EXPECT_MESSAGE([&] { read(file, config); },
                   "down_proj.weight: row 33 has a scale or a minimum in columns 256 to 511");
  }
}

}  // namespace
}  // namespace tyto::test
