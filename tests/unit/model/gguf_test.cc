#include "model/gguf.h"

#include "unit/model/model_fixtures.h"

namespace tyto::test {
namespace {

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_gguf(bytes_of(text), "file.gguf"); });
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const Scratch scratch;
  const auto path = scratch / "a.gguf";
  const GgufMetadata metadata = {
      {"a.u32", {uint64_t{7}}},
      {"a.u64", {uint64_t{1} << 40}},
      {"a.i32", {int64_t{-7}}},
      {"a.f32", {0.5}},
      {"a.bool", {true}},
      {"a.string", {std::string("text")}},
      {"a.ints", {std::vector<int64_t>{1, -2, 3}}},
      {"a.reals", {std::vector<double>{0.25, -1.0}}},
      {"a.strings", {std::vector<std::string>{"x", "", "\xc4\xa0z"}}},
  };
  const std::vector<float> vector = {1, 2, 3};
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  GgufWriter writer(path, metadata, {{"v", DType::f32, 0, 3}, {"m", DType::f32, 2, 3}});
  writer.append(std::as_bytes(std::span(vector)));
  writer.append(std::as_bytes(std::span(matrix)).first(8));  // in pieces
  writer.append(std::as_bytes(std::span(matrix)).subspan(8));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();

  const MappedFile file(path);
  const Gguf gguf = parse_gguf(file.bytes(), path.string());
  EXPECT_EQ(gguf.version, 3u);
  ASSERT_EQ(gguf.metadata.size(), metadata.size());
  for (const auto& [key, value] : metadata)
    EXPECT_EQ(gguf.metadata.at(key).value, value.value) << key;
  ASSERT_EQ(gguf.tensors.size(), 2u);
  EXPECT_EQ(gguf.tensors[0].name, "v");
  EXPECT_EQ(gguf.tensors[0].view.rows, 1u);
  EXPECT_EQ(gguf.tensors[0].view.cols, 3u);
  EXPECT_EQ(gguf.tensors[1].view.rows, 2u);
  EXPECT_EQ(values_of(gguf.tensors[0].view), vector);
  EXPECT_EQ(values_of(gguf.tensors[1].view), matrix);
  // In place, not copied.
  EXPECT_GE(gguf.tensors[1].view.bytes.data(), file.bytes().data());
  EXPECT_LE(gguf.tensors[1].view.bytes.data() + 24, file.bytes().data() + file.bytes().size());
}

TEST(Gguf, EveryScalarTypeIsRead) {
  GgufBytes bytes(0, 12, 2);
  bytes.string("u8").number<uint32_t>(0).number<uint8_t>(200);
  bytes.string("i8").number<uint32_t>(1).number<int8_t>(-3);
  bytes.string("u16").number<uint32_t>(2).number<uint16_t>(60000);
  bytes.string("i16").number<uint32_t>(3).number<int16_t>(-300);
  bytes.string("u32").number<uint32_t>(4).number<uint32_t>(4000000000u);
  bytes.string("i32").number<uint32_t>(5).number<int32_t>(-5);
  bytes.string("f32").number<uint32_t>(6).number(1.5f);
  bytes.string("bool").number<uint32_t>(7).number<uint8_t>(0);
  bytes.string("u64").number<uint32_t>(10).number<uint64_t>(UINT64_MAX);
  bytes.string("i64").number<uint32_t>(11).number<int64_t>(INT64_MIN);
  bytes.string("f64").number<uint32_t>(12).number(2.5);
  bytes.string("u8s").number<uint32_t>(9).number<uint32_t>(0).number<uint64_t>(2);
  bytes.number<uint8_t>(9).number<uint8_t>(255);
  const Gguf gguf = parse_gguf(bytes_of(bytes), "x");
  EXPECT_EQ(gguf.version, 2u);
  using Value = decltype(GgufValue::value);
  EXPECT_EQ(gguf.metadata.at("u8").value, Value(uint64_t{200}));
  EXPECT_EQ(gguf.metadata.at("i8").value, Value(int64_t{-3}));
  EXPECT_EQ(gguf.metadata.at("u16").value, Value(uint64_t{60000}));
  EXPECT_EQ(gguf.metadata.at("i16").value, Value(int64_t{-300}));
  EXPECT_EQ(gguf.metadata.at("u32").value, Value(uint64_t{4000000000u}));
  EXPECT_EQ(gguf.metadata.at("i32").value, Value(int64_t{-5}));
  EXPECT_EQ(gguf.metadata.at("f32").value, Value(1.5));
  EXPECT_EQ(gguf.metadata.at("bool").value, Value(false));
  EXPECT_EQ(gguf.metadata.at("u64").value, Value(UINT64_MAX));
  EXPECT_EQ(gguf.metadata.at("i64").value, Value(INT64_MIN));
  EXPECT_EQ(gguf.metadata.at("f64").value, Value(2.5));
  EXPECT_EQ(gguf.metadata.at("u8s").value, Value(std::vector<int64_t>{9, 255}));
}

