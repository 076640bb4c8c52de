#include "device/npu/store/kernel_store.h"

#include <chrono>

#include "kernel_store_fixture.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

TEST_F(KernelStore, ImportsTheSixPrograms) {
  make_build();
  const ImportReport report = import(build());
  EXPECT_EQ(report.entries.size(), 6u);
  EXPECT_EQ(report.images_written, 6u);
  const KernelManifest manifest = read_manifest(store());
  ASSERT_EQ(manifest.entries.size(), 6u);
  const KernelEntry* entry = manifest.find("llama-3.2-1b/flash_attn");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->entry, "main:attention_bf16");
  EXPECT_EQ(entry->arguments, 4u);
  EXPECT_EQ(entry->launches, 1u);
  EXPECT_EQ(entry->platform, "aie2p");
  EXPECT_EQ(entry->columns, 8u);
  EXPECT_EQ(entry->dims, kLlama32_1b);
  EXPECT_CONTAINS(entry->toolchain, "llvm-aie: 21.0");
  EXPECT_CONTAINS(entry->toolchain, "a:1:2");
  EXPECT_EQ(read_text_file(image_of("llama-3.2-1b/flash_attn"), 1 << 20),
            elf_file("flash_attn", 2));
  EXPECT_EQ(program_of(*entry).arguments.size(), 4u);
  EXPECT_TRUE(check_store(store(), true).problems.empty());
}

TEST_F(KernelStore, ImportFindsCachesAtEveryLevel) {
  make_build();
  EXPECT_EQ(import(build() / "build_peano").entries.size(), 6u);
  EXPECT_EQ(import(prefill()).entries.size(), 3u);
  EXPECT_EQ(read_manifest(store()).entries.size(), 6u);
}

TEST_F(KernelStore, ImportingAgainReplacesAndLeavesNoOldImages) {
  make_build();
  import(build());
  EXPECT_EQ(import(build()).images_written, 0u);
  make_build(100);
  EXPECT_EQ(import(build()).images_written, 6u);
  EXPECT_EQ(read_manifest(store()).entries.size(), 6u);
  EXPECT_EQ(snapshot(store() / "images").size(), 6u);
  EXPECT_TRUE(check_store(store(), true).problems.empty());
}

TEST_F(KernelStore, AnotherShapeOrLengthIsAnotherEntry) {
  make_build();
  import(build());
  AirDims dims = kLlama32_1b;
  dims.seq = 1024;
  make_build(0, dims);
  ImportOptions options;
  options.seq = 1024;
  import_kernels(store(), prefill(), options);
  const KernelManifest manifest = read_manifest(store());
  ASSERT_NE(manifest.find("llama-3.2-1b@1024/o_ffn"), nullptr);
  EXPECT_EQ(manifest.entries.size(), 9u);
  EXPECT_EQ(snapshot(store() / "images").size(), 9u);
  // Same bytes, one image; it stays as long as one of the two entries does.
  make_build();
  options.shapes = {{"another name", kLlama32_1b}};
  options.seq = std::nullopt;
  import_kernels(store(), decode(), options);
  EXPECT_EQ(snapshot(store() / "images").size(), 9u);
  remove_kernel(store(), "llama-3.2-1b/o_gemv_ffn");
  EXPECT_EQ(snapshot(store() / "images").size(), 9u);
  remove_kernel(store(), "another name/o_gemv_ffn");
  EXPECT_EQ(snapshot(store() / "images").size(), 8u);
}

