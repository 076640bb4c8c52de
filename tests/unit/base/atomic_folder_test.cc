#include "base/atomic_file.h"

#include "unit/base/file_fixture.h"

namespace tyto {
namespace {

constexpr FolderKind kPair = {"a pair", [](std::string_view file) {
                                return file == "a" || file == "below/b" || file == "below/old";
                              }};

class AtomicFolderTest : public FileTest {
 protected:
  void write_pair(AtomicFolder& folder) {
    for (const char* name : {"a", "below/b"}) {
      AtomicFile file(folder.file(name));
      file.write("new");
      file.commit();
    }
  }
  // Writes and commits; the message of the Error, or "".
  std::string replace(const fs::path& path, Replace how) {
    return error_of([&] {
      AtomicFolder folder(path, how, kPair);
      write_pair(folder);
      folder.commit();
    });
  }
  fs::path make_pair() {
    fs::create_directories(folder_ / "pair" / "below");
    make("pair/a", "old");
    make("pair/below/old", "old");
    return folder_ / "pair";
  }
};

TEST_F(AtomicFolderTest, AppearsOnCommitAlone) {
  const fs::path path = folder_ / "made" / "pair";
  {
    AtomicFolder folder(path, Replace::same_kind, kPair);
    write_pair(folder);
    EXPECT_FALSE(fs::exists(path));
    folder.commit();
  }
  EXPECT_EQ(text_of(path / "a"), "new");
  EXPECT_EQ(text_of(path / "below" / "b"), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"made"});
}

TEST_F(AtomicFolderTest, WithoutCommitLeavesTheOldOneAlone) {
  const fs::path path = make_pair();
  {
    AtomicFolder folder(path, Replace::any_kind, kPair);
    write_pair(folder);
    EXPECT_EQ(text_of(path / "a"), "old");
  }
  EXPECT_EQ(text_of(path / "a"), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"pair"});
}

TEST_F(AtomicFolderTest, AnEmptyFolderMayBeReplacedAndAFullOneWhenForced) {
  fs::create_directory(folder_ / "empty");
  EXPECT_EQ(replace(folder_ / "empty", Replace::same_kind), "");
  EXPECT_EQ(text_of(folder_ / "empty" / "a"), "new");
  const fs::path path = make_pair();
  EXPECT_NE(replace(path, Replace::same_kind).find("is there already"), std::string::npos);
  EXPECT_EQ(text_of(path / "a"), "old");
  EXPECT_EQ(replace(path / "", Replace::any_kind), "");
  EXPECT_EQ(text_of(path / "a"), "new");
  EXPECT_FALSE(fs::exists(path / "below" / "old"));
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(AtomicFolderTest, WhatIsNotOfItsKindIsNeverDeleted) {
  const fs::path path = make_pair();
  make("pair/notes.txt", "mine");
  EXPECT_NE(replace(path, Replace::any_kind).find("holds notes.txt"), std::string::npos);
  fs::remove(path / "notes.txt");
  fs::create_directory_symlink(".", path / "link");
  EXPECT_NE(replace(path, Replace::any_kind).find("holds link"), std::string::npos);
  EXPECT_EQ(text_of(path / "a"), "old");
  EXPECT_NE(replace(make("file", "x"), Replace::any_kind).find("no folder"), std::string::npos);
}

TEST_F(AtomicFolderTest, HasANameOfItsOwn) {
  for (const char* name : {"", ".", ".."})
    EXPECT_NE(replace(name, Replace::any_kind).find("not a name for a new folder"),
              std::string::npos);
  EXPECT_NE(error_of([] { AtomicFile{""}; }).find("names no file"), std::string::npos);
}

TEST_F(AtomicFolderTest, WhatWasReadIsNeverDeleted) {
  const fs::path path = make_pair();
  read_text_file(path / "below" / "old", 9);
  EXPECT_NE(replace(path, Replace::any_kind).find("is in use"), std::string::npos);
  EXPECT_EQ(text_of(path / "a"), "old");
}

TEST_F(AtomicFolderTest, ALinkStaysAndItsFolderIsReplaced) {
  make_pair();
  fs::create_directory_symlink("pair", folder_ / "link");
  EXPECT_EQ(replace(folder_ / "link", Replace::any_kind), "");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(text_of(folder_ / "pair" / "a"), "new");
}

}  // namespace
}  // namespace tyto
