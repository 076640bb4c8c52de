#include "device/npu/runtime/device_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/error.h"

namespace tyto {
namespace {

std::string refusal(const std::filesystem::path& path) {
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
  EXPECT_TRUE(refusal(path).starts_with(fmt::format("npu: is in use by process {} (", other)))
      << refusal(path);
  ::close(done[1]);
  int status = 1;
  ::waitpid(other, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(refusal(path), "none");
  std::filesystem::remove(path);
  for (const int descriptor : {locked[0], locked[1], done[0]}) ::close(descriptor);
}

TEST(DeviceLock, ADeviceOfOneProcessNeedsNone) {
  const DeviceLock first("", "vnpu");
  EXPECT_EQ(refusal(""), "none");
}

}  // namespace
}  // namespace tyto
