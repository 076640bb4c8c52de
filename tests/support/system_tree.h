// A folder that looks like a machine's / to code that reads /proc, /sys, /dev and the like.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tyto::testing_support {

class SystemTree {
 public:
  SystemTree() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() /
            ("tyto-tree-" + std::string(test->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~SystemTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  SystemTree(const SystemTree&) = delete;
  SystemTree& operator=(const SystemTree&) = delete;

  const std::filesystem::path& root() const { return root_; }

  // Overwritten in place: a reader may hold the old file open.
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_symlink(target, root_ / path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_ / path); }
  void forbid(const std::string& path) const { ::chmod((root_ / path).c_str(), 0); }
  void permit(const std::string& path) const { ::chmod((root_ / path).c_str(), 0666); }

 private:
  std::filesystem::path root_;
};

// Root may read everything: while this lives the process may not. False where that is refused.
class AsNobody {
 public:
  AsNobody() : was_root_(::geteuid() == 0) {
    if (was_root_) given_up_ = ::seteuid(65534) == 0;
  }
  ~AsNobody() {
    if (given_up_ && ::seteuid(0) != 0) ADD_FAILURE() << "cannot become root again";
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  explicit operator bool() const { return !was_root_ || given_up_; }

 private:
  bool was_root_;
  bool given_up_ = false;
};

}  // namespace tyto::testing_support
