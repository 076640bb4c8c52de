#include "device/npu/device_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <map>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

std::string lock_refusal(const std::filesystem::path& path) {
  try {
    DeviceLock lock(path, "npu");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

// A real NPU is one for the whole machine.
TEST(DeviceLock, ASecondProcessIsToldWhoHasTheDevice) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / fmt::format("tyto-lock-test-{}", ::getpid());
  std::array<int, 2> locked = {}, done = {};
  ASSERT_EQ(::pipe(locked.data()), 0);
  ASSERT_EQ(::pipe(done.data()), 0);
  const pid_t other = ::fork();
  char byte = 0;
  if (other == 0) {
    {
      DeviceLock lock(path, "npu");
      if (::write(locked[1], &byte, 1) != 1) ::_exit(1);
      ::close(done[1]);
      if (::read(done[0], &byte, 1) != 0) ::_exit(1);  // until the test closes its end
    }
    ::_exit(0);
  }
  ASSERT_EQ(::read(locked[0], &byte, 1), 1);
  EXPECT_TRUE(lock_refusal(path).starts_with(fmt::format("npu: is in use by process {} (", other)))
      << lock_refusal(path);
  ::close(done[1]);
  int status = 1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lock_refusal(path), "none");
  std::filesystem::remove(path);
  for (const int descriptor : {locked[0], locked[1], done[0]}) ::close(descriptor);
}

// A folder like /tmp: every user may make files there, and none may remove another's.
class LockFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What a process of another user is told, or of this one where it cannot become another.
  static std::string refusal_of_another_user(const std::filesystem::path& path) {
    std::array<int, 2> answer = {};
    EXPECT_EQ(::pipe(answer.data()), 0);
    const pid_t other = ::fork();
    if (other == 0) {
      constexpr uid_t kNobody = 65534;
      if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(1);
      const std::string text = lock_refusal(path);
      ::_exit(::write(answer[1], text.data(), text.size()) > 0 ? 0 : 1);
    }
    ::close(answer[1]);
    std::array<char, 1024> text = {};
    const ssize_t count = ::read(answer[0], text.data(), text.size());
    ::close(answer[0]);
    int status = 1;
    ::waitpid(other, &status, 0);
    EXPECT_EQ(status, 0);
    return {text.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))};
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("tyto-locks-{}", ::getpid());
  const std::filesystem::path path_ = folder_ / "npu.lock";
};

// O_CREAT would be refused for it where fs.protected_regular is on, and writing is in any case.
TEST_F(LockFolder, AFileThatAnotherUserLeftIsInNobodysWay) {
  std::ofstream(path_) << "4194303\n";
  ASSERT_EQ(::chmod(path_.c_str(), 0444), 0);
  EXPECT_EQ(refusal_of_another_user(path_), "none");
}

TEST_F(LockFolder, AnotherUserIsToldWhoHasTheDevice) {
  const mode_t mask = ::umask(077);
  const DeviceLock lock(path_, "npu");
  ::umask(mask);
  EXPECT_TRUE(refusal_of_another_user(path_).starts_with(
      fmt::format("npu: is in use by process {} (", ::getpid())))
      << refusal_of_another_user(path_);
}

TEST_F(LockFolder, WhatCannotBeOpenedIsSaid) {
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_TRUE(lock_refusal(path_).starts_with("npu: cannot open its lock " + path_.string()))
      << lock_refusal(path_);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
}

// All begin at once; whichever is first, the others are told so and nothing else.
TEST_F(LockFolder, OfManyThatMakeTheFileOneGetsTheDevice) {
  constexpr int kProcesses = 8;
  std::array<int, 2> go = {}, answers = {}, done = {};
  for (auto* ends : {&go, &answers, &done}) ASSERT_EQ(::pipe(ends->data()), 0);
  std::vector<pid_t> processes;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(go[1]);
      ::close(done[1]);
      char byte = 0;
      if (::read(go[0], &byte, 1) != 0) ::_exit(1);  // until the test closes its end
      try {
        const DeviceLock lock(path_, "npu");
        if (::write(answers[1], "1", 1) != 1 || ::read(done[0], &byte, 1) != 0) ::_exit(1);
      } catch (const Error& error) {
        const bool is_told =
            std::string_view(error.what()).starts_with("npu: is in use by process ");
        if (::write(answers[1], is_told ? "0" : "?", 1) != 1) ::_exit(1);
      }
      ::_exit(0);
    }
    processes.push_back(child);
  }
  ::close(go[1]);
  std::map<char, int> counts;
  for (int i = 0; i < kProcesses; ++i) {
    char answer = 0;
    ASSERT_EQ(::read(answers[0], &answer, 1), 1);
    ++counts[answer];
  }
  ::close(done[1]);
  for (const pid_t child : processes) ::waitpid(child, nullptr, 0);
  EXPECT_EQ(counts, (std::map<char, int>{{'1', 1}, {'0', kProcesses - 1}}));
  for (const int descriptor : {go[0], answers[0], answers[1], done[0]}) ::close(descriptor);
}

TEST(DeviceLock, IsWhereEveryUserLooks) {
  const std::filesystem::path path = npu_lock_path();
  struct stat status = {};
  ASSERT_EQ(::stat(path.parent_path().c_str(), &status), 0);
  EXPECT_TRUE((status.st_mode & S_IWOTH) != 0) << path;
  ASSERT_EQ(::setenv("TMPDIR", "/nowhere", 1), 0);
  EXPECT_EQ(npu_lock_path(), path);
  ::unsetenv("TMPDIR");
}

TEST(DeviceLock, ADeviceOfOneProcessNeedsNone) {
  const DeviceLock first("", "vnpu");
  EXPECT_EQ(lock_refusal(""), "none");
}

}  // namespace
}  // namespace tyto
