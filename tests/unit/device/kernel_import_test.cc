// Which folders may be imported, and for which model.
#include <thread>

#include "device/npu/formats/transaction.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/vnpu_device.h"
#include "kernel_store_fixture.h"

namespace tyto {
namespace {

constexpr AirDims kLlama32_3b = {28, 3072, 24, 8, 128, 8192, 128256, 2048};
constexpr AirDims kQwen25 = {28, 1536, 12, 2, 128, 8960, 151936, 2048, 1, 0};
constexpr AirDims kSmall = {2, 256, 4, 2, 64, 512, 512, 64};
const std::vector<NamedDims> kKnown = {{"llama-3.2-1b", kLlama32_1b},
                                       {"llama-3.2-3b", kLlama32_3b}};

class KernelImport : public KernelStore {
 protected:
  fs::path gemms() const { return root_ / "whole_array"; }

  // As mlir-aie's whole-array example leaves a product of int8: B's columns one after another.
  static std::string whole_array_insts(uint32_t m, uint32_t k, uint32_t n, uint32_t tile_n,
                                       uint32_t second_b, uint32_t element_bytes = 1) {
    test::StreamWriter stream;
    stream.move(0, 0, test::linear_descriptor(uint64_t{m} * k * element_bytes));
    stream.move(1, 0, test::linear_descriptor(64));
    stream.move(1, second_b, test::linear_descriptor(uint64_t{n} * k * element_bytes - second_b));
    stream.move(2, 0, test::linear_descriptor(64));
    stream.move(2, tile_n * 4, test::linear_descriptor(uint64_t{m} * n * 4 - tile_n * 4));
    return stream.file();
  }

