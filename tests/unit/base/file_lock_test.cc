#include "base/file_use.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "base/error.h"

namespace tyto {
namespace {

TEST(FileLock, OneAtATime) {
  const auto path = std::filesystem::temp_directory_path() / "tyto_file_lock_test";
  auto first = FileLock::try_take(path);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(FileLock::try_take(path), nullptr);
  EXPECT_THROW(FileLock(path, std::chrono::milliseconds(0)), Error);
  first.reset();
  {
    const FileLock waited(path);
    EXPECT_EQ(FileLock::try_take(path), nullptr);
  }
  EXPECT_NE(FileLock::try_take(path), nullptr);
  std::filesystem::remove(path);
  EXPECT_THROW(FileLock::try_take(path / "below"), Error);
}

}  // namespace
}  // namespace tyto
