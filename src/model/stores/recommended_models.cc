#include "model/stores/recommended_models.h"

#include <fmt/format.h>

#include <string_view>

#include "base/json.h"
#include "model/stores/local_models.h"

namespace tyto {

std::string_view recommended_models_json();  // written by embed_text.cmake

namespace {

constexpr uint64_t kLargestModel = uint64_t{1} << 50;

std::string gigabytes(uint64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

std::string text_of(const Json& entry, const char* field) {
  return std::string(entry.at(field).as_string());
}

}  // namespace

Recommendations recommendations() {
  const Json json = Json::parse(recommended_models_json(), "recommended_models.json");
  Recommendations all{.date = text_of(json, "date"), .models = {}};
  json.at("models").for_each_element([&](size_t, const Json& entry) {
    all.models.push_back({.name = text_of(entry, "name"),
                          .source = text_of(entry, "source"),
                          .title = text_of(entry, "title"),
                          .type = text_of(entry, "type"),
                          .bytes = entry.at("bytes").as_uint(kLargestModel),
                          .size_from = text_of(entry, "size_from"),
                          .sha256 = entry.string_or("sha256", ""),
                          .good_for = text_of(entry, "good_for")});
  });
  return all;
}

std::vector<std::string> recommended_names(std::string_view short_name) {
  std::vector<std::string> names;
  for (const RecommendedModel& model : recommendations().models)
    if (is_short_for(short_name, model.name)) names.push_back(model.name);
  return names;
}

std::vector<RecommendedModel> that_fit(const std::vector<RecommendedModel>& models,
                                       uint64_t memory_bytes) {
  constexpr uint64_t kForOthers = 1'000'000'000;
  std::vector<RecommendedModel> fitting;
  for (const RecommendedModel& model : models)
    if (model.bytes + model.bytes / 10 + kForOthers <= memory_bytes) fitting.push_back(model);
  return fitting;
}

std::string recommendation_text(const Recommendations& all, uint64_t memory_bytes) {
  const std::vector<RecommendedModel> fitting = that_fit(all.models, memory_bytes);
  if (fitting.empty())
    return fmt::format(
        "This machine has {} of memory: none of the models that Tyto recommends fits.\n"
        "The model that ships with Tyto does: tyto chat\n",
        gigabytes(memory_bytes));
  std::string text =
      fmt::format("Models that fit into this machine's {} of memory (list of {}):\n\n",
                  gigabytes(memory_bytes), all.date);
  for (const RecommendedModel& model : fitting)
    text += fmt::format("  {:<14} {:>8}  {}\n    tyto pull {}\n", model.title,
                        "~" + gigabytes(model.bytes), model.good_for, model.name);
  return text +
         "\nThen: tyto chat MODEL, with the name behind `tyto pull`.\n"
         "Any other model of a hub: tyto pull ORG/REPO[:TYPE], or its address.\n";
}

}  // namespace tyto
