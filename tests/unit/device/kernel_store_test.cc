// No real kernel images exist where these tests run: the files have true headers and made-up
// bodies.
#include "device/npu/store/kernel_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "device/npu/store/stored_kernels.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// A 64-bit ELF header, a body that depends on `seed`, and a table of two empty sections at the end.
std::string elf_file(unsigned seed, char os_abi = 69) {
  std::string file(64, '\0');
  file.replace(0, 8,
               std::string("\x7f"
                           "ELF\x02\x01\x01",
                           7) +
                   os_abi);
  file += "body " + std::to_string(seed) + std::string(200, 'x');
  const auto sections = static_cast<unsigned char>(file.size() & 0xff);
  file[40] = static_cast<char>(sections);
  file[41] = static_cast<char>(file.size() >> 8);
  file[58] = 64;  // bytes per section header
  file[60] = 2;   // sections
  return file + std::string(128, '\0');
}

std::string xclbin_file(unsigned seed) {
  return std::string("xclbin2\0", 8) + "body " + std::to_string(seed);
}

std::string insts_file(unsigned seed, size_t words = 16) {
  std::string file(words * 4, '\x11');
  const std::string text = std::to_string(seed);
  file.replace(0, text.size(), text);
  return file;
}

void write(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// Everything below a folder: path and content.
std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file())
      files[item.path().string()] = read_text_file(item.path(), uint64_t{1} << 30);
  return files;
}

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint;
  }
  return "no error";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class KernelStore : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::temp_directory_path() /
            ("tyto-kernel-store-" + std::string(test->name()) + "-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path store() const { return root_ / "cache" / "kernels"; }
  fs::path build() const { return root_ / "llama32_1b"; }
  fs::path fused() const { return root_ / "fused_decode"; }
  fs::path prefill() const { return build() / "build_peano" / "prefill_kernel_cache"; }
  fs::path decode() const { return build() / "build_peano" / "decode_kernel_cache"; }

  static std::string record(const std::string& name, const std::string& entry) {
    return "\"" + name + "\": {\"output_binary\": \"some/where/" + name + ".elf\", \"kernel\": \"" +
           entry + "\", \"insts\": null}";
  }

  void make_build(unsigned seed = 0) const {
    const std::string toolchain =
        R"({"_toolchain": {"llvm-aie": "21.0", "clang": "10:20", "air": ["a:1:2"]}, "entries": {)";
    write(prefill() / "manifest.json", toolchain + record("rms_gemms_rope", "main:rms_gemms_rope") +
                                           "," + record("flash_attn", "main:attention_bf16") + "," +
                                           record("o_ffn", "main:o_ffn") + "}}");
    write(decode() / "manifest.json", toolchain + record("rms_gemv_rope", "main:rms_gemv_rope") +
                                          "," + record("o_gemv_ffn", "main:o_gemv_ffn") + "," +
                                          record("lm_head_gemv", "main:lm_head_gemv") + "}}");
    for (const char* name : {"rms_gemms_rope", "flash_attn", "o_ffn"})
      write(prefill() / (std::string(name) + ".elf"), elf_file(++seed));
    for (const char* name : {"rms_gemv_rope", "o_gemv_ffn", "lm_head_gemv"})
      write(decode() / (std::string(name) + ".elf"), elf_file(++seed));
  }

  void make_templates(std::initializer_list<unsigned> lengths) const {
    for (const unsigned length : lengths) {
      const std::string stem = "decode_L" + std::to_string(length);
      write(fused() / (stem + ".xclbin"), xclbin_file(length));
      write(fused() / (stem + ".insts.bin"), insts_file(length));
    }
    write(fused() / ".decode_flags", "W_DUAL_CHAN=1\n");
  }

  ImportReport import(const fs::path& folder) const { return import_kernels(store(), folder, {}); }

  // A bad folder is refused with `part` in the message, and changes nothing.
  void expect_refused(const fs::path& folder, const std::string& part) const {
    const auto before = snapshot(store());
    const bool existed = fs::exists(store());
    EXPECT_CONTAINS(message([&] { import(folder); }), part);
    EXPECT_EQ(snapshot(store()), before);
    EXPECT_EQ(fs::exists(store()), existed);
  }

  fs::path image_of(const std::string& name, size_t index = 0) const {
    return image_path(store(), read_manifest(store()).find(name)->images[index]);
  }

  fs::path root_;
};

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
  EXPECT_EQ(entry->columns, std::nullopt);
  EXPECT_EQ(entry->dims, kLlama32_1b);
  EXPECT_CONTAINS(entry->toolchain, "llvm-aie: 21.0");
  EXPECT_CONTAINS(entry->toolchain, "a:1:2");
  EXPECT_EQ(read_text_file(image_of("llama-3.2-1b/flash_attn"), 1 << 20), elf_file(2));
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
  ImportOptions options;
  options.dims.seq = 1024;
  import_kernels(store(), prefill(), options);
  const KernelManifest manifest = read_manifest(store());
  ASSERT_NE(manifest.find("llama-3.2-1b@1024/o_ffn"), nullptr);
  EXPECT_EQ(manifest.entries.size(), 9u);
  // Same bytes, one image; it stays as long as one of the two entries does.
  EXPECT_EQ(snapshot(store() / "images").size(), 6u);
  remove_kernel(store(), "llama-3.2-1b/o_ffn");
  EXPECT_EQ(snapshot(store() / "images").size(), 6u);
  remove_kernel(store(), "llama-3.2-1b@1024/o_ffn");
  EXPECT_EQ(snapshot(store() / "images").size(), 5u);
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
  EXPECT_CONTAINS(entry->platform, "not checked");
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
    write(folder / fmt::format("g{}.insts.bin", k), insts_file(k));
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
  EXPECT_FALSE(kernels.why_no_image(kInt8Gemm, 5632));
  EXPECT_TRUE(kernels.why_no_image(kInt8Gemm, 4096));
  const NpuImage image = kernels.image(kInt8Gemm, 2048);
  EXPECT_EQ(image.form, ImageKind::xclbin);
  EXPECT_EQ(image.kernel, "MLIR_AIE");
  EXPECT_FALSE(image.words.empty());

  write(folder / "gemm_slots.json",
        "{\"slots\": [" + slot("2048", "") + "," + slot("9", "") + "]}");
  expect_refused(folder, "9");
  std::string many;
  for (unsigned k = 64; k < 64 + 4 * kMaxGemmSlots; k += 4) {
    write(folder / fmt::format("g{}.xclbin", k), xclbin_file(k));
    write(folder / fmt::format("g{}.insts.bin", k), insts_file(k));
    many += (many.empty() ? "" : ", ") + slot(std::to_string(k), "");
  }
  write(folder / "gemm_slots.json", "{\"slots\": [" + many + "]}");
  expect_refused(folder, "at most 8");
  write(folder / "gemm_slots.json",
        R"({"slots": [{"k": 2048, "m_tile": 64, "n_tile": 512, "columns": 4,
            "xclbin": "../g2048.xclbin", "insts": "g2048.insts.bin"}]})");
  expect_refused(folder, "no file of this folder");
}