TEST_F(KernelStore, ImportsWindowsOfTheFusedDecode) {
  make_templates({63, 64, 2047, 2048});
  write(fused() / ".decode_windows", "64 2048\n");
  write(fused() / "decode_dyn_L2048.xclbin", xclbin_file(7));
  const ImportReport report = import(fused());
  ASSERT_EQ(report.entries.size(), 2u);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_CONTAINS(report.notes[0], "decode_dyn_L2048");
  const KernelManifest manifest = read_manifest(store());
  const KernelEntry* entry = manifest.find("llama-3.2-1b/decode_L64");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->window, 64u);
  EXPECT_EQ(entry->program, kFusedDecode);
  EXPECT_EQ(entry->flags, "W_DUAL_CHAN=1");
  EXPECT_EQ(entry->platform, "aie2p");  // the header of its words says so
  ASSERT_EQ(entry->images.size(), 4u);
  EXPECT_EQ(entry->images[0].length, 64u);
  EXPECT_EQ(entry->images[3].kind, ImageKind::insts);
  EXPECT_EQ(entry->images[3].length, 63u);
}

TEST_F(KernelStore, ImportsInt8GemmsByK) {
  const fs::path folder = root_ / "gemms";
  const auto slot = [](const std::string& k, const std::string& more) {
    return R"({"k": )" + k + R"(, "m_tile": 64, "n_tile": 512, "columns": 4, "xclbin": "g)" + k +
           R"(.xclbin", "insts": "g)" + k + R"(.insts.bin")" + more + "}";
  };
  for (unsigned k : {2048u, 5632u}) {
    write(folder / fmt::format("g{}.xclbin", k), xclbin_file(k));
    write(folder / fmt::format("g{}.insts.bin", k), gemm_insts_file(k, 64, 512));
  }
  write(folder / "gemm_slots.json",
        "{\"slots\": [" + slot("2048", "") + ", " + slot("5632", "") + "]}");
  EXPECT_EQ(import(folder).entries.size(), 2u);
  EXPECT_TRUE(check_store(store(), true).problems.empty());
  const NpuKernels kernels = stored_kernels(store(), StoredFor::real_npu, kLlama32_1b);
  ASSERT_EQ(kernels.gemm_slots.size(), 2u);
  EXPECT_EQ(kernels.gemm_slots[1].k, 5632u);
  EXPECT_EQ(kernels.gemm_slots[1].n_tile, 512u);
  EXPECT_EQ(kernels.gemm_slots[1].columns, 4u);
  EXPECT_FALSE(kernels.why_no_image(kInt8Gemm, 1));
  EXPECT_TRUE(kernels.why_no_image(kInt8Gemm, 2));
  const NpuImage image = kernels.image(kInt8Gemm, 0);
  EXPECT_EQ(image.form, ImageKind::xclbin);
  EXPECT_EQ(image.kernel, "MLIR_AIE");
  EXPECT_FALSE(image.words.empty());

  write(folder / "gemm_slots.json",
        "{\"slots\": [" + slot("2048", "") + "," + slot("9", "") + "]}");
  expect_one_refused(folder, "9");
  std::string many;
  for (unsigned k = 64; k < 64 + 4 * kMaxGemmSlots; k += 4) {
    write(folder / fmt::format("g{}.xclbin", k), xclbin_file(k));
    write(folder / fmt::format("g{}.insts.bin", k), gemm_insts_file(k, 64, 512));
    many += (many.empty() ? "" : ", ") + slot(std::to_string(k), "");
  }
  write(folder / "gemm_slots.json", "{\"slots\": [" + many + "]}");
  expect_refused(folder, "at most 8");
  write(folder / "gemm_slots.json",
        R"({"slots": [{"k": 2048, "m_tile": 64, "n_tile": 512, "columns": 4,
            "xclbin": "../g2048.xclbin", "insts": "g2048.insts.bin"}]})");
  expect_refused(folder, "not a file of this folder");
}

