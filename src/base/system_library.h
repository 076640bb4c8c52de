// Where a machine keeps its shared libraries.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tyto {

// XRT's own folder first, then the system's.
const std::vector<std::string>& library_folders();

// The first folder below `root` that has the file, as a path of the machine, without `root`; empty:
// none has. A link to nowhere is no file.
std::string find_library(const std::filesystem::path& root, const std::vector<std::string>& folders,
                         const std::string& name);

}  // namespace tyto
