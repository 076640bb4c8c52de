#include "model/stores/folder_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tyto {
namespace {

namespace fs = std::filesystem;

// The folder itself, whatever it is called; none where there is no folder.
std::pair<dev_t, ino_t> folder_id(const fs::path& path) {
  struct stat status = {};
  const bool is_folder = ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return is_folder ? std::pair(status.st_dev, status.st_ino) : std::pair<dev_t, ino_t>(0, 0);
}

struct Walk {
  fs::path root;
  std::vector<std::string>& remarks;
  std::vector<std::string> files = {};
  std::set<std::pair<dev_t, ino_t>> seen = {};
  bool is_full = false;

  void look_at(const fs::path& below, int depth) {
    for (const std::string& name : names_in(root / below, remarks)) {
      if (is_full) return;
      const fs::path path = below / name;
      const auto id = folder_id(root / path);
      if (id.second == 0) {
        files.push_back(path.string());
        is_full = files.size() >= kMostEntries;
      } else if (depth > 1 && seen.insert(id).second) {
        look_at(path, depth - 1);
      }
    }
  }
};

}  // namespace

std::vector<std::string> names_in(const fs::path& folder, std::vector<std::string>& remarks) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (names.size() == kMostEntries) {
      remarks.push_back(fmt::format("{}: has more than {} entries; the others are left out",
                                    folder.string(), kMostEntries));
      break;
    }
    if (std::string name = it->path().filename().string(); !name.starts_with('.'))
      names.push_back(std::move(name));
  }
  const bool is_absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !is_absent)
    remarks.push_back(fmt::format("{}: cannot be read: {}", folder.string(), error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> files_below(const fs::path& folder, int depth,
                                     std::vector<std::string>& remarks) {
  Walk walk{folder, remarks};
  walk.seen.insert(folder_id(folder));
  walk.look_at("", depth);
  if (walk.is_full)
    remarks.push_back(fmt::format("{}: has more than {} files; the others are left out",
                                  folder.string(), kMostEntries));
  std::sort(walk.files.begin(), walk.files.end());
  return walk.files;
}

}  // namespace tyto
