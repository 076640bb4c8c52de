// A kernel store of its own for each test, and build folders to import into it. No real images
// exist where tests run: the files have the structure that XRT's and mlir-aie's sources describe,
// and made-up code.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/store/kernel_store.h"
#include "support/npu_images.h"

namespace tyto {

namespace fs = std::filesystem;

// An ELF of one of the six for a shape.
inline std::string elf_file(const std::string& program, uint32_t seed = 0,
                            const AirDims& dims = kLlama32_1b) {
  return test::elf_file(test::elf_of(air_program(program, dims), seed));
}

inline std::string xclbin_file(unsigned seed) {
  return test::xclbin_file({.seed = seed});
}

inline std::string insts_file(uint32_t length, uint32_t window, const AirDims& dims = kLlama32_1b) {
  return test::decode_stream(fused_decode_program(dims, window), length).file();
}

inline std::string gemm_insts_file(uint32_t k, uint32_t m, uint32_t n) {
  test::StreamWriter stream;
  const AirProgram program = int8_gemm_program(k, m, n);
  for (uint32_t i = 3; i < 6; ++i)
    stream.move(i - 3, 0, test::linear_descriptor(program.arguments[i].bytes()));
  return stream.file();
}

inline void write(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// Everything below a folder: path and content.
inline std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::exists(folder)) return files;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    if (item.is_regular_file())
      files[item.path().string()] = read_text_file(item.path(), uint64_t{1} << 30);
  return files;
}

inline std::string message(const std::function<void()>& action) {
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

  // All programs of a model, each in the cache that MLIR-AIR keeps it in.
  void make_build(unsigned seed = 0, const AirDims& dims = kLlama32_1b) const {
    std::string prompt, token;
    for (const AirProgram& program : air_model(dims).programs) {
      const bool is_of_prompt = program.phase == AirPhase::prompt;
      write((is_of_prompt ? prefill() : decode()) / (program.name + ".elf"),
            elf_file(program.name, ++seed, dims));
      std::string& records = is_of_prompt ? prompt : token;
      records += (records.empty() ? "" : ",") + record(program.name, program.entry);
    }
    const std::string toolchain =
        R"({"_toolchain": {"llvm-aie": "21.0", "clang": "10:20", "air": ["a:1:2"]}, "entries": {)";
    write(prefill() / "manifest.json", toolchain + prompt + "}}");
    write(decode() / "manifest.json", toolchain + token + "}}");
  }

  // Windows are the even lengths.
  void make_templates(std::initializer_list<unsigned> lengths,
                      const AirDims& dims = kLlama32_1b) const {
    for (const unsigned length : lengths) {
      const std::string stem = "decode_L" + std::to_string(length);
      write(fused() / (stem + ".xclbin"), xclbin_file(length));
      write(fused() / (stem + ".insts.bin"), insts_file(length, length + length % 2, dims));
    }
    write(fused() / ".decode_flags", "W_DUAL_CHAN=1\n");
  }

  // The decode as one ELF.
  void make_decode_elf(
      const AirDims& dims = kLlama32_1b, uint32_t positions = 2048,
      const std::vector<std::vector<uint32_t>>& operations = test::decode_operations()) const {
    test::MadeElf made = test::elf_of(fused_decode_elf_program(dims, positions));
    made.operations = operations;
    made.scratchpad_bytes = 8;
    write(fused() / "decode_scratchpad.elf", test::elf_file(made));
    write(fused() / "decode_scratchpad.params.txt",
          decode_parameters_text(q4nx_layout(dims, positions)));
    write(fused() / "decode_scratchpad.maxl", std::to_string(positions) + "\n");
  }

  // Everything in the folder can be taken.
  ImportReport import(const fs::path& folder) const {
    ImportReport report = import_kernels(store(), folder, {});
    EXPECT_TRUE(report.refused.empty()) << report.refused.front().reason;
    return report;
  }

  // One kernel of a folder is refused with `part` in the reason, the others are taken.
  void expect_one_refused(const fs::path& folder, const std::string& part) const {
    const ImportReport report = import_kernels(store(), folder, {});
    EXPECT_FALSE(report.entries.empty());
    ASSERT_EQ(report.refused.size(), 1u) << part;
    EXPECT_CONTAINS(report.refused[0].reason + " | " + report.refused[0].next_step, part);
  }

  // A folder of which nothing can be taken is refused with `part` in the message, and changes
  // nothing.
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

}  // namespace tyto