struct Corruption {
  const char* what;
  std::string bytes;
  std::string message;
};

std::vector<Corruption> header_corruptions() {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  return {
      {"empty", "", "file.gguf: the file is empty | download it again"},
      {"other magic", "GGML....", "not a GGUF file"},
      {"a web page", "<!doctype html>",
       "a web page, not a GGUF file | `tyto pull` takes the address"},
      {"cut in the magic", "GG", "the file is cut off: 2 of at least 4 bytes"},
      {"cut after magic", "GGUF",
       "file.gguf: the file is cut off: 4 of at least 8 bytes | download it again"},
      {"version 1", GgufBytes(0, 0, 1), "GGUF version 1; versions 2 and 3"},
      {"version 9", GgufBytes(0, 0, 9), "GGUF version 9"},
      {"big-endian", GgufBytes(0, 0, 0x03000000), "big-endian"},
      {"2^60 metadata", GgufBytes(0, kHuge),
       "the file is damaged: by its header it would have 14987979559889010712 bytes"},
      {"2^60 tensors", GgufBytes(kHuge, 0),
       "the file is damaged: by its header it would have 18446744073709551615 bytes"},
      {"2^60 key", GgufBytes(0, 1).number(kHuge).number(kHuge).number(kHuge),
       "1152921504606846976 bytes long, at most 65535"},
      {"key past the end", GgufBytes(0, 1).number<uint64_t>(64).number<uint64_t>(0),
       "the file is cut off: 40 of at least 96 bytes"},
      {"2^60 string", GgufBytes(0, 1).string("k").number<uint32_t>(8).number(kHuge),
       "the file is damaged: by its header it would have 1152921504606847021 bytes"},
      {"2^60 array",
       GgufBytes(0, 1).string("k").number<uint32_t>(9).number<uint32_t>(4).number(kHuge),
       "the file is damaged: by its header it would have 4611686018427387953 bytes"},
      {"array of arrays",
       GgufBytes(0, 1).string("k").number<uint32_t>(9).number<uint32_t>(9).number<uint64_t>(1),
       "file.gguf: k: arrays of arrays"},
      {"unknown type", GgufBytes(0, 1).string("k").number<uint32_t>(13).number<uint64_t>(0),
       "file.gguf: k: value type 13 does not exist"},
      {"bad boolean", GgufBytes(0, 1).string("k").number<uint32_t>(7).number<uint8_t>(2),
       "file.gguf: k: a boolean is 2"},
      {"huge element",
       GgufBytes(0, 1)
           .string("k")
           .number<uint32_t>(9)
           .number<uint32_t>(10)
           .number<uint64_t>(1)
           .number(UINT64_MAX),
       "array element 18446744073709551615 is too large"},
      {"duplicate key", GgufBytes(0, 2).text_value("k", "1").text_value("k", "2"),
       "file.gguf: k: is in the metadata twice"},
      {"line break in a key", GgufBytes(0, 1).string("a\nb").number<uint32_t>(99).data(8),
       "file.gguf: a\\u000ab: value type 99"},
  };
}