TEST_F(KernelStore, OneBadImageOfACacheIsRefusedAlone) {
  expect_refused(root_ / "absent", "not a folder");
  fs::create_directories(build());
  expect_refused(build(), "no kernels");
  make_build();
  import(build());
  make_build(50);  // good and new, but one of them is bad each time
  const fs::path victim = decode() / "lm_head_gemv.elf";
  write(victim, "");
  expect_one_refused(build(), "lm_head_gemv.elf: the file is empty");
  write(victim, "ELF, they said");
  expect_one_refused(build(), "not an ELF");
  const std::string good = elf_file("lm_head_gemv", 9);
  write(victim, good.substr(0, 300));
  expect_one_refused(build(), "truncated");
  write(victim, good.substr(0, 20));
  expect_one_refused(build(), "truncated");
  test::MadeElf made = test::elf_of(air_program("lm_head_gemv", kLlama32_1b));
  made.os_abi = 0;
  write(victim, test::elf_file(made));
  expect_one_refused(build(), "another platform");
  made.os_abi = 75;
  write(victim, test::elf_file(made));
  expect_one_refused(build(), "AIE4");
  write(victim, xclbin_file(9));
  expect_one_refused(build(), "xclbin where an ELF");
  fs::remove(victim);
  expect_one_refused(build(), "lm_head_gemv.elf: cannot open");
}

TEST_F(KernelStore, OneBadBuildManifestIsRefusedAlone) {
  make_build();
  const auto manifest = [&](const std::string& text) { write(prefill() / "manifest.json", text); };
  manifest("{\"entries\": {");
  expect_one_refused(build(), "manifest.json");
  manifest("{}");
  expect_one_refused(build(), "entries");
  manifest("{\"entries\": {" + record("o_ffn", "main:o_fnn") + "}}");
  expect_one_refused(build(), "main:o_fnn");
  manifest(R"({"entries": {"o_ffn": {"output_binary": "", "kernel": "main:o_ffn"}}})");
  expect_one_refused(build(), "output_binary");
  manifest(R"({"entries": {"o_ffn": {"output_binary": 7, "kernel": "main:o_ffn"}}})");
  expect_one_refused(build(), "output_binary");
  // Outside its folder there is nothing to import, whatever the path says.
  manifest(R"({"entries": {"o_ffn": {"output_binary": "/etc/passwd", "kernel": "main:o_ffn"}}})");
  expect_one_refused(build(), "prefill_kernel_cache/passwd");
  fs::remove(prefill() / "manifest.json");
  expect_one_refused(build(), "manifest.json");
}

TEST_F(KernelStore, UnknownProgramsAreLeftOutWithANote) {
  make_build();
  write(prefill() / "manifest.json", "{\"entries\": {" + record("o_ffn", "main:o_ffn") + "," +
                                         record("vision_tower", "main:vision_tower") + "}}");
  const ImportReport report = import(prefill());
  EXPECT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].toolchain, "unknown");
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_CONTAINS(report.notes[0], "vision_tower");
}

TEST_F(KernelStore, BadTemplatesChangeNothing) {
  make_templates({2047, 2048});
  test::StreamWriter longer = test::decode_stream(fused_decode_program(kLlama32_1b, 2048), 2047);
  longer.sync();
  write(fused() / "decode_L2047.insts.bin", longer.file());
  expect_refused(fused(), "instruction words, but decode_L2047 has");
  write(fused() / "decode_L2047.insts.bin", insts_file(2047, 2048).substr(1));
  expect_refused(fused(), "32-bit");
  write(fused() / "decode_L2047.insts.bin", insts_file(2047, 2048).substr(4));
  expect_refused(fused(), "not an instruction stream");
  fs::remove(fused() / "decode_L2047.insts.bin");
  expect_refused(fused(), "decode_L2047.insts.bin");
  fs::remove(fused() / "decode_L2047.xclbin");
  expect_refused(fused(), "no partner decode_L2047");
  make_templates({2047, 2048});
  write(fused() / "decode_L2048.xclbin", "xclbin1");
  expect_refused(fused(), "not an xclbin");
  make_templates({63, 64, 2047, 2048});
  write(fused() / ".decode_windows", "2048\n");
  expect_refused(fused(), "left over");
  write(fused() / ".decode_windows", "64 lots\n");
  expect_refused(fused(), "window lengths");
  fs::remove(fused() / ".decode_windows");
  write(fused() / ".decode_flags", "W_DUAL_CHAN=0\n");
  expect_refused(fused(), "W_DUAL_CHAN=0");
}

