// The fixtures under tests/golden/data (see tests/golden/README.md), as plain structs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto::golden {

struct Prompt {
  std::vector<Token> ids;
  std::vector<float> logits;   // [ids, vocab], Hugging Face f32
  std::vector<Token> argmax;   // [ids]
  std::vector<double> margin;  // [ids], (best - second) / (best - worst)
  std::vector<Token> greedy;   // the next 32 tokens
  size_t greedy_clear = 0;     // leading steps with a margin of at least 1 %
  double q4_cosine = 0;        // Transformers' own logits with four-bit weights

  std::span<const float> row(size_t position, size_t vocab) const {
    return std::span(logits).subspan(position * vocab, vocab);
  }
};

struct Fixture {
  std::string name;
  std::filesystem::path model;
  std::filesystem::path legacy_config;
  size_t vocab = 0;
  std::vector<Prompt> prompts;
};

inline void PrintTo(const Fixture& fixture, std::ostream* out) {
  *out << fixture.name;
}

// DEVICE=name in the environment runs the device tests on another device.
inline std::string device_name() {
  const char* name = std::getenv("DEVICE");
  return name == nullptr ? "cpu" : name;
}

inline std::filesystem::path data_folder() {
  return std::filesystem::path(TYTO_SOURCE_DIR) / "tests/golden/data";
}

inline std::vector<Token> tokens(const Json& array) {
  std::vector<Token> result;
  array.for_each_element(
      [&](size_t, const Json& id) { result.push_back(static_cast<Token>(id.as_int())); });
  return result;
}

inline std::vector<float> read_f32(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::vector<float> values(file.bytes().size() / sizeof(float));
  std::memcpy(values.data(), file.bytes().data(), file.bytes().size());
  return values;
}

inline Prompt read_prompt(const Json& json, const std::filesystem::path& folder) {
  Prompt prompt;
  prompt.ids = tokens(json.at("ids"));
  prompt.logits = read_f32(folder / json.at("logits").as_string());
  prompt.argmax = tokens(json.at("argmax"));
  json.at("margin").for_each_element(
      [&](size_t, const Json& value) { prompt.margin.push_back(value.as_double()); });
  prompt.greedy = tokens(json.at("greedy"));
  prompt.greedy_clear = json.at("greedy_clear").as_uint(1000);
  prompt.q4_cosine = json.at("q4_cosine").as_double();
  return prompt;
}

inline std::vector<Fixture> fixtures() {
  std::vector<Fixture> result;
  const Json index = Json::parse_file((data_folder() / "index.json").string(), 1 << 20);
  index.at("fixtures").for_each_element([&](size_t, const Json& entry) {
    Fixture fixture;
    fixture.name = entry.at("name").as_string();
    fixture.model = data_folder() / entry.at("model").as_string();
    fixture.legacy_config = data_folder() / entry.at("legacy_config").as_string();
    fixture.vocab = entry.at("vocab").as_uint(1 << 20);
    const auto expected = data_folder() / entry.at("expected").as_string();
    Json::parse_file(expected.string(), 16 << 20)
        .at("prompts")
        .for_each_element([&](size_t, const Json& prompt) {
          fixture.prompts.push_back(read_prompt(prompt, expected.parent_path()));
        });
    result.push_back(std::move(fixture));
  });
  return result;
}

}  // namespace tyto::golden
