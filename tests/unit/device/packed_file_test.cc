// Packed weights in a file: what comes back is what packing gives, and nothing that was changed,
// cut off or made of other bytes is ever used.
#include "device/cpu/weight_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "device/cpu/packed_weights.h"
#include "support/expect_error.h"
#include "unit/base/file_fixture.h"

namespace tyto::cpu {
namespace {

class PackedFileTest : public FileTest {
 protected:
  void SetUp() override {
    FileTest::SetUp();
    if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "nothing is packed without AVX2";
  }

  // Matrices of some types, one after the other from an odd place on. Any bytes are codes.
  static std::vector<TensorView> matrices_of(const MappedFile& source) {
    std::vector<TensorView> result;
    size_t at = 33;
    for (DType type : {DType::q8_0, DType::q4_k, DType::q6_k, DType::q5_1}) {
      const uint64_t rows = 3 + 16 * result.size(), cols = 2 * 256;
      const size_t bytes = rows * row_bytes(type, cols);
      result.push_back({type, rows, cols, source.bytes().subspan(at, bytes)});
      at += bytes + 7;
    }
    return result;
  }

  fs::path write(const MappedFile& source, const std::string& name = "a.packed") {
    write_packed_file(folder_ / name, source, matrices_of(source), pool_);
    return folder_ / name;
  }

