#include "base/hash.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "unit/base/file_fixture.h"

namespace tyto {
namespace {

constexpr const char* kTooNew = "the source tree is two seconds old";

class FileHashTest : public FileTest {
 protected:
  // Long enough ago that its times can be trusted. Only the content's: the other cannot be set.
  fs::path make_old(const std::string& name, const std::string& text) {
    const fs::path path = make(name, text);
    const timespec times[2] = {{1'000'000'000, 5}, {1'000'000'000, 5}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }
  std::string kept() const { return text_of(kept_); }
  static std::string plain(const std::string& text) {
    return to_hex(hash_bytes(std::as_bytes(std::span(text))));
  }
  // The line that an earlier run would have kept for a file.
  static std::string line_of(const MappedFile& file, const std::string& hash) {
    const FileStamp stamp = file.stamp_now();
    return fmt::format(
        R"({{"device":{},"inode":{},"size":{},"mtime_ns":{},"ctime_ns":{},"hash":"{}"}})",
        stamp.device, stamp.inode, stamp.size, stamp.modified_ns, stamp.changed_ns, hash);
  }

  void SetUp() override {
    FileTest::SetUp();
    kept_ = folder_ / "cache" / "hashes.jsonl";
  }

  fs::path kept_;
  const fs::path old_ = fs::path(TYTO_SOURCE_DIR) / "CMakeLists.txt";  // older than this test
};

TEST_F(FileHashTest, IsOfEveryByteInPieces) {
  std::string text(9 << 20, 'w');
  const MappedFile file(make("a", text));
  EXPECT_EQ(hash_of_file(file, "").hash, plain(text));
  for (const size_t at : {size_t{0}, size_t{1} << 20, (size_t{5} << 20) + 24000, text.size() - 1}) {
    std::string changed = text;
    changed[at] = 'x';
    EXPECT_EQ(hash_of_file(MappedFile(make("b", changed)), "").hash, plain(changed));
    EXPECT_NE(plain(changed), plain(text));
  }
  EXPECT_EQ(hash_of_file(MappedFile(make("c", "")), "").hash, plain(""));
}

TEST_F(FileHashTest, ATooRecentFileIsNotKept) {
  const MappedFile file(make("a", "x"));
  EXPECT_FALSE(hash_of_file(file, kept_).is_kept);
  EXPECT_FALSE(hash_of_file(file, kept_).is_kept);
  EXPECT_FALSE(fs::exists(kept_));
  // Its content's time alone proves nothing: a program that writes may set it.
  EXPECT_FALSE(hash_of_file(MappedFile(make_old("b", "x")), kept_).is_kept);
  EXPECT_FALSE(fs::exists(kept_));
}

TEST_F(FileHashTest, IsMadeOnceAndKept) {
  const MappedFile file(old_);
  const FileHash first = hash_of_file(file, kept_);
  if (!fs::exists(kept_)) GTEST_SKIP() << kTooNew;
  EXPECT_FALSE(first.is_kept);
  uint64_t read = 0;
  const FileHash second = hash_of_file(file, kept_, [&](uint64_t bytes) { read += bytes; });
  EXPECT_TRUE(second.is_kept);
  EXPECT_EQ(second.hash, first.hash);
  EXPECT_EQ(read, 0u);
  EXPECT_EQ(kept(), line_of(file, first.hash) + "\n");
}

TEST_F(FileHashTest, ALineCountsOnlyWhenAllIsAsItWas) {
  const MappedFile file(old_);
  const std::string other(32, 'a');
  fs::create_directories(kept_.parent_path());
  const std::string good = line_of(file, other);
  make("cache/hashes.jsonl", "damaged\n" + good + "\n{\"half");
  if (!hash_of_file(file, kept_).is_kept) GTEST_SKIP() << kTooNew;
  EXPECT_EQ(hash_of_file(file, kept_).hash, other);
  for (const char* field : {"device", "inode", "size", "mtime_ns", "ctime_ns"}) {
    std::string changed = good;
    changed.insert(changed.find(field) + std::string(field).size() + 2, "1");
    make("cache/hashes.jsonl", changed + "\n");
    EXPECT_NE(hash_of_file(file, kept_).hash, other) << field;
  }
  make("cache/hashes.jsonl", line_of(file, "no hash") + "\n");
  EXPECT_EQ(hash_of_file(file, kept_).hash.size(), 32u);
}

TEST_F(FileHashTest, TheCacheDoesNotGrowForever) {
  const MappedFile file(old_);
  fs::create_directories(kept_.parent_path());
  std::string lines;
  while (lines.size() < 300000) lines += line_of(file, std::string(32, '0')).substr(1) + "\n";
  make("cache/hashes.jsonl", lines);
  hash_of_file(file, kept_);
  if (fs::file_size(kept_) == lines.size()) GTEST_SKIP() << kTooNew;
  EXPECT_LT(fs::file_size(kept_), 100000u);
  EXPECT_TRUE(hash_of_file(file, kept_).is_kept);
}

TEST_F(FileHashTest, ACacheThatCannotBeWrittenIsNoError) {
  const MappedFile file(old_);
  make("cache", "a file where the folder would be");
  EXPECT_EQ(hash_of_file(file, kept_).hash, hash_of_file(file, "").hash);
}

TEST_F(FileHashTest, AFileThatChangedWhileItWasMappedIsNobody) {
  const fs::path path = make_old("a", "before");
  const MappedFile file(path);
  make("a", "behind");
  EXPECT_EQ(error_of([&] { hash_of_file(file, ""); }),
            path.string() + ": changed while it was in use");
  const fs::path other = make_old("b", "before");
  const MappedFile short_file(other);
  fs::resize_file(other, 2);
  EXPECT_EQ(error_of([&] { hash_of_file(short_file, ""); }),
            other.string() + ": changed while it was in use");
}

TEST_F(FileHashTest, ANewNameIsNoNewContent) {
  const fs::path path = make("a", "content");
  const MappedFile file(path);
  fs::rename(path, folder_ / "b");
  make("a", "another file under the old name");
  EXPECT_EQ(hash_of_file(file, "").hash, plain("content"));
}

}  // namespace
}  // namespace tyto