  // An image of the virtual NPU in a cache of its own.
  void make_virtual(const AirDims& dims) const {
    const NpuImage image = virtual_image(dims, "o_gemv_ffn", 0, 1e-5f);
    write(decode() / "o_gemv_ffn.elf",
          {reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()});
    write(decode() / "manifest.json",
          "{\"entries\": {" + record("o_gemv_ffn", "main:o_gemv_ffn") + "}}");
  }
};

TEST_F(KernelImport, FoldersOfOtherModelsAreRefused) {
  make_build(0, kLlama32_3b);
  expect_refused(prefill(), "rms_gemms_rope.elf: takes 16 arguments, llama-3.2-1b's");
  expect_refused(decode(), "reaches byte 6144 of argument 0 (x_in), which has 4096 bytes");
  fs::remove_all(build());
  make_build(0, kQwen25);
  expect_refused(build(), "has no such program");
  make_templates({63, 64}, kLlama32_3b);
  expect_refused(fused(), "of argument 3 (x), which has 4096 bytes for llama-3.2-1b");
}

TEST_F(KernelImport, TheShapeIsTheOneThatImagesFit) {
  make_build(0, kLlama32_3b);
  const ImportReport report = import_kernels(store(), build(), {kKnown});
  ASSERT_EQ(report.entries.size(), air_model(kLlama32_3b).programs.size());
  EXPECT_EQ(report.entries[0].shape, "llama-3.2-3b");
  EXPECT_EQ(report.entries[0].dims, kLlama32_3b);
  fs::remove_all(build());
  make_build(0, kSmall);
  EXPECT_CONTAINS(message([&] { import_kernels(store(), build(), {kKnown}); }), "fits no model");
  const std::vector<NamedDims> alike = {{"one", kLlama32_1b}, {"other", kLlama32_1b}};
  fs::remove_all(build());
  make_build();
  EXPECT_CONTAINS(message([&] { import_kernels(store(), build(), {alike}); }),
                  "for which of these it is: one, other");
}

TEST_F(KernelImport, ColumnsAndBytesPerRunAreRecorded) {
  make_build();
  import(build());
  make_templates({63, 64});
  import(fused());
  const KernelManifest manifest = read_manifest(store());
  const KernelEntry* elf = manifest.find("llama-3.2-1b/o_ffn");
  ASSERT_NE(elf, nullptr);
  EXPECT_EQ(elf->columns, 8u);
  EXPECT_EQ(elf->run_bytes, kHeapPiece);
  // Its words and its design; of an ELF the platform is known, of an xclbin by the words.
  const KernelEntry* decode = manifest.find("llama-3.2-1b/decode_L64");
  EXPECT_EQ(decode->run_bytes, 2 * kHeapPiece);
  EXPECT_EQ(decode->columns, 8u);
  EXPECT_EQ(decode->platform, "aie2p");
  const NpuKernels kernels = stored_kernels(store(), StoredFor::real_npu, kLlama32_1b);
  EXPECT_EQ(kernels.image("o_ffn", 2048).run_bytes, kHeapPiece);
}

TEST_F(KernelImport, DesignsThatCannotRunAreRefusedWithBothNumbers) {
  const std::string suffix = "128x2048x2048_16x64x64_8c";
  const fs::path design = gemms() / ("final_" + suffix + ".xclbin");
  const fs::path words = gemms() / ("insts_" + suffix + ".bin");
  write(words, whole_array_insts(128, 2048, 2048, 64, 64 * 2048));
  write(design, test::xclbin_file({.columns = 4}));
  expect_refused(gemms(), "compiled for 8 columns, and final_" + suffix + ".xclbin takes 4");
  write(design, test::xclbin_file({.columns = 9}));
  expect_refused(gemms(), "takes 9 columns, and the array of XDNA2 has 8");
  write(design, test::xclbin_file({.kernel = "DPU:inst"}));
  expect_refused(gemms(), "has the kernels DPU, and gemm_i8 runs MLIR_AIE");
  write(design, test::xclbin_file({.buffers = 2}));
  expect_refused(gemms(), "connects 3 arguments to memory and not argument 5");
  write(design, test::xclbin_file({.bank = 1}));
  expect_refused(gemms(), "connects argument 3 to memory bank 1 (SRAM), and data lies in bank 0");
  write(design, test::xclbin_file({}));
  EXPECT_EQ(import(gemms()).entries[0].columns, 8u);
  write(words, test::StreamWriter(3).file());
  expect_refused(gemms(), "built for an array of generation 3 (XDNA1), XDNA2 is 4");
  write(words, test::StreamWriter(4, 12).file());
  expect_refused(gemms(), "compiled for 12 columns, and the array of XDNA2 has 8");
}

TEST_F(KernelImport, OneBadImageDoesNotLoseTheRest) {
  make_build();
  write(prefill() / "o_ffn.elf",
        "\x7f"
        "ELF and no more");
  make_templates({63, 64, 127, 128});
  fs::rename(fused() / ".decode_flags", build() / ".decode_flags");
  for (const auto& file : fs::directory_iterator(fused()))
    fs::rename(file.path(), build() / file.path().filename());
  write(build() / "decode_L127.insts.bin", "words");
  const ImportReport report = import_kernels(store(), build(), {kKnown});
  EXPECT_EQ(report.entries.size(), 6u);  // five programs and a window
  ASSERT_EQ(report.refused.size(), 2u);
  EXPECT_EQ(report.refused[0].name, "o_ffn");
  EXPECT_CONTAINS(report.refused[0].reason, "o_ffn.elf");
  EXPECT_EQ(report.refused[1].name, "decode_L128");
  EXPECT_CONTAINS(report.refused[1].reason, "decode_L127.insts.bin");
  EXPECT_EQ(read_manifest(store()).entries.size(), 6u);
  EXPECT_NE(read_manifest(store()).find("llama-3.2-1b/decode_L64"), nullptr);
}

// ---- Images of the virtual NPU

TEST_F(KernelImport, VirtualImagesKeepTheirDimensions) {
  make_virtual(kSmall);
  const std::string refused = message([&] { import(build()); });
  EXPECT_CONTAINS(refused, "layers 2 and not 16, emb 256 and not 2048");
  EXPECT_FALSE(fs::exists(store()));
  const ImportReport report = import_kernels(store(), build(), {kKnown});
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].shape, "2x256");
  EXPECT_EQ(report.entries[0].dims, kSmall);
  EXPECT_EQ(report.entries[0].platform, "vnpu");
}

