// How the single-dispatch decode is told the length: words of an xclbin's stream, or of an ELF's
// scratchpad, with the text that describes it and the control code that takes it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "device/npu/formats/decode_parameters.h"
#include "device/npu/formats/q4nx.h"
#include "support/npu_images.h"

namespace tyto {
namespace {

using Words = std::vector<uint32_t>;
using Ranges = std::vector<WordRange>;

Ranges ranges(std::span<const WordRange> written) {
  return {written.begin(), written.end()};
}

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
  EXPECT_EQ(ranges(words.patch(5, buffer)), (Ranges{{0, 400}}));
  EXPECT_EQ(buffer, stream(5));

  // Words that do not depend on L are not touched again, not even those between two that do.
  Words marked = buffer;
  for (size_t i = 0; i < marked.size(); ++i)
    if (stream(5)[i] == stream(6)[i]) buffer[i] = marked[i] = 0x5a5a5a5a;
  // Lines of 16 words: those of 17 and 30, 60, 130, 160, 200, 230, 260, 330, 360.
  EXPECT_EQ(ranges(words.patch(6, buffer)), (Ranges{{16, 16},
                                                    {48, 16},
                                                    {128, 16},
                                                    {160, 16},
                                                    {192, 16},
                                                    {224, 16},
                                                    {256, 16},
                                                    {320, 16},
                                                    {352, 16}}));
  for (size_t i = 0; i < buffer.size(); ++i)
    EXPECT_EQ(buffer[i], marked[i] == 0x5a5a5a5a ? 0x5a5a5a5a : stream(6)[i]) << i;
  EXPECT_TRUE(words.patch(6, buffer).empty());
}

TEST(DecodeWords, AnotherBufferOrALostOneIsWrittenWhole) {
  DecodeWords words = from_streams(64, 63);
  Words one(400), other(400);
  words.patch(9, one);
  EXPECT_EQ(ranges(words.patch(9, other)), (Ranges{{0, 400}}));
  EXPECT_EQ(other, stream(9));
  EXPECT_EQ(ranges(words.patch(10, one)), (Ranges{{0, 400}}));
  EXPECT_EQ(words.patch(11, one).size(), 9u);
  one.assign(400, 0);
  words.forget();
  EXPECT_EQ(ranges(words.patch(11, one)), (Ranges{{0, 400}}));
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
  // The first good call is still the first.
  EXPECT_EQ(ranges(words.patch(64, buffer)), (Ranges{{0, 400}}));
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

// ---- A scratchpad

constexpr std::string_view kOf1b =
    "2\n__air_param_argoff_5_x256_m256 0 i32 addr\n__air_param_attn_blk_0 1 i32 core\n";

std::string text_refusal(std::string_view text) {
  try {
    read_decode_parameters(text, "params.txt");
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

AirDims dims_of(std::string_view model) {
  for (const Q4nxBuild& build : q4nx_builds())
    if (build.model == model) {
      AirDims dims = build.dims;
      dims.seq = 2048;
      return dims;
    }
  return {};
}

TEST(DecodeParametersText, AsLlama1bsBuildWritesIt) {
  const DecodeParameters read = read_decode_parameters(kOf1b, "params.txt");
  EXPECT_EQ(read, (DecodeParameters{2, 0, 1, 5, 256, -256, false}));
  EXPECT_EQ(read.append_word(1), 0u);
  EXPECT_EQ(read.append_word(2048), 2047u * 256);
  EXPECT_EQ(DecodeParameters::mask_word(7), 28u);
  const Q4nxLayout layout = q4nx_layout(kLlama32_1b, 2048);
  EXPECT_EQ(decode_parameters_text(layout), kOf1b);
  check_decode_parameters(read, layout, "params.txt");
}

// Four buffers of weights more come before the length.
TEST(DecodeParametersText, TheArgumentDependsOnTheModel) {
  const Q4nxLayout layout = q4nx_layout(dims_of("qwen3-8b"), 2048);
  EXPECT_EQ(read_decode_parameters(decode_parameters_text(layout), "").scalar, 9u);
  const AirProgram program = fused_decode_elf_program(layout.dims, 2048);
  EXPECT_EQ(program.arguments.size(), 10u);
  EXPECT_EQ(program.arguments.back().role, AirRole::length);
}

TEST(DecodeParametersText, OrderAndEmptyLinesDoNotMatter) {
  const DecodeParameters read = read_decode_parameters(
      "2\r\n\n__air_param_attn_blk_0 0 i32 core\n  __air_param_argoff_5_x512_m512 1 i32 addr",
      "params.txt");
  EXPECT_EQ(read, (DecodeParameters{2, 1, 0, 5, 512, -512, false}));
}

TEST(DecodeParametersText, HostileTextsAreRefusedInOneLine) {
  const std::string append = "__air_param_argoff_5_x256_m256 0 i32 addr\n";
  const std::string mask = "__air_param_attn_blk_0 1 i32 core\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty"},
      {"two\n" + append + mask, "not the number of parameters"},
      {"-2\n" + append + mask, "not the number of parameters"},
      {"33\n" + append + mask, "33 parameters, and the firmware's state table has 32"},
      {"4294967296\n" + append, "not the number of parameters"},
      {"3\n" + append + mask, "says that it has 3 parameters, and has 2"},
      {"1\n" + append + append, "two parameters have place 0"},
      {"2\n" + append + append, "two parameters have place 0"},
      {"2\n" + append + "__air_param_attn_blk_0 2 i32 core\n", "not one of 0 to 1"},
      {"2\n" + append + "__air_param_attn_blk_0 -1 i32 core\n", "not one of 0 to 1"},
      {"2\n" + append + "__air_param_attn_blk_0 1 i32 lock\n", "neither addr nor core"},
      {"2\n" + append + "__air_param_attn_blk_0 1 f32 core\n", "the type is not i32"},
      {"2\n" + append + "__air_param_attn_blk_0 1 i32\n", "is not \"name place type kind\""},
      {"2\n" + append + "__air_param_attn_blk_0 1 i32 core more\n", "is not \"name place"},
      {"2\n" + append + std::string(300, 'n') + " 1 i32 core\n", "is not \"name place"},
      {"2\n" + append + "__air_param_argoff_5_x512_p0 1 i32 addr\n", "2 parameters of kind addr"},
      {"1\n" + append, "0 parameters of kind core"},
      {"2\n__air_param_argoff_5 0 i32 addr\n" + mask, "does not tell how it follows from L"},
      {"2\n__air_param_argoff_5_x256 0 i32 addr\n" + mask, "does not tell"},
      {"2\n__air_param_argoff_5_x256_q256 0 i32 addr\n" + mask, "does not tell"},
      {"2\n__air_param_argoff_5_x99999999999_m1 0 i32 addr\n" + mask, "does not tell"},
      {"2\n__air_param_arglen_5 0 i32 addr\n" + mask, "does not tell"},
      {std::string("2\n\0\0\0", 5), "is not \"name place"},
  };
  for (const auto& [text, says] : cases) {
    const std::string refused = text_refusal(text);
    EXPECT_NE(refused.find(says), std::string::npos) << text << ": " << refused;
    EXPECT_EQ(refused.find('\n'), std::string::npos) << text;
  }
}

TEST(DecodeParametersText, AnotherModelsAreRefused) {
  const auto refused = [](const DecodeParameters& parameters) -> std::string {
    try {
      check_decode_parameters(parameters, q4nx_layout(kLlama32_1b, 2048), "params.txt");
    } catch (const Error& error) {
      return error.what();
    }
    return "fits";
  };
  const DecodeParameters good = read_decode_parameters(kOf1b, "params.txt");
  EXPECT_EQ(refused(good), "fits");
  DecodeParameters other = good;
  other.scalar = 9;
  EXPECT_NE(refused(other).find("the length is argument 9, and this model's is 5"),
            std::string::npos);
  other = good;
  other.scale = 512;
  EXPECT_NE(refused(other).find("element 512 * L - 256 of a region"), std::string::npos);
  other = good;
  other.addend = 0;
  EXPECT_NE(refused(other).find("256 * L + 0"), std::string::npos);
}

// ---- Control code

ScratchpadUse use_of(const std::vector<std::vector<uint32_t>>& operations) {
  test::MadeElf made;
  made.operations = operations;
  const std::string text = test::control_stream(made);
  std::vector<uint32_t> words(text.size() / 4);
  std::memcpy(words.data(), text.data(), text.size());
  const Transaction stream = read_transaction(words, "decode_scratchpad.elf");
  EXPECT_EQ(stream.not_read, "");
  return stream.scratchpad;
}

std::string use_refused(const std::vector<std::vector<uint32_t>>& operations) {
  try {
    check_scratchpad_use(read_decode_parameters(kOf1b, ""), use_of(operations), "elf");
  } catch (const Error& error) {
    return error.what();
  }
  return "fits";
}

TEST(ScratchpadInControlCode, CoresAreClearedBeforeTheWordIsAdded) {
  const DecodeParameters read = read_decode_parameters(kOf1b, "");
  EXPECT_FALSE(check_scratchpad_use(read, use_of(test::decode_operations()), "").core_adds_up);
}

TEST(ScratchpadInControlCode, CoresThatAreNotClearedAddUp) {
  const DecodeParameters read = read_decode_parameters(kOf1b, "");
  const ScratchpadUse use =
      use_of({test::create_scratchpad(8), test::update_register(1, 0, test::kCoreAddress),
              test::update_register(0, 2, test::kDescriptorAddress)});
  EXPECT_TRUE(check_scratchpad_use(read, use, "").core_adds_up);
}

TEST(ScratchpadInControlCode, WhatContradictsTheTextIsRefused) {
  using namespace test;
  const auto core = update_register(1, 0, kCoreAddress);
  const auto address = update_register(0, 2, kDescriptorAddress);
  EXPECT_NE(use_refused({create_scratchpad(12), core, address}).find("12 bytes"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), update_register(0, 0, kCoreAddress), address})
                .find("takes word 0 for a core"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), core, update_register(1, 2, kDescriptorAddress)})
                .find("takes word 1 for an address"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), core, update_register(0, 4, kDescriptorAddress)})
                .find("elements of 4 bytes"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), address}).find("never takes word 1"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), core}).find("never takes word 0"),
            std::string::npos);
  EXPECT_NE(use_refused({create_scratchpad(8), write_word(kCoreAddress, 0), core,
                         update_register(1, 0, kCoreAddress + 0x100000), address})
                .find("some cores and not of others"),
            std::string::npos);
}

}  // namespace
}  // namespace tyto
