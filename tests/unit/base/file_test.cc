#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::temp_directory_path() / ("tyto_" + test + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path make(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder_))
      result.push_back(entry.path().filename().string());
    return result;
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::string text_of(const MappedFile& file) {
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  fs::path folder_;
};

// The message of the Error that `action` throws, or "" when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::input);
    return error.what();
  }
  return "";
}

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

TEST_F(MappedFileTest, Moves) {
  MappedFile first(make("a", "first"));
  const std::byte* data = first.bytes().data();
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  MappedFile third(make("b", "third"));
  third = std::move(second);
  EXPECT_EQ(text_of(third), "first");
  EXPECT_EQ(third.path(), folder_ / "a");
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

using AtomicFileTest = FileTest;

TEST_F(AtomicFileTest, AppearsOnCommitAlone) {
  const fs::path path = folder_ / "out";
  {
    AtomicFile file(path);
    file.write("hello, ");
    file.write(std::string_view());
    EXPECT_EQ(file.position(), 7u);
    file.write("world");
    EXPECT_FALSE(fs::exists(path));
    file.commit();
    EXPECT_EQ(text_of(path), "hello, world");
  }
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFileTest, WithoutCommitLeavesNothing) {
  {
    AtomicFile(folder_ / "out").write("half");
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, WithoutCommitKeepsTheOldFile) {
  const fs::path path = make("out", "old");
  {
    AtomicFile(path).write("half");
  }
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFileTest, CommitReplaces) {
  const fs::path path = make("out", "a much longer old text");
  AtomicFile file(path);
  file.write("new");
  file.commit();
  EXPECT_EQ(text_of(path), "new");
}

TEST_F(AtomicFileTest, AnExceptionLeavesNothing) {
  EXPECT_THROW(
      {
        AtomicFile file(folder_ / "out");
        file.write("half");
        fail_input("elsewhere", "stop");
      },
      Error);
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, Pads) {
  const fs::path path = folder_ / "out";
  AtomicFile file(path);
  file.pad_to(32);
  EXPECT_EQ(file.position(), 0u);
  file.write("x");
  file.pad_to(1);
  EXPECT_EQ(file.position(), 1u);
  file.pad_to(4096);
  EXPECT_EQ(file.position(), 4096u);
  file.pad_to(4096);
  file.write("y");
  file.pad_to(3);
  file.commit();
  std::string expected = "x";
  expected.resize(4096);
  expected += "y";
  expected.resize(4098);
  EXPECT_EQ(text_of(path), expected);
}

TEST_F(AtomicFileTest, RefusesAPlaceItCannotWrite) {
  const std::string path = (folder_ / "none" / "out").string();
  EXPECT_EQ(error_of([&] { AtomicFile{path}; }),
            path + ": cannot create: No such file or directory");
}

TEST_F(AtomicFileTest, RefusesAnUnwritableFolder) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_NE(error_of([&] { AtomicFile{folder_ / "out"}; }), "");
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(AtomicFileTest, DoesNotReplaceAFolderOrAPipe) {
  EXPECT_EQ(error_of([&] { AtomicFile{folder_}; }), folder_.string() + ": not a regular file");
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { AtomicFile{pipe}; }), pipe.string() + ": not a regular file");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(AtomicFileTest, AFailedCommitLeavesNothing) {
  const fs::path path = folder_ / "out";
  {
    AtomicFile file(path);
    file.write("text");
    fs::create_directory(path);  // behind its back
    EXPECT_NE(error_of([&] { file.commit(); }), "");
  }
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
  EXPECT_TRUE(fs::is_directory(path));
}

TEST_F(AtomicFileTest, WritesMoreThanABuffer) {
  const fs::path path = folder_ / "out";
  std::string expected;
  AtomicFile file(path);
  for (int i = 0; i < 3000; ++i) {
    const std::string part(static_cast<size_t>(i % 251), static_cast<char>('a' + i % 26));
    file.write(part);
    expected += part;
  }
  EXPECT_EQ(file.position(), expected.size());
  file.commit();
  EXPECT_EQ(text_of(path), expected);
}

}  // namespace
}  // namespace tyto