// As an older Tyto recorded them: for a model that they are not made for.
TEST_F(KernelImport, VirtualImagesOfAnotherModelAreFoundByCheckAndByLoading) {
  make_virtual(kSmall);
  import_kernels(store(), build(), {{{"small", kSmall}}});
  KernelManifest manifest = read_manifest(store());
  manifest.entries[0].dims = kLlama32_1b;
  write_manifest(store(), manifest);
  for (const bool full : {false, true}) {
    const CheckReport report = check_store(store(), full);
    ASSERT_EQ(report.problems.size(), 1u);
    EXPECT_EQ(report.problems[0].fault, ImageFault::stale);
    EXPECT_CONTAINS(report.problems[0].reason, "emb 256 and not 2048");
  }
  const NpuKernels kernels = stored_kernels(store(), StoredFor::virtual_npu, kLlama32_1b);
  EXPECT_CONTAINS(kernels.why_no_image("o_gemv_ffn", 0).value(), "emb 256 and not 2048");
  EXPECT_CONTAINS(message([&] { kernels.image("o_gemv_ffn", 0); }), "emb 256 and not 2048");
}

TEST_F(KernelImport, RealImagesOfAnotherModelAreFoundByCheckAndByLoading) {
  AirDims smaller = kLlama32_1b;
  smaller.hidden = 4096;
  make_build();
  import(build());
  KernelManifest manifest = read_manifest(store());
  for (KernelEntry& entry : manifest.entries) entry.dims = smaller;
  write_manifest(store(), manifest);
  EXPECT_EQ(check_store(store(), true).problems.size(), 2u);  // those with a feed-forward part
  const NpuKernels kernels = stored_kernels(store(), StoredFor::real_npu, smaller);
  EXPECT_CONTAINS(message([&] { kernels.image("o_ffn", 2048); }), "which has 16777216 bytes");
}

// ---- Folders

TEST_F(KernelImport, CachesOfTheQ4nxExamplesSayTheirLength) {
  AirDims dims = kLlama32_1b;
  dims.seq = 512;
  make_build(0, dims);
  for (const char* name : {"_q4nx_cache_seq512", "_q4nx_cache_seq512_fa1"}) {
    const fs::path cache = root_ / "llama32_1b_q4nx" / name;
    fs::create_directories(cache.parent_path());
    fs::rename(prefill(), cache);
    EXPECT_EQ(import(cache).entries[0].dims.seq, 512u);
    EXPECT_EQ(import(cache.parent_path()).entries.size(), 3u);
    EXPECT_NE(read_manifest(store()).find("llama-3.2-1b@512/o_ffn"), nullptr);
    fs::rename(cache, prefill());
  }
  const fs::path built = root_ / "llama32_1b_q4nx" / "build_peano" / "q4nx_kernel_cache_512";
  fs::create_directories(built.parent_path());
  fs::rename(prefill(), built);
  EXPECT_EQ(import(root_ / "llama32_1b_q4nx").entries[0].dims.seq, 512u);
}

TEST_F(KernelImport, BuildsOfTheOtherCompilerAreFound) {
  make_build();
  fs::rename(build() / "build_peano", build() / "build_chess");
  EXPECT_EQ(import(build()).entries.size(), 6u);
  fs::copy(build() / "build_chess", build() / "build_peano", fs::copy_options::recursive);
  expect_refused(build(), "is in it twice");
}

TEST_F(KernelImport, WordsBesideAnElfAreNotNeeded) {
  make_build();
  std::string text = read_text_file(prefill() / "manifest.json", 1 << 20);
  const std::string null = "\"insts\": null";
  text.replace(text.find(null), null.size(), "\"insts\": \"x/rms_gemms_rope.insts.bin\"");
  write(prefill() / "manifest.json", text);
  const ImportReport report = import(prefill());
  EXPECT_EQ(report.entries.size(), 3u);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_CONTAINS(report.notes[0], "not needed");
  write(prefill() / "o_ffn.elf", xclbin_file(1));
  expect_one_refused(prefill(), "AIR_TARGET_DEVICE=npu2");
}

