#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

namespace tyto {
namespace {

std::vector<AddedToken> special(const std::vector<std::string>& texts) {
  std::vector<AddedToken> added;
  for (const std::string& text : texts)
    added.push_back({static_cast<Token>(added.size()), text, true});
  return added;
}

// What it means, token by token.
bool begins_inside(const std::vector<AddedToken>& added, std::string_view text) {
  for (const AddedToken& token : added)
    for (size_t cut = 1; token.special && cut < token.text.size(); ++cut)
      if (text.starts_with(std::string_view(token.text).substr(cut))) return true;
  return false;
}
bool ends_inside(const std::vector<AddedToken>& added, std::string_view text) {
  for (const AddedToken& token : added)
    for (size_t cut = 1; token.special && cut < token.text.size(); ++cut)
      if (text.ends_with(std::string_view(token.text).substr(0, cut))) return true;
  return false;
}

TEST(SpecialEdges, AreWhatTheTokensSayOneByOne) {
  std::mt19937 random(1);
  const auto text_of = [&](size_t longest) {
    std::string text;
    for (size_t left = random() % (longest + 1); left > 0; --left)
      text += "<|ab>\xff\x80"[random() % 7];
    return text;
  };
  size_t inside = 0, outside = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<AddedToken> added;
    for (size_t left = random() % 8; left > 0; --left)
      added.push_back({0, text_of(6), random() % 4 > 0});
    SpecialEdges edges(added);
    for (int i = 0; i < 100; ++i) {
      const std::string text = text_of(9);
      EXPECT_EQ(edges.begins_inside(text), begins_inside(added, text)) << text;
      EXPECT_EQ(edges.ends_inside(text), ends_inside(added, text)) << text;
      ++(ends_inside(added, text) ? inside : outside);
    }
  }
  EXPECT_GT(inside, 1000u);
  EXPECT_GT(outside, 1000u);
}

// The texts are such as need every part of the search.
uint64_t steps_for_a_text(size_t tokens) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < tokens; ++i)
    texts.push_back("<|reserved_special_token_" + std::to_string(1000 + i) + "|>");
  const std::vector<AddedToken> added = special(texts);
  SpecialEdges edges(added);
  constexpr uint64_t kTexts = 100;
  for (uint64_t i = 0; i < kTexts; ++i) {
    EXPECT_FALSE(edges.begins_inside("zz>" + std::string(i, 'z')));
    EXPECT_FALSE(edges.ends_inside(std::string(i, 'z') + "<zz"));
  }
  return edges.steps() / kTexts;
}

TEST(SpecialEdges, CostAboutTheSameHoweverManyTokensThereAre) {
  const uint64_t few = steps_for_a_text(16), many = steps_for_a_text(4096);
  EXPECT_LE(many, few + 32);  // 256 times as many tokens: some more steps of two binary searches
  EXPECT_LE(many, 120u);
}

}  // namespace
}  // namespace tyto
