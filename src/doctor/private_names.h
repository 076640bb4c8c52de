// What a file that is sent to others must not hold: names of people, machines and their folders.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct PrivateNames {
  std::vector<std::string> folders;  // whole paths; the longest first
  std::vector<std::string> words;    // names of the user and of the host, in any case
};

// The names of this machine and of the user who runs the program; `folders` are further private
// ones.
PrivateNames private_names(const std::vector<std::filesystem::path>& folders);

// "…" stands for a private folder and for every folder that is not the system's; "***" for names.
std::string without_private(std::string_view text, const PrivateNames& names);

}  // namespace tyto
