// What is read of ELFs and instruction streams, and what is made of them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/store/image_facts.h"
#include "support/expect_error.h"
#include "support/npu_images.h"

namespace tyto {
namespace {

using test::elf_of;
using test::linear_descriptor;
using test::MadeElf;
using test::StreamWriter;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

template <typename Action>
std::string message(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

ElfImage read(const std::string& file) {
  return read_elf(bytes_of(file), "x.elf");
}

std::string refusal(const MadeElf& made) {
  return message([&] { read(test::elf_file(made)); });
}

TEST(ElfReader, ReadsKernelsArgumentsColumnsAndBytesPerRun) {
  MadeElf made{.instance = "o_ffn", .arguments = 19, .columns = 4, .text_words = 20'000};
  made.patches = {{3, 4096, linear_descriptor(8192)}};
  made.pdi_bytes = {1000, 40'000};
  const ElfImage image = read(test::elf_file(made));
  EXPECT_EQ(image.os_abi, kOsAbiAie2p);
  EXPECT_EQ(image.columns, 4u);
  EXPECT_EQ(image.entries(), std::vector<std::string>{"main:o_ffn"});
  ASSERT_NE(image.kernel_of("main:o_ffn"), nullptr);
  EXPECT_EQ(image.kernel_of("main:o_ffn")->arguments, 19u);
  EXPECT_EQ(image.instance_of("main:other"), nullptr);
  EXPECT_EQ(image.instance_of("DPU:o_ffn"), nullptr);
  const ElfInstance* instance = image.instance_of("main:o_ffn");
  ASSERT_NE(instance, nullptr);
  // 80,032 bytes of control code, and PDIs of one piece and of two.
  EXPECT_EQ(instance->run_bytes, (3 + 1 + 2) * kHeapPiece);
  ASSERT_EQ(instance->patches.size(), 1u);
  EXPECT_EQ(instance->patches[0].argument, 3u);
  EXPECT_EQ(instance->patches[0].offset, 4096u);
  EXPECT_EQ(descriptor_reach(*instance->patches[0].descriptor), 8192u);
}

// 13 kernels with the same PDI of 200 KB, as aiecc writes them: 2.6 MB of the heap, 80 pieces.
TEST(ElfReader, APdiIsHeldAsOftenAsItWasWritten) {
  MadeElf made{.arguments = 3};
  made.pdi_bytes = {200'000};
  made.pdi_copies = 13;
  const ElfImage image = read(test::elf_file(made));
  EXPECT_EQ(image.instance_of("main:o_ffn")->run_bytes, (1 + 80) * kHeapPiece);
}

TEST(ElfReader, RefusesWhatXrtWould) {
  EXPECT_CONTAINS(refusal({.elf_class = 2}), "32-bit");
  EXPECT_CONTAINS(refusal({.abi_version = 1}), "ABI version 0.1");
  EXPECT_CONTAINS(refusal({.arguments = 2, .argument_type = 'i'}), "argument 0 of main");
  EXPECT_CONTAINS(refusal({.arguments = 1, .argument_type = '?'}), "not a pointer");
  EXPECT_CONTAINS(refusal({.columns = 0}), "0 columns");
  EXPECT_CONTAINS(refusal({.columns = 9}), "9 columns");
  EXPECT_CONTAINS(refusal({.text_words = 0}), "no control code");
}

// Neither a cut nor a changed byte leads outside of the file.
TEST(ElfReader, HostileFilesAreErrorsAtMost) {
  MadeElf made{.arguments = 3, .text_words = 4};
  made.patches = {{0, 0, linear_descriptor(64)}, {2, 16, linear_descriptor(4)}};
  made.pdi_bytes = {10};
  const std::string good = test::elf_file(made);
  EXPECT_EQ(message([&] { read(good); }), "no error");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_ERROR(read(good.substr(0, size)), "truncated: ") << size;
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i)
    for (const char value : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[i] = value;
      refused += message([&] { read(bad); }) != "no error" ? 1 : 0;
    }
  EXPECT_GT(refused, 100u);
}

TEST(XclbinReader, ReadsKernelsColumnsMemoryAndTheDesign) {
  const std::string file = test::xclbin_file({.columns = 4, .buffers = 5, .design_bytes = 70});
  const XclbinImage image = read_xclbin(bytes_of(file), "x.xclbin");
  EXPECT_EQ(image.columns, 4u);
  EXPECT_EQ(image.design_bytes, 70u);
  EXPECT_EQ(image.banks, (std::vector<std::string>{"HOST", "SRAM"}));
  ASSERT_NE(image.find("MLIR_AIE"), nullptr);
  EXPECT_EQ(image.find("MLIRAIE"), nullptr);
  EXPECT_EQ(image.find("MLIR_AIE")->memory,
            (std::map<uint32_t, uint32_t>{{1, 1}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}}));
}

TEST(XclbinReader, HostileFilesAreErrorsAtMost) {
  const std::string good = test::xclbin_file({.buffers = 3, .design_bytes = 8});
  const auto read = [](const std::string& file) { read_xclbin(bytes_of(file), "x.xclbin"); };
  read(good);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_ERROR(read(good.substr(0, size)), "truncated: ") << size;
  size_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i)
    for (const char value : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[i] = value;
      refused += message([&] { read(bad); }) != "no error" ? 1 : 0;
    }
  EXPECT_GT(refused, 100u);
}

TEST(Transaction, DescriptorsReachTheirFurthestWord) {
  EXPECT_EQ(descriptor_reach({}), 0u);
  EXPECT_EQ(descriptor_reach(linear_descriptor(4096)), 4096u);
  // Three rows of 8 words, 100 words apart: 2 * 100 + 8.
  const auto dims = [](uint32_t size, uint32_t step) { return size << 20 | (step - 1); };
  EXPECT_EQ(descriptor_reach({24, 0, 0, dims(8, 1), dims(0, 100)}), 208u * 4);
  // Two planes of them, 1000 words apart, and all of it three times, 5000 words apart.
  EXPECT_EQ(descriptor_reach({48, 0, 0, dims(8, 1), dims(3, 100), dims(0, 1000), dims(2, 5000)}),
            (10'000 + 1000 + 208u) * 4);
}

TEST(Transaction, ReadsWhatEachPatchReaches) {
  StreamWriter stream;
  stream.write(0x0020'0400, 7);
  stream.move(1, 512, linear_descriptor(1024));
  stream.sync();
  stream.patch(0x1d064, 0, 8);  // a descriptor that nothing has written
  const Transaction read = read_transaction(stream.words(), "x.insts.bin");
  EXPECT_EQ(read.not_read, "");
  ASSERT_EQ(read.patches.size(), 2u);
  EXPECT_EQ(read.patches[0].argument, 1u);
  EXPECT_EQ(read.patches[0].offset, 512u);
  EXPECT_EQ(descriptor_reach(read.patches[0].descriptor.value()), 1024u);
  EXPECT_EQ(read.patches[1].argument, 0u);
  EXPECT_FALSE(read.patches[1].descriptor);
}

TEST(Transaction, RefusesWhatIsNoStreamAndNamesWhatItCannotRead) {
  StreamWriter stream;
  stream.move(0, 0, linear_descriptor(64));
  stream.sync();
  const std::vector<uint32_t> good = stream.words();
  const auto read = [](std::vector<uint32_t> words) { return read_transaction(words, "x"); };
  for (size_t size = 0; size < good.size(); ++size) {
    std::vector<uint32_t> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    if (size > 3) cut[3] = static_cast<uint32_t>(size * 4);
    EXPECT_ERROR(read(cut), size > 3 ? "operation " : "not an instruction stream") << size;
  }
  for (size_t i = 0; i < good.size(); ++i)
    for (const uint32_t value : {0u, 1u, 3u, 129u, 0x1000'0000u, ~0u}) {
      std::vector<uint32_t> bad = good;
      bad[i] = value;
      message([&] { read(bad); });
    }
  std::vector<uint32_t> other = good;
  other[0] = 1;
  EXPECT_CONTAINS(read(other).not_read, "format 1.0");
  other = good;
  other[4] = 14;
  EXPECT_CONTAINS(read(other).not_read, "code 14");
}

// ---- Against argument lists

constexpr AirDims kLlama32_3b = {28, 3072, 24, 8, 128, 8192, 128256, 2048};
const NamedDims kNamed1b = {"llama-3.2-1b", kLlama32_1b};

// The notes, or the refusal.
std::string misfit(const MadeElf& made, std::string_view program) {
  std::string notes;
  const std::string refused = message([&] {
    const ImageFacts facts = inspect_image(bytes_of(test::elf_file(made)), ImageKind::elf, "x.elf");
    for (const std::string& note :
         check_fit(facts, air_program(program, kLlama32_1b), kNamed1b, "x.elf"))
      notes += "noted: " + note;
  });
  return notes.empty() ? refused : notes;
}

TEST(ImageFit, ElfsOfOtherModelsAreRefusedWithBothNumbers) {
  EXPECT_EQ(misfit(elf_of(air_program("o_ffn", kLlama32_1b)), "o_ffn"), "no error");
  const MadeElf made = elf_of(air_program("o_ffn", kLlama32_3b));
  EXPECT_CONTAINS(misfit(made, "o_ffn"),
                  "reaches byte 12582912 of argument 0 (attn_out), which has 8388608 bytes");
  MadeElf few = elf_of(air_program("o_ffn", kLlama32_1b));
  few.arguments = 15;
  EXPECT_CONTAINS(misfit(few, "o_ffn"), "takes 15 arguments, llama-3.2-1b's o_ffn has 19");
  EXPECT_CONTAINS(misfit(elf_of(air_program("flash_attn", kLlama32_1b)), "o_ffn"),
                  "has no \"main:o_ffn\", the entry of o_ffn; it has main:attention_bf16");
}

TEST(ImageFit, ArgumentsAreMovedWholeAndDeadOnesLeftAlone) {
  const AirProgram program = air_program("o_gemv_ffn", kLlama32_1b);
  MadeElf made = elf_of(program);
  EXPECT_EQ(misfit(made, "o_gemv_ffn"), "no error");
  made.patches[0].descriptor = linear_descriptor(program.arguments[0].bytes() / 2);
  EXPECT_EQ(misfit(made, "o_gemv_ffn"),
            "noted: x.elf: reaches byte 4194304 of argument 0 (wo), which has 8388608 bytes for "
            "llama-3.2-1b");
  for (AddressPatch& patch : made.patches) patch.descriptor = linear_descriptor(64);
  EXPECT_CONTAINS(misfit(made, "o_gemv_ffn"), "no argument is reached to its end");
  made = elf_of(program);
  made.patches.push_back({2, 0, linear_descriptor(64)});
  EXPECT_CONTAINS(misfit(made, "o_gemv_ffn"), "touches 64 bytes of argument 2");
  made.patches.back().argument = 15;
  EXPECT_CONTAINS(misfit(made, "o_gemv_ffn"), "touches argument 15");
}

ImageFacts words_of(const StreamWriter& stream) {
  return inspect_image(bytes_of(stream.file()), ImageKind::insts, "x.insts.bin");
}

TEST(ImageFit, StreamsOfOtherModelsAreRefusedWithBothNumbers) {
  const AirProgram program = fused_decode_program(kLlama32_1b, 64);
  const auto refused = [&](const AirDims& dims, uint32_t window) {
    const AirProgram built = fused_decode_program(dims, window);
    return message([&] {
      check_fit(words_of(test::decode_stream(built, window)), program, kNamed1b, "x.insts.bin");
    });
  };
  EXPECT_EQ(refused(kLlama32_1b, 64), "no error");
  EXPECT_CONTAINS(refused(kLlama32_3b, 64),
                  "reaches byte 6144 of argument 3 (x), which has 4096 bytes for llama-3.2-1b");
  EXPECT_CONTAINS(refused(kLlama32_1b, 128), "of argument 7 (kv), which has 2097152 bytes");
}

// Argument 8 is the sixth data buffer: from it on mlir-aie adds the array's view of memory.
TEST(ImageFit, SplitWeightsAreReadWithAndWithoutTheArraysOffset) {
  constexpr AirDims kLlama31_8b = {32, 4096, 32, 8, 128, 14336, 128256, 2048};
  const AirProgram program = fused_decode_program(kLlama31_8b, 64);
  ASSERT_EQ(program.arguments.size(), 12u);
  const auto fit = [&](const StreamWriter& stream) {
    return message([&] {
      check_fit(words_of(stream), program, {"llama-3.1-8b", kLlama31_8b}, "x.insts.bin");
    });
  };
  for (const bool is_folded : {true, false}) {
    const StreamWriter stream = test::decode_stream(program, 64, 2048, is_folded);
    EXPECT_EQ(fit(stream), "no error");
    const Transaction read = read_transaction(stream.words(), "x");
    EXPECT_EQ(read.untranslated,
              is_folded ? std::vector<uint32_t>{} : (std::vector<uint32_t>{5, 6, 7, 8}));
    EXPECT_EQ(read.patches[5].offset, 0u);
  }
  StreamWriter both = test::decode_stream(program, 64, 2048, false);
  both.move(5, 0x8000'0000, linear_descriptor(64));
  EXPECT_CONTAINS(fit(both), "to all offsets into such an argument or to none");
  StreamWriter beyond = test::decode_stream(program, 64, 2048);
  beyond.move(2, 0x8000'0000, linear_descriptor(64));  // firmware translates this one
  EXPECT_CONTAINS(fit(beyond), "reaches byte 2147483712 of argument 5 (rms)");
}

TEST(ImageFit, NoOffsetIsSoLargeThatItsEndLooksSmall) {
  const AirProgram program = fused_decode_program(kLlama32_1b, 64);
  std::vector<uint32_t> words = test::decode_stream(program, 64).words();
  for (size_t i = 0; i + 11 < words.size(); ++i)
    if (words[i] == 129) words[i + 10] = words[i + 11] = UINT32_MAX;
  ImageFacts facts;
  facts.instructions = read_transaction(words, "x");
  EXPECT_CONTAINS(message([&] { check_fit(facts, program, kNamed1b, "x"); }),
                  "reaches byte 18446744073709551615");
}

TEST(ImageFit, WordsChangeByOneOrByAPosition) {
  const AirProgram program = fused_decode_program(kLlama32_1b, 64);
  const auto change = [&](uint32_t stride) {
    return message([&] {
      check_lengths(words_of(test::decode_stream(program, 64, stride)),
                    words_of(test::decode_stream(program, 63, stride)), 64, kNamed1b, "x");
    });
  };
  EXPECT_EQ(change(512), "no error");
  EXPECT_CONTAINS(change(1024), "changes by 1024");
  EXPECT_CONTAINS(change(1024), "or by 512");
}

TEST(ImageFit, OnlyProgramsOfPromptsDependOnTheirLength) {
  AirDims other = kLlama32_1b;
  other.seq = 256;
  EXPECT_FALSE(same_images("o_ffn", other, kLlama32_1b));
  EXPECT_FALSE(same_images("flash_attn", other, kLlama32_1b));
  EXPECT_TRUE(same_images("o_gemv_ffn", other, kLlama32_1b));
  EXPECT_TRUE(same_images(kFusedDecode, other, kLlama32_1b));
  other.layers = 2;
  EXPECT_FALSE(same_images("o_gemv_ffn", other, kLlama32_1b));
}

}  // namespace
}  // namespace tyto
