#include "model/convert.h"

#include <fmt/format.h>

#include <limits>
#include <random>

#include "model/gguf.h"
#include "model/synth.h"
#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

using Floats = std::vector<float>;
using Entries = std::vector<std::pair<std::string, Floats>>;

// The binary form, number by number.
std::string binary_form(const Entries& entries, int32_t calls = 4) {
  std::string text;
  const auto number = [&](auto value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  number(static_cast<int32_t>(entries.size()));
  for (const auto& [name, values] : entries) {
    number(static_cast<int32_t>(name.size()));
    text += name;
    number(calls);
    number(static_cast<int32_t>(values.size()));
    for (const float value : values) number(value);
  }
  return text;
}

std::string with_dataset(std::string text, int32_t chunks, const std::string& dataset) {
  const auto size = static_cast<int32_t>(dataset.size());
  text.append(reinterpret_cast<const char*>(&chunks), sizeof chunks);
  text.append(reinterpret_cast<const char*>(&size), sizeof size);
  return text + dataset;
}

struct GgufEntry {
  std::string name;
  DType dtype;
  Floats values;
};

std::string gguf_form(const std::vector<GgufEntry>& entries, const std::string& type = "imatrix") {
  const Scratch scratch;
  GgufMetadata metadata;
  metadata.push_back({"general.type", {type}});
  metadata.push_back({"imatrix.datasets", {std::vector<std::string>{"some.txt", "more.txt"}}});
  metadata.push_back({"imatrix.chunk_count", {uint64_t{7}}});
  metadata.push_back({"imatrix.chunk_size", {uint64_t{512}}});
  std::vector<TensorPlan> plans;
  for (const GgufEntry& entry : entries)
    plans.push_back({entry.name, entry.dtype, 1, entry.values.size()});
  GgufWriter writer(scratch / "m.gguf", metadata, plans);
  for (const GgufEntry& entry : entries) {
    std::vector<std::byte> bytes(row_bytes(entry.dtype, entry.values.size()));
    quantize(entry.dtype, entry.values, bytes);
    writer.append(bytes);
  }
  writer.commit();
  return read_file(scratch / "m.gguf");
}

ImportanceMatrix parse(const std::string& bytes) {
  return parse_importance(bytes_of(bytes), "m.imatrix");
}

TEST(Importance, BothFormsSayTheSame) {
  const ImportanceMatrix old = parse(
      with_dataset(binary_form({{"a.weight", {4, 16, 8}}, {"b.weight", {0, 0}}}), 7, "some.txt"));
  const ImportanceMatrix now = parse(gguf_form({{"a.weight.in_sum2", DType::f32, {2, 8, 4}},
                                                {"a.weight.counts", DType::f32, {2}},
                                                {"b.weight.in_sum2", DType::f32, {0, 5}},
                                                {"b.weight.counts", DType::f32, {0}}}));
  for (const ImportanceMatrix* matrix : {&old, &now}) {
    ASSERT_EQ(matrix->columns.size(), 2u);
    EXPECT_EQ(matrix->columns.at("a.weight"), (Floats{0.25f, 1, 0.5f}));
    EXPECT_EQ(matrix->columns.at("b.weight"), (Floats{1, 1}));  // nothing is known: all the same
    EXPECT_EQ(matrix->chunks, 7u);
    EXPECT_EQ(matrix->dataset, "some.txt");
    EXPECT_EQ(matrix->file, "m.imatrix");
  }
}

TEST(Importance, EachExpertHasItsCount) {
  const ImportanceMatrix matrix = parse(
      gguf_form({{"a.in_sum2", DType::f32, {2, 4, 3, 30}}, {"a.counts", DType::f32, {1, 10}}}));
  const Floats expected = {0.5f, 1, 0.075f, 0.75f};
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(matrix.columns.at("a")[i], expected[i]);
}

TEST(Importance, TheBinaryFormMayEndAfterItsEntries) {
  EXPECT_EQ(parse(binary_form({{"a", {1}}})).dataset, "");
  std::string chunks_only = binary_form({{"a", {1}}});
  chunks_only.append("\3\0\0\0", 4);
  EXPECT_EQ(parse(chunks_only).chunks, 3u);
}

TEST(Importance, WhatIsWrongIsNamed) {
  const auto expect = [](const std::string& bytes, const std::string& fragment) {
    EXPECT_MESSAGE([&] { parse(bytes); }, fragment);
  };
  expect("", "m.imatrix: ends before its entries");
  expect(std::string("\0\0\0\0", 4), "without entries");
  expect(std::string("\377\377\377\377", 4), "4294967295 entries do not fit into the 0 bytes");
  expect("this is a text file, and of some length", "do not fit");
  expect(binary_form({{"a", {1, -1}}}), "entry a: column 1 is -");
  expect(binary_form({{"a", {1, std::numeric_limits<float>::quiet_NaN()}}}), "column 1 is nan");
  expect(binary_form({{"a", {std::numeric_limits<float>::infinity()}}}), "column 0 is inf");
  expect(binary_form({{"a", {1}}, {"a", {1}}}), "entry a: is there twice");
  expect(with_dataset(binary_form({{"a", {1}}}), 1, "x") + "y", "goes on after its end");
  expect(gguf_form({{"a.in_sum2", DType::f32, {1}}}), "entry a: has sums but no counts");
  expect(gguf_form({{"a.in_sum2", DType::f32, {1, 2, 3}}, {"a.counts", DType::f32, {1, 1}}}),
         "has 3 sums for 2 counts");
  expect(gguf_form({{"a.in_sum2", DType::f16, {1}}, {"a.counts", DType::f32, {1}}}),
         "tensor a.in_sum2: is f16, and not f32");
  expect(gguf_form({{"a.counts", DType::f32, {1}}}), "without entries");
  expect(gguf_form({{"a.in_sum2", DType::f32, {1}}}, "model"),
         "is a GGUF, but no importance matrix");
}

TEST(Importance, DamagedFilesAreErrorsAndNothingElse) {
  std::mt19937 random(3);
  for (const std::string& whole :
       {with_dataset(binary_form({{"a.weight", {4, 16, 8}}, {"b", {1, 2}}}), 7, "some.txt"),
        gguf_form({{"a.in_sum2", DType::f32, {2, 8}}, {"a.counts", DType::f32, {2}}})}) {
    for (size_t size = 0; size < whole.size(); ++size)
      error_of([&] { parse(whole.substr(0, size)); });
    for (int round = 0; round < 2000; ++round) {
      std::string damaged = whole;
      damaged[random() % damaged.size()] = static_cast<char>(random());
      error_of([&] { parse(damaged); });
    }
  }
}

// ---- used by quantize_model

class Weighted : public testing::Test {
 protected:
  Weighted() {
    synthesize(blocky_config(), "f32", 1, scratch_ / "in.gguf");
    model_ = open_model(scratch_ / "in.gguf");
    matrix_.file = "m.imatrix";
    matrix_.chunks = 3;
    Floats columns(256);
    for (size_t i = 0; i < columns.size(); ++i) columns[i] = i % 4 == 0 ? 1.0f : 0.01f;
    for (const char* name :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
      matrix_.columns["blk.0." + std::string(name) + ".weight"] = columns;
  }

  std::vector<std::string> convert(const std::string& type, const ImportanceMatrix* importance) {
    ThreadPool pool(2);
    out_ = scratch_ / fmt::format("out-{}.gguf", ++outputs_);
    return quantize_model(model_, type, out_, pool, {}, Replace::same_kind, importance);
  }

  // The error in the columns that matter, with or without their being known.
  double error(const std::string& type, const ImportanceMatrix* importance) {
    convert(type, importance);
    const Floats before = values_of(model_.weights.layers[0].up);
    const Floats after = values_of(open_model(out_).weights.layers[0].up);
    double sum = 0;
    for (size_t i = 0; i < before.size(); i += 4)
      sum += (before[i] - after[i]) * (before[i] - after[i]);
    return sum;
  }

  Scratch scratch_;
  Model model_;
  ImportanceMatrix matrix_;
  std::filesystem::path out_;
  int outputs_ = 0;
};

TEST_F(Weighted, ColumnsThatMatterLoseLess) {
  for (const char* type : {"q4_0", "q4_1", "q5_0", "q5_1", "q4_k_s", "q5_k_s", "q6_k"})
    EXPECT_LT(error(type, &matrix_), 0.9 * error(type, nullptr)) << type;
}

TEST_F(Weighted, TheFileSaysWhatItWasMadeWith) {
  matrix_.dataset = "some.txt";
  convert("q4_k_m", &matrix_);
  const std::string bytes = read_file(out_);
  const Gguf gguf = parse_gguf(bytes_of(bytes), "out.gguf");
  const GgufKeys keys(gguf);
  EXPECT_EQ(*keys.text("quantize.imatrix.file"), "m.imatrix");
  EXPECT_EQ(*keys.text("quantize.imatrix.dataset"), "some.txt");
  EXPECT_EQ(keys.integer("quantize.imatrix.entries_count"), 7u);
  EXPECT_EQ(keys.integer("quantize.imatrix.chunks_count"), 3u);
}

TEST_F(Weighted, WhatIsMissingAndWhatIsTooMuchIsTold) {
  matrix_.columns.erase("blk.0.attn_q.weight");
  matrix_.columns["blk.9.attn_q.weight"] = Floats(256, 1.0f);
  EXPECT_EQ(convert("q4_0", &matrix_),
            (std::vector<std::string>{
                "m.imatrix has no entry for 3 of 9 matrices (token_embd.weight, output.weight, "
                "blk.0.attn_q.weight): rounded as without it",
                "1 of the 7 entries of m.imatrix fit no matrix of this model "
                "(blk.9.attn_q.weight)"}));
}

TEST_F(Weighted, OneOfAnotherModelIsRefused) {
  ImportanceMatrix narrow = matrix_;
  narrow.columns["blk.0.ffn_up.weight"].resize(128);
  EXPECT_MESSAGE(
      [&] { convert("q4_0", &narrow); },
      "entry blk.0.ffn_up.weight: has 128 columns, the model's matrix 256 | it was made");
  ImportanceMatrix other;
  other.file = "m.imatrix";
  other.columns["vision.weight"] = Floats(256, 1.0f);
  EXPECT_MESSAGE([&] { convert("q4_0", &other); }, "has no entry for any matrix of this model");
  EXPECT_MESSAGE([&] { convert("q8_0", &matrix_); },
                 "an importance matrix changes nothing in q8_0");
  EXPECT_FALSE(std::filesystem::exists(out_));
}

}  // namespace
}  // namespace tyto::test
