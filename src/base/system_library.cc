#include "base/system_library.h"

namespace tyto {

const std::vector<std::string>& library_folders() {
  static const std::vector<std::string> folders = {
      "/opt/xilinx/xrt/lib",  "/opt/xilinx/xrt/lib64",
      "/usr/local/lib",       "/usr/lib/x86_64-linux-gnu",
      "/usr/lib64",           "/usr/lib",
      "/lib/x86_64-linux-gnu"};
  return folders;
}

std::string find_library(const std::filesystem::path& root, const std::vector<std::string>& folders,
                         const std::string& name) {
  std::error_code ignored;
  for (const std::string& folder : folders)
    if (std::filesystem::exists(root / folder.substr(1) / name, ignored))
      return folder + "/" + name;
  return "";
}

}  // namespace tyto
