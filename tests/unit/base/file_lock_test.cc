#include "base/file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

TEST(FileLock, OneAtATime) {
  const auto path = std::filesystem::temp_directory_path() / "tyto_file_lock_test";
  auto first = FileLock::try_take(path);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(FileLock::try_take(path), nullptr);
  EXPECT_ERROR(FileLock(path, std::chrono::milliseconds(0)), "another process holds the lock");
  first.reset();
  {
    const FileLock waited(path);
    EXPECT_EQ(FileLock::try_take(path), nullptr);
  }
  EXPECT_NE(FileLock::try_take(path), nullptr);
  std::filesystem::remove(path);
  EXPECT_ERROR(FileLock::try_take(path / "below"), "cannot open");
}

}  // namespace
}  // namespace tyto
