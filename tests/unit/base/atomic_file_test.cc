#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "support/expect_error.h"
#include "unit/base/file_fixture.h"

namespace tyto {
namespace {

constexpr FileKind kNote = {"a note", "note:"};

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
    AtomicFile(path, Replace::any_kind).write("half");
  }
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFileTest, CommitReplaces) {
  const fs::path path = make("out", "a much longer old text");
  AtomicFile file(path, Replace::any_kind);
  file.write("new");
  file.commit();
  EXPECT_EQ(text_of(path), "new");
}

TEST_F(AtomicFileTest, AnExceptionLeavesNothing) {
  EXPECT_ERROR(
      {
        AtomicFile file(folder_ / "out");
        file.write("half");
        fail_input("elsewhere", "stop");
      },
      "stop");
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, PaddingGoesToTheNextMultiple) {
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

// A file that is read, by whatever way to it, is never replaced; --force changes nothing.
TEST_F(AtomicFileTest, NeverReplacesWhatWasRead) {
  const fs::path input = make("input", "note: precious");
  fs::create_hard_link(input, folder_ / "hard");
  fs::create_symlink("input", folder_ / "soft");
  fs::create_symlink(".", folder_ / "around");
  EXPECT_EQ(read_text_file(folder_ / "soft", 99), "note: precious");
  for (const char* way : {"input", "hard", "soft", "around/input"})
    for (const Replace replace : {Replace::same_kind, Replace::any_kind})
      EXPECT_NE(error_of([&] { AtomicFile(folder_ / way, replace, kNote); }).find("is in use"),
                std::string::npos)
          << way;
  EXPECT_EQ(text_of(input), "note: precious");
  EXPECT_EQ(names().size(), 4u);
  AtomicFile kept(input, Replace::own_state);  // Tyto's own files are read and rewritten
  kept.write("new");
  kept.commit();
  EXPECT_EQ(text_of(input), "new");
}

TEST_F(AtomicFileTest, WhatIsAboutToBeReplacedIsNotRead) {
  const fs::path path = make("out", "old");
  {
    AtomicFile file(path, Replace::any_kind);
    EXPECT_NE(error_of([&] { MappedFile{path}; }).find("is in use"), std::string::npos);
    EXPECT_NE(error_of([&] { read_text_file(path, 9); }).find("is in use"), std::string::npos);
  }
  EXPECT_EQ(read_text_file(path, 9), "old");
}

TEST_F(AtomicFileTest, WhatWasReadMeanwhileIsNotReplaced) {
  const fs::path path = folder_ / "out";
  AtomicFile file(path, Replace::any_kind);
  file.write("new");
  make("out", "somebody's");
  read_text_file(path, 99);
  EXPECT_NE(error_of([&] { file.commit(); }).find("is in use"), std::string::npos);
  EXPECT_EQ(text_of(path), "somebody's");
}

// A deleted file's number goes to the next one that is made.
TEST_F(AtomicFileTest, ANewFileIsNotTheOneThatWasRead) {
  const fs::path path = make("a", "old");
  read_text_file(path, 9);
  fs::remove(path);
  make("a", "new");
  if (file_id(path)->made_ns == 0) GTEST_SKIP() << "this file system does not know when";
  EXPECT_EQ(error_of([&] { AtomicFile(path, Replace::any_kind); }), "");
}

TEST_F(AtomicFileTest, EveryFileOfAFolderThatIsReadIsAnInput) {
  make("config.json", "{}");
  make("other", "x");
  fs::create_directory(folder_ / "below");
  add_inputs_of(folder_);
  add_inputs_of(folder_ / "absent");
  for (const char* name : {"config.json", "other"})
    EXPECT_NE(error_of([&] { AtomicFile(folder_ / name, Replace::any_kind); }).find("is in use"),
              std::string::npos);
  EXPECT_EQ(error_of([&] { AtomicFile(folder_ / "new"); }), "");
}

TEST_F(AtomicFileTest, ReplacesItsOwnKindAndAnEmptyFile) {
  for (const char* old : {"note: old", ""}) {
    const fs::path path = make("out", old);
    AtomicFile file(path, Replace::same_kind, kNote);
    file.write("note: new");
    file.commit();
    EXPECT_EQ(text_of(path), "note: new");
  }
}

TEST_F(AtomicFileTest, ReplacesNothingElseUnlessForced) {
  for (const char* old : {"not", "nothing of this kind", "Note:", " note:"}) {
    const fs::path path = make("out", old);
    EXPECT_EQ(error_of([&] { AtomicFile(path, Replace::same_kind, kNote); }),
              path.string() + ": is there already, and is not a note");
    EXPECT_EQ(error_of([&] { AtomicFile(path, Replace::any_kind, kNote); }), "");
  }
  const fs::path path = make("out", "anything");
  EXPECT_EQ(error_of([&] { AtomicFile{path}; }), path.string() + ": is there already");
  try {
    AtomicFile{path};
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_NE(error.hint.find("--force"), std::string::npos);
  }
  EXPECT_EQ(names(), std::vector<std::string>{"out"});
}

TEST_F(AtomicFileTest, WhatCameMeanwhileIsNotReplaced) {
  AtomicFile file(folder_ / "out", Replace::same_kind, kNote);
  file.write("note: new");
  make("out", "somebody's");
  EXPECT_NE(error_of([&] { file.commit(); }).find("is there already"), std::string::npos);
  EXPECT_EQ(text_of(folder_ / "out"), "somebody's");
}

TEST_F(AtomicFileTest, ALinkStaysAndItsTargetIsReplaced) {
  make("target", "note: old");
  fs::create_symlink("target", folder_ / "link");
  fs::create_symlink("new", folder_ / "to nothing");
  for (const char* way : {"link", "to nothing"}) {
    AtomicFile file(folder_ / way, Replace::same_kind, kNote);
    file.write("note: new");
    file.commit();
    EXPECT_TRUE(fs::is_symlink(folder_ / way));
  }
  EXPECT_EQ(text_of(folder_ / "target"), "note: new");
  EXPECT_EQ(text_of(folder_ / "new"), "note: new");
}

TEST_F(AtomicFileTest, OneFileIsNotTwoOutputs) {
  fs::create_symlink(".", folder_ / "around");
  AtomicFile first(folder_ / "out");
  for (const char* way : {"out", "around/out"})
    EXPECT_NE(error_of([&] { AtomicFile(folder_ / way); }).find("is being written already"),
              std::string::npos);
  first.commit();
  EXPECT_TRUE(fs::exists(folder_ / "out"));
}

TEST_F(AtomicFileTest, SaysThatItsSourceBecameShorter) {
  const MappedFile source(make("source", std::string(1 << 20, 'x')));
  fs::resize_file(folder_ / "source", 0);
  AtomicFile file(folder_ / "out");
  EXPECT_NE(error_of([&] { file.write(source.bytes()); }).find("source: became shorter"),
            std::string::npos);
}

// What a killed process left is removed; what a living one writes is not.
TEST_F(AtomicFileTest, TakesAwayWhatAKilledProcessLeft) {
  make("out.partial-1", "half");
  make("out.partial-notes", "mine");
  make("other.partial-1", "another's");
  const fs::path living = make("out.partial-2", "being written");
  const int descriptor = ::open(living.c_str(), O_WRONLY);
  ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
  {
    const AtomicFile file(folder_ / "out");
  }
  ::close(descriptor);
  std::vector<std::string> left = names();
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left,
            (std::vector<std::string>{"other.partial-1", "out.partial-2", "out.partial-notes"}));
}

