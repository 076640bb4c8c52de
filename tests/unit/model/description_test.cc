// What models are called: their sizes and types in words.
#include "model/description.h"

#include "model/convert.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

TEST(CountText, RoundsAsPeopleWriteSizes) {
  const std::pair<uint64_t, const char*> cases[] = {
      {0, "0"},
      {999, "999"},
      {1'000, "1.0K"},
      {9'949, "9.9K"},
      {9'950, "10K"},
      {656'000, "656K"},
      {999'499, "999K"},
      {999'500, "1.0M"},
      {1'312'000, "1.3M"},
      {9'949'999, "9.9M"},
      {9'950'000, "10M"},
      {134'515'008, "135M"},
      {268'098'176, "268M"},
      {596'049'920, "596M"},
      {999'499'999, "999M"},
      {999'500'000, "1.0B"},
      {999'885'952, "1.0B"},  // Gemma 3 1B
      {1'000'000'000, "1.0B"},
      {1'049'999'999, "1.0B"},
      {1'050'000'001, "1.1B"},
      {1'235'814'400, "1.2B"},
      {70'553'706'496, "70.6B"},
      {99'949'999'999, "99.9B"},
      {99'950'000'000, "100B"},
      {405'853'388'800, "406B"},
      {999'499'999'999, "999B"},
      {999'500'000'000, "1.0T"},
      {UINT64_MAX, "18446744T"},
  };
  for (const auto& [count, text] : cases) EXPECT_EQ(count_text(count), text) << count;
  // Whatever the number, one glance: no exponent, never a thousand of a unit.
  for (uint64_t count = 1; count < 900'000'000'000'000; count += count / 7 + 1) {
    const std::string text = count_text(count);
    EXPECT_LE(text.size(), 5u) << text;
    EXPECT_EQ(text.find_first_not_of("0123456789.KMBT"), std::string::npos) << text;
  }
}

TEST(WeightType, EveryFileTypeHasItsName) {
  const std::map<uint64_t, std::string_view> names = {
      {0, "f32"},      {1, "f16"},      {2, "q4_0"},    {3, "q4_1"},    {7, "q8_0"},
      {8, "q5_0"},     {9, "q5_1"},     {10, "q2_k"},   {11, "q3_k_s"}, {12, "q3_k_m"},
      {13, "q3_k_l"},  {14, "q4_k_s"},  {15, "q4_k_m"}, {16, "q5_k_s"}, {17, "q5_k_m"},
      {18, "q6_k"},    {19, "iq2_xxs"}, {20, "iq2_xs"}, {21, "q2_k_s"}, {22, "iq3_xs"},
      {23, "iq3_xxs"}, {24, "iq1_s"},   {25, "iq4_nl"}, {26, "iq3_s"},  {27, "iq3_m"},
      {28, "iq2_s"},   {29, "iq2_m"},   {30, "iq4_xs"}, {31, "iq1_m"},  {32, "bf16"},
      {36, "tq1_0"},   {37, "tq2_0"},   {38, "mxfp4"}};
  for (uint64_t type = 0; type < 2000; ++type) {
    const auto known = names.find(type);
    const std::optional<std::string_view> expected =
        known == names.end() ? std::nullopt : std::optional(known->second);
    EXPECT_EQ(file_type_name(type), expected) << type;
    // Between types of numbers the weights themselves are asked; a mix has its own name.
    const bool is_mix = expected && type > 1 && type != 32;
    EXPECT_EQ(weight_type(type, DType::q5_0), is_mix ? *expected : "q5_0") << type;
    EXPECT_EQ(weight_type(type, DType::bf16), "bf16") << type;
  }
  EXPECT_EQ(file_type_name(UINT64_MAX), std::nullopt);
  EXPECT_EQ(weight_type(std::nullopt, DType::q4_k), "q4_k");
  for (const std::string& name : type_mix_names()) {
    const TypeMix& mix = find_type_mix(name);
    EXPECT_EQ(file_type_name(mix.file_type), mix.name);
    EXPECT_EQ(weight_type(mix.file_type, mix.base), mix.name);
  }
}

// Rows of 64 values are no whole number of blocks of 256, so that every matrix of the mix has a
// type of smaller blocks. The file is a q4_k_m all the same.
TEST(Description, OfAFileIsItsOwn) {
  const Scratch scratch;
  for (const char* type : {"q4_k_m", "bf16", "q8_0"}) {
    const auto path = scratch / (std::string(type) + ".gguf");
    synthesize(small_config(), type, 1, path);
    const ModelDescription described = describe_model(path);
    EXPECT_EQ(described.type, type);
    EXPECT_EQ(described.size, count_text(open_model(path).parameters()));
    EXPECT_TRUE(described.has_tokenizer);
  }
  EXPECT_EQ(describe_model(scratch / "q4_k_m.gguf").main_type, "q5_0");
}

// Nothing but a name hangs on the file's own type: one that makes no sense is passed over.
TEST(Description, AFileTypeThatMakesNoSenseIsAsNone) {
  const Scratch scratch;
  synthesize(small_config(), "q4_k_m", 1, scratch / "whole.gguf");
  const std::string whole = read_file(scratch / "whole.gguf"), key = "general.file_type";
  const struct {
    uint32_t kind;  // a type of GGUF's values, each of four bytes
    uint32_t bits;
  } wrong[] = {{5, 0xffffffff}, {6, 0x41700000}, {4, 39}, {4, 1024 + 15}, {4, 0}, {4, 0xffffffff}};
  for (const auto& value : wrong) {
    std::string damaged = whole;
    std::memcpy(&damaged[damaged.find(key) + key.size()], &value, sizeof value);
    write_file(scratch / "damaged.gguf", damaged);
    EXPECT_EQ(describe_model(scratch / "damaged.gguf").type, "q5_0") << value.kind;
  }
}

TEST(Description, CountsWhatATokenTakes) {
  const Scratch scratch;
  synthesize(shape_by_name("tiny-mixtral"), "q8_0", 1, scratch / "m.gguf");
  const Model model = open_model(scratch / "m.gguf");
  EXPECT_LT(model.active_parameters(), model.parameters());
  EXPECT_EQ(describe(model).size,
            count_text(model.parameters()) + ".A" + count_text(model.active_parameters()));
}

TEST(Description, NamesByItsPlaceWhatHasNoName) {
  Model model;
  model.path = "/models/Some-Model.gguf";
  EXPECT_EQ(describe(model).name, "Some-Model.gguf");
  EXPECT_EQ(describe(model).type, "");
  model.path = "/models/a folder/";
  EXPECT_EQ(describe(model).name, "a folder");
  model.config.name = "Its own";
  EXPECT_EQ(describe(model).name, "Its own");
}

}  // namespace
}  // namespace tyto::test
