#include "doctor/doctor_services.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "power/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// What a service gets where no file says anything: systemd's own default.
constexpr uint64_t kSystemdsMemlock = uint64_t{8} << 20;

// Later ones win.
constexpr std::array<const char*, 5> kFolders = {
    "lib/systemd", "usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd"};

// "infinity", "64M", "64M:infinity" (what holds, and what a process may raise it to).
std::optional<uint64_t> bytes_of(const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  uint64_t value = 0;
  const auto number = std::from_chars(text.data(), text.data() + text.size(), value);
  if (number.ec != std::errc()) return std::nullopt;
  const char unit = number.ptr == text.data() + text.size() ? ' ' : *number.ptr;
  const size_t power = kUnits.find(unit);
  return power == std::string_view::npos ? value : value << 10 * (power + 1);
}

// The last assignment of the file, if it has one.
void read_setting(const fs::path& root, const std::string& file, const std::string& key,
                  MemlockSetting& setting) {
  std::istringstream lines(read_system_text(root / file).text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + "=")) {
      setting.file = "/" + file;
      setting.bytes = bytes_of(line.substr(key.size() + 1));
    }
}

// A file of that name in the last folder that has it, then the files of NAME.d everywhere.
MemlockSetting read_memlock(const fs::path& root, const std::string& below, const std::string& name,
                            const std::string& key) {
  MemlockSetting setting{"", kSystemdsMemlock};
  std::string main_file;
  std::vector<std::pair<std::string, std::string>> additions;  // by name, whichever folder
  std::error_code ignored;
  for (const char* folder : kFolders) {
    const std::string file = std::string(folder) + below + "/" + name;
    if (fs::exists(root / file, ignored)) main_file = file;
    for (const std::string& addition : names_in(root / (file + ".d")))
      if (addition.ends_with(".conf")) additions.emplace_back(addition, file + ".d/" + addition);
  }
  std::stable_sort(additions.begin(), additions.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!main_file.empty()) read_setting(root, main_file, key, setting);
  for (const auto& [addition, file] : additions) read_setting(root, file, key, setting);
  return setting;
}

bool is_installed(const fs::path& root, const std::string& unit) {
  std::error_code ignored;
  return std::any_of(kFolders.begin(), kFolders.end(), [&](const char* folder) {
    return fs::exists(root / folder / "system" / unit, ignored);
  });
}

}  // namespace

ServiceFacts read_services(const fs::path& root) {
  ServiceFacts facts;
  facts.system_default = read_memlock(root, "", "system.conf", "DefaultLimitMEMLOCK");
  facts.user_default = read_memlock(root, "", "user.conf", "DefaultLimitMEMLOCK");
  for (const char* unit : {"tyto@.service", "tyto.service"})
    if (is_installed(root, unit)) facts.unit = unit;
  if (facts.unit.empty()) return facts;
  facts.unit_limit = read_memlock(root, "/system", facts.unit, "LimitMEMLOCK");
  if (facts.unit_limit.file.empty()) facts.unit_limit = facts.system_default;
  return facts;
}

}  // namespace tyto
