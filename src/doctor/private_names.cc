#include "doctor/private_names.h"

#include <pwd.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/environment.h"
#include "base/redaction.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEllipsis = "…";
constexpr const char* kSystemFolders[] = {"/usr", "/opt", "/etc",  "/lib", "/lib64",
                                          "/dev", "/sys", "/proc", "/boot"};

bool is_of_the_system(std::string_view path) {
  return std::ranges::any_of(kSystemFolders, [&](std::string_view folder) {
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
  });
}

bool is_of_a_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || c == '_' || byte >= 0x80;
}

void add_folder(const fs::path& folder, std::vector<std::string>& folders) {
  std::error_code error;
  std::string text = fs::absolute(folder, error).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  if (!error && text.size() > 1 && !is_of_the_system(text)) folders.push_back(text);
}

// Names that every machine has tell nothing.
void add_word(std::string word, std::vector<std::string>& words) {
  if (word.size() > 1 && word != "root" && word != "localhost") words.push_back(std::move(word));
}

std::string without_folders(std::string text, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders)
    for (size_t at = text.find(folder); at != text.npos; at = text.find(folder, at)) {
      const size_t end = at + folder.size();
      if (end < text.size() && is_of_a_word(text[end]))
        at = end;
      else
        text.replace(at, folder.size(), kEllipsis);
    }
  return text;
}

// The last part of an absolute path stays where the path is not the system's.
std::string without_paths(std::string_view text) {
  constexpr std::string_view kBefore = " \t\n\"'`=:,;([<", kAfter = " \t\n\"'`,;:)]>";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool begins = (i == 0 || kBefore.find(text[i - 1]) != kBefore.npos) &&
                        (text[i] == '/' || text.substr(i).starts_with("…/"));
    if (!begins) {
      out += text[i++];
      continue;
    }
    const size_t end = std::min(text.size(), text.find_first_of(kAfter, i));
    const std::string_view path = text.substr(i, end - i);
    const size_t last = path.find_last_not_of('/');
    const size_t slash = last == path.npos ? path.npos : path.rfind('/', last);
    if (is_of_the_system(path) || slash == path.npos || path.starts_with("//"))
      out += path;
    else
      out.append(kEllipsis).append(path.substr(slash));
    i = end;
  }
  return out;
}

std::string without_word(const std::string& text, const std::string& word) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const bool is_it = text.size() - i >= word.size() &&
                       ::strncasecmp(text.data() + i, word.data(), word.size()) == 0 &&
                       (i == 0 || !is_of_a_word(text[i - 1])) &&
                       (i + word.size() == text.size() || !is_of_a_word(text[i + word.size()]));
    if (is_it) out += kHidden;
    if (!is_it) out += text[i];
    i += is_it ? word.size() : 1;
  }
  return out;
}

}  // namespace

PrivateNames private_names(const std::vector<fs::path>& folders) {
  PrivateNames names;
  std::error_code error;
  add_folder(fs::current_path(error), names.folders);
  for (const fs::path& folder : folders) add_folder(folder, names.folders);
  const PersonalVariables variables = personal_variables();
  for (const fs::path& folder : variables.folders) add_folder(folder, names.folders);
  for (const std::string& word : variables.names) add_word(word, names.words);
  if (const passwd* user = ::getpwuid(::getuid()); user != nullptr) {
    add_folder(user->pw_dir, names.folders);
    add_word(user->pw_name, names.words);
    const std::string_view whole = user->pw_gecos == nullptr ? "" : user->pw_gecos;
    add_word(std::string(whole.substr(0, whole.find(','))), names.words);
  }
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) == 0) {
    const std::string_view whole = host.data();
    add_word(std::string(whole), names.words);
    add_word(std::string(whole.substr(0, whole.find('.'))), names.words);
  }
  std::ranges::sort(names.folders, std::greater(), &std::string::size);
  std::ranges::sort(names.words, std::greater(), &std::string::size);
  return names;
}

std::string without_private(std::string_view text, const PrivateNames& names) {
  std::string out = without_paths(without_folders(redacted(text), names.folders));
  for (const std::string& word : names.words) out = without_word(out, word);
  return out;
}

}  // namespace tyto
