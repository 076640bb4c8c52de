#include "cli/chat/input_history.h"

#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLineBytes = 16 << 10;
constexpr uint64_t kMostHistoryBytes = 256 << 10;  // for each of the two files

// A full file becomes the older one, whose lines are still read, and a new one is begun.
fs::path older(const fs::path& path) {
  return path.string() + ".old";
}

void read_lines(const fs::path& path, std::vector<std::string>& lines) {
  std::error_code unreadable;  // then reading it says why
  if (!fs::exists(path, unreadable) && !unreadable) return;
  std::istringstream text(read_last_lines(path, kMostHistoryBytes + kMostLineBytes * 6));
  for (std::string line; std::getline(text, line);) {
    try {
      lines.emplace_back(Json::parse(line, path.string()).as_string());
    } catch (const Error&) {
    }
  }
}

}  // namespace

InputHistory::InputHistory(fs::path path) : path_(std::move(path)) {}

std::vector<std::string> InputHistory::read() const {
  std::vector<std::string> lines;
  read_lines(older(path_), lines);
  read_lines(path_, lines);
  return lines;
}

void InputHistory::add(const std::string& line) const {
  if (!is_kept(line)) return;
  const std::string json = JsonValue(line).dump();
  std::error_code error;
  fs::create_directories(path_.parent_path(), error);
  const FileLock lock(path_.string() + ".lock");  // one renames, others append
  append_line(path_, json, Readers::owner);
  if (fs::file_size(path_, error) > kMostHistoryBytes && !error)
    fs::rename(path_, older(path_), error);
}

bool InputHistory::is_kept(const std::string& line) {
  return !line.empty() && line.front() != ' ' && line.size() <= kMostLineBytes;
}

}  // namespace tyto
