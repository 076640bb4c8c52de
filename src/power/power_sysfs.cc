#include "power/power_sysfs.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace tyto {
namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

RailReading read_micro(const fs::path& file) {
  const SystemText read = read_system_text(file);
  if (read.error == EACCES || read.error == EPERM)
    return {0, fmt::format("permission denied: {} is for root alone", file.string())};
  if (read.error != 0) return {0, fmt::format("{}: {}", file.string(), std::strerror(read.error))};
  uint64_t micro = 0;
  const char* end = read.text.data() + read.text.size();
  const auto [stopped_at, fault] = std::from_chars(read.text.data(), end, micro);
  if (stopped_at != end || fault != std::errc())
    return {0, fmt::format("{} is not a number", file.string())};
  // A driver without a value fills its register with ones and scales that.
  if (micro == UINT64_MAX || micro == UINT32_MAX || micro == UINT64_C(1000) * UINT32_MAX)
    return {0, fmt::format("{} has no value", file.string())};
  return {static_cast<double>(micro) * 1e-6, ""};
}

RailReader micro_reader(PowerRail rail, const fs::path& file) {
  rail.path = file.string();
  return {std::move(rail), read_micro(file).error, [file] { return read_micro(file); }};
}

RailReader absent_rail(const std::string& name, const std::string& source, RailKind kind,
                       const std::string& reason) {
  RailReader reader;
  reader.rail.name = name;
  reader.rail.source = source;
  reader.rail.kind = kind;
  reader.unavailable = reason;
  return reader;
}

std::vector<fs::path> hwmon_folders(const fs::path& root, const std::string& driver) {
  std::vector<fs::path> folders;
  const fs::path all = root / "sys/class/hwmon";
  for (const std::string& name : names_in(all))
    if (read_system_text(all / name / "name").text == driver) folders.push_back(all / name);
  return folders;
}

}  // namespace tyto