TEST_F(KernelImport, AFolderOfBuildsWithADynamicLengthSaysTheNextStep) {
  write(fused() / "decode_dyn_L2048.xclbin", xclbin_file(7));
  write(fused() / "decode_dyn_L2048.txn.h", "// words");
  expect_refused(fused(), "decode_dyn_L2048");
  expect_refused(fused(), "make compile-decode");
}

TEST_F(KernelImport, AStampThatCleaningLeftIsNoBuild) {
  write(fused() / ".decode_windows", "64 2048\n");
  expect_refused(fused(), "names windows 64, 2048, and no templates are there");
  expect_refused(fused(), "make compile-decode");
  make_templates({2047, 2048});
  const ImportReport report = import(fused());
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].window, 2048u);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_CONTAINS(report.notes[0], "also names windows 64");
  make_templates({63});
  expect_one_refused(fused(), "decode_L64.xclbin");
}

TEST_F(KernelImport, StreamsThatCannotBeReadAreNoted) {
  make_templates({63, 64});
  for (const unsigned length : {63u, 64u}) {
    std::string words = insts_file(length, 64);
    words[0] = 1;  // another version
    words[1] = 0;
    write(fused() / fmt::format("decode_L{}.insts.bin", length), words);
  }
  const ImportReport report = import(fused());
  ASSERT_EQ(report.notes.size(), 2u);
  EXPECT_CONTAINS(report.notes[0], "format 1.0");
}

TEST_F(KernelImport, GemmsOfTheWholeArrayExampleAreReadByTheirNames) {
  const fs::path built = gemms() / "build";
  for (const uint32_t k : {2048u, 8192u}) {
    const std::string suffix = fmt::format("128x{}x2048_32x64x64_8c", k);
    write(built / ("final_" + suffix + ".xclbin"), xclbin_file(k));
    write(built / ("insts_" + suffix + ".txt"), whole_array_insts(128, k, 2048, 64, 64 * k));
  }
  const ImportReport report = import_kernels(store(), gemms(), {kKnown});
  ASSERT_EQ(report.entries.size(), 2u);
  EXPECT_EQ(report.entries[0].name, "int8/gemm_k2048_m128");
  EXPECT_EQ(report.entries[0].m_tile, 128u);
  EXPECT_EQ(report.entries[0].n_tile, 2048u);
  EXPECT_EQ(report.entries[0].columns, 8u);
  EXPECT_EQ(import(built).entries.size(), 2u);
}

TEST_F(KernelImport, GemmsThatAreBuiltOtherwiseAreRefused) {
  const std::string suffix = "128x2048x2048_32x64x64_8c";
  write(gemms() / ("final_" + suffix + ".xclbin"), xclbin_file(1));
  const fs::path insts = gemms() / ("insts_" + suffix + ".bin");
  write(insts, whole_array_insts(128, 2048, 2048, 64, 64));  // B row by row
  expect_refused(gemms(), "b_col_maj=1");
  write(insts, whole_array_insts(128, 2048, 2048, 64, 64 * 2048, 2));  // int16
  expect_refused(gemms(), "reaches byte 524288 of argument 3");
  write(insts, "0600010001000000\n");
  expect_refused(gemms(), "words as text");
  fs::remove(insts);
  expect_refused(gemms(), "insts_" + suffix);
}

// ---- The decode as one ELF

