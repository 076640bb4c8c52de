#include "device/npu/formats/q4nx.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

using Words = std::vector<uint32_t>;

// A stream as a compiler would write it: at some words the length, at others an address 512 bytes
// on for each position, at one something that falls.
Words stream(uint32_t length, size_t size = 400) {
  Words words(size);
  for (size_t i = 0; i < size; ++i) {
    words[i] = static_cast<uint32_t>(i * 2654435761u);
    if (i == 17 || i % 100 == 30) words[i] = length;
    if (i % 100 == 60) words[i] = 0x10000000u + static_cast<uint32_t>(i) + 512 * (length - 1);
    if (i == 200) words[i] = 0x7fffffffu - 3 * length;
  }
  return words;
}

DecodeWords from(const Words& base, uint32_t base_length, const Words& reference,
                 uint32_t reference_length) {
  return DecodeWords::from_builds({"decode_base.insts.bin", base, base_length},
                                  {"decode_ref.insts.bin", reference, reference_length});
}

DecodeWords from_streams(uint32_t base_length, uint32_t reference_length) {
  return from(stream(base_length), base_length, stream(reference_length), reference_length);
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_error(const std::string& error, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(DecodeWords, EveryLengthOfTheWindow) {
  const std::pair<uint32_t, uint32_t> pairs[] = {{2048, 2047}, {2047, 2048}, {64, 63}, {300, 100}};
  for (const auto& [base, reference] : pairs) {
    DecodeWords words = from_streams(base, reference);
    EXPECT_EQ(words.window(), std::max(base, reference));
    EXPECT_EQ(words.size(), 400u);
    Words buffer(400, 0xdeadbeef);
    for (uint32_t length = 1; length <= words.window(); ++length) {
      words.patch(length, buffer);
      ASSERT_EQ(buffer, stream(length)) << length;
    }
  }
}

TEST(DecodeWords, FirstAllThenOnlyWhatDependsOnTheLength) {
  DecodeWords words = from_streams(2048, 2047);
  Words buffer(400, 0xdeadbeef);
  EXPECT_EQ(words.patch(5, buffer), (WordRange{0, 400}));
  EXPECT_EQ(buffer, stream(5));

  // Words that do not depend on L are not touched again, not even those between two that do.
  Words marked = buffer;
  for (size_t i = 0; i < marked.size(); ++i)
    if (stream(5)[i] == stream(6)[i]) buffer[i] = marked[i] = 0x5a5a5a5a;
  EXPECT_EQ(words.patch(6, buffer), (WordRange{17, 360 - 17 + 1}));
  for (size_t i = 0; i < buffer.size(); ++i)
    EXPECT_EQ(buffer[i], marked[i] == 0x5a5a5a5a ? 0x5a5a5a5a : stream(6)[i]) << i;
  EXPECT_EQ(words.patch(6, buffer), (WordRange{0, 0}));
}

TEST(DecodeWords, AnotherBufferOrALostOneIsWrittenWhole) {
  DecodeWords words = from_streams(64, 63);
  Words one(400), other(400);
  words.patch(9, one);
  EXPECT_EQ(words.patch(9, other).count, 400u);
  EXPECT_EQ(other, stream(9));
  EXPECT_EQ(words.patch(10, one).count, 400u);
  EXPECT_EQ(words.patch(11, one), (WordRange{17, 344}));
  one.assign(400, 0);
  words.forget();
  EXPECT_EQ(words.patch(11, one).count, 400u);
  EXPECT_EQ(one, stream(11));
}

TEST(DecodeWords, ARefusedCallWritesNothing) {
  DecodeWords words = from_streams(64, 63);
  Words buffer(400, 7), shorter(399, 7);
  expect_error(error_of([&] { words.patch(0, buffer); }), {"decode_base.insts.bin", "L = 0"});
  expect_error(error_of([&] { words.patch(65, buffer); }), {"L = 65", "window, 64"});
  expect_error(error_of([&] { words.patch(64, shorter); }), {"400 words", "399"});
  EXPECT_EQ(buffer, Words(400, 7));
  EXPECT_EQ(shorter, Words(399, 7));
  EXPECT_EQ(words.patch(64, buffer).count, 400u);  // and the first good call is still the first
}

TEST(DecodeWords, BuildsThatDoNotBelongTogether) {
  const Words at64 = stream(64), at63 = stream(63);
  Words shorter = at63;
  shorter.pop_back();
  expect_error(error_of([&] { from(at64, 64, shorter, 63); }),
               {"decode_ref.insts.bin", "399", "decode_base.insts.bin", "400"});
  expect_error(error_of([&] { from(at64, 64, at63, 64); }), {"decode_ref.insts.bin", "L = 64"});
  expect_error(error_of([&] { from(at64, 64, at64, 63); }),
               {"decode_ref.insts.bin", "nothing in them depends on L"});
  expect_error(error_of([&] { from(at64, 0, at63, 63); }), {"decode_base.insts.bin", "L = 0"});
  expect_error(error_of([&] { from(at64, 64, at63, 0xffffffff); }),
               {"decode_ref.insts.bin", "L = 4294967295"});
  expect_error(error_of([&] { from({}, 64, {}, 63); }),
               {"decode_base.insts.bin", "no instruction"});
  expect_error(error_of([&] { from(at64, 64, {}, 63); }), {"decode_ref.insts.bin"});
}

TEST(DecodeWords, AWordOffItsLineIsNamed) {
  const Words base = stream(100);
  Words reference = stream(90);
  reference[123] += 5;  // half a unit per position
  expect_error(error_of([&] { from(base, 100, reference, 90); }),
               {"decode_ref.insts.bin", "word 123", "10 positions"});
  reference = stream(90);
  reference[123] = base[123] - 40;
  EXPECT_EQ(error_of([&] { from(base, 100, reference, 90); }), "no error");
}

// A line that leaves 32 bits before it reaches L = 1: an address that carried into its high word.
TEST(DecodeWords, AWordThatLeaves32BitsIsNamed) {
  Words base(10, 1), reference(10, 1);
  base[3] = 1000;
  reference[3] = 488;
  expect_error(error_of([&] { from(base, 64, reference, 63); }),
               {"decode_base.insts.bin", "word 3", "L = 1"});
  base[3] = 0xffffff00u;
  reference[3] = 0xffffff80u;
  expect_error(error_of([&] { from(base, 64, reference, 63); }), {"word 3", "L = 1"});
  base[3] = 512 * 63 + 5;
  reference[3] = 512 * 62 + 5;
  EXPECT_EQ(error_of([&] { from(base, 64, reference, 63); }), "no error");
}

}  // namespace
}  // namespace tyto
