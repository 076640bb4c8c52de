#include "shell/documents.h"

#include <string_view>

namespace tyto {
namespace {

namespace fs = std::filesystem;

// Seen from an installation (bin/tyto) or a source tree (build/release/tyto).
constexpr const char* kDocumentsBelow[] = {"../share/doc/tyto", "../.."};

std::string found_page(const std::string& page, const fs::path& folder) {
  std::error_code ignored;
  for (const char* below : kDocumentsBelow) {
    const fs::path file = (folder / below / page).lexically_normal();
    if (fs::exists(file, ignored)) return file.string();
  }
  return page;
}

}  // namespace

std::string with_documents_found(const std::string& text) {
  std::error_code ignored;
  return with_documents_found(text, fs::read_symlink("/proc/self/exe", ignored).parent_path());
}

std::string with_documents_found(const std::string& text, const fs::path& folder) {
  constexpr std::string_view kFolder = "docs/", kEnd = ".md";
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz-";
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(kFolder); at != std::string::npos; at = text.find(kFolder, at + 1)) {
    const size_t end = text.find_first_not_of(kLetters, at + kFolder.size());
    const bool is_whole = at == 0 || text[at - 1] != '/';
    if (!is_whole || end == std::string::npos || text.compare(end, kEnd.size(), kEnd) != 0)
      continue;
    out += text.substr(done, at - done);
    out += found_page(text.substr(at, end + kEnd.size() - at), folder);
    done = end + kEnd.size();
  }
  return out + text.substr(done);
}

}  // namespace tyto