TEST_F(KernelStore, AnUnchangedStoreIsTrustedWithoutReading) {
  constexpr unsigned kWindows = 129;  // each with four images
  for (unsigned length = 1; length <= 2 * kWindows; ++length) make_templates({length});
  ASSERT_EQ(import(fused()).images_written, 516u);

  const auto start = std::chrono::steady_clock::now();
  const CheckReport quick = check_store(store(), false);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  RecordProperty("check_ms", std::to_string(took.count()));
  std::printf("checked %zu images in %.2f ms\n", quick.images, took.count());

  EXPECT_EQ(quick.images, 516u);
  EXPECT_EQ(quick.trusted, 516u);
  EXPECT_EQ(quick.hashed, 0u);
  EXPECT_EQ(quick.bytes_read, 0u);
  EXPECT_TRUE(quick.problems.empty());
  EXPECT_EQ(check_store(store(), true).hashed, 516u);
}

TEST_F(KernelStore, ATouchedImageIsHashedOnce) {
  make_build();
  import(build());
  const fs::path image = image_of("llama-3.2-1b/o_ffn");
  fs::last_write_time(image, fs::last_write_time(image) + std::chrono::seconds(5));
  const CheckReport first = check_store(store(), false);
  EXPECT_TRUE(first.problems.empty());
  EXPECT_EQ(first.hashed, 1u);
  EXPECT_EQ(first.trusted, 5u);
  EXPECT_EQ(check_store(store(), false).hashed, 0u);
}

TEST_F(KernelStore, DamagedImagesAreNamedWithTheReason) {
  make_build();
  import(build());
  const auto fault_of = [&](const std::string& name, bool full = false) {
    const CheckReport report = check_store(store(), full);
    EXPECT_EQ(report.problems.size(), 1u);
    if (report.problems.size() != 1) return std::string();
    EXPECT_EQ(report.problems[0].entry, name);
    return std::string(to_string(report.problems[0].fault)) + ": " + report.problems[0].reason;
  };
  const std::string name = "llama-3.2-1b/o_ffn";
  const fs::path image = image_of(name);
  const auto time = fs::last_write_time(image);
  const std::string good = read_text_file(image, 1 << 20);

  write(image, good.substr(0, good.size() - 1));
  EXPECT_CONTAINS(fault_of(name), "truncated: " + std::to_string(good.size() - 1));
  std::string changed = good;
  changed[80] ^= 1;
  write(image, changed);
  fs::last_write_time(image, time + std::chrono::seconds(1));
  EXPECT_CONTAINS(fault_of(name), "stale");
  write(image, good + "more");
  EXPECT_CONTAINS(fault_of(name), "stale");
  write(image, std::string(good.size(), 'z'));
  fs::last_write_time(image, time + std::chrono::seconds(1));
  EXPECT_CONTAINS(fault_of(name), "foreign");
  // A change that keeps size and time is what --full is for.
  write(image, changed);
  fs::last_write_time(image, time);
  EXPECT_TRUE(check_store(store(), false).problems.empty());
  EXPECT_CONTAINS(fault_of(name, true), "stale");
  fs::remove(image);
  EXPECT_CONTAINS(fault_of(name), "missing");

  EXPECT_EQ(import(build()).images_written, 1u);  // importing again repairs it
  EXPECT_TRUE(check_store(store(), true).problems.empty());
  write(store() / "images" / "notes.txt", "mine");
  EXPECT_CONTAINS(fault_of(""), "foreign: no entry");
}

TEST_F(KernelStore, AnEntryForOtherArgumentListsIsStale) {
  make_build();
  import(build());
  KernelManifest manifest = read_manifest(store());
  manifest.entries[0].arguments += 1;
  write_manifest(store(), manifest);
  const CheckReport report = check_store(store(), false);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].fault, ImageFault::stale);
  EXPECT_CONTAINS(report.problems[0].reason, "arguments");
}

