#include "model/safetensors.h"

#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::string file_with(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\1');
}

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_safetensors(bytes_of(text), "m.safetensors"); });
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const Scratch scratch;
  const auto path = scratch / "a.safetensors";
  const std::vector<float> vector = {1, 2, 3};
  const std::vector<uint16_t> matrix = {0x3f80, 0x4000, 0x4040, 0x4080};  // bf16 1 2 3 4
  SafetensorsWriter writer(path, {{"v", DType::f32, 0, 3}, {"m", DType::bf16, 2, 2}});
  writer.append(std::as_bytes(std::span(vector)));
  writer.append(std::as_bytes(std::span(matrix)));
  writer.commit();

  const std::string text = read_file(path);
  const auto tensors = parse_safetensors(bytes_of(text), "a");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "v");
  EXPECT_EQ(tensors[0].view.rows, 1u);
  EXPECT_EQ(values_of(tensors[0].view), vector);
  EXPECT_EQ(tensors[1].view.dtype, DType::bf16);
  EXPECT_EQ(values_of(tensors[1].view), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Safetensors, ShapesBecomeRowsAndColumns) {
  const std::string text =
      file_with(R"({"c":{"dtype":"F32","shape":[2,3,4],"data_offsets":[4,100]},)"
                R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                R"("e":{"dtype":"F16","shape":[0,5],"data_offsets":[4,4]}})",
                100);
  const auto tensors = parse_safetensors(bytes_of(text), "a");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "s");  // in file order
  EXPECT_EQ(tensors[0].view.values(), 1u);
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == "c") {
      EXPECT_EQ(tensor.view.rows, 6u);
      EXPECT_EQ(tensor.view.cols, 4u);
    }
    if (tensor.name == "e") {
      EXPECT_TRUE(tensor.view.empty());
    }
  }
}

TEST(Safetensors, NamesOfTheMetadataThatStandForATensor) {
  const std::string text = file_with(
      R"({"__metadata__":{"format":"pt","b":"a","c":"a","a":"d","d":"a","x":"nowhere","n":7},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("d":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      8);
  std::vector<TensorAlias> aliases;
  EXPECT_EQ(parse_safetensors(bytes_of(text), "m", &aliases).size(), 2u);
  ASSERT_EQ(aliases.size(), 2u);
  EXPECT_EQ(aliases[0].name + aliases[0].of + aliases[1].name + aliases[1].of, "baca");
  for (const char* metadata : {"7", "null", "[]", "{}"}) {
    const std::string odd = file_with(
        fmt::format(
            R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"__metadata__":{}}})",
            metadata),
        4);
    EXPECT_EQ(parse_safetensors(bytes_of(odd), "m", &aliases).size(), 1u) << metadata;
  }
  EXPECT_EQ(aliases.size(), 2u);
}

