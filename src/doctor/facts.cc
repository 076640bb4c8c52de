#include "doctor/facts.h"

#include <pwd.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <sstream>

#include "base/environment.h"
#include "base/file.h"
#include "base/redaction.h"
#include "doctor/checks.h"
#include "power/power.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  return read_system_text(path).text;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "MemTotal:       24564712 kB" -> what stands after the colon.
std::string field_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key != name) continue;
    const size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return "";
}

uint64_t number_of(const std::string& text, int base = 10) {
  uint64_t value = 0;
  const size_t start = base == 16 && text.starts_with("0x") ? 2 : 0;
  std::from_chars(text.data() + std::min(start, text.size()), text.data() + text.size(), value,
                  base);
  return value;
}

CpuFacts read_cpu(const fs::path& root) {
  const std::string info = text_of(root / "proc/cpuinfo");
  CpuFacts cpu;
  cpu.model = field_of(info, "model name");
  cpu.flags = words_of(field_of(info, "flags"));
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) cpu.threads += line.starts_with("processor");
  return cpu;
}

// "Max locked memory         8388608              unlimited            bytes"
void read_memlock(const fs::path& root, MemoryFacts& memory) {
  constexpr std::string_view kLine = "Max locked memory";
  std::istringstream lines(text_of(root / "proc/self/limits"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kLine)) continue;
    const auto words = words_of(line.substr(kLine.size()));
    if (words.empty()) continue;
    memory.memlock_known = true;
    if (words[0] != "unlimited") memory.memlock_bytes = number_of(words[0]);
  }
}

MemoryFacts read_memory(const fs::path& root) {
  constexpr uint64_t kIpcLock = uint64_t{1} << 14;
  const std::string info = text_of(root / "proc/meminfo");
  MemoryFacts memory;
  memory.total_bytes = number_of(field_of(info, "MemTotal")) << 10;
  memory.available_bytes = number_of(field_of(info, "MemAvailable")) << 10;
  read_memlock(root, memory);
  const std::string capabilities = field_of(text_of(root / "proc/self/status"), "CapEff");
  memory.may_lock_anything = (number_of(capabilities, 16) & kIpcLock) != 0;
  return memory;
}

// Files may be packed (.xz, .zst) and carry a version after the name.
std::vector<std::string> read_firmware(const fs::path& root) {
  std::vector<std::string> files;
  for (const char* base : {"lib/firmware/updates", "lib/firmware", "usr/lib/firmware"})
    for (const std::string& chip : names_in(root / base / "amdnpu"))
      for (const std::string& file : names_in(root / base / "amdnpu" / chip)) {
        const std::string found = "amdnpu/" + chip + "/" + file;
        if (file.find(".sbin") != std::string::npos &&
            std::find(files.begin(), files.end(), found) == files.end())
          files.push_back(found);
      }
  return files;
}

// XRT looks for its plug-ins beside itself, and nowhere else.
std::string read_xrt_plugin(const fs::path& root, const DriverStack& stack) {
  if (stack.xrt_library.empty()) return "";
  const std::string folder = fs::path(stack.xrt_library).parent_path().string();
  return find_library(root, {folder}, "libxrt_driver_xdna.so.2");
}

PlatformFacts read_platform(const fs::path& root) {
  PlatformFacts platform;
  platform.profile = text_of(root / "sys/firmware/acpi/platform_profile");
  platform.choices = words_of(text_of(root / "sys/firmware/acpi/platform_profile_choices"));
  const fs::path supplies = root / "sys/class/power_supply";
  for (const std::string& name : names_in(supplies)) {
    if (text_of(supplies / name / "type") != "Mains") continue;
    const bool online = text_of(supplies / name / "online") == "1";
    platform.on_mains = platform.on_mains.value_or(false) || online;
  }
  return platform;
}

VulkanFacts read_vulkan(const fs::path& root) {
  VulkanFacts vulkan;
  vulkan.loader = find_library(root, library_folders(), "libvulkan.so.1");
  for (const char* folder :
       {"etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d"})
    for (const std::string& name : names_in(root / folder))
      if (name.ends_with(".json")) vulkan.drivers.push_back("/" + std::string(folder) + "/" + name);
  for (const std::string& name : names_in(root / "dev/dri"))
    if (name.starts_with("renderD")) vulkan.render_nodes.push_back("/dev/dri/" + name);
  return vulkan;
}

std::vector<EnergyRailFacts> read_rails(const fs::path& root) {
  PowerSources sources;
  sources.root = root;
  if (root != "/") sources.nvml.clear();  // a library of this machine
  std::vector<EnergyRailFacts> rails;
  for (const RailReader& reader : power_rails(sources))
    rails.push_back({reader.rail.label(), reader.unavailable});
  return rails;
}

IommuFacts read_iommu(const fs::path& root) {
  IommuFacts facts;
  if (is_there(root / "sys/class/iommu")) facts.units = names_in(root / "sys/class/iommu").size();
  std::istringstream words(read_system_text(root / "proc/cmdline").text);
  for (std::string word; words >> word;)
    if (word == "amd_iommu=off" || word == "iommu=off") facts.turned_off = word;
  return facts;
}

}  // namespace

SystemFacts read_system_facts(const fs::path& root) {
  SystemFacts facts;
  facts.cpu = read_cpu(root);
  facts.memory = read_memory(root);
  facts.stack = read_driver_stack(root);
  facts.npus = read_pci_npus(root);
  facts.firmware_files = read_firmware(root);
  facts.iommu = read_iommu(root);
  const Identity identity = read_identity(root);
  facts.groups = identity.groups;
  facts.is_root = identity.is_root;
  facts.nodes = read_accel_nodes(root, identity);
  facts.holders = read_holders(root, facts.nodes);
  facts.xrt_plugin = read_xrt_plugin(root, facts.stack);
  facts.services = read_services(root);
  facts.platform = read_platform(root);
  facts.vulkan = read_vulkan(root);
  facts.rails = read_rails(root);
  return facts;
}

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
