// Models to begin with, from data/recommended_models.json, which is part of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct RecommendedModel {
  std::string name;       // what `tyto pull` takes
  std::string source;     // the model card's address
  std::string title;      // "Llama 3.2 1B"
  std::string type;       // "Q4_K_M"
  uint64_t bytes = 0;     // rounded where a card is the source
  std::string size_from;  // "card, 2026-11-18"
  std::string sha256;     // the file's; empty where a card is the source
  std::string good_for;   // in a few words
};

struct Recommendations {
  std::string date;  // the list's: "2026-11-18"
  std::vector<RecommendedModel> models;
};

Recommendations recommendations();

// The names for `tyto pull` of those that a short name means ("llama3.2:1b"), the smallest first.
std::vector<std::string> recommended_names(std::string_view short_name);

// Those whose weights leave a machine of this memory room for a conversation and other programs.
std::vector<RecommendedModel> that_fit(const std::vector<RecommendedModel>& models,
                                       uint64_t memory_bytes);

// What `tyto pull` prints without a name.
std::string recommendation_text(const Recommendations& all, uint64_t memory_bytes);

}  // namespace tyto
