#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "unit/base/file_fixture.h"

namespace tyto {
namespace {

using MappedFileTest = FileTest;

TEST_F(MappedFileTest, ReleasedPagesAreReadAgain) {
  const std::string text(3 * 65536 + 5, 'x');
  const MappedFile file(make("large", text));
  EXPECT_EQ(text_of(file), text);
  release_mapped_pages(file.bytes());
  EXPECT_EQ(text_of(file), text);
  release_mapped_pages(file.bytes().subspan(100, 70000));
  EXPECT_EQ(text_of(file), text);
}

TEST_F(MappedFileTest, ReleaseLeavesOtherMemoryAlone) {
  const MappedFile file(make("small", "x"));
  const std::vector<std::byte> own(1 << 20, std::byte{7});
  release_mapped_pages(own);
  EXPECT_EQ(own, std::vector<std::byte>(own.size(), std::byte{7}));
}

TEST_F(MappedFileTest, ShowsTheBytes) {
  const fs::path path = make("a", std::string("x\0y", 3));
  const MappedFile file(path);
  EXPECT_EQ(text_of(file), std::string("x\0y", 3));
  EXPECT_EQ(file.path(), path);
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  EXPECT_TRUE(MappedFile(make("a", "")).bytes().empty());
}

TEST_F(MappedFileTest, DefaultIsEmpty) {
  EXPECT_TRUE(MappedFile().bytes().empty());
}

TEST_F(MappedFileTest, RefusesWhatIsNoFile) {
  const std::string missing = (folder_ / "none").string();
  EXPECT_EQ(error_of([&] { MappedFile{missing}; }),
            missing + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { MappedFile{folder_}; }), folder_.string() + ": not a regular file");
  EXPECT_EQ(error_of([&] { MappedFile{""}; }), "cannot open: No such file or directory");
}

TEST_F(MappedFileTest, DoesNotWaitForAPipe) {
  const fs::path path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { MappedFile{path}; }), path.string() + ": not a regular file");
}

TEST_F(MappedFileTest, RefusesAnUnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const fs::path path = make("a", "x");
  fs::permissions(path, fs::perms::none);
  EXPECT_EQ(error_of([&] { MappedFile{path}; }),
            path.string() + ": cannot open: Permission denied");
}

TEST_F(MappedFileTest, MovedMappingsKeepTheirBytes) {
  MappedFile first(make("a", "first"));
  const std::byte* data = first.bytes().data();
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  MappedFile third(make("b", "third"));
  third = std::move(second);
  EXPECT_EQ(text_of(third), "first");
  EXPECT_EQ(third.path(), folder_ / "a");
}

// What amdxdna's check for read-only user memory looks at: neither VM_WRITE nor VM_MAYWRITE.
TEST_F(MappedFileTest, NobodyMayEverWriteToThePages) {
  const MappedFile file(make("weights", std::string(3 * 65536, 'x')));
  const std::string begin = fmt::format("{:x}-", reinterpret_cast<uintptr_t>(file.bytes().data()));
  std::ifstream smaps("/proc/self/smaps");
  if (!smaps) GTEST_SKIP() << "there is no /proc/self/smaps";
  std::string line, permissions, flags;
  while (std::getline(smaps, line) && !line.starts_with(begin)) continue;
  permissions = line;
  while (std::getline(smaps, line) && !line.starts_with("VmFlags:")) continue;
  flags = line + " ";
  EXPECT_NE(permissions.find(" r--s "), std::string::npos) << permissions;
  EXPECT_NE(flags.find(" rd "), std::string::npos) << flags;
  EXPECT_EQ(flags.find(" wr "), std::string::npos) << flags;
  EXPECT_EQ(flags.find(" mw "), std::string::npos) << flags;
}

TEST_F(MappedFileTest, OutlivesTheName) {
  const fs::path path = make("a", "still here");
  const MappedFile file(path);
  fs::remove(path);
  EXPECT_EQ(text_of(file), "still here");
}

using ReadTextFileTest = FileTest;

TEST_F(ReadTextFileTest, ReadsUpToTheLimit) {
  const fs::path path = make("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_EQ(error_of([&] { read_text_file(path, 4); }),
            path.string() + ": file is 5 bytes, more than the 4 allowed here");
  EXPECT_EQ(read_text_file(make("b", ""), 0), "");
}

TEST_F(ReadTextFileTest, RefusesAHugeFileBeforeReadingIt) {
  const fs::path path = make("a", "");
  fs::resize_file(path, uint64_t{1} << 40);  // sparse
  EXPECT_NE(error_of([&] { read_text_file(path, 1 << 20); }), "");
}

TEST_F(ReadTextFileTest, RefusesWhatIsNoFile) {
  EXPECT_NE(error_of([&] { read_text_file(folder_ / "none", 9); }), "");
  EXPECT_EQ(error_of([&] { read_text_file(folder_, 9); }),
            folder_.string() + ": not a regular file");
}

TEST_F(ReadTextFileTest, TheEndBeginsWithALine) {
  const fs::path path = make("lines", "one\ntwo\nthree\n");
  EXPECT_EQ(read_last_lines(path, 100), "one\ntwo\nthree\n");
  EXPECT_EQ(read_last_lines(path, 9), "three\n");
  EXPECT_EQ(read_last_lines(path, 6), "");  // exactly the last line, but nothing says so
  EXPECT_EQ(read_last_lines(make("b", ""), 9), "");
}

using SystemTextTest = FileTest;

TEST_F(SystemTextTest, NeedsNoSizeAndNeverThrows) {
  EXPECT_EQ(read_system_text(make("value", "12\n\n")).text, "12");
  EXPECT_EQ(read_system_text(make("empty", "")).text, "");
  EXPECT_EQ(read_system_text(make("long", std::string(10000, 'x'))).text.size(), 10000u);
  EXPECT_EQ(read_system_text(make("long", std::string(10000, 'x')), 5000).text.size(), 5000u);
  EXPECT_NE(read_system_text("/proc/self/status").text.find("Name:"), std::string::npos);
  EXPECT_EQ(read_system_text(folder_ / "absent").error, ENOENT);
  EXPECT_EQ(read_system_text(folder_).error, EISDIR);
}

}  // namespace
}  // namespace tyto
