// RAPL through powercap: /sys/class/powercap/intel-rapl:0 is a package (on AMD processors too),
// intel-rapl:0:0 a part of it. The counter is in microjoules, is brought up to date about every
// millisecond, and starts again from 0 at max_energy_range_uj: 65 kJ, which is three minutes of a
// server's package. Since Linux 5.10 only root may read it.
#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "power/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kZonePrefix = "intel-rapl:";

// "intel-rapl:0:1" is "package-0/dram"; the parent's name comes from "intel-rapl:0".
std::string zone_name(const fs::path& zones, const std::string& zone) {
  const std::string own = read_system_text(zones / zone / "name").text;
  const size_t last = zone.rfind(':');
  if (last <= kZonePrefix.size()) return own.empty() ? zone : own;
  return zone_name(zones, zone.substr(0, last)) + "/" + (own.empty() ? zone : own);
}

RailReader zone_reader(const fs::path& zones, const std::string& zone) {
  PowerRail rail;
  rail.name = zone_name(zones, zone);
  rail.source = "rapl";
  rail.kind = RailKind::energy_counter;
  rail.range_joules = read_micro(zones / zone / "max_energy_range_uj").value;
  rail.update_seconds = 0.001;
  return micro_reader(std::move(rail), zones / zone / "energy_uj");
}

}  // namespace

std::vector<RailReader> rapl_rails(const fs::path& root) {
  const fs::path zones = root / "sys/class/powercap";
  std::vector<RailReader> rails;
  // intel-rapl-mmio: is the same package again, read another way.
  for (const std::string& zone : names_in(zones))
    if (zone.starts_with(kZonePrefix)) rails.push_back(zone_reader(zones, zone));
  if (rails.empty())
    rails.push_back(absent_rail("package", "rapl", RailKind::energy_counter,
                                "the kernel offers no RAPL zone in /sys/class/powercap"));
  return rails;
}

}  // namespace tyto