TEST_F(KernelStore, ADamagedManifestIsReportedAndLosesNothing) {
  make_build();
  import(build());
  const fs::path path = manifest_path(store());
  const std::string good = read_text_file(path, 1 << 20);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const auto everywhere = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    for (size_t at = 0; (at = text.find(from)) != std::string::npos;)
      text.replace(at, from.size(), to);
    return text;
  };
  const std::string hash = read_manifest(store()).entries[0].images[0].hash;
  const std::string damages[] = {
      "",
      "[]",
      good.substr(0, good.size() / 2),
      replaced("\"version\": 1", "\"version\": 2"),
      replaced("\"arguments\": ", "\"arguments\": -"),
      replaced("\"kind\": \"elf\"", "\"kind\": \"exe\""),
      replaced("\"file\": \"" + hash, "\"file\": \"../../" + hash),
      everywhere(hash, "../" + hash.substr(3)),  // name and hash agree
      replaced("llama-3.2-1b/flash_attn", "llama-3.2-1b/lm_head_gemv"),
  };
  for (const std::string& damage : damages) {
    write(path, damage);
    const auto before = snapshot(store());
    for (const std::string& text :
         {message([&] { check_store(store(), false); }), message([&] { import(build()); }),
          message([&] { remove_kernel(store(), "llama-3.2-1b/o_ffn"); })}) {
      EXPECT_CONTAINS(text, "manifest.json");
      EXPECT_CONTAINS(text, "tyto kernels import");
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
    EXPECT_EQ(snapshot(store()), before);
  }
  // As the message says: away with it, and import again.
  fs::remove(path);
  EXPECT_EQ(import(build()).images_written, 0u);
  EXPECT_EQ(read_manifest(store()).entries.size(), 6u);
}

TEST_F(KernelStore, AnyCutOfTheManifestIsAnErrorOrTheWhole) {
  make_templates({2047, 2048});
  import(fused());
  const std::string good = read_text_file(manifest_path(store()), 1 << 20);
  for (size_t size = 0; size + 2 < good.size(); size += 7) {
    write(manifest_path(store()), good.substr(0, size));
    EXPECT_ERROR(read_manifest(store()), "not valid JSON") << size;
  }
}

TEST_F(KernelStore, TextThatJsonMustEscapeSurvives) {
  KernelManifest manifest;
  make_build();
  import(build());
  manifest = read_manifest(store());
  manifest.entries[0].toolchain = "quote \" back \\ line \n tab \t \x01 é";
  write_manifest(store(), manifest);
  EXPECT_EQ(read_manifest(store()).entries[0].toolchain, manifest.entries[0].toolchain);
  manifest.entries[0].toolchain = "not UTF-8: \xff";
  const auto before = snapshot(store());
  EXPECT_ERROR(write_manifest(store(), manifest), "this byte is not UTF-8");
  EXPECT_EQ(snapshot(store()), before);
}

TEST_F(KernelStore, RemoveOneAndAll) {
  EXPECT_EQ(remove_all_kernels(store()), 0u);
  EXPECT_FALSE(fs::exists(store()));
  EXPECT_CONTAINS(message([&] { remove_kernel(store(), "x/y"); }), "no such kernel");
  EXPECT_FALSE(fs::exists(store()));
  make_build();
  import(build());
  remove_kernel(store(), "llama-3.2-1b/o_ffn");
  EXPECT_EQ(read_manifest(store()).find("llama-3.2-1b/o_ffn"), nullptr);
  EXPECT_EQ(snapshot(store() / "images").size(), 5u);
  write(manifest_path(store()), "damaged");
  write(store() / "images" / "notes.txt", "mine");
  EXPECT_EQ(remove_all_kernels(store()), 5u);
  EXPECT_TRUE(fs::exists(store() / "images" / "notes.txt"));
  EXPECT_TRUE(read_manifest(store()).entries.empty());
}

}  // namespace
}  // namespace tyto