TEST_F(KernelStore, BadCachesChangeNothing) {
  expect_refused(root_ / "absent", "not a folder");
  fs::create_directories(build());
  expect_refused(build(), "no kernels");
  make_build();
  import(build());
  make_build(50);  // good and new, but one of them is bad each time
  const fs::path victim = decode() / "lm_head_gemv.elf";
  write(victim, "");
  expect_refused(build(), "lm_head_gemv.elf: the file is empty");
  write(victim, "ELF, they said");
  expect_refused(build(), "not an ELF");
  write(victim, elf_file(9).substr(0, 300));
  expect_refused(build(), "truncated");
  write(victim, elf_file(9).substr(0, 20));
  expect_refused(build(), "truncated");
  write(victim, elf_file(9, 0));
  expect_refused(build(), "another platform");
  write(victim, elf_file(9, 75));
  expect_refused(build(), "AIE4");
  write(victim, xclbin_file(9));
  expect_refused(build(), "xclbin where an ELF");
  fs::remove(victim);
  expect_refused(build(), "lm_head_gemv.elf: cannot open");
}

TEST_F(KernelStore, BadBuildManifestsChangeNothing) {
  make_build();
  const auto manifest = [&](const std::string& text) { write(prefill() / "manifest.json", text); };
  manifest("{\"entries\": {");
  expect_refused(build(), "manifest.json");
  manifest("{}");
  expect_refused(build(), "entries");
  manifest("{\"entries\": {" + record("o_ffn", "main:o_fnn") + "}}");
  expect_refused(build(), "main:o_fnn");
  manifest(R"({"entries": {"o_ffn": {"output_binary": "", "kernel": "main:o_ffn"}}})");
  expect_refused(build(), "output_binary");
  manifest(R"({"entries": {"o_ffn": {"output_binary": 7, "kernel": "main:o_ffn"}}})");
  expect_refused(build(), "output_binary");
  // Outside its folder there is nothing to import, whatever the path says.
  manifest(R"({"entries": {"o_ffn": {"output_binary": "/etc/passwd", "kernel": "main:o_ffn"}}})");
  expect_refused(build(), "prefill_kernel_cache/passwd");
  fs::remove(prefill() / "manifest.json");
  expect_refused(build(), "manifest.json");
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
  write(fused() / "decode_L2047.insts.bin", insts_file(1, 17));
  expect_refused(fused(), "16 instruction words, but decode_L2047 has 17");
  write(fused() / "decode_L2047.insts.bin", insts_file(1).substr(1));
  expect_refused(fused(), "32-bit");
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
  write(fused() / ".decode_windows", "64 128 2048\n");
  expect_refused(fused(), "decode_L128");
  write(fused() / ".decode_windows", "64 lots\n");
  expect_refused(fused(), "window lengths");
  fs::remove(fused() / ".decode_windows");
  write(fused() / ".decode_flags", "W_DUAL_CHAN=0\n");
  expect_refused(fused(), "W_DUAL_CHAN=0");
}

