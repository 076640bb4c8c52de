#include "model/convert.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

// A row of the table that llama-quantize filled (tools/make_type_mixes.py).
struct Row {
  std::string text;
  Config config;
  Importance importance = Importance::unknown;
  std::string mix;
  std::string most;                           // what matrices get that are not named below
  std::map<std::string, std::string> others;  // by tensor
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

Row parse_row(const std::string& line) {
  const std::vector<std::string> words = split(line, ' ');
  const auto number = [&](size_t i) { return static_cast<uint32_t>(std::stoul(words.at(i))); };
  Row row;
  row.text = line;
  row.config = small_config(words.at(0).c_str());
  row.config.layers = number(1);
  row.config.heads = 4;
  row.config.kv_heads = number(2);
  row.config.emb = number(3);
  row.config.head_dim = row.config.emb / 4;
  row.config.hidden = number(4);
  row.config.tied_head = words.at(5) == "tied";
  row.importance = words.at(6) == "imatrix" ? Importance::known : Importance::unknown;
  row.mix = words.at(7);
  row.most = words.at(8);
  for (size_t i = 9; i < words.size(); ++i) {
    const std::vector<std::string> parts = split(words[i], ':');
    if (parts.size() == 2) row.others[parts[1] + ".weight"] = parts[0];
    if (parts.size() == 3)
      for (const std::string& layer : split(parts[2], ','))
        row.others["blk." + layer + "." + parts[1] + ".weight"] = parts[0];
  }
  return row;
}

std::vector<Row> table() {
  std::ifstream in(std::string(TYTO_SOURCE_DIR) + "/tests/data/type_mix/types.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with('#')) rows.push_back(parse_row(line));
  return rows;
}

TEST(TypeMix, EveryTensorGetsTheTypeThatLlamaQuantizeGivesIt) {
  const std::vector<Row> rows = table();
  ASSERT_EQ(rows.size(), 450u);
  for (const Row& row : rows) {
    std::vector<std::string> notes;
    const auto specs = weight_specs(row.config, NameStyle::gguf);
    const auto plans = plan_types(find_type_mix(row.mix), row.config, specs, notes, row.importance);
    size_t others = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      EXPECT_EQ(plans[i].name, specs[i].name);
      const auto other = row.others.find(specs[i].name);
      others += other != row.others.end() ? 1 : 0;
      const std::string expected = specs[i].is_vector()        ? "f32"
                                   : other != row.others.end() ? other->second
                                                               : row.most;
      EXPECT_EQ(info(plans[i].dtype).name, expected) << specs[i].name << " of: " << row.text;
    }
    EXPECT_EQ(others, row.others.size()) << row.text;
  }
}

TEST(TypeMix, PlainTypesAreOneTypeThroughout) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    std::vector<std::string> notes;
    Config config = blocky_config();
    config.tied_head = true;
    const auto specs = weight_specs(config, NameStyle::gguf);
    const auto plans = plan_types(find_type_mix(type), config, specs, notes);
    for (size_t i = 0; i < specs.size(); ++i)
      EXPECT_EQ(info(plans[i].dtype).name, specs[i].is_vector() ? "f32" : type);
    EXPECT_TRUE(notes.empty());
  }
}

TEST(TypeMix, RowsThatNoBlockFitsAreF16) {
  Config config = small_config();
  config.emb = 20;
  std::vector<std::string> notes;
  const auto specs = weight_specs(config, NameStyle::gguf);
  for (const char* mix : {"q4_0", "q4_k_m", "q6_k", "q8_0"})
    for (const TensorPlan& plan : plan_types(find_type_mix(mix), config, specs, notes))
      EXPECT_EQ(plan.dtype == DType::f16, plan.rows > 0 && plan.cols == 20) << mix << plan.name;
}

TEST(TypeMix, NamesAndAliasesAreFoundInAnyCase) {
  EXPECT_EQ(find_type_mix("Q4_K").name, "q4_k_m");
  EXPECT_EQ(find_type_mix("q5_k").name, "q5_k_m");
  for (const std::string& name : type_mix_names()) EXPECT_NO_THROW(find_type_mix(name)) << name;
  EXPECT_MESSAGE([] { find_type_mix("q3_z"); }, "type q3_z: does not exist | the types are f32");
  for (const char* type : {"iq4_nl", "Q3_K", "q3_k_m", "mxfp4"})
    EXPECT_MESSAGE([&] { find_type_mix(type); },
                   std::string("type ") + type + ": is read and not written by Tyto");
  for (const char* type : {"f32", "f16", "bf16", "q8_0"})
    EXPECT_FALSE(takes_importance(find_type_mix(type))) << type;
  for (const char* type : {"q4_0", "q5_1", "q4_k_s", "q6_k"})
    EXPECT_TRUE(takes_importance(find_type_mix(type))) << type;
}

}  // namespace
}  // namespace tyto::test
