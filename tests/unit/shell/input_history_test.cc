// What chats remember of what was typed.
#include "shell/line_editor.h"

#include <sys/stat.h>

#include <thread>

#include "support/expect_error.h"
#include "unit/base/file_fixture.h"

namespace tyto {
namespace {

using InputHistoryTest = FileTest;

TEST_F(InputHistoryTest, LinesComeBackAsTheyWere) {
  const InputHistory history(folder_ / "state" / "history");
  EXPECT_TRUE(history.read().empty());
  const std::vector<std::string> lines = {"one", "two\nlines\twith \"quotes\" \\", "é日本😀",
                                          "one"};
  for (const std::string& line : lines) history.add(line);
  EXPECT_EQ(history.read(), lines);
  struct stat status = {};
  ASSERT_EQ(::stat((folder_ / "state" / "history").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(InputHistoryTest, SomeLinesAreNotKept) {
  const InputHistory history(folder_ / "history");
  for (const std::string& line : {std::string(), std::string(" secret"), std::string(20000, 'x')})
    history.add(line);
  EXPECT_TRUE(history.read().empty());
  history.add("bytes \xff that are no text");
  EXPECT_EQ(history.read(), (std::vector<std::string>{"bytes \xEF\xBF\xBD that are no text"}));
}

TEST_F(InputHistoryTest, DamagedLinesArePassedOver) {
  const fs::path path = make("history", "\"a\"\n\"half\n{}\n\n7\n\"b\"\n\"cut");
  const InputHistory history(path);
  history.add("c");
  EXPECT_EQ(history.read(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_ERROR(InputHistory(folder_).read(), "not a regular file")
      << "a folder is no file of lines";
}

TEST_F(InputHistoryTest, ItIsBoundedAndLosesTheOldestOnly) {
  const InputHistory history(folder_ / "history");
  const std::string filler(10000, 'x');
  for (int i = 0; i < 100; ++i) history.add(std::to_string(i) + filler);
  const std::vector<std::string> lines = history.read();
  ASSERT_GE(lines.size(), 26u);
  EXPECT_LT(lines.size(), 60u);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(lines[i], std::to_string(100 - lines.size() + i) + filler);
}

TEST_F(InputHistoryTest, ChatsAtTheSameTimeLoseNothingOfEachOthers) {
  const fs::path path = folder_ / "history";
  constexpr int kEach = 30;
  std::vector<std::thread> chats;
  for (int chat = 0; chat < 4; ++chat)
    chats.emplace_back([&path, chat] {
      const std::string filler(3000, static_cast<char>('a' + chat));
      for (int i = 0; i < kEach; ++i) InputHistory(path).add(filler);
    });
  for (std::thread& chat : chats) chat.join();
  EXPECT_EQ(InputHistory(path).read().size(), size_t{4 * kEach});  // more than one file holds
}

}  // namespace
}  // namespace tyto
