#include "model/stores/recommended_models.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hub/hub_api.h"

namespace tyto::test {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;

TEST(RecommendedModels, AreNamesThatPullTakesFromSmallToLarge) {
  const Recommendations all = recommendations();
  EXPECT_GE(all.models.size(), 6U);
  EXPECT_LE(all.models.size(), 10U);
  EXPECT_EQ(all.date.size(), 10U);
  for (const RecommendedModel& model : all.models) {
    EXPECT_EQ(parse_repo_name(model.name).asked, model.type) << model.name;
    EXPECT_EQ(model.source, "https://huggingface.co/" + model.name.substr(0, model.name.find(':')));
    EXPECT_FALSE(model.title.empty() || model.good_for.empty()) << model.name;
  }
  EXPECT_TRUE(std::is_sorted(all.models.begin(), all.models.end(),
                             [](const auto& a, const auto& b) { return a.bytes < b.bytes; }));
}

TEST(RecommendedModels, EverySizeHasASource) {
  for (const RecommendedModel& model : recommendations().models) {
    const bool is_exact = model.size_from.starts_with("download lists, 2026-");
    EXPECT_TRUE(is_exact || model.size_from.starts_with("card, 2026-")) << model.size_from;
    EXPECT_EQ(model.sha256.size(), is_exact ? 64U : 0U) << model.name;
  }
}

TEST(RecommendedModels, FitTheMachine) {
  const Recommendations all = recommendations();
  EXPECT_TRUE(that_fit(all.models, kGigabyte).empty());
  EXPECT_EQ(that_fit(all.models, 128 * kGigabyte).size(), all.models.size());
  const auto usual = that_fit(all.models, 16 * kGigabyte);
  EXPECT_GE(usual.size(), 6U);
  for (const RecommendedModel& model : usual) EXPECT_LT(model.bytes, 14 * kGigabyte);
}

TEST(RecommendedModels, TheTextHasALineToCopyAndFitsATerminal) {
  const Recommendations all = recommendations();
  for (const uint64_t memory : {kGigabyte, 8 * kGigabyte, 128 * kGigabyte}) {
    const std::string text = recommendation_text(all, memory);
    for (const RecommendedModel& model : all.models)
      EXPECT_EQ(text.find("\n    tyto pull " + model.name + "\n") != std::string::npos,
                !that_fit({model}, memory).empty());
    for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1)
      EXPECT_LE(end - begin, 80U) << text.substr(begin, end - begin);
  }
}

}  // namespace
}  // namespace tyto::test