  std::string why_not(const fs::path& path, const MappedFile& source) {
    try {
      const PackedFile packed(path, source, pool_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static void change_byte(const fs::path& path, uint64_t at) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(old ^ 1));
  }

  ThreadPool pool_{3};
  // Large enough, and older than this test.
  const MappedFile source_{fs::path(TYTO_SOURCE_DIR) / "models/owlet/heldout.txt"};
};

TEST_F(PackedFileTest, GivesWhatPackingGives) {
  const PackedFile packed(write(source_), source_, pool_);
  EXPECT_EQ(packed.body().size() % kHugePage, 0u);
  for (const TensorView& view : matrices_of(source_)) {
    const PackedWeights expected = pack_weights(view, pool_);
    const uint8_t* panels = packed.find(view);
    ASSERT_NE(panels, nullptr) << info(view.dtype).name;
    EXPECT_EQ(std::memcmp(panels, expected.matrix.panels, expected.bytes), 0);
  }
}

TEST_F(PackedFileTest, FindsNothingElse) {
  const PackedFile packed(write(source_), source_, pool_);
  const TensorView known = matrices_of(source_).front();
  TensorView other = known;
  other.rows -= 1;
  EXPECT_EQ(packed.find(other), nullptr);
  other = known;
  other.dtype = DType::q4_0;
  EXPECT_EQ(packed.find(other), nullptr);
  other = known;
  other.bytes = source_.bytes().subspan(34, known.bytes.size());
  EXPECT_EQ(packed.find(other), nullptr);
  const std::vector<std::byte> elsewhere(known.bytes.begin(), known.bytes.end());
  other.bytes = elsewhere;
  EXPECT_EQ(packed.find(other), nullptr);
}

TEST_F(PackedFileTest, AnyChangedByteIsNoticed) {
  const fs::path path = write(source_);
  const uint64_t size = fs::file_size(path);
  const PackedTables tables = read_packed_tables(MappedFile(path));
  const uint64_t body = tables.body_bytes;
  for (uint64_t at : {uint64_t{0}, body / 2, body - 1, body, body + 100, size - 40, size - 1}) {
    change_byte(path, at);
    EXPECT_NE(why_not(path, source_), "") << at << " of " << size;
    change_byte(path, at);
    EXPECT_EQ(why_not(path, source_), "") << at;
  }
}

TEST_F(PackedFileTest, AnyLengthIsNoticed) {
  const fs::path path = write(source_);
  const uint64_t size = fs::file_size(path);
  for (uint64_t length :
       {size - 1, size - 47, size - 48, size / 2, uint64_t{48}, uint64_t{1}, uint64_t{0}}) {
    const fs::path cut = folder_ / "cut.packed";
    fs::copy_file(path, cut, fs::copy_options::overwrite_existing);
    fs::resize_file(cut, length);
    EXPECT_NE(why_not(cut, source_), "") << length;
  }
  std::ofstream(path, std::ios::binary | std::ios::app) << "more";
  EXPECT_NE(why_not(path, source_), "");
}

TEST_F(PackedFileTest, AFileThatChangesIsNotKeptAndNotMistaken) {
  const std::string text(source_.bytes().size(), 'a');
  const fs::path path = make("weights", text);
  const MappedFile fresh(path);
  EXPECT_ERROR(write(fresh),
               "changed within the last two seconds");  // a second change could bear the same times
  EXPECT_FALSE(fs::exists(folder_ / "a.packed"));
  for (int i = 0; i < 500 && !is_settled(fresh.stamp()); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(is_settled(fresh.stamp())) << "is the clock behind the file system's?";
  const fs::path packed = write(fresh);
  EXPECT_EQ(why_not(packed, fresh), "");
  change_byte(path, 1000);
  const MappedFile changed(path);
  EXPECT_NE(kept_path(folder_, changed.stamp()), kept_path(folder_, fresh.stamp()));
  EXPECT_NE(why_not(packed, changed).find("another weight file"), std::string::npos);
  EXPECT_ERROR(write(fresh), "changed while it was in use");  // it is not what was mapped
}

TEST_F(PackedFileTest, OtherBytesBehindTheSameStampAreNoticed) {
  const PackedFile packed(write(source_), source_, pool_);
  // As if the file's bytes were others now: the second matrix's place, called the first's.
  const TensorView known = matrices_of(source_).front();
  const TensorView second{known.dtype, known.rows, known.cols,
                          matrices_of(source_)[1].bytes.first(known.bytes.size())};
  EXPECT_NE(packed.find(known), nullptr);
  EXPECT_EQ(packed.find(second), nullptr);
}

TEST_F(PackedFileTest, TheFolderKeepsWhatFitsAndWhatIsInUse) {
  const fs::path first = write(source_, "first.packed"), second = write(source_, "second.packed");
  write(source_, "broken.packed");
  change_byte(folder_ / "broken.packed", fs::file_size(folder_ / "broken.packed") - 1);
  using namespace std::chrono_literals;
  fs::last_write_time(first, fs::last_write_time(second) - 1h);
  const uint64_t each = fs::file_size(first);
  ASSERT_EQ(kept_files(folder_).size(), 3u);
  EXPECT_EQ(make_room(folder_, each, 3 * each).size(), 1u);  // the broken one goes first
  EXPECT_FALSE(fs::exists(folder_ / "broken.packed"));
  EXPECT_TRUE(make_room(folder_, each, 3 * each).empty());
  {
    const PackedFile used(first, source_, pool_);
    fs::last_write_time(first, fs::last_write_time(second) - 1h);
    EXPECT_TRUE(kept_files(folder_).front().is_in_use);
    EXPECT_EQ(make_room(folder_, each, 2 * each).size(), 1u);
    EXPECT_TRUE(fs::exists(first));
    EXPECT_FALSE(fs::exists(second));
    EXPECT_ERROR(make_room(folder_, each, 2 * each - 1), "are wanted or in use");
    EXPECT_TRUE(fs::exists(first));
  }
  EXPECT_EQ(clear_kept(folder_, true).size(), 0u);
  EXPECT_EQ(clear_kept(folder_, false).size(), 1u);
  EXPECT_TRUE(kept_files(folder_).empty());
  EXPECT_TRUE(kept_files(folder_ / "none").empty());
}

TEST_F(PackedFileTest, WhatAKilledProcessLeftIsRemoved) {
  const fs::path left = make("x.packed.partial-4194304", "half");
  EXPECT_TRUE(kept_files(folder_).empty());
  EXPECT_TRUE(clear_kept(folder_, false).empty());
  EXPECT_FALSE(fs::exists(left));
}

}  // namespace
}  // namespace tyto::cpu