TEST_F(KernelImport, TheDecodeElfIsImportedWithWhatItsScratchpadHolds) {
  make_decode_elf();
  make_templates({63, 64});
  const ImportReport report = import(fused());
  ASSERT_EQ(report.entries.size(), 2u);
  const KernelManifest manifest = read_manifest(store());
  const KernelEntry* entry = manifest.find("llama-3.2-1b/decode_elf");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->program, kFusedDecodeElf);
  EXPECT_EQ(entry->entry, "main:q4nx_decode");
  EXPECT_EQ(entry->window, 2048u);
  EXPECT_EQ(entry->arguments, 6u);
  EXPECT_EQ(entry->columns, 8u);
  EXPECT_EQ(entry->run_bytes, 2 * kHeapPiece);  // code and scratchpad
  EXPECT_TRUE(check_store(store(), true).problems.empty());
  const NpuKernels kernels = stored_kernels(store(), StoredFor::real_npu, kLlama32_1b);
  EXPECT_EQ(kernels.decode_elf, 2048u);
  EXPECT_EQ(kernels.windows, std::vector<uint32_t>{64});
  const NpuImage image = kernels.image(kFusedDecodeElf, 2048);
  ASSERT_TRUE(image.parameters.has_value());
  EXPECT_EQ(*image.parameters, (DecodeParameters{2, 0, 1, 5, 256, -256, false}));
}

TEST_F(KernelImport, ADecodeElfWhoseCoresAddUpIsDrivenByDifferences) {
  make_decode_elf(kLlama32_1b, 2048,
                  {test::create_scratchpad(8), test::update_register(1, 0, test::kCoreAddress),
                   test::update_register(0, 2, test::kDescriptorAddress)});
  import(fused());
  const NpuKernels kernels = stored_kernels(store(), StoredFor::real_npu, kLlama32_1b);
  EXPECT_TRUE(kernels.image(kFusedDecodeElf, 2048).parameters->core_adds_up);
}

TEST_F(KernelImport, ADecodeElfThatIsNotWholeOrOfAnotherModelIsRefused) {
  const fs::path elf = fused() / "decode_scratchpad.elf";
  const fs::path params = fused() / "decode_scratchpad.params.txt";
  const fs::path stamp = fused() / "decode_scratchpad.maxl";
  make_decode_elf(kLlama32_3b);
  expect_refused(fused(), "of argument 0 (x), which has 4096 bytes for llama-3.2-1b");
  make_decode_elf();
  fs::remove(params);
  expect_refused(fused(), "decode_scratchpad.params.txt is not beside it");
  make_decode_elf();
  fs::remove(stamp);
  expect_refused(fused(), "decode_scratchpad.maxl is not beside it");
  write(stamp, "many\n");
  expect_refused(fused(), "not a number of positions");
  write(stamp, "2047\n");
  expect_refused(fused(), "2047 positions are not a multiple of 16");
  write(stamp, "1024\n");
  expect_refused(fused(), "of argument 4 (kv), which has");
  make_decode_elf();
  write(params,
        "2\n__air_param_argoff_5_x512_m512 0 i32 addr\n__air_param_attn_blk_0 1 i32 core\n");
  expect_refused(fused(), "512 * L - 512 of a region, where this model's goes to 256 * L - 256");
  write(params, "40\n");
  expect_refused(fused(), "the firmware's state table has 32");
  make_decode_elf(kLlama32_1b, 2048, test::decode_operations(3));
  expect_refused(fused(), "a scratchpad of 12 bytes");
}

// Known from its manifest, and left out with the reason.
TEST_F(KernelImport, AChunkedPrefillIsLeftOutByName) {
  const fs::path chunked = fused() / "_fused_prefill";
  write(chunked / "manifest.json",
        R"({"gemm": ["g_2048_3072_0_1"], "attn": {"a": {"base": "a_32_1_0_0"}},
            "attn_points": {"base": [32, 1, 0, 0]}, "lm": null, "device": "00"})");
  expect_refused(chunked, "a chunked prefill (128 rows at a time, 4-bit weights)");
  make_decode_elf();
  const ImportReport report = import(fused());
  EXPECT_EQ(report.entries.size(), 1u);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_CONTAINS(report.notes[0], "a chunked prefill");
}

TEST_F(KernelImport, TwoImportsAtOnceLoseNothing) {
  make_build();
  make_templates({63, 64, 127, 128});
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) import(fused());
  });
  for (int i = 0; i < 5; ++i) import(build());
  other.join();
  EXPECT_EQ(read_manifest(store()).entries.size(), 8u);
  EXPECT_TRUE(check_store(store(), true).problems.empty());
}

}  // namespace
}  // namespace tyto