TEST(Safetensors, HostileFilesAreRefused) {
  const auto tensor = [](const std::string& fields, size_t data = 16) {
    return file_with(R"({"t":{)" + fields + "}}", data);
  };
  const auto two = [](const std::string& first, const std::string& second) {
    return file_with(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":)" + first +
                         R"(},"u":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}",
                     20);
  };
  const uint64_t huge = uint64_t{1} << 60;
  const std::string huge_length(reinterpret_cast<const char*>(&huge), 8);
  const struct {
    std::string bytes;
    const char* message;
  } cases[] = {
      {"", "m.safetensors: the file is empty"},
      {"1234", "m.safetensors: the file is cut off: 4 of at least 8 bytes"},
      {huge_length, "header of 1152921504606846976 bytes, at most 100000000"},
      {std::string("\x40\0\0\0\0\0\0\0{}", 10), "the file is cut off: 10 of at least 72 bytes"},
      {file_with("{", 0), "not valid JSON"},
      {file_with("[]", 0), "expected an object"},
      {file_with(R"({"t":3})", 0), "expected an object"},
      {tensor(R"("shape":[4],"data_offsets":[0,16])"), "field \"dtype\" is missing"},
      {tensor(R"("dtype":"F32","data_offsets":[0,16])"), "field \"shape\" is missing"},
      {tensor(R"("dtype":"F32","shape":[4])"), "field \"data_offsets\" is missing"},
      {tensor(R"("dtype":"I64","shape":[2],"data_offsets":[0,16])"),
       "t.dtype: type I64; F32, F16 and BF16 are supported"},
      {tensor(R"("dtype":"F32","shape":[5],"data_offsets":[0,20])"),
       "m.safetensors: the file is cut off: "},
      {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])"),
       "tensor t: 16 bytes for a shape of 12"},
      {tensor(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), "are not a range"},
      {tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0])"), "are not a range"},
      {tensor(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), "-4 is outside"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])"),
       "the product of its dimensions overflows"},
      {tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16])"),
       "more than 8 dimensions"},
      {tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,1152921504606846976])"),
       "the file is damaged: by its header it would have 11529215046068"},
      {file_with(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                 R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                 4),
       "tensor t is in the header twice"},
      {file_with(std::string(100, '[') + std::string(100, ']'), 0), "nests deeper"},
      {file_with(" {}", 0), "m.safetensors: the header does not begin with {"},
      {file_with("{}", 3), "m.safetensors: the 3 bytes after the last tensor, from byte 0"},
      {tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])", 17),
       "m.safetensors: the 1 bytes after the last tensor, from byte 16"},
      {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[4,16])"),
       "tensor t: begins at byte 4 of the data, but the 4 bytes before it belong to no tensor"},
      {two("[0,8]", "[4,12]"), "tensor u: begins at byte 4 of the data, inside tensor t"},
      {two("[0,8]", "[0,8]"), "of the data, inside tensor"},
      {two("[0,8]", "[12,20]"), "tensor u: begins at byte 12 of the data, but the 4 bytes"},
      {tensor(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,16])"),
       "m.safetensors: t.shape[0]: not valid JSON: NaN"},
  };
  for (const auto& each : cases)
    EXPECT_PRED_FORMAT2(contains, parse_error(each.bytes), each.message);
}

TEST(Safetensors, EveryTruncationIsAnErrorAndNeverACrash) {
  const std::string whole =
      file_with(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  EXPECT_EQ(parse_error(whole), "no error");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(parse_error(whole.substr(0, length)), "no error") << length;
}

// Spaces pad the header, so its text alone does not tell that its length is wrong.
TEST(Safetensors, AHeaderLengthThatIsOffIsRefused) {
  const std::string whole =
      file_with(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}   )", 16);
  for (const int off : {-3, -2, -1, 1, 2, 8}) {
    std::string shifted = whole;
    shifted[0] = static_cast<char>(shifted[0] + off);
    EXPECT_NE(parse_error(shifted), "no error") << off;
  }
}

TEST(SafetensorsIndex, NamesShardsAndWhatIsInThem) {
  const auto shards = parse_safetensors_index(
      R"({"metadata":{"total_size":3},"weight_map":{"b":"2.safetensors","a":"1.safetensors",)"
      R"("c":"2.safetensors"}})",
      "i");
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].file, "1.safetensors");
  EXPECT_EQ(shards[1].tensors, (std::vector<std::string>{"b", "c"}));
}

TEST(SafetensorsIndex, NamesOutsideTheFolderAreRefused) {
  for (const char* name :
       {"../a", "/etc/passwd", "", "..", "a/b", ".hidden", "a\\\\b", "a\\u0000b"}) {
    const std::string text = R"({"weight_map":{"t":")" + std::string(name) + R"("}})";
    EXPECT_MESSAGE([&] { parse_safetensors_index(text, "i.json"); }, "i.json: weight_map: \"");
  }
  EXPECT_MESSAGE([&] { parse_safetensors_index(R"({"weight_map":{}})", "i"); }, "is empty");
  EXPECT_MESSAGE([&] { parse_safetensors_index(R"({"weight_map":{"t":1}})", "i"); },
                 "expected a string");
  EXPECT_MESSAGE([&] { parse_safetensors_index("{}", "i"); }, "\"weight_map\" is missing");
}

