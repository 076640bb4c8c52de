#include <map>
#include <system_error>

#include "base/error.h"
#include "model/stores/folder_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// A cache of somebody's own is a few folders deep; a whole disk is not what is meant.
constexpr int kDepth = 8;

// Beside the program in an installation (bin/tyto) or a source tree (build/release/tyto).
constexpr const char* kShippedBelow[] = {"../share/tyto/models/owlet", "../../models/owlet"};

}  // namespace

Listing models_below(const fs::path& folder) {
  Listing listing;
  std::map<fs::path, std::vector<std::string>> by_folder;
  for (const fs::path file : files_below(folder, kDepth, listing.remarks))
    by_folder[file.parent_path()].push_back(file.filename().string());
  for (const auto& [below, files] : by_folder)
    add_repository(below.empty() ? folder : folder / below, files, "", folder.string(), listing);
  for (LocalModel& model : listing.models) {
    model.name = model.path.string();
    model.other_names.clear();
  }
  return listing;
}

std::optional<fs::path> shipped_model() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  for (const char* below : kShippedBelow) {
    const fs::path folder = (program.parent_path() / below).lexically_normal();
    if (fs::exists(folder / "config.json", ignored)) return folder;
  }
  return std::nullopt;
}

std::string model_or_shipped(const std::string& named) {
  if (!named.empty()) return named;
  if (const auto folder = shipped_model()) return folder->string();
  throw Error(ErrorCode::input, "the shipped model", "is not beside the program",
              "name a model with -m");
}

}  // namespace tyto
