#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/stores/folder_files.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestPointer = 8192;
constexpr uint64_t kLongestSettings = 16 << 20;
constexpr int kStudioDepth = 1;

// What a file of somebody else says, or nothing: settings that cannot be read point nowhere.
fs::path home_pointer(const fs::path& home) try {
  std::string text = read_text_file(home / ".lmstudio-home-pointer", kLongestPointer);
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
} catch (const Error&) {
  return {};
}

fs::path downloads_folder(const fs::path& settings) try {
  return Json::parse_file(settings.string(), kLongestSettings).string_or("downloadsFolder", "");
} catch (const Error&) {
  return {};
}

}  // namespace

std::vector<fs::path> lm_studio_folders(const fs::path& home) {
  std::vector<fs::path> folders;
  const auto add = [&](const fs::path& folder) {
    if (folder.is_absolute() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  add(downloads_folder(home / ".config/LM Studio/settings.json"));
  for (const fs::path& its_home :
       {home_pointer(home), home / ".lmstudio", home / ".cache/lm-studio"}) {
    if (its_home.empty()) continue;
    add(downloads_folder(its_home / "settings.json"));
    add(its_home / "models");
  }
  return folders;
}

Listing lm_studio_models(const fs::path& folder) {
  Listing listing;
  for (const std::string& publisher : names_in(folder, listing.remarks))
    for (const std::string& repo : names_in(folder / publisher, listing.remarks)) {
      const fs::path repository = folder / publisher / repo;
      add_repository(repository, files_below(repository, kStudioDepth, listing.remarks),
                     "lmstudio:" + publisher + "/" + repo, "LM Studio", listing);
    }
  return listing;
}

}  // namespace tyto