class Sharded : public testing::Test {
 protected:
  void shard(const std::string& file, const std::vector<std::string>& tensors) {
    std::vector<TensorPlan> plans;
    for (const std::string& name : tensors) plans.push_back({name, DType::f32, 0, 2});
    SafetensorsWriter writer(scratch_ / file, plans);
    const std::vector<float> values(2 * tensors.size(), 1.0f);
    writer.append(std::as_bytes(std::span(values)));
    writer.commit();
  }
  void index(const std::string& map) {
    write_file(scratch_ / "model.safetensors.index.json", R"({"weight_map":{)" + map + "}}");
  }
  std::string map_error(bool required = true) {
    return error_of([&] {
      Model model;
      map_safetensors(scratch_.path(), required, {}, model);
      mapped_ = model.tensors.size();
      files_ = model.files.size();
    });
  }
  Scratch scratch_;
  size_t mapped_ = 0;
  size_t files_ = 0;
};

TEST_F(Sharded, AllShardsAreMapped) {
  shard("1.safetensors", {"a", "b"});
  shard("2.safetensors", {"c"});
  index(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors")");
  EXPECT_EQ(map_error(), "no error");
  EXPECT_EQ(mapped_, 3u);
  EXPECT_EQ(files_, 2u);
}

TEST_F(Sharded, FilesWithoutTheirIndex) {
  write_file(scratch_ / "config.json", "{}");
  shard("pytorch_model.safetensors", {"a"});
  EXPECT_EQ(map_error(), "no error");
  EXPECT_EQ(mapped_, 1u);
  shard("model-00001-of-00002.safetensors", {"a", "b"});
  EXPECT_PRED_FORMAT2(contains, map_error(), "part 2 of 2 is not there | fetch the rest");
  EXPECT_EQ(map_error(false), "no error");
  shard("model-00002-of-00002.safetensors", {"c"});
  EXPECT_EQ(map_error(), "no error");
  EXPECT_EQ(mapped_, 3u);
  EXPECT_EQ(files_, 2u);
}

TEST_F(Sharded, MistralsOwnFilesAreNamed) {
  write_file(scratch_ / "config.json", "{}");
  shard("consolidated.safetensors", {"layers.0.attention.wq.weight"});
  EXPECT_PRED_FORMAT2(contains, map_error(),
                      "consolidated.safetensors: its tensors have Mistral's");
  EXPECT_EQ(map_error(false), "no error");
  shard("model.safetensors", {"a"});
  EXPECT_EQ(map_error(), "no error");
  EXPECT_EQ(mapped_, 1u);
}

TEST_F(Sharded, ContradictionsAreRefused) {
  EXPECT_PRED_FORMAT2(contains, map_error(), "has neither model.safetensors nor");
  EXPECT_EQ(map_error(false), "no error");
  for (const char* other : {"tf_model.h5", "pytorch_model-00001-of-00002.bin"}) {
    write_file(scratch_ / other, "");
    EXPECT_PRED_FORMAT2(contains, map_error(), other + std::string(" is not read: save the"));
  }

  shard("1.safetensors", {"a"});
  index(R"("a":"1.safetensors","b":"1.safetensors")");
  EXPECT_PRED_FORMAT2(contains, map_error(), "tensor b is not in 1.safetensors");
  shard("2.safetensors", {"a"});
  index(R"("a":"1.safetensors","x":"2.safetensors")");
  EXPECT_PRED_FORMAT2(contains, map_error(), "tensor a is in another shard too");
  index(R"("a":"3.safetensors")");
  EXPECT_PRED_FORMAT2(contains, map_error(), "3.safetensors: cannot open");
}

TEST(Safetensors, MisalignedTensorsAreCopied) {
  const Scratch scratch;
  // One byte more than a multiple of four before the data.
  std::string header = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  while (header.size() % 4 != 1) header += ' ';
  write_file(scratch / "model.safetensors", file_with(header, 8));
  Model model;
  map_safetensors(scratch.path(), true, {}, model);
  ASSERT_EQ(model.copies.size(), 1u);
  const TensorView& view = model.tensors[0].view;
  EXPECT_EQ(view.bytes.data(), model.copies[0].data());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.bytes.data()) % 4, 0u);
  EXPECT_EQ(view.bytes[7], std::byte{1});
}

}  // namespace
}  // namespace tyto::test