TEST_F(KernelStore, AnUnchangedStoreIsTrustedWithoutReading) {
  constexpr unsigned kWindows = 129;  // of four images each
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
    EXPECT_THROW(read_manifest(store()), Error) << size;
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
  EXPECT_THROW(write_manifest(store(), manifest), Error);
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

TEST(ElfFile, ReadsBothClassesAndRefusesNonsense) {
  const auto read = [](const std::string& text) {
    return read_elf_header(std::as_bytes(std::span(text)), "x.elf");
  };
  const ElfHeader header = read(elf_file(1));
  EXPECT_EQ(header.bits, 64u);
  EXPECT_EQ(header.os_abi, kOsAbiAie2p);
  EXPECT_EQ(header.section_count, 2u);

  std::string small(52, '\0');
  small.replace(0, 8,
                "\x7f"
                "ELF\x01\x01\x01\x45");
  EXPECT_EQ(read(small).bits, 32u);
  const std::string good = elf_file(1);
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(read(good.substr(0, size)), Error) << size;
  std::string bad = good;
  bad[5] = 2;
  EXPECT_CONTAINS(message([&] { read(bad); }), "little-endian");
  bad = good;
  bad[4] = 3;
  EXPECT_CONTAINS(message([&] { read(bad); }), "class 3");
  bad = good;
  for (size_t i = 40; i < 48; ++i) bad[i] = '\xff';
  EXPECT_CONTAINS(message([&] { read(bad); }), "truncated");
}

}  // namespace
}  // namespace tyto