std::vector<Corruption> tensor_corruptions() {
  const auto with_alignment = [](uint64_t alignment) {
    return GgufBytes(0, 1)
        .string("general.alignment")
        .number<uint32_t>(10)
        .number(alignment)
        .data(0);
  };
  const std::string name = "blk.0.attn_q.weight";
  const std::string where = "file.gguf: tensor blk.0.attn_q.weight: ";
  const auto at = [&](const char* fact) { return where + fact; };
  return {
      {"data past the end", GgufBytes(1, 0).tensor(name, {32, 2}, 0, 0).data(255),
       "file.gguf: the file is cut off: 351 of at least 352 bytes | download it again"},
      {"offset past the end", GgufBytes(1, 0).tensor(name, {4}, 0, 1 << 20).data(16),
       "file.gguf: the file is cut off: less than 0.1 of at least 1.0 MB"},
      {"offset overflows", GgufBytes(1, 0).tensor(name, {4}, 0, ~uint64_t{31}).data(16),
       at("offset 18446744073709551584 overflows")},
      {"offset misaligned", GgufBytes(1, 0).tensor(name, {4}, 0, 4).data(64),
       at("offset 4 is not a multiple of the alignment 32")},
      {"extents overflow", GgufBytes(1, 0).tensor(name, {1ull << 32, 1ull << 32}, 0, 0).data(64),
       at("4294967296 x 4294967296 x 1 x 1 values overflow")},
      {"2^60 extent", GgufBytes(1, 0).tensor(name, {1ull << 60}, 0, 0).data(64),
       "the file is damaged: by its header it would have 4611686018427388000 bytes"},
      {"zero extent", GgufBytes(1, 0).tensor(name, {4, 0}, 0, 0).data(64),
       at("dimension 1 is zero")},
      {"five dimensions", GgufBytes(1, 0).tensor(name, {1, 1, 1, 1, 1}, 0, 0).data(64),
       at("5 dimensions, at most 4")},
      {"foreign type", GgufBytes(1, 0).tensor(name, {256}, 35, 0).data(84),
       "file.gguf: its weights are tq2_0, which Tyto does not read (tensor blk.0.attn_q.weight) | "
       "get the same model as Q4_K_M or Q8_0"},
      {"foreign type of a foreign architecture",
       GgufBytes(1, 1)
           .text_value("general.architecture", "rwkv7")
           .tensor(name, {256}, 40, 0)
           .data(84),
       "file.gguf: architecture rwkv7, which is not supported; these are: llama"},
      {"unknown type", GgufBytes(1, 0).tensor(name, {256}, 77, 0).data(84),
       "file.gguf: its weights are of type 77, which Tyto does not read"},
      {"half a block", GgufBytes(1, 0).tensor(name, {48}, 8, 0).data(84),
       at("48 columns are not a multiple of q8_0's block of 32")},
      {"duplicate name", GgufBytes(2, 0).tensor("t", {4}, 0, 0).tensor("t", {4}, 0, 0).data(64),
       "file.gguf: tensor t: is in the file twice"},
      {"overlap", GgufBytes(2, 0).tensor("t", {16}, 0, 0).tensor(name, {4}, 0, 32).data(64),
       at("begins at byte 32 of the data, inside tensor t, which ends at byte 64")},
      {"the same place", GgufBytes(2, 0).tensor(name, {4}, 0, 0).tensor("t", {4}, 0, 0).data(32),
       "inside tensor"},
      {"a hole", GgufBytes(2, 0).tensor("t", {4}, 0, 0).tensor(name, {4}, 0, 64).data(96),
       at("begins at byte 64 of the data, but the 48 bytes before it belong to no tensor")},
      {"a hole at the beginning", GgufBytes(1, 0).tensor(name, {4}, 0, 32).data(64),
       at("begins at byte 32 of the data, but the 32 bytes before it belong to no tensor")},
      {"trailing bytes", GgufBytes(1, 0).tensor(name, {4}, 0, 0).data(33),
       "file.gguf: the 17 bytes after the last tensor, from byte 16 of the data on"},
      {"trailing bytes without tensors", GgufBytes(0, 0).data(1), "file.gguf: the 1 bytes after"},
      {"alignment 0", with_alignment(0), "general.alignment: must be a power of two"},
      {"alignment 24", with_alignment(24), "general.alignment: must be a power of two"},
      {"alignment 1", with_alignment(1), "general.alignment: must be a power of two"},
      {"alignment 2^40", with_alignment(1ull << 40), "general.alignment: must be a power of two"},
      {"alignment is a text", GgufBytes(0, 1).text_value("general.alignment", "32"),
       "general.alignment: must be a power of two"},
  };
}

TEST(Gguf, HostileHeadersAreRefused) {
  for (const Corruption& corruption : header_corruptions())
    EXPECT_PRED_FORMAT2(contains, parse_error(corruption.bytes), corruption.message)
        << corruption.what;
}

TEST(Gguf, HostileTensorsAreRefused) {
  for (const Corruption& corruption : tensor_corruptions())
    EXPECT_PRED_FORMAT2(contains, parse_error(corruption.bytes), corruption.message)
        << corruption.what;
}

TEST(Gguf, EveryTruncationIsAnErrorAndNeverACrash) {
  GgufBytes bytes(1, 2);
  bytes.text_value("general.architecture", "llama");
  bytes.string("list").number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(2);
  bytes.string("a").string("bc");
  bytes.tensor("t", {4, 2}, 0, 0).data(32);
  const std::string whole = bytes;
  EXPECT_EQ(parse_error(whole), "no error");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(parse_error(whole.substr(0, length)), "no error") << length;
}

// In any order, and with or without padding after the last.
TEST(Gguf, TensorsMayLieInAnyOrderAndEndWithOrWithoutPadding) {
  for (const size_t end : {48, 63, 64})
    EXPECT_EQ(parse_error(GgufBytes(2, 0).tensor("b", {4}, 0, 32).tensor("a", {8}, 0, 0).data(end)),
              "no error")
        << end;
}

TEST(Gguf, ArraysOfAllKeysTogetherAreBounded) {
  GgufBytes bytes(0, 2);
  for (const char* key : {"a", "b"}) {
    bytes.string(key).number<uint32_t>(9).number<uint32_t>(0).number<uint64_t>(9 << 20);
    for (int i = 0; i < (9 << 20) / 8; ++i) bytes.number<uint64_t>(0);
  }
  EXPECT_PRED_FORMAT2(contains, parse_error(bytes), "metadata arrays hold more than 16777216");
}

TEST(Gguf, HigherDimensionsFoldIntoRows) {
  const std::string bytes = GgufBytes(1, 0).tensor("t", {4, 3, 2}, 0, 0).data(96);
  const Gguf gguf = parse_gguf(bytes_of(bytes), "x");
  EXPECT_EQ(gguf.tensors[0].view.cols, 4u);
  EXPECT_EQ(gguf.tensors[0].view.rows, 6u);
}

}  // namespace
}  // namespace tyto::test
