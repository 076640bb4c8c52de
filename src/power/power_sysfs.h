// What the readers of power files in /sys share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "power/power.h"

namespace tyto {

// Names in a folder, sorted; none when it cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);

// A whole number of micro-units, as joules or watts.
RailReading read_micro(const std::filesystem::path& file);

// The reader of one file, unavailable with the reason when the file cannot be read now.
RailReader micro_reader(PowerRail rail, const std::filesystem::path& file);

// A source that has nothing to read.
RailReader absent_rail(const std::string& name, const std::string& source, RailKind kind,
                       const std::string& reason);

// The folders of /sys/class/hwmon whose driver has this name.
std::vector<std::filesystem::path> hwmon_folders(const std::filesystem::path& root,
                                                 const std::string& driver);

}  // namespace tyto
