// What is in folders that somebody else fills: bounded, and never an Error.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tyto {

// A folder with more entries is looked at so far; as many files, below all folders of a walk.
constexpr size_t kMostEntries = 100'000;

// Names of what lies in a folder, sorted; hidden ones are left out. One that is not there has
// nothing; that one cannot be read, or has too many entries, goes to `remarks`.
std::vector<std::string> names_in(const std::filesystem::path& folder,
                                  std::vector<std::string>& remarks);

// Relative paths of all that is no folder, sorted, `depth` folders deep: of 1 in the folder itself.
// Links to folders are followed, each folder once. Links to files, pipes and what leads nowhere are
// among the paths.
std::vector<std::string> files_below(const std::filesystem::path& folder, int depth,
                                     std::vector<std::string>& remarks);

}  // namespace tyto
