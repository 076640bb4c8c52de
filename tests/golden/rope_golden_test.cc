// Rope scalings whose frequencies transformers worked out (data/rope.json).
#include <gtest/gtest.h>

#include <cmath>

#include "golden/golden_data.h"
#include "model/hf_model.h"

namespace tyto {
namespace {

Config config_of(const Json& test) {
  const std::string text =
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":64,"num_hidden_layers":1,)"
      R"("num_attention_heads":1,"vocab_size":64,"head_dim":)" +
      test.at("head_dim").text() + R"(,"max_position_embeddings":)" + test.at("context").text() +
      R"(,"rope_parameters":)" + test.at("rope").text() + "}";
  Config config = config_from_hf(Json::parse(text, "config.json"));
  choose_divisors(config, static_cast<uint32_t>(test.at("length").as_uint(UINT32_MAX)));
  return config;
}

TEST(RopeGolden, FrequenciesAndFactorsAreTransformers) {
  const Json root =
      Json::parse_file(std::string(TYTO_SOURCE_DIR) + "/tests/golden/data/rope.json", 16 << 20);
  size_t cases = 0;
  root.at("cases").for_each_element([&](size_t, const Json& test) {
    const Config config = config_of(test);
    const std::string name = test.at("rope").text();
    EXPECT_NEAR(config.rope.attention_factor, test.at("attention_factor").as_double(), 1e-6)
        << name;
    const std::vector<float> frequencies = rope_frequencies(config);
    ASSERT_EQ(frequencies.size(), test.at("frequencies").size()) << name;
    // Theirs are f32 throughout, ours are rounded to it once.
    test.at("frequencies").for_each_element([&](size_t i, const Json& expected) {
      EXPECT_NEAR(frequencies[i] / expected.as_double(), 1, 2e-6) << name << " " << i;
    });
    ++cases;
  });
  EXPECT_GE(cases, 8u);
}

}  // namespace
}  // namespace tyto
