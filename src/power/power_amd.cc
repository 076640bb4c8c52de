// AMD's hwmon rails. amdgpu: power1_average, or power1_input where the chip has no average; on an
// APU the label is PPT and the rail is the whole package, not the GPU. amdxdna: power1_input,
// labelled NPU_power, in drivers since May 2026 where amd_pmf (Linux 7.0) and the BIOS report it.
#include <algorithm>
#include <array>

#include "base/file.h"
#include "power/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr double kSensorSeconds = 0.05;  // the power controller averages over tens of milliseconds

// The PCI address of what a hwmon folder belongs to: two GPUs have the same labels.
std::string address_of(const fs::path& hwmon) {
  std::error_code error;
  const fs::path target = fs::read_symlink(hwmon / "device", error);
  return error ? "" : " " + target.filename().string();
}

RailReader hwmon_reader(const fs::path& hwmon, const std::string& source,
                        const std::string& value_file) {
  const std::string label = read_system_text(hwmon / "power1_label").text;
  PowerRail rail;
  rail.name = (label.empty() ? "power1" : label) + address_of(hwmon);
  rail.source = source;
  rail.kind = RailKind::sampled_power;
  rail.update_seconds = kSensorSeconds;
  return micro_reader(std::move(rail), hwmon / value_file);
}

bool npu_has_driver(const fs::path& root) {
  for (const char* driver : {"amdxdna", "amdxdna_legacy"})
    for (const std::string& name : names_in(root / "sys/bus/pci/drivers" / driver))
      if (name.find(':') != std::string::npos) return true;  // a PCI address
  return false;
}

}  // namespace

std::vector<RailReader> amdgpu_rails(const fs::path& root) {
  std::vector<RailReader> rails;
  for (const fs::path& hwmon : hwmon_folders(root, "amdgpu")) {
    std::error_code ignored;
    const bool averages = fs::exists(hwmon / "power1_average", ignored);
    rails.push_back(hwmon_reader(hwmon, "amdgpu", averages ? "power1_average" : "power1_input"));
  }
  if (rails.empty())
    rails.push_back(absent_rail("PPT", "amdgpu", RailKind::sampled_power,
                                "no amdgpu driver in /sys/class/hwmon"));
  return rails;
}

std::vector<RailReader> amdxdna_rails(const fs::path& root) {
  std::vector<RailReader> rails;
  for (const fs::path& hwmon : hwmon_folders(root, "amdxdna"))
    rails.push_back(hwmon_reader(hwmon, "amdxdna", "power1_input"));
  if (!rails.empty()) return rails;
  const char* reason =
      npu_has_driver(root)
          ? "this NPU's driver has no power sensor: it takes Linux 7.0, an amdxdna "
            "of May 2026 and a BIOS with AMD PMF"
          : "no NPU with an amdxdna driver";
  return {absent_rail("NPU_power", "amdxdna", RailKind::sampled_power, reason)};
}

}  // namespace tyto
