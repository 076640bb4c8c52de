#include "model/text_part.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : model.tensors) names.push_back(tensor.name);
  return names;
}

Model model_of(const std::vector<std::string>& names) {
  static const std::vector<std::byte> bytes(8);
  Model model;
  model.config.layers = 2;
  for (const std::string& name : names)
    model.tensors.push_back({name, {DType::f32, 1, 2, std::span(bytes)}});
  return model;
}

TEST(TextPart, VisionAndDraftingAreLeftOutWithALineEach) {
  Model model = model_of({"model.visual.blocks.0.norm.weight", "model.language_model.norm.weight",
                          "lm_head.weight", "mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight"});
  keep_text_part(NameStyle::hugging_face, 0, model);
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"model.norm.weight", "lm_head.weight"}));
  ASSERT_EQ(model.notes.size(), 2u);
  EXPECT_EQ(model.notes[0], "the part for images is not used: 1 tensors of 0.0 MB");
  EXPECT_TRUE(model.notes[1].starts_with("the head for drafting several tokens is not used: 2"));
}

// A layer behind those for drafting stays, and so is refused when weights are bound.
TEST(TextPart, LayersForDraftingStandBehindTheOthersOfAGguf) {
  Model model = model_of({"blk.1.attn_norm.weight", "blk.2.attn_norm.weight",
                          "blk.2.nextn.eh_proj.weight", "blk.3.attn_norm.weight", "blk.x"});
  keep_text_part(NameStyle::gguf, 1, model);
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"blk.1.attn_norm.weight",
                                                       "blk.3.attn_norm.weight", "blk.x"}));
  EXPECT_EQ(model.notes.size(), 1u);
}

Config recurrent_config() {
  Config config;
  config.layers = 1;
  config.layer_kinds = {LayerKind::delta_rule};
  config.recurrent = {.key_heads = 2, .heads = 4, .key_dim = 1, .head_dim = 1};
  return config;
}

// Rows of one value, which is their number.
NamedTensor numbered(const std::string& name, const std::vector<float>& values) {
  return {name, {DType::f32, values.size(), 1, std::as_bytes(std::span(values))}};
}

std::vector<float> values_of(const std::vector<NamedTensor>& tensors, const std::string& name) {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name != name) continue;
    const auto* values = reinterpret_cast<const float*>(tensor.view.bytes.data());
    return {values, values + tensor.view.values()};
  }
  return {};
}

TEST(TextPart, RowsThatEachKeyHeadHasInTurnArePutInOrder) {
  using Values = std::vector<float>;
  Model model;
  Values qkvz(12);  // one key head: q, k, two v, two z
  std::iota(qkvz.begin(), qkvz.end(), 0.0f);
  const std::string layer = "model.layers.0.linear_attn.";
  const Values logarithms = {0, 1};
  const auto result = with_recurrence_in_order(
      {numbered(layer + "in_proj_qkvz.weight", qkvz), numbered(layer + "A_log", logarithms)},
      recurrent_config(), NameStyle::hugging_face, "folder", model);
  EXPECT_EQ(values_of(result, layer + "in_proj_qkv.weight"), (Values{0, 6, 1, 7, 2, 3, 8, 9}));
  EXPECT_EQ(values_of(result, layer + "in_proj_z.weight"), (Values{4, 5, 10, 11}));
  EXPECT_FLOAT_EQ(values_of(result, layer + "A_log")[1], -2.7182818f);
  qkvz.pop_back();
  EXPECT_ERROR(
      with_recurrence_in_order({numbered(layer + "in_proj_qkvz.weight", qkvz)}, recurrent_config(),
                               NameStyle::hugging_face, "folder", model),
      "folder: tensor model.layers.0.linear_attn.in_proj_qkvz.weight: has 11 rows, and 2 "
      "key heads of 6 rows are wanted");
}

TEST(TextPart, TiledHeadsTakeTurnsOfTheKeyHeads) {
  std::vector<uint64_t> rows;
  for (uint64_t row = 0; row < 8; ++row)
    rows.push_back(untiled_row(row, 2, {.key_heads = 2, .heads = 4}));
  EXPECT_EQ(rows, (std::vector<uint64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
}

}  // namespace
}  // namespace tyto
