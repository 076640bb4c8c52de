#include "base/error.h"
#include "base/json_value.h"
#include "cli/commands.h"
#include "device/device.h"
#include "plan/auto_device.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// A device of the table as it was found here.
struct DeviceHere {
  const DeviceEntry& entry;
  std::string usable = "no";
  std::string found = {};                 // its description, or why it cannot be used
  std::vector<std::string> choices = {};  // values that a setting takes: "--gpu 0: a name"
};

void add_choices(DeviceHere& here) {
  for (const DeviceSetting& setting : here.entry.settings()) {
    if (setting.found == nullptr) continue;
    try {
      size_t number = 0;
      for (const std::string& each : setting.found())
        here.choices.push_back(fmt::format("--{} {}: {}", setting.name, number++, each));
    } catch (const Error&) {
      // `found` says why.
    }
  }
}

DeviceHere opened(const DeviceEntry& entry, const DeviceEnv& env) {
  DeviceHere here{entry};
  try {
    const DeviceInfo device = entry.open(env)->info();
    here.usable = device.is_virtual ? "virtual" : device.is_software ? "software" : "yes";
    here.found = device.description;
  } catch (const Error& error) {
    here.found = error.what() + (error.hint.empty() ? "" : " (" + error.hint + ")");
  }
  add_choices(here);
  return here;
}

// The row has the device's name already.
std::string found_without_name(const DeviceHere& here) {
  const std::string begins = std::string(here.entry.name) + ": ";
  return here.found.starts_with(begins) ? here.found.substr(begins.size()) : here.found;
}

std::string json_text(const std::vector<DeviceHere>& devices) {
  JsonValue rows = JsonValue::array();
  for (const DeviceHere& here : devices)
    rows.push_back({{"device", here.entry.name},
                    {"usable", here.usable},
                    {"summary", here.entry.summary},
                    {"found", here.found},
                    {"choices", here.choices}});
  return rows.dump(2) + "\n";
}

void list_devices(const JsonFlag& json) {
  ThreadPool pool;
  Trace trace;
  std::vector<DeviceHere> devices;
  for (const DeviceEntry& entry : device_table()) {
    announce(fmt::format("opening {}", entry.name));
    devices.push_back(opened(entry, {pool, trace}));
  }
  if (json.is_given() && put_json(json, json_text(devices))) return;
  Table table{.id = "devices",
              .title = "",
              .columns = {{"device", false}, {"usable", false}, {"what it is", false}}};
  for (const DeviceHere& here : devices) {
    table.rows.push_back(
        {{std::string(here.entry.name), here.usable, std::string(here.entry.summary)}});
    table.rows.push_back({{"", "", found_without_name(here)}});
    for (const std::string& choice : here.choices) table.rows.push_back({{"", "", choice}});
  }
  print_coloured(to_text(table, stdout_style()));
  print_prose("\n" + calibration_text() + "\n");
}

}  // namespace

void define_devices(CommandLine& command) {
  JsonFlag& json = command.values<JsonFlag>();
  add_json_flag(command, json);
  command.footer =
      "A device that cannot be used is listed with the reason. `tyto doctor` says what to do.\n\n"
      "Examples:\n  tyto devices\n  tyto devices --json";
  command.run = [&json] { list_devices(json); };
}

}  // namespace tyto
