#include "hub/safe_path.h"

#include <algorithm>
#include <cctype>

namespace tyto {
namespace {

constexpr size_t kLongestPath = 1000;
constexpr size_t kLongestName = 240;  // file systems take 255 bytes, and suffixes come to it

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         name != ".git";
}

}  // namespace

bool stays_below(std::string_view path) {
  if (path.size() > kLongestPath) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!is_file_name(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return std::none_of(path.begin(), path.end(),
                      [](unsigned char c) { return std::iscntrl(c) != 0; });
}

}  // namespace tyto