TEST_F(AtomicFileTest, WhatIsReadMayBeWrittenAgainWhereThatIsMeant) {
  const fs::path path = make("out", "note: old");
  const MappedFile read(path);
  EXPECT_NE(error_of([&] { AtomicFile(path, Replace::same_kind, kNote); }).find("in use"),
            std::string::npos);
  AtomicFile file(path, Replace::same_kind_read, kNote);
  file.write("note: new");
  file.commit();
  EXPECT_EQ(text_of(path), "note: new");
  EXPECT_EQ(text_of(read), "note: old");
}

TEST_F(AtomicFileTest, WhatIsReadAndWrittenAgainIsOfItsKindToTheEnd) {
  const fs::path path = make("out", "note: old");
  AtomicFile file(path, Replace::same_kind_read, kNote);
  file.write("note: new");
  make("out", "somebody else's");
  EXPECT_NE(error_of([&] { file.commit(); }).find("not a note"), std::string::npos);
  EXPECT_EQ(text_of(path), "somebody else's");
}

TEST_F(AtomicFileTest, PrivateFilesAreTheirOwnersAlone) {
  constexpr FileKind kSecret = {"a secret", "secret:", true};
  AtomicFile file(folder_ / "out", Replace::same_kind, kSecret);
  file.write("secret: 1");
  file.commit();
  struct stat status = {};
  ASSERT_EQ(::stat((folder_ / "out").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

}  // namespace
}  // namespace tyto
